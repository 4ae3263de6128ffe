//! Taking hold of a page, wherever it is: nobody else fetches, compares, merges or evicts it meanwhile.

use pontoon_signal::undisturbed;

use crate::{
    SmcError,
    clock::Clock,
    pane::Pane,
    pool::Inner,
    release::UNSERVED,
    table::{Claim, PageId, SlotIndex, State},
};

/// A page that the caller has hold of, until this goes.
pub(crate) struct Hold<'p> {
    inner: &'p Inner,
    pane: &'p Pane,
    id: PageId,
    pub(crate) slot: SlotIndex,
    is: Is,
}

/// Where a page is that somebody has hold of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    /// Not here, and not fetched as long as its slot is held.
    Away,
    Here,
    /// Here, with the pattern.
    Pattern,
}

/// That a page that the caller has hold of can be looked at and changed where it is.
pub(crate) fn is_seen(pane: &Pane, page: usize) -> Result<(), SmcError> {
    let is_seen = pane.is_guarded(page) || pane.paging.look(page, &mut |_| true).is_some();
    if is_seen { Ok(()) } else { Err(UNSERVED.into()) }
}

impl Inner {
    /// Takes hold of a page; `None` if that could not be had in time.
    pub(crate) fn hold_page<'p>(
        &'p self,
        pane: &'p Pane,
        page: usize,
        clock: &mut Clock,
    ) -> Option<Hold<'p>> {
        let id = pane.id(page);
        loop {
            // A handler of the program's may miss a page on this thread, and needs what a claim and an eviction take.
            let held = match self.table.find(id) {
                Some(slot) => self.turned(id, slot),
                None => undisturbed(|| self.try_hold(id, clock)),
            };
            if let Some((slot, is)) = held {
                return Some(Hold { inner: self, pane, id, slot, is });
            }
            if !clock.pause() {
                return None;
            }
        }
    }

    /// Takes hold of a page if it can be had now; else room is made for it, if that is what lacks.
    pub(crate) fn try_hold(&self, id: PageId, clock: &mut Clock) -> Option<(SlotIndex, Is)> {
        let has_room = match self.table.claim(id) {
            Claim::Mine(slot) => return Some((slot, Is::Away)),
            Claim::Found(slot) => return self.turned(id, slot),
            Claim::NoSlot => self.make_room(),
            Claim::Crowded => self.make_room_beside(id),
            Claim::Locked => true,
        };
        if !has_room {
            clock.give_way();
        }
        None
    }

    fn turned(&self, id: PageId, slot: SlotIndex) -> Option<(SlotIndex, Is)> {
        let states = [(State::Resident, Is::Here), (State::Poisoned, Is::Pattern)];
        let mut turned =
            states.into_iter().filter(|&(from, _)| self.table.turn(slot, id, from, State::Busy));
        turned.next().map(|(_, is)| (slot, is))
    }
}

impl Hold<'_> {
    /// Whether it is here, as home had it.
    pub(crate) fn is_here(&self) -> bool {
        self.is == Is::Here
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let table = &self.inner.table;
        match self.is {
            Is::Here => table.set(self.slot, State::Resident),
            Is::Pattern => {
                table.set(self.slot, State::Poisoned);
                // Whoever healed the extent meanwhile has passed it over.
                if let Some(extent) = self.pane.extent(self.id.page()) {
                    extent.is_sick();
                }
            }
            Is::Away => undisturbed(|| {
                table.forget(self.id, self.slot);
                table.give_back(self.slot);
            }),
        }
    }
}
