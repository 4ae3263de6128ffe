//! Closing: a window that nobody has a handle of any more gives its number, its pages and its addresses back.
//!
//! This is the keeper's. What was stored and not released goes home first, a page at a time, as by an eviction. Slots whose
//! transfers are late are waited for: the window is what knows of which home they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
    time::Duration,
};

use pontoon_signal::shim::Ordering::Relaxed;

use crate::{
    clock::Clock,
    extent::Held,
    pane::Pane,
    pool::Inner,
    table::{PageId, SlotIndex, State},
    window::ranges,
};

/// How long windows are seen to before the keeper does other things.
const A_LOOK: Duration = Duration::from_millis(200);
/// How long a page may take whose home did not take one before.
const A_TRY: Duration = Duration::from_millis(20);

/// How long a pool that goes naps between its looks.
const A_MOMENT: Duration = Duration::from_millis(1);

/// The windows that are being closed.
#[derive(Default)]
pub(crate) struct Closing {
    /// By their numbers: how each of their extents does.
    windows: BTreeMap<usize, Vec<Homeward>>,
    /// Homes, by their keys, that did not take the last page that was sent there: the next is not to take long.
    vain: BTreeSet<u64>,
    /// The window that the next look begins with.
    next: usize,
}

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

/// A look at windows that are being closed.
struct Look<'l> {
    /// How long it may take.
    clock: Clock,
    /// Whether the pool goes: what is not home when the clock is over is lost.
    is_last: bool,
    /// As of all looks.
    vain: &'l mut BTreeSet<u64>,
    /// Pages of the window that is seen to that are lost.
    lost: Vec<usize>,
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
        let Closing { windows, vain, next } = closing;
        if windows.is_empty() {
            vain.clear();
        }
        let clock = Clock::of(A_LOOK);
        let mut look = Look { clock, is_last: false, vain, lost: Vec::new() };
        let (first, mut gets_on) = (*next, false);
        for window in (first..PageId::WINDOWS_MAX).chain(0..first) {
            if self.stop.load(Relaxed) != 0 {
                return false;
            }
            let Some(left) = self.close(window, windows, &mut look) else { continue };
            gets_on |= left != Left::Stays;
            if left == Left::Nothing
                && let Some(pane) = self.panes.take(window)
            {
                windows.remove(&window);
                // Nobody looks at it any more: what goes with it is the paging's, and homes.
                drop(pane);
            }
            // Others wait for room.
            self.make_rooms();
            self.give_back_stuck();
            if look.clock.is_over() {
                *next = (window + 1) % PageId::WINDOWS_MAX;
                return gets_on;
            }
        }
        false
    }

    /// The pool goes: what was stored to windows that nobody has any more goes home now, or is lost.
    pub(crate) fn close_last(&self, closing: &mut Closing) {
        let Closing { windows, vain, .. } = closing;
        let clock = Clock::of(self.settings.deadline);
        let mut look = Look { clock, is_last: true, vain, lost: Vec::new() };
        let mut left: Vec<usize> = (0..PageId::WINDOWS_MAX).collect();
        loop {
            let is_over = look.clock.is_over();
            left.retain(|&window| {
                self.close(window, windows, &mut look).is_some_and(|left| left != Left::Nothing)
            });
            if is_over || left.is_empty() {
                return;
            }
            thread::sleep(A_MOMENT);
        }
    }

    /// Sees to a window. `None` if somebody has it, or there is none.
    fn close(
        &self,
        window: usize,
        windows: &mut BTreeMap<usize, Vec<Homeward>>,
        look: &mut Look<'_>,
    ) -> Option<Left> {
        if !windows.contains_key(&window) && !self.panes.is_alone(window) {
            return None;
        }
        let seen = self.panes.at(window);
        let pane = seen.pane()?;
        let fresh = || pane.extents.iter().map(|_| Homeward::default()).collect();
        let homeward = windows.entry(window).or_insert_with(fresh);
        let left = self.close_pages(pane, homeward, look);
        if left == Left::Nothing && Arc::strong_count(&pane.paging) > 1 {
            // Who has its addresses may open another window there: no page is to be in its place then, nor the pattern.
            let all = 0..pane.paging.pages();
            return Some(if pane.paging.discard(all).is_ok() { left } else { Left::Stays });
        }
        Some(left)
    }

    fn close_pages(&self, pane: &Pane, homeward: &mut [Homeward], look: &mut Look<'_>) -> Left {
        homeward.iter_mut().for_each(|home| home.failed = false);
        let (mut left, mut stored) = (Left::Nothing, None);
        for slot in self.table.slots() {
            let state = self.table.state(slot);
            let id = self.table.page(slot);
            // W1: those that are of it now are all that ever will be.
            if state == State::Free || id.window() != pane.window {
                continue;
            }
            if !look.is_last && look.clock.is_over() {
                left = Left::More;
                break;
            }
            let is_gone = match state {
                // What may come yet comes to no page.
                State::Stuck if look.is_last => continue,
                State::Poisoned => self.table.turn(slot, id, state, State::Leaving),
                State::Resident => {
                    // If the kernel does not tell, each is looked at.
                    let stored = stored.get_or_insert_with(|| self.all_stored(pane, look));
                    let is_told = stored.as_ref().is_none_or(|pages| {
                        pages.binary_search_by_key(&id.page(), |&(page, _)| page).is_ok()
                    });
                    let is_stored_to = is_told || self.owed.is_any(slot);
                    self.table.turn(slot, id, state, State::Leaving)
                        && self.leaves(pane, id, slot, is_stored_to, homeward, look)
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
        self.tell_of_lost(pane, core::mem::take(&mut look.lost));
        left
    }

    /// The pages of a window that were stored to, with their slots; `None` if the kernel does not tell.
    fn all_stored(&self, pane: &Pane, look: &mut Look<'_>) -> Option<Vec<(usize, SlotIndex)>> {
        let before = look.clock.waited();
        let found = self.find(pane, &(0..pane.paging.pages())).ok();
        if !look.is_last {
            // However long that took, each look gets on with some pages.
            look.clock.extend(look.clock.waited() - before);
        }
        found
    }

    /// Whether a page that the caller has hold of may go: it is home, or lost. Else it is as it was.
    fn leaves(
        &self,
        pane: &Pane,
        id: PageId,
        slot: SlotIndex,
        is_stored_to: bool,
        homeward: &mut [Homeward],
        look: &mut Look<'_>,
    ) -> bool {
        let at = pane.extent_at(id.page());
        let extent = at.and_then(|at| Some((pane.extents.get(at)?, homeward.get_mut(at)?)));
        let Some((extent, home)) = extent.filter(|(extent, _)| is_stored_to && !extent.read_only)
        else {
            return true;
        };
        home.lost |= look.is_last && look.clock.is_over();
        while !home.lost && !home.failed {
            if extent.is_unavailable() {
                extent.fall_back();
            }
            if self.goes_home(pane, extent, id, slot, home, look) {
                return true;
            }
            // A pool that goes tries the next home too before its clock is over.
            let share = if look.is_last { 2 } else { 1 };
            let deadline = self.settings.deadline / share;
            let vain = home.vain.get_or_insert_with(|| Clock::of(deadline));
            if !vain.is_over() {
                home.failed = true;
            } else if extent.fall_back() {
                home.vain = None;
            } else if look.is_last && !look.clock.is_over() {
                home.failed = true;
            } else {
                home.lost = true;
            }
        }
        if home.lost {
            look.lost.push(id.page());
        } else {
            self.table.set(slot, State::Resident);
        }
        home.lost
    }

    /// Whether what was stored to a page that the caller has hold of is home, or nowhere any more.
    fn goes_home(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        slot: SlotIndex,
        home: &mut Homeward,
        look: &mut Look<'_>,
    ) -> bool {
        let place = extent.place(&mut Clock::of(A_TRY));
        let key = place.map_or(0, |place| place.home.key());
        let is_late = home.vain.is_some() || extent.is_unavailable() || look.vain.contains(&key);
        let mut clock = if is_late { Clock::of(A_TRY) } else { self.a_page() };
        let page = id.page();
        let mut send = |last: &[_]| {
            let sent = self.send_last(pane, extent, page, slot, last, &mut clock).is_ok();
            if sent {
                home.vain = None;
                look.vain.remove(&key);
            } else {
                look.vain.insert(key);
            }
            sent
        };
        if pane.is_guarded(page) {
            // What it owes its slot has.
            return send(self.twin(slot));
        }
        self.on_its_way(slot);
        match pane.paging.take(page, &mut send) {
            Ok(gone) => gone,
            Err(error) if error.is_loss() => {
                home.failed = true;
                look.lost.push(page);
                true
            }
            Err(_) => false,
        }
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
