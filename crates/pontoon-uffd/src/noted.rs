//! First writes noted by whoever serves their faults: for kernels that do not note them.

use core::ops::Range;

use pontoon_signal::{
    SystemError,
    shim::{AtomicU64, Ordering::*, sync, yield_now},
};

use crate::bits::Bits;

/// Which pages were written since they were taken last.
///
/// Invariant N1: a page that is not protected has its bit set, or is in the runs of a take that has
/// not protected them yet. Whoever opens a page notes it before; a take clears the bits,
/// waits for those who may have set them and have not opened their page yet, and protects then.
#[derive(Debug)]
pub struct Noted {
    bits: Bits,
    /// How many have noted pages, or will, and not opened them yet.
    serving: AtomicU64,
}

/// How often a take yields to those who open pages: each of them has a call or two to go.
const TRIES: u32 = if cfg!(pontoon_loom) { 100 } else { 1 << 20 };

impl Noted {
    /// None of so many pages.
    pub fn new(pages: usize) -> Result<Self, SystemError> {
        Ok(Self { bits: Bits::new(pages)?, serving: AtomicU64::new(0) })
    }

    /// Notes that `pages` may be written, then has them opened.
    pub fn note<R>(&self, pages: Range<usize>, open: impl FnOnce() -> R) -> R {
        self.serving.fetch_add(1, Relaxed);
        // SYNC(written-note) release: who takes a bit sees that its page is about to be opened.
        self.bits.set(pages, sync("written-note", Release));
        let opened = open();
        // SYNC(written-done) release: the pages are open for whoever sees this gone.
        self.serving.fetch_sub(1, sync("written-done", Release));
        opened
    }

    /// Takes notes of `pages` and gives them to `found`, as runs, until that answers `false`; then
    /// calls `protect`, which protects them. What `protect` says, and where the take ended; `None`
    /// if pages were opened on and on: then `give_back` has to be called with each run.
    pub fn take<R>(
        &self,
        pages: Range<usize>,
        found: impl FnMut(Range<usize>) -> bool,
        protect: impl FnOnce() -> R,
    ) -> (usize, Option<R>) {
        // SYNC(written-note) acquire: whoever set a bit is counted below until the page is open.
        let next = self.bits.take(pages, sync("written-note", Acquire), found);
        for _ in 0..TRIES {
            // SYNC(written-done) acquire: what was opened is protected after.
            if self.serving.load(sync("written-done", Acquire)) == 0 {
                return (next, Some(protect()));
            }
            yield_now();
        }
        (next, None)
    }

    /// Undoes a take of `pages`.
    pub fn give_back(&self, pages: Range<usize>) {
        self.bits.set(pages, Relaxed);
    }
}
