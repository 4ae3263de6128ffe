//! Closing: a window that nobody has a handle of any more gives its number, its pages and its addresses back.
//!
//! This is the keeper's. What was stored and not released goes home first, a page at a time, as by an eviction. Slots whose
//! transfers are late are waited for: the window is what knows of which home they are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pontoon_signal::shim::Ordering::Relaxed;

use crate::{
    clock::Clock,
    extent::Held,
    pane::Pane,
    pool::Inner,
    table::{PageId, SlotIndex, State},
    window::ranges,
};

/// How long the pages of one window are seen to before others are.
const A_LOOK: Duration = Duration::from_millis(200);
/// How long a page may take whose home did not take one before.
const A_TRY: Duration = Duration::from_millis(20);

/// The windows that are being closed, by their numbers: how each of their extents does.
#[derive(Default)]
pub(crate) struct Closing(BTreeMap<usize, Vec<Homeward>>);

/// How pages of an extent get home.
#[derive(Default)]
struct Homeward {
    /// Since when they do not.
    vain: Option<Clock>,
    /// Whether one did not just now: the others wait for the next look.
    failed: bool,
    /// Whether none will.
    lost: bool,
}

/// What is left of a window that is being closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// What can be seen to at once.
    More,
    /// What has to be waited for.
    Stays,
}

impl Inner {
    /// Closes windows that nobody has any more, as far as it can be done now. Whether there is more to do at once.
    pub(crate) fn close_windows(&self, closing: &mut Closing) -> bool {
        let mut is_more = false;
        for window in 0..PageId::WINDOWS_MAX {
            if self.stop.load(Relaxed) != 0 {
                return false;
            }
            let left = self.close(window, closing, None);
            is_more |= left == Some(Left::More);
            if left == Some(Left::Nothing)
                && let Some(pane) = self.panes.take(window)
            {
                closing.0.remove(&window);
                // Nobody looks at it any more: what goes with it is the paging's, and homes.
                drop(pane);
            }
        }
        is_more
    }

    /// The pool goes: what was stored to windows that nobody has any more goes home now, or is lost.
    pub(crate) fn close_last(&self, closing: &mut Closing) {
        let clock = Clock::of(self.settings.deadline);
        for window in 0..PageId::WINDOWS_MAX {
            self.close(window, closing, Some(&clock));
        }
    }

    /// Sees to a window; if this is the last look, what is not home when that clock is over is lost. `None` if somebody has
    /// the window, or there is none.
    fn close(&self, window: usize, closing: &mut Closing, last: Option<&Clock>) -> Option<Left> {
        if !closing.0.contains_key(&window) && !self.panes.is_alone(window) {
            return None;
        }
        let seen = self.panes.at(window);
        let pane = seen.pane()?;
        let fresh = || pane.extents.iter().map(|_| Homeward::default()).collect();
        let homeward = closing.0.entry(window).or_insert_with(fresh);
        let left = self.close_pages(pane, homeward, last);
        if left == Left::Nothing && Arc::strong_count(&pane.paging) > 1 {
            // Who has its addresses may open another window there: no page is to be in its place then, nor the pattern.
            let all = 0..pane.paging.pages();
            return Some(if pane.paging.discard(all).is_ok() { left } else { Left::Stays });
        }
        Some(left)
    }

