//! Paging: a window of addresses whose pages are put in place by hand, and who is asked for them.
//!
//! What [`Paging`] promises is the kernel's work; what a page holds, and where it comes from, is the
//! business of a [`Pager`].

use core::{error, fmt, ops::Range, ptr::NonNull};
use std::{sync::Arc, time::Duration};

use pontoon_signal::{Block, shim::AtomicU64};

use crate::guard::{Guard, Storer};

/// The bytes of a page.
pub const PAGE: usize = 4096;
/// The words of a page.
pub const PAGE_WORDS: usize = PAGE / 8;

/// An access that found no page in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Which page of the window.
    pub page: usize,
    /// Whether it was a store, where the processor says so.
    pub write: bool,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The access is to be made again: mostly the page is there now.
    Again,
    /// Nothing can be done: the thread gets the signal that it would have got without a pager.
    Refused,
}

/// Who is asked for pages.
///
/// It may be asked in a signal handler, on the thread whose access it was: it neither allocates nor locks
/// what that thread may hold, panics never, touches no page of a window that is not in place, and comes back
/// within a bound of its own. What an ordinary call holds while an access of its own faults, it does not wait
/// for.
pub trait Pager: Send + Sync {
    /// Sees to a fault.
    fn fault(&self, fault: PageFault) -> Served;

    /// Sees to a fault that has waited for so long already, behind others: what it may take counts from its beginning.
    fn fault_after(&self, fault: PageFault, waited: Duration) -> Served {
        let _ = waited;
        self.fault(fault)
    }
}

/// What [`Paging::written`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many ranges were filled in.
    pub ranges: usize,
    /// From which page on to look next; the end of what was asked for, once all was seen.
    pub next: usize,
}

/// A window: pages of addresses, each in its place or not.
///
/// - P1: an access to a page that is not in place asks the window's [`Pager`], and is made again after
///   [`Served::Again`]. Any number of threads may fault on a page at the same time; each asks.
/// - P2: [`place`](Self::place) puts whole pages in place at once: no access sees part of one. One that is in
///   place stays as it is.
/// - P3: a store to a page that was put in place, or that [`written`](Self::written) has told of, is told of by the next
///   `written`, whichever thread makes it. One that comes while `written` looks is told of by this look or the next.
/// - P4: no store is lost by [`take`](Self::take): each is in what it shows, or faults and asks the pager.
/// - P5: none of the calls allocates, waits for other threads or touches a page not in place: a pager may
///   make them. [`guard`](Self::guard) and [`read_only`](Self::read_only) are no such calls.
/// - P6: of a guarded page loads are as of any, and each store is the [`Storer`]'s, or raises SIGSEGV: none
///   changes the page. Of a page that is read only each store raises SIGSEGV. What is in it is what it was placed with.
pub trait Paging: Send + Sync + fmt::Debug {
    /// How many pages it has.
    fn pages(&self) -> usize;

    /// Its first byte; it stays there as long as the window.
    fn base(&self) -> NonNull<u8>;

    /// Whether its pager is asked in a signal handler, on the thread whose access it was.
    fn asks_in_handler(&self) -> bool;

    /// The words of a page, which any thread may write at any time. Touching them is an access as any other: it
    /// faults where the page is not in place.
    ///
    /// # Panics
    ///
    /// There is no such page.
    fn words(&self, page: usize) -> &[AtomicU64];

    /// Gives `look` the words of a page that is in place, and what it says of them back. `None` if they cannot be looked at
    /// where they are, as nobody serves the window's faults any more, or ceases to just now: [`take`](Self::take) shows
    /// them all the same, or says that it cannot yet.
    fn look(&self, page: usize, look: &mut dyn FnMut(&[AtomicU64]) -> bool) -> Option<bool> {
        Some(look(self.words(page)))
    }

    /// Whether a page is in place, as far as can be told without touching it: `false` where nobody knows.
    fn is_there(&self, page: usize) -> bool {
        let _ = page;
        false
    }

