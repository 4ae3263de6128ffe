//! Where the bytes are that a page is put in place with: in its slot, or, of a page that is read only, in home's own
//! memory where that is mapped here.
//!
//! A page that nobody stores to is compared with nothing, so it needs no twin. What its slot has is looked at no
//! more once the page came from elsewhere; which way it came is said by its home, the one that its version is of.

use pontoon_hal::paging::PagingError;
use pontoon_signal::{Block, undisturbed};

use crate::{
    clock::Clock,
    extent::{Held, Place},
    fetch::replace,
    pane::Pane,
    pool::Inner,
    table::{SlotIndex, State},
};

/// What a page is put in place with once more.
struct Again {
    bytes: Block,
    /// Whose memory that is. Dropped last: the last handle of a home is not to go where an access faults.
    _home: Option<Place>,
}

impl Place {
    /// Whether pages of an extent are put in place from this home's memory.
    pub(crate) fn is_direct(&self, extent: &Held) -> bool {
        extent.read_only && self.home.is_direct()
    }
}

impl Inner {
    /// The bytes of so many pages from `page` on, whose slots follow each other from `slot` on, which have come from
    /// `place`, or are to come from its memory. `None` if that is not to be had any more.
    pub(crate) fn origin(
        &self,
        extent: &Held,
        place: &Place,
        page: usize,
        slot: SlotIndex,
        count: usize,
    ) -> Option<Block> {
        if !place.is_direct(extent) {
            return self.twins(slot, count);
        }
        place.home.pages(place.at_home(extent, page), count).ok()?
    }

    /// The bytes of a page that is resident, of which the caller has hold. `None` if they are to be fetched: a page that is
    /// read only is what its home has, and that is away or another by now.
    fn once_more(
        &self,
        extent: &Held,
        page: usize,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> Option<Again> {
        if !extent.read_only {
            return self.twins(slot, 1).map(|bytes| Again { bytes, _home: None });
        }
        let place = extent.place(clock)?;
        let is_its = self.table.version(slot).generation == place.generation;
        let bytes = is_its.then(|| self.origin(extent, &place, page, slot, 1))??;
        Some(Again { bytes, _home: Some(place) })
    }

    /// Sees to it that a page that is resident, of which the caller has hold, is in its place: another thread may have been
    /// quicker, and stores that are written through leave it in its slot alone. Whether it is, and the caller has hold of it
    /// yet; else it is to be asked for again.
    pub(crate) fn put_back(
        &self,
        pane: &Pane,
        extent: &Held,
        page: usize,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> Result<bool, PagingError> {
        // One that is there is right, whatever its home has become.
        if pane.paging.is_there(page) && !pane.has_pattern(page) {
            return Ok(true);
        }
        let Some(from) = self.once_more(extent, page, slot, clock) else {
            // A handler of the program's may miss that very page.
            undisturbed(|| self.let_go(pane, page, slot));
            return Ok(false);
        };
        let mut is_other = false;
        pane.paging.place(page, &from.bytes, &mut |_| is_other = true)?;
        if is_other && pane.has_pattern(page) {
            // Who asked for it meanwhile waited in vain, and was given the pattern.
            return Ok(undisturbed(|| {
                let is_there = replace(pane, page, Some(&from.bytes));
                if !is_there {
                    self.is_away(pane, page, slot);
                }
                is_there
            }));
        }
        Ok(true)
    }

    /// A page of which the caller has hold is not in its place, and could not be put there: its slot is given back, unless that
    /// has what home has not.
    fn is_away(&self, pane: &Pane, page: usize, slot: SlotIndex) {
        if self.owed.is_any(slot) {
            return self.table.set(slot, State::Resident);
        }
        if self.marks.is_unsent(slot) {
            pane.lost.set(page);
        }
        self.let_go(pane, page, slot);
    }

    /// Takes a page that is read only out of its place, and gives back its slot, of which the caller has hold: the next
    /// access fetches it. Whether it is gone.
    pub(crate) fn let_go(&self, pane: &Pane, page: usize, slot: SlotIndex) -> bool {
        let gone = pane.paging.discard(page..page + 1).is_ok();
        self.left(pane, pane.id(page), slot, gone)
    }
}
