//! Pages that a store has to itself while it is made.

use core::ops::Range;

use arrayvec::ArrayVec;
use pontoon_hal::{guard::STORE_MAX, paging::PAGE};

use super::{Stores, Undone, lost};
use crate::{
    Arrival, SmcError,
    clock::Clock,
    extent::{Held, Place},
    hold::Is,
    release::late,
    table::{PageId, SlotIndex, State},
};

/// Pages that a store can be of.
const PAGES: usize = STORE_MAX / PAGE + 1;
pub(super) type Pages = ArrayVec<Mine, PAGES>;

/// A page that nobody else fetches, compares or stores to.
pub(super) struct Mine {
    pub(super) id: PageId,
    pub(super) slot: SlotIndex,
    pub(super) is: Is,
}

impl Stores {
    /// Does something with pages of an extent that nobody else touches meanwhile. What home has of them is not known if it
    /// fails: they are fetched anew.
    pub(super) fn with<T>(
        &self,
        pages: Range<usize>,
        mut work: impl FnMut(&Held, &Place, &Pages, &mut Clock) -> Result<T, SmcError>,
    ) -> Result<T, Undone> {
        loop {
            let extent = self.extent(pages.start)?;
            let mut clock = Clock::of(self.pool.settings.deadline);
            let (mut mine, mut asked) = (Pages::new(), None);
            let done = self.hold(extent, pages.clone(), &mut mine, &mut clock).and_then(|()| {
                let place = extent.place(&mut clock);
                let place = place.ok_or_else(|| late(extent, clock.waited()))?;
                asked = Some(place.generation);
                let done = work(extent, &place, &mine, &mut clock)?;
                if self.arrival == Arrival::AtHome {
                    extent.is_still_at(&place)?;
                }
                Ok(done)
            });
            for page in mine {
                self.let_go(&page, done.is_ok());
            }
            match done {
                Ok(done) => return Ok(done),
                // It is elsewhere by now.
                Err(_)
                    if asked.is_some()
                        && extent.generation().is_some_and(|now| Some(now) != asked) => {}
                Err(error) if self.falls_back(extent, &error) => {}
                Err(error) => return Err(lost(extent, error)),
            }
        }
    }

    fn hold(
        &self,
        extent: &Held,
        pages: Range<usize>,
        mine: &mut Pages,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        // In the order of their numbers, as all do.
        for page in pages {
            let id = self.pane.id(page);
            // Not before what was stored there is home.
            while !self.pane.is_guarded(page) {
                if !clock.pause() {
                    let bytes = page * PAGE..(page + 1) * PAGE;
                    return Err(SmcError::Occupied { bytes, waited: clock.waited() });
                }
            }
            loop {
                if let Some((slot, is)) = self.pool.try_hold(id, clock) {
                    mine.push(Mine { id, slot, is });
                    break;
                }
                if !clock.pause() {
                    return Err(self.pool.not_had(extent, id, clock));
                }
            }
        }
        Ok(())
    }

    /// Lets go of a page: one that home may have other bytes of than this side knows is here no more.
    fn let_go(&self, page: &Mine, is_known: bool) {
        let Mine { id, slot, is } = *page;
        if is == Is::Pattern {
            // Whatever was stored to it before its stores were written through is lost, and counted.
            self.pool.leave_poison(&self.pane, id, slot);
            return;
        }
        let here = id.page()..id.page() + 1;
        if is == Is::Here && (is_known || self.pane.paging.discard(here).is_err()) {
            return self.pool.table.set(slot, State::Resident);
        }
        self.pool.is_gone(slot);
        self.pool.table.forget(id, slot);
        self.pool.table.give_back(slot);
    }
}