    /// P2: puts pages in place from `page` on, as many as `from` has whole ones, with its bytes. Tells of each that
    /// was in place and stays as it was.
    ///
    /// # Errors
    ///
    /// What the kernel says; some may be in place then.
    fn place(
        &self,
        page: usize,
        from: &Block,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PagingError>;

    /// P3: the pages of `pages` that were stored to, as ranges in order, as many as `found` has room for.
    ///
    /// # Errors
    ///
    /// What the kernel says; then no store is forgotten.
    fn written(
        &self,
        pages: Range<usize>,
        found: &mut [Range<usize>],
    ) -> Result<Written, PagingError>;

    /// P4: takes a page away, and shows what was in it last. If `last` says no, it is put back as it was.
    /// Whether it is gone; one that was not in place is. It does so also when nobody serves the window's faults any more.
    ///
    /// # Errors
    ///
    /// What the kernel says; then it is in place as it was, unless the error [says](PagingError::is_loss) that it could not
    /// be put back.
    fn take(
        &self,
        page: usize,
        last: &mut dyn FnMut(&[AtomicU64]) -> bool,
    ) -> Result<bool, PagingError>;

    /// P4 of pages that follow each other: as [`take`](Self::take) of each, for less where they go together. Tells what came of
    /// each.
    fn take_run(
        &self,
        pages: Range<usize>,
        last: &mut dyn FnMut(usize, &[AtomicU64]) -> bool,
        taken: &mut dyn FnMut(usize, Result<bool, PagingError>),
    ) {
        for page in pages {
            taken(page, self.take(page, &mut |words| last(page, words)));
        }
    }

    /// Takes pages away with what is in them.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError>;

    /// P6: guards `pages` for good, and has `storer` make each store to them as long as what it gives is kept.
    /// What was stored before stays, and may be told of once more.
    ///
    /// # Errors
    ///
    /// What the kernel says, or that stores cannot be guarded here: then `pages` are as they were, or raise SIGSEGV
    /// at each store until they are guarded by another call.
    fn guard(
        &self,
        pages: Range<usize>,
        storer: Arc<dyn Storer>,
    ) -> Result<Box<dyn Guard>, PagingError> {
        let _ = (pages, storer);
        Err(NO_GUARD)
    }

    /// P6: makes `pages` read only for good, before anybody touches them, and none of them is guarded after.
    ///
    /// # Errors
    ///
    /// What the kernel says, or that pages cannot be made read only here.
    fn read_only(&self, pages: Range<usize>) -> Result<(), PagingError> {
        let _ = pages;
        Err(NOT_READ_ONLY)
    }

    /// P6: the first of `pages` that are guarded or read only and follow each other, whoever made them so and when.
    fn guarded(&self, pages: Range<usize>) -> Option<Range<usize>> {
        let _ = pages;
        None
    }
}

/// Of a paging that notices no stores.
const NO_GUARD: PagingError = PagingError {
    call: "guard",
    code: 38,
    remedy: "this paging cannot tell of single stores: use cells",
};

/// Of a paging that cannot refuse stores.
const NOT_READ_ONLY: PagingError = PagingError {
    call: "read_only",
    code: 38,
    remedy: "this paging cannot refuse stores: open the extent without read_only",
};

/// A call of the kernel that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagingError {
    /// Which one.
    pub call: &'static str,
    /// Its error number.
    pub code: i32,
    /// What to do about it.
    pub remedy: &'static str,
}

impl PagingError {
    /// That a page that was to be put back could not be: it is not in place, and what was in it is lost.
    pub const fn loss(code: i32) -> Self {
        let remedy = "the kernel had no memory for a page: give this process more";
        Self { call: PUT_BACK, code, remedy }
    }

    /// Whether it says that.
    pub fn is_loss(&self) -> bool {
        self.call == PUT_BACK
    }
}

/// What a [loss](PagingError::loss) is of.
const PUT_BACK: &str = "putting a page back";

impl fmt::Display for PagingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, remedy } = self;
        write!(f, "{call} failed with error {code}; {remedy}")
    }
}

impl error::Error for PagingError {}
