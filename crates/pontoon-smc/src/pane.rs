//! A window as the pool sees it: its pages, and the extents they are of.

use core::ops::Range;
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, RwLockReadGuard, RwLockWriteGuard, TryLockError},
    time::Duration,
};

use pontoon_hal::paging::{PAGE, Paging, PagingError};
use pontoon_signal::{Words, shim::Ordering::Relaxed};

use crate::{
    Extent, OpenError,
    bits::Bits,
    clock::Clock,
    counts::{Counts, add},
    ever,
    extent::{Held, locked},
    stream::Streams,
    table::PageId,
    turns::Turns,
};

/// How long an access that has waited in vain may wait for a place for the pattern.
pub(crate) const A_PATTERN: Duration = Duration::from_millis(10);

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
    /// Pages that hold the pattern, from before it is put there until after it has gone. One that no table knows of, or that
    /// is resident there, is a *stray*: who claims the page takes the pattern away.
    patterns: Bits,
    /// Of who puts a pattern in place or takes it away, and its mark with it. Nobody waits for it on a thread that may
    /// have it: it is tried, by handlers too, and who has it is undisturbed.
    patterning: Mutex<()>,
    pub(crate) streams: Streams,
    /// Held while the kernel is asked which pages were stored to, until they are marked: who asks next finds the marks.
    pub(crate) finding: Mutex<()>,
    /// A bit for each page that is read only, or whose stores are written through: no plain store changes it, and none of
    /// ours may.
    guarded: OnceLock<Words>,
    /// Alone while pages become guarded, beside each other those who store to pages that are not.
    changing: Turns,
    /// Pages whose stores are written through as long as somebody keeps that so.
    through: Mutex<Vec<Range<usize>>>,
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
        let (counts, streams, finding, changing, through) = Default::default();
        let patterning = Mutex::default();
        let (extents, guarded) = (held.into(), OnceLock::new());
        let [lost, patterns] = [Bits::new(pages)?, Bits::new(pages)?];
        let pane = Self {
            window,
            paging,
            extents,
            counts,
            lost,
            patterns,
            patterning,
            streams,
            finding,
            guarded,
            changing,
            through,
        };
        for extent in pane.extents.iter().filter(|extent| extent.read_only) {
            pane.paging.read_only(extent.pages.clone())?;
            pane.set_guarded(extent.pages.clone())?;
        }
        // Also what a window before this one had so.
        let mut at = 0;
        while let Some(guarded) = pane.paging.guarded(at..pages) {
            at = guarded.end;
            pane.set_guarded(guarded)?;
        }
        Ok(pane)
    }

    /// The extent of a page.
    pub(crate) fn extent(&self, page: usize) -> Option<&Held> {
        self.extents.get(self.extent_at(page)?)
    }

    /// Which of the extents that is.
    pub(crate) fn extent_at(&self, page: usize) -> Option<usize> {
        let after = self.extents.partition_point(|extent| extent.pages.end <= page);
        self.extents.get(after).filter(|extent| extent.pages.contains(&page)).map(|_| after)
    }

    /// What who puts a pattern in place, or takes one away, has to have meanwhile; `None` if it could not be had in time. To
    /// be asked for undisturbed.
    fn patterning(&self) -> Option<MutexGuard<'_, ()>> {
        let mut clock = Clock::of(A_PATTERN);
        loop {
            match self.patterning.try_lock() {
                Ok(patterning) => return Some(patterning),
                Err(TryLockError::Poisoned(patterning)) => return Some(patterning.into_inner()),
                Err(TryLockError::WouldBlock) if clock.pause() => {}
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Puts the pattern in place of a page of an extent, where none is; `is_known` if a table knows that it is to be there,
    /// whatever is. Whether it, or another page, is there; `None` if it could not be tried in time. To be asked for
    /// undisturbed.
    pub(crate) fn place_pattern(&self, extent: &Held, page: usize, is_known: bool) -> Option<bool> {
        let _patterning = self.patterning()?;
        let health = extent.health();
        // Before it is there: who reads it, on a thread that goes on at once, is told that it is the pattern.
        health.patterns.fetch_add(1, Relaxed);
        let is_new = self.patterns.set(page);
        if !is_new {
            health.patterns.fetch_sub(1, Relaxed);
        }
        ever::count(&health.ever);
        add(&self.counts.poisoned, 1);
        let mut is_other = false;
        let placed = self.paging.place(page, &extent.poison, &mut |_| is_other = true).is_ok();
        if is_new && !is_known && (!placed || is_other) {
            self.has_no_pattern(extent, page);
        }
        Some(placed)
    }

    /// Whether a page holds the pattern.
    pub(crate) fn has_pattern(&self, page: usize) -> bool {
        self.patterns.is_set(page)
    }

    fn has_no_pattern(&self, extent: &Held, page: usize) {
        if self.patterns.clear(page) {
            extent.health().patterns.fetch_sub(1, Relaxed);
        }
    }

    /// Those that are marked, of some pages of an extent.
    pub(crate) fn patterns<'p>(
        &'p self,
        extent: &Held,
        pages: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'p> {
        let any = extent.health().patterns.load(Relaxed) != 0;
        let pages = if any { pages } else { 0..0 };
        pages.filter(|&page| self.patterns.is_set(page))
    }

    /// Takes the pattern of a page away, and notes whether anything was stored to it. Whether it is gone; else it is
    /// the caller's to say, once others can see the page again, that its extent [is sick](Held::is_sick). To be asked for
    /// undisturbed.
    pub(crate) fn take_pattern(&self, page: usize) -> bool {
        self.patterning().is_some_and(|_patterning| self.take_marked(page))
    }

    /// The same if a page holds the pattern. Whether it holds none.
    pub(crate) fn take_any_pattern(&self, page: usize) -> bool {
        self.patterning()
            .is_some_and(|_patterning| !self.has_pattern(page) || self.take_marked(page))
    }

    /// Drops a page of which nobody knows what it is, nor any table. To be asked for undisturbed.
    pub(crate) fn drop_unknown(&self, extent: &Held, page: usize) {
        let Some(_patterning) = self.patterning() else { return };
        if self.take_marked(page) || self.paging.discard(page..page + 1).is_ok() {
            self.has_no_pattern(extent, page);
        }
    }

    fn take_marked(&self, page: usize) -> bool {
        let extent = self.extent(page);
        let pattern = extent.map_or(0, |extent| extent.pattern);
        let mut stray = 0;
        let taken = self.paging.take(page, &mut |last| {
            stray = last.iter().filter(|word| word.load(Relaxed) != pattern).count() * 8;
            true
        });
        let gone = matches!(taken, Ok(true));
        if let Some(extent) = extent.filter(|_| gone) {
            self.has_no_pattern(extent, page);
        }
        if gone && stray > 0 {
            add(&self.counts.stray, stray);
            self.lost.set(page);
        }
        gone
    }

    /// Whether a page is read only, or stores to it are written through.
    pub(crate) fn is_guarded(&self, page: usize) -> bool {
        let guarded = self.guarded.get();
        guarded.is_some_and(|bits| bits[page / 64].load(Relaxed) & 1 << (page % 64) != 0)
    }

    pub(crate) fn set_guarded(&self, pages: Range<usize>) -> Result<(), PagingError> {
        if self.guarded.get().is_none() {
            let bits = Words::zeroed(self.paging.pages().div_ceil(64)).map_err(|error| {
                let (call, code) = (error.call, error.code);
                PagingError { call, code, remedy: "there is no memory for a bit a page" }
            })?;
            let _ = self.guarded.set(bits);
        }
        if let Some(bits) = self.guarded.get() {
            // A word at a time: a window may have a billion pages.
            let mut page = pages.start;
            while page < pages.end {
                let end = pages.end.min((page / 64 + 1) * 64);
                let ones = u64::MAX >> (64 - (end - page));
                bits[page / 64].fetch_or(ones << (page % 64), Relaxed);
                page = end;
            }
        }
        Ok(())
    }

    /// Keeps pages from becoming guarded meanwhile; `None` if that could not be had in time.
    pub(crate) fn unchanged(&self, clock: &mut Clock) -> Option<RwLockReadGuard<'_, ()>> {
        self.changing.beside(clock)
    }

    /// Keeps others from storing to pages; `None` if that could not be had in time.
    pub(crate) fn alone(&self, clock: &mut Clock) -> Option<RwLockWriteGuard<'_, ()>> {
        self.changing.alone(clock)
    }

    /// Takes pages for stores that are written through. The others that have some of them, if there are any.
    pub(crate) fn take_through(
        self: &Arc<Self>,
        pages: Range<usize>,
    ) -> Result<Taken, Range<usize>> {
        let mut all = locked(&self.through);
        let other = all.iter().find(|it| it.start < pages.end && pages.start < it.end);
        if let Some(other) = other {
            return Err(other.clone());
        }
        all.push(pages.clone());
        Ok(Taken { pane: Arc::clone(self), pages })
    }

    pub(crate) fn id(&self, page: usize) -> PageId {
        PageId::new(self.window, page)
    }
}

/// Pages that are nobody else's to have written through, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pane: Arc<Pane>,
    pages: Range<usize>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // No two have a page in common.
        locked(&self.pane.through).retain(|pages| *pages != self.pages);
    }
}
