//! A few words that are written by one at a time and read by anybody, who sees all of them or none.

use crate::shim::{AtomicU64, Ordering::*, fence, sync};

/// `N` words under one stamp: a sequence lock whose readers never write.
///
/// The stamp is odd while the words are being written; even, it is what the last writer gave. A
/// writer that is killed half-way leaves it odd, and the sheet is lost until it is zeroed: nobody
/// waits for it.
///
/// Invariant W1: all fields are atomics, so any bytes a foreign writer leaves are a valid sheet; a
/// sheet of zeros was never written.
///
/// After H.-J. Boehm, "Can seqlocks get along with programming language memory models?" (MSPC 2012).
#[repr(C)]
#[derive(Debug)]
pub struct Sheet<const N: usize> {
    stamp: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Sheet<N> {
    /// A sheet that was never written.
    fn default() -> Self {
        Self { stamp: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Sheet<N> {
    /// Writes all words under `stamp`, of which the lowest bit is taken off. Whether it did: not if
    /// somebody else is writing.
    pub fn write(&self, stamp: u64, words: [u64; N]) -> bool {
        let before = self.stamp.load(Relaxed);
        // SYNC(sheet-turn) acquire: pairs with the end of the write before: its words are in place
        // before these are.
        let order = sync("sheet-turn", Acquire);
        if before & 1 == 1
            || self.stamp.compare_exchange(before, before | 1, order, Relaxed).is_err()
        {
            return false;
        }
        // SYNC(sheet-begin) release: who sees one of these words sees the odd stamp, or a later one.
        fence(sync("sheet-begin", Release));
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Relaxed);
        }
        // SYNC(sheet-end) release: who sees this stamp sees these words, or later ones.
        // SYNC(sheet-turn) release: pairs with the next writer's taking.
        self.stamp.store(stamp & !1, sync("sheet-end", Release));
        true
    }

    /// Leaves the sheet as a writer does that is killed half-way.
    #[cfg(all(test, not(pontoon_loom)))]
    pub(crate) fn tear(&self) {
        self.stamp.fetch_or(1, Relaxed);
    }

    /// Whether `stamp` is still the last that was written: a look that orders nothing.
    #[inline]
    pub fn is_at(&self, stamp: u64) -> bool {
        self.stamp.load(Relaxed) == stamp
    }

    /// The last stamp, odd while somebody writes; for one who knows that nobody else does.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Relaxed)
    }

    /// The stamp and the words, as one writer left them; `None` if there are none, or if they are
    /// being written.
    pub fn read(&self) -> Option<(u64, [u64; N])> {
        // SYNC(sheet-end) acquire: the words are no older than this stamp.
        let stamp = self.stamp.load(sync("sheet-end", Acquire));
        if stamp == 0 || stamp & 1 == 1 {
            return None;
        }
        let words = core::array::from_fn(|at| self.words[at].load(Relaxed));
        // SYNC(sheet-begin) acquire: the stamp read next is no older than any of the words.
        fence(sync("sheet-begin", Acquire));
        (self.stamp.load(Relaxed) == stamp).then_some((stamp, words))
    }
}
