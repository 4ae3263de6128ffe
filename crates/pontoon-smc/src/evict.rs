//! Making room: pages are taken away, and what was stored to them goes home before anybody can ask for
//! them again.

use std::sync::Arc;

use pontoon_hal::paging::{PAGE, PagingError};
use pontoon_signal::shim::Ordering::Relaxed;

use crate::{
    SmcError,
    bytes::are_same,
    clock::Clock,
    counts::add,
    pane::Pane,
    pool::Inner,
    table::{PageId, SlotIndex, State},
};

/// Slots that are looked at for one that can go, where an access waits for it.
pub(crate) const LOOKS: usize = 256;
/// Pages that are taken away at once, if they and their slots follow each other: to take one away interrupts all processors.
const RUN: usize = 16;
/// A part of the pool that others may do without, as it goes with a page that has to.
const PART: usize = 64;

impl Inner {
    /// Makes room for one page at least, where an access waits for it: one goes that home has as it is. Whether one went.
    pub(crate) fn make_room(&self) -> bool {
        let gone = (0..LOOKS.min(self.table.len())).any(|_| self.evict_clean(self.next()));
        if !gone {
            self.ring();
        }
        gone
    }

    /// Makes room in the bucket of a page, where an access waits for it. If all that is there has to go home first, the
    /// keeper is told. Whether one went.
    pub(crate) fn make_room_beside(&self, id: PageId) -> bool {
        let gone = self.table.beside(id).any(|slot| self.evict_clean(slot));
        if !gone {
            self.wanted.store(id.number(), Relaxed);
            self.ring();
        }
        gone
    }

    /// The next slot, round and round.
    pub(crate) fn next(&self) -> SlotIndex {
        SlotIndex(self.hand.fetch_add(1, Relaxed) as usize % self.table.len())
    }

    /// Evicts a page that home has as it is, and those like it that follow it. Whether it is gone.
    pub(crate) fn evict_clean(&self, slot: SlotIndex) -> bool {
        if !matches!(self.table.state(slot), State::Resident | State::Poisoned) {
            return false;
        }
        let id = self.table.page(slot);
        // W2: kept, so that by W1 the slot that is turned is of this very window, until all is done.
        let seen = self.panes.at(id.window());
        let Some(pane) = seen.pane() else { return false };
        if self.table.turn(slot, id, State::Poisoned, State::Leaving) {
            return self.leave_poison(pane, id, slot);
        }
        let is_guarded = pane.is_guarded(id.page());
        let most = RUN.min(self.table.len() / PART).clamp(1, self.table.len() - slot.0);
        let first = id.page();
        // Their slots follow each other as they do.
        let slot_of = |page: usize| SlotIndex(slot.0 + page - first);
        let mut pages = first..first;
        while pages.len() < most && self.can_go(pane, pages.end, slot_of(pages.end), is_guarded) {
            pages.end += 1;
        }
        if pages.is_empty() {
            return false;
        }
        let mut taken = [Ok(false); RUN];
        if is_guarded {
            // All that was stored to them is home, if anything could be.
            taken.fill(pane.paging.discard(pages.clone()).map(|()| true));
        } else {
            let mut is_clean = |page, last: &[_]| are_same(last, self.twin(slot_of(page)));
            let mut told = |page, gone| taken[page - first] = gone;
            pane.paging.take_run(pages.clone(), &mut is_clean, &mut told);
        }
        let mut is_gone = false;
        // From the last on: who takes free slots gets them in their order, and has pages that follow each other in slots that do.
        for page in pages.rev() {
            is_gone = self.taken(pane, pane.id(page), slot_of(page), taken[page - first]);
        }
        is_gone
    }

