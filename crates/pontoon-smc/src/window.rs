//! Windows: memory of other ranks as addresses of this process.

use core::{any::Any, fmt, ops::Range, ptr::NonNull};
use std::{sync::Arc, time::Duration};

use pontoon_hal::paging::{PAGE, PAGE_WORDS, Pager};
use pontoon_signal::{
    Bound, Host, Nanos, Os,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    AcquireReport, Home, OpenError, Pool, Released, SmcError, Statistics, clock::Clock, ever,
    extent::Held, fetch::Service, pane::Pane, table::State,
};

/// Memory of other ranks under addresses of this process. A handle; what becomes of it without any says [`Pool`].
///
/// An access to a page that is not here fetches it, and is an ordinary load or store from then on. What is stored
/// here is seen by others once it was [released](Self::release), and what they released is seen here once it was
/// [acquired](Self::acquire): a loop that polls a flag in a window by plain loads never sees it change, and is to use
/// [`load_fresh`](crate::Cell::load_fresh). Two ranks may write bytes of the same page, or word, at the same time, and both
/// reach home. Of one byte that both wrote, what home had last is kept, and counted.
#[derive(Clone)]
pub struct Window {
    // In this order: who serves its faults has it too, and a pool that goes closes what nobody has any more.
    _serving: Option<Arc<dyn Any + Send + Sync>>,
    pane: Arc<Pane>,
    pool: Pool,
}

impl Window {
    pub(crate) fn new(pool: Pool, pane: Arc<Pane>) -> Self {
        Self { _serving: None, pool, pane }
    }

    /// The same, which keeps `serving` as long as any handle of it is there: what has its faults served. It may not keep
    /// this window itself.
    #[must_use]
    pub fn served_by(self, serving: impl Any + Send + Sync) -> Self {
        Self { _serving: Some(Arc::new(serving)), ..self }
    }

    /// Whom its paging has to ask for pages.
    pub fn pager(&self) -> Arc<dyn Pager> {
        Arc::new(Service { pool: Arc::clone(&self.pool.inner), pane: Arc::clone(&self.pane) })
    }

    /// Its first byte, for plain loads and stores.
    pub fn base(&self) -> NonNull<u8> {
        self.pane.paging.base()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.pane.paging.pages() * PAGE
    }

    /// The aligned word at `offset`. Loading and storing is as by plain instructions: it fetches where nothing is
    /// here, and a store to what is [read only](crate::Extent::read_only) raises SIGSEGV.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`], [`SmcError::Misaligned`], [`SmcError::Uncached`].
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, SmcError> {
        let extent = self.word_of(offset)?;
        if extent.uncached {
            return Err(SmcError::Uncached { bytes: extent.bytes() });
        }
        Ok(&self.pane.paging.words(offset / PAGE)[offset / 8 % PAGE_WORDS])
    }

    /// The words of the whole pages within `bytes`, page by page.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`].
    pub fn pages(
        &self,
        bytes: Range<usize>,
    ) -> Result<impl Iterator<Item = &[AtomicU64]>, SmcError> {
        let pages = self.whole(&bytes)?;
        Ok(pages.map(|page| self.pane.paging.words(page)))
    }

