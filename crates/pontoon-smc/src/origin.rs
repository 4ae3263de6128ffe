//! Where the bytes are that a page is put in place with: in its slot, or, of a page that is read only, in home's own
//! memory where that is mapped here.
//!
//! A page that nobody stores to is compared with nothing, so it needs no twin. What its slot has is looked at no
//! more once the page came from elsewhere; which way it came is said by its home, the one that its version is of.

use pontoon_signal::Block;

use crate::{
    clock::Clock,
    extent::{Held, Place},
    pane::Pane,
    pool::Inner,
    table::SlotIndex,
};

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
    pub(crate) fn once_more(
        &self,
        extent: &Held,
        page: usize,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> Option<Block> {
        if !extent.read_only {
            return self.twins(slot, 1);
        }
        let place = extent.place(clock)?;
        let is_its = self.table.version(slot).generation == place.generation;
        is_its.then(|| self.origin(extent, &place, page, slot, 1))?
    }

    /// Takes a page that is read only out of its place, and gives back its slot, of which the caller has hold: the next
    /// access fetches it. Whether it is gone.
    pub(crate) fn let_go(&self, pane: &Pane, page: usize, slot: SlotIndex) -> bool {
        let gone = pane.paging.discard(page..page + 1).is_ok();
        self.left(pane, pane.id(page), slot, gone)
    }
}