    /// Whether a page can go as it is: then it is on its way, and the caller has hold of it.
    fn can_go(&self, pane: &Pane, page: usize, slot: SlotIndex, is_guarded: bool) -> bool {
        if page >= pane.paging.pages() || pane.is_guarded(page) != is_guarded {
            return false;
        }
        let id = pane.id(page);
        if !self.table.turn(slot, id, State::Resident, State::Leaving) {
            return false;
        }
        // A look first: taking it away and putting it back costs more.
        let is_clean = &mut |live: &[_]| are_same(live, self.twin(slot));
        if self.owed.is_any(slot) || !is_guarded && pane.paging.look(page, is_clean) == Some(false)
        {
            return self.left(pane, id, slot, false);
        }
        if !is_guarded {
            self.on_its_way(slot);
        }
        true
    }

    /// Evicts a page, after what was stored to it has gone home. Whether it is gone.
    pub(crate) fn evict(&self, slot: SlotIndex, clock: &mut Clock) -> bool {
        if self.evict_clean(slot) {
            return true;
        }
        let id = self.table.page(slot);
        let seen = self.panes.at(id.window());
        let Some(pane) = seen.pane() else { return false };
        let Some(extent) = pane.extent(id.page()) else { return false };
        if Arc::strong_count(pane) == 1 {
            // It goes home as its window is closed, which waits for no home for long.
            return false;
        }
        if extent.read_only {
            // There is nothing to be sent, and no twin to say so.
            return false;
        }
        if extent.is_unavailable() || !self.table.turn(slot, id, State::Resident, State::Leaving) {
            return false;
        }
        self.on_its_way(slot);
        let taken = pane.paging.take(id.page(), &mut |last| {
            let sent = self.send_last(pane, extent, id.page(), slot, last, clock);
            if let Err(SmcError::TimedOut { .. } | SmcError::Link(_)) = sent {
                extent.failed(&self.settings);
            }
            sent.is_ok()
        });
        if let Err(error) = &taken
            && error.is_loss()
        {
            let (window, bytes) = (pane.window, id.page() * PAGE..(id.page() + 1) * PAGE);
            tracing::warn!(target: "pontoon::smc", window, ?bytes, %error,
                "what was stored to a page and could not go home is lost: Window::lost tells of which");
        }
        self.taken(pane, id, slot, taken)
    }

    /// What became of a page that was to be taken away. Whether it is gone.
    fn taken(
        &self,
        pane: &Pane,
        id: PageId,
        slot: SlotIndex,
        taken: Result<bool, PagingError>,
    ) -> bool {
        let gone = match taken {
            Ok(gone) => gone,
            // It is in its place no more, and comes from home if it is asked for.
            Err(error) if error.is_loss() => {
                pane.lost.set(id.page());
                true
            }
            Err(_) => false,
        };
        self.left(pane, id, slot, gone)
    }

    /// Marks a page that is about to be taken away: while it is nowhere, the kernel tells of no store to it, and a
    /// release that comes then waits until it is home.
    pub(crate) fn on_its_way(&self, slot: SlotIndex) {
        self.marks.keep(slot);
    }

    /// A page has left, or stays after all.
    pub(crate) fn left(&self, pane: &Pane, id: PageId, slot: SlotIndex, gone: bool) -> bool {
        if gone {
            add(&pane.counts.evicted, 1);
            self.is_gone(slot);
            self.table.forget(id, slot);
            self.table.give_back(slot);
        } else {
            self.table.set(slot, State::Resident);
        }
        gone
    }

    /// A page with the pattern goes, and whatever was stored to it.
    pub(crate) fn leave_poison(&self, pane: &Pane, id: PageId, slot: SlotIndex) -> bool {
        let gone = pane.take_pattern(id.page());
        if gone {
            self.is_gone(slot);
            self.table.forget(id, slot);
            self.table.give_back(slot);
        } else {
            self.table.set(slot, State::Poisoned);
            // Whoever heals the extent just now may have seen it leave.
            if let Some(extent) = pane.extent(id.page()) {
                extent.is_sick();
            }
        }
        gone
    }
}