    /// Sends home what was stored to the pages of `bytes`, by any thread of this process: all that was before the call,
    /// and no byte that was not changed. When it returns, whoever acquires at home's has it.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; what is not known to be home is kept, and sent by the next release.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn release(&self, bytes: Range<usize>, bound: Bound) -> Result<Released, SmcError> {
        let started = Os.now();
        let mut all = Released::default();
        for (extent, pages) in self.extents(&bytes)? {
            if extent.read_only {
                continue;
            }
            let left = bound.less(Nanos(Os.now().since(started).0));
            if let Err(unavailable) = self.available(extent) {
                // It is not sent, and is told of all the same.
                self.inner().find(&self.pane, &pages)?;
                return Err(unavailable);
            }
            all += self.inner().release(&self.pane, extent, pages, left)?;
        }
        Ok(all)
    }

    /// Makes what others released to the pages of `bytes` before seen here. What was written here and not yet
    /// released stays. A page that is [read only](crate::Extent::read_only) and that home has another version of goes, also
    /// one that was [prefetched](Self::prefetch): a system call that is given it then fails with `EFAULT`, unless it is
    /// fetched again.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; what was not compared is compared by the next acquire.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn acquire(&self, bytes: Range<usize>, bound: Bound) -> Result<AcquireReport, SmcError> {
        let started = Os.now();
        let mut all = AcquireReport::default();
        for (extent, pages) in self.extents(&bytes)? {
            let left = bound.less(Nanos(Os.now().since(started).0));
            self.available(extent)?;
            all += self.inner().acquire(&self.pane, extent, pages, left)?;
        }
        Ok(all)
    }

    /// Fetches the pages of `bytes` that are not here, so that a system call finds them, or the next accesses do.
    /// They stay until room is needed, or an [acquire](Self::acquire) finds that home has changed one that is [read
    /// only](crate::Extent::read_only); [`with_resident`](Self::with_resident) keeps them.
    ///
    /// # Errors
    ///
    /// [`SmcError`] if a page of them holds the pattern.
    ///
    /// # Blocks
    ///
    /// As long as its accesses would.
    pub fn prefetch(&self, bytes: Range<usize>) -> Result<(), SmcError> {
        self.mapped(&bytes)?;
        for (_, pages) in self.extents(&bytes)? {
            for page in pages {
                // An access as any other.
                let _ = self.pane.paging.words(page)[0].load(Relaxed);
            }
        }
        self.check(bytes)
    }

    /// Whether the pages of `bytes` are what home has: an error if a home of theirs is unavailable, or a page holds
    /// the pattern.
    ///
    /// # Errors
    ///
    /// [`SmcError::Unavailable`].
    pub fn check(&self, bytes: Range<usize>) -> Result<(), SmcError> {
        for (extent, pages) in self.extents(&bytes)? {
            let poisoned = self.pane.patterns(extent, pages).count() as u64;
            if extent.is_unavailable() || poisoned > 0 {
                let (home, bytes) = (extent.rank(), extent.bytes());
                return Err(SmcError::Unavailable { home, bytes, poisoned });
            }
        }
        Ok(())
    }

    /// The word at `offset`, unless it is the pattern because its home did not answer. One that is the pattern as home
    /// has it is read three times.
    ///
    /// # Errors
    ///
    /// As [`word`](Self::word) and [`check`](Self::check).
    ///
    /// # Blocks
    ///
    /// As its access would.
    pub fn try_read(&self, offset: usize) -> Result<u64, SmcError> {
        let word = self.word(offset)?;
        let pattern = self.extent_of(offset..offset + 8)?.pattern;
        let mut value = pattern;
        for _ in 0..READS {
            value = word.load(Relaxed);
            self.check(offset..offset + 8)?;
            if value != pattern {
                break;
            }
            // It may have been healed before it was checked.
        }
        Ok(value)
    }

    /// Copies the bytes from `offset` on as [`get`](Self::get) does, unless some of them are the pattern because their home
    /// did not answer.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) and [`check`](Self::check); what is in `into` then is of no use.
    ///
    /// # Blocks
    ///
    /// As those loads would, three times at most.
    pub fn try_get(&self, offset: usize, into: &mut [u8]) -> Result<(), SmcError> {
        let bytes = offset..offset.saturating_add(into.len());
        let extents = self.extents(&bytes)?;
        let evers = || extents.iter().map(|(extent, _)| &extent.health().ever);
        let mut came = 0;
        for _ in 0..READS {
            let before = ever::so_far(evers());
            self.check(bytes.clone())?;
            self.get(offset, into)?;
            came = ever::by_now(evers()) - before;
            if came == 0 {
                return Ok(());
            }
            // Some page got it meanwhile, and it may be gone since.
        }
        self.check(bytes.clone())?;
        let home = self.extent_of(offset..offset)?.rank();
        Err(SmcError::Unavailable { home, bytes, poisoned: came })
    }

    /// The extent that has byte `offset` is at `home` from now on, from `from` on: it was started again and has another
    /// key, or it is elsewhere. Pages with the pattern are fetched again. What was stored and is not known to be
    /// home stays, and the next release sends it there; what was released before is the former home's. Pages that are
    /// here have what this home has after the next acquire of them.
    ///
    /// # Errors
    ///
    /// [`OpenError::Short`], [`OpenError::InHandler`]; [`OpenError::Extent`] if no extent has that byte;
    /// [`OpenError::Link`] if the link refuses to ask that home, by a key of an earlier start or of a rank that is
    /// gone: then the extent is where it was.
    pub fn heal(&self, offset: usize, home: Home, from: usize) -> Result<(), OpenError> {
        let bytes = self.bytes();
        let extent = self.pane.extent(offset / PAGE);
        let extent = extent.ok_or(OpenError::Extent { asked: offset..offset, bytes })?;
        let first = extent.fits(&home, from, self.pane.paging.asks_in_handler())?;
        self.inner().ask(&home, first)?;
        if !(extent.read_only && home.is_direct()) {
            self.inner().have_slots();
        }
        extent.move_to(home, first);
        self.inner().heal(&self.pane, extent);
        Ok(())
    }

    /// The pool that keeps its pages.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Ranges of bytes, by whole pages, that were stored to and are not known to be home, of those that a release was
    /// asked for.
    ///
    /// # Blocks
    ///
    /// For a moment, if pages are being taken away just now.
    pub fn unsent(&self) -> Vec<Range<usize>> {
        let (mut clock, pages) = (Clock::of(A_MOMENT), 0..self.pane.paging.pages());
        let is_leaving = |slot| self.inner().table.state(slot) == State::Leaving;
        let unsent = loop {
            let unsent = self.inner().unsent(&self.pane, &pages);
            // A page that is being taken away is marked until it is known whether there is anything to be sent.
            if !unsent.iter().any(|&(_, slot)| is_leaving(slot)) || !clock.pause() {
                break unsent;
            }
        };
        // What was stored to the pattern is lost, and goes nowhere.
        let is_kept = |slot| self.inner().table.state(slot) != State::Poisoned;
        // A mark may come late, to a slot that a page has by now to which nobody can store.
        let is_stored_to = |page| self.pane.extent(page).is_some_and(|extent| !extent.read_only);
        let kept = unsent.into_iter().filter(|&(page, slot)| is_stored_to(page) && is_kept(slot));
        ranges(kept.map(|(page, _)| page))
    }

    /// Ranges of bytes, by whole pages, of which stores were lost since this was called last: they were made to the
    /// pattern, which has gone since, or to a page that had to make room, could not go home, and that the kernel had no
    /// memory to put back. A store of the pattern itself is none.
    pub fn lost(&self) -> Vec<Range<usize>> {
        ranges(self.pane.lost.take())
    }

    /// What it did so far.
    pub fn statistics(&self) -> Statistics {
        self.pane.counts.statistics()
    }

    pub(crate) fn inner(&self) -> &crate::pool::Inner {
        &self.pool.inner
    }

    pub(crate) fn shared_inner(&self) -> Arc<crate::pool::Inner> {
        Arc::clone(&self.pool.inner)
    }

    pub(crate) fn shared_pane(&self) -> &Arc<Pane> {
        &self.pane
    }

    pub(crate) fn pane(&self) -> &Pane {
        &self.pane
    }

    pub(crate) fn available(&self, extent: &Held) -> Result<(), SmcError> {
        if !extent.is_unavailable() || extent.fall_back() {
            return Ok(());
        }
        let (home, bytes) = (extent.rank(), extent.bytes());
        let poisoned = self.pane.patterns(extent, extent.pages.clone()).count() as u64;
        Err(SmcError::Unavailable { home, bytes, poisoned })
    }

    /// The one extent that has all of `bytes`.
    pub(crate) fn extent_of(&self, bytes: Range<usize>) -> Result<&Held, SmcError> {
        let extent = self.pane.extent(bytes.start / PAGE);
        let extent = extent.filter(|extent| bytes.end <= extent.bytes().end);
        extent.ok_or(SmcError::OutOfRange { asked: bytes, bytes: self.bytes() })
    }

    /// The extent that has the aligned word at `offset`.
    pub(crate) fn word_of(&self, offset: usize) -> Result<&Held, SmcError> {
        let extent = self.extent_of(offset..offset.saturating_add(8))?;
        if !offset.is_multiple_of(8) {
            return Err(SmcError::Misaligned { offset });
        }
        Ok(extent)
    }

    /// The extents that `bytes` are of, and their pages that have any.
    pub(crate) fn extents(
        &self,
        bytes: &Range<usize>,
    ) -> Result<Vec<(&Held, Range<usize>)>, SmcError> {
        let mut found = Vec::new();
        let (mut page, end) = (bytes.start / PAGE, bytes.end.div_ceil(PAGE));
        while page < end {
            let extent = self.pane.extent(page).ok_or_else(|| SmcError::OutOfRange {
                asked: bytes.clone(),
                bytes: self.bytes(),
            })?;
            let pages = page..end.min(extent.pages.end);
            page = pages.end;
            found.push((extent, pages));
        }
        Ok(found)
    }

    /// That all of `bytes` are of extents, and can be here.
    pub(crate) fn mapped(&self, bytes: &Range<usize>) -> Result<(), SmcError> {
        let extents = self.extents(bytes)?;
        let mut uncached = extents.into_iter().filter(|(extent, _)| extent.uncached);
        uncached
            .next()
            .map_or(Ok(()), |(extent, _)| Err(SmcError::Uncached { bytes: extent.bytes() }))
    }

    /// That this process may write to all of `bytes`.
    pub(crate) fn writable(&self, bytes: &Range<usize>) -> Result<(), SmcError> {
        self.extents(bytes)?.into_iter().try_for_each(|(extent, _)| extent.writable())
    }

    fn whole(&self, bytes: &Range<usize>) -> Result<Range<usize>, SmcError> {
        self.mapped(bytes)?;
        Ok(bytes.start.div_ceil(PAGE)..(bytes.end / PAGE).max(bytes.start.div_ceil(PAGE)))
    }
}

/// How long it is waited for pages that are on their way before they are told of as not home.
const A_MOMENT: Duration = Duration::from_millis(50);
/// Loads of a word that may be the pattern.
const READS: u32 = 3;

/// Those pages, in order, as ranges of bytes.
pub(crate) fn ranges(pages: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in pages.map(|page| page * PAGE) {
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end += PAGE,
            _ => ranges.push(at..at + PAGE),
        }
    }
    ranges
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} bytes, {} extents)", self.bytes(), self.pane.extents.len())
    }
}