    fn close_pages(&self, pane: &Pane, homeward: &mut [Homeward], last: Option<&Clock>) -> Left {
        homeward.iter_mut().for_each(|home| home.failed = false);
        let (mut left, mut lost, mut stored) = (Left::Nothing, Vec::new(), None);
        let mut clock = Clock::of(A_LOOK);
        for slot in self.table.slots() {
            let state = self.table.state(slot);
            let id = self.table.page(slot);
            // W1: those that are of it now are all that ever will be.
            if state == State::Free || id.window() != pane.window {
                continue;
            }
            if last.is_none() && clock.is_over() {
                left = Left::More;
                break;
            }
            let is_gone = match state {
                State::Poisoned => self.table.turn(slot, id, state, State::Leaving),
                State::Resident => {
                    // If the kernel does not tell, each is looked at.
                    let stored = stored.get_or_insert_with(|| {
                        let found = self.find(pane, &(0..pane.paging.pages())).ok();
                        // However long that took, each look gets on with some pages.
                        clock = Clock::of(A_LOOK);
                        found
                    });
                    let is_told = stored.as_ref().is_none_or(|pages| {
                        pages.binary_search_by_key(&id.page(), |&(page, _)| page).is_ok()
                    });
                    let is_stored_to = is_told || self.owed.is_any(slot);
                    self.table.turn(slot, id, state, State::Leaving)
                        && self.leaves(pane, id, slot, is_stored_to, homeward, last, &mut lost)
                }
                _ => false,
            };
            if is_gone {
                self.is_gone(slot);
                self.table.forget(id, slot);
                self.table.give_back(slot);
            } else {
                left = Left::Stays;
            }
        }
        self.tell_of_lost(pane, lost);
        left
    }

    /// Whether a page that the caller has hold of may go: it is home, or lost. Else it is as it was.
    #[expect(
        clippy::too_many_arguments,
        reason = "what, how it does, how long, and what came of it"
    )]
    fn leaves(
        &self,
        pane: &Pane,
        id: PageId,
        slot: SlotIndex,
        is_stored_to: bool,
        homeward: &mut [Homeward],
        last: Option<&Clock>,
        lost: &mut Vec<usize>,
    ) -> bool {
        let at = pane.extent_at(id.page());
        let extent = at.and_then(|at| Some((pane.extents.get(at)?, homeward.get_mut(at)?)));
        let Some((extent, home)) = extent.filter(|(extent, _)| is_stored_to && !extent.read_only)
        else {
            return true;
        };
        home.lost |= last.is_some_and(Clock::is_over);
        while !home.lost && !home.failed {
            if extent.is_unavailable() {
                extent.fall_back();
            }
            if self.goes_home(pane, extent, id, slot, home.vain.is_some()) {
                home.vain = None;
                return true;
            }
            let vain = home.vain.get_or_insert_with(|| Clock::of(self.settings.deadline));
            if last.is_none() && !vain.is_over() {
                home.failed = true;
            } else if extent.fall_back() {
                home.vain = None;
            } else {
                home.lost = true;
            }
        }
        if home.lost {
            lost.push(id.page());
        } else {
            self.table.set(slot, State::Resident);
        }
        home.lost
    }

    /// Whether what was stored to a page that the caller has hold of is home.
    fn goes_home(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        slot: SlotIndex,
        is_late: bool,
    ) -> bool {
        let mut clock = if is_late { Clock::of(A_TRY) } else { self.a_page() };
        let page = id.page();
        if pane.is_guarded(page) {
            // What it owes its slot has.
            let sent = self.send_last(pane, extent, page, slot, self.twin(slot), &mut clock);
            return sent.is_ok();
        }
        self.on_its_way(slot);
        let taken = pane.paging.take(page, &mut |last| {
            self.send_last(pane, extent, page, slot, last, &mut clock).is_ok()
        });
        taken.is_ok_and(|gone| gone)
    }

    /// Writes a line for what is lost, if anything is.
    fn tell_of_lost(&self, pane: &Pane, mut pages: Vec<usize>) {
        if pages.is_empty() {
            return;
        }
        pages.sort_unstable();
        let extents = pages.iter().filter_map(|&page| pane.extent(page));
        let mut homes: Vec<u32> = extents.map(|extent| extent.rank().0).collect();
        homes.dedup();
        let (window, bytes) = (pane.window, ranges(pages.into_iter()));
        tracing::warn!(
            target: "pontoon::smc",
            window,
            ?homes,
            ?bytes,
            "a window was dropped, and what was stored to it and not released is lost, as its home did not take it: \
             release before, and see what that says"
        );
    }
}
