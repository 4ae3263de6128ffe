//! Taking hold of a page, wherever it is: nobody else fetches, compares, merges or evicts it meanwhile.

use pontoon_signal::undisturbed;

use crate::{
    clock::Clock,
    pane::Pane,
    pool::Inner,
    table::{Claim, PageId, SlotIndex, State},
};

/// A page that the caller has hold of, until this goes.
pub(crate) struct Hold<'p> {
    inner: &'p Inner,
    id: PageId,
    pub(crate) slot: SlotIndex,
    is: Is,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    /// Not here, and not fetched as long as this has its slot.
    Away,
    Here,
    /// Here, with the pattern.
    Pattern,
}

impl Inner {
    /// Takes hold of a page; `None` if that could not be had in time.
    pub(crate) fn hold_page(
        &self,
        pane: &Pane,
        page: usize,
        clock: &mut Clock,
    ) -> Option<Hold<'_>> {
        let id = pane.id(page);
        let hold = |slot, is| Some(Hold { inner: self, id, slot, is });
        loop {
            // A handler of the program's may miss a page on this thread, and needs what a claim and an eviction take.
            let found = self.table.find(id).map(Claim::Found);
            match found.unwrap_or_else(|| undisturbed(|| self.table.claim(id))) {
                Claim::Mine(slot) => return hold(slot, Is::Away),
                Claim::Found(slot) => {
                    for (from, is) in [(State::Resident, Is::Here), (State::Poisoned, Is::Pattern)]
                    {
                        if self.table.turn(slot, id, from, State::Busy) {
                            return hold(slot, is);
                        }
                    }
                }
                Claim::NoSlot => {
                    if !undisturbed(|| self.make_room()) {
                        clock.give_way();
                    }
                }
                Claim::Crowded => {
                    if !undisturbed(|| self.make_room_beside(id)) {
                        clock.give_way();
                    }
                }
                Claim::Locked => {}
            }
            if !clock.pause() {
                return None;
            }
        }
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
                let pane = self.inner.pane(self.id);
                if let Some(extent) = pane.and_then(|pane| pane.extent(self.id.page())) {
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
