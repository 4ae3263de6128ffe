//! A window as the pool sees it: its pages, and the extents they are of.

use core::ops::Range;
use std::sync::{Arc, Mutex};

use pontoon_hal::paging::{PAGE, Paging};

use pontoon_signal::shim::Ordering::Relaxed;

use crate::{
    Extent, OpenError,
    bits::Bits,
    counts::{Counts, add},
    extent::Held,
    stream::Streams,
    table::PageId,
};

#[derive(Debug)]
pub(crate) struct Pane {
    /// Its number in the pool.
    pub(crate) window: usize,
    pub(crate) paging: Arc<dyn Paging>,
    /// In the order of their pages.
    pub(crate) extents: Box<[Held]>,
    pub(crate) counts: Counts,
    /// Pages whose stores went nowhere, since somebody asked.
    pub(crate) lost: Bits,
    /// Pages with the pattern that no table knows of, for there was no slot: who claims one takes the pattern away.
    /// One that is marked and has a slot by now is none.
    strays: Bits,
    pub(crate) streams: Streams,
    /// Held while the kernel is asked which pages were stored to, until they are marked: who asks next finds the marks.
    pub(crate) finding: Mutex<()>,
}

impl Pane {
    pub(crate) fn open(
        window: usize,
        paging: Arc<dyn Paging>,
        extents: Vec<Extent>,
    ) -> Result<Self, OpenError> {
        let pages = paging.pages();
        if pages > PageId::PAGES_MAX {
            return Err(OpenError::TooLarge { pages });
        }
        let in_handler = paging.asks_in_handler();
        let mut held = Vec::with_capacity(extents.len());
        for extent in extents {
            held.push(Held::open(extent, pages * PAGE, in_handler)?);
        }
        held.sort_by_key(|extent| extent.pages.start);
        for pair in held.windows(2) {
            let [one, other] = pair else { continue };
            if other.pages.start < one.pages.end {
                return Err(OpenError::Overlap { one: one.bytes(), other: other.bytes() });
            }
        }
        held.iter().for_each(Held::make_ready);
        let (counts, streams, finding) = Default::default();
        let [lost, strays] = [Bits::new(pages)?, Bits::new(pages)?];
        Ok(Self { window, paging, extents: held.into(), counts, lost, strays, streams, finding })
    }

    /// The extent of a page.
    pub(crate) fn extent(&self, page: usize) -> Option<&Held> {
        let after = self.extents.partition_point(|extent| extent.pages.end <= page);
        self.extents.get(after).filter(|extent| extent.pages.contains(&page))
    }

    /// Marks a page of an extent that holds the pattern and has no slot.
    pub(crate) fn stray(&self, extent: &Held, page: usize) {
        if self.strays.set(page) {
            extent.health().strays.fetch_add(1, Relaxed);
        }
    }

    /// A page of an extent holds no pattern that no table knows of.
    pub(crate) fn is_no_stray(&self, extent: &Held, page: usize) {
        if self.strays.clear(page) {
            extent.health().strays.fetch_sub(1, Relaxed);
        }
    }

    /// Those that are marked, of some pages of an extent.
    pub(crate) fn strays<'p>(
        &'p self,
        extent: &Held,
        pages: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'p> {
        let any = extent.health().strays.load(Relaxed) != 0;
        let pages = if any { pages } else { 0..0 };
        pages.filter(|&page| self.strays.is_set(page))
    }

    /// Takes the pattern of a page away, and notes whether anything was stored to it. Whether it is gone.
    pub(crate) fn take_pattern(&self, page: usize) -> bool {
        let pattern = self.extent(page).map_or(0, |extent| extent.pattern);
        let mut stray = 0;
        let taken = self.paging.take(page, &mut |last| {
            stray = last.iter().filter(|word| word.load(Relaxed) != pattern).count() * 8;
            true
        });
        let gone = matches!(taken, Ok(true));
        if gone && stray > 0 {
            add(&self.counts.stray, stray);
            self.lost.set(page);
        }
        gone
    }

    pub(crate) fn id(&self, page: usize) -> PageId {
        PageId::new(self.window, page)
    }
}
