//! The pattern: what an access reads whose page did not come.
//!
//! This runs where the access faults, as all of a miss does.

use pontoon_hal::paging::Served;

use crate::{
    clock::Clock,
    extent::Held,
    pane::{A_PATTERN, Pane},
    pool::Inner,
    table::{Claim, PageId, SlotIndex, State},
};

impl Inner {
    /// A page did not come from the home of that generation, which is `gone` for good, as far as is known.
    pub(crate) fn in_vain(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        asked: Option<u64>,
        gone: bool,
    ) -> Served {
        if asked.is_some() && extent.generation().is_some_and(|now| Some(now) != asked) {
            // It is elsewhere by now.
            return Served::Again;
        }
        let over = extent.failed(&self.settings);
        if (over || gone) && extent.fall_back() {
            return Served::Again;
        }
        self.poison(pane, extent, id)
    }

    /// Has an access read the pattern.
    pub(crate) fn poison(&self, pane: &Pane, extent: &Held, id: PageId) -> Served {
        let mut clock = Clock::of(self.settings.deadline.min(A_PATTERN));
        let slot = loop {
            match self.table.claim(id) {
                Claim::Mine(slot) => break Some(slot),
                // Another thread got on with it, has given up on it too, or takes it away, and puts it back if it
                // cannot go home: nothing else is to be in its place then.
                Claim::Found(slot) => {
                    if self.put_again(pane, extent, id, slot, &mut clock) || clock.is_over() {
                        return Served::Again;
                    }
                }
                Claim::NoSlot => {
                    if !self.make_room() {
                        break None;
                    }
                }
                Claim::Crowded => {
                    self.make_room_beside(id);
                }
                Claim::Locked => {}
            }
            if !clock.pause() {
                break None;
            }
        };
        self.place_pattern(pane, extent, id, slot)
    }

    /// Has an access read the pattern although somebody has hold of its page, and does not come to an end: when that
    /// one does, what it puts in place of the pattern counts.
    pub(crate) fn patch(&self, pane: &Pane, extent: &Held, id: PageId) -> Served {
        self.place_pattern(pane, extent, id, None)
    }

    fn place_pattern(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        slot: Option<SlotIndex>,
    ) -> Served {
        let placed = pane.place_pattern(extent, id.page(), slot.is_some());
        match (slot, placed) {
            (Some(slot), Some(_)) => self.table.set(slot, State::Poisoned),
            (Some(slot), None) => {
                self.table.forget(id, slot);
                self.table.give_back(slot);
            }
            (None, _) => {}
        }
        extent.is_sick();
        self.ring();
        // Who could not try in time asks again, and so does the access.
        if placed.unwrap_or(true) { Served::Again } else { Served::Refused }
    }
}
