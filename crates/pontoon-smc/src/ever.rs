//! How many patterns there ever were: who reads pages learns by it whether some of them held the pattern meanwhile, also
//! if that has gone since.
//!
//! A page is marked, then counted, and then gets the pattern. Who looks at the count, then at the marks, reads, and looks at the
//! count again has read no pattern if there was no mark and the count is what it was: one that was marked before the look
//! at the marks was seen there, and of one that was marked later the count was not there before.

use pontoon_signal::shim::{AtomicU64, Ordering::*, fence, sync};

/// A page that is marked is about to get the pattern.
pub fn count(ever: &AtomicU64) {
    // SYNC(smc-pattern) release: who finds it counted finds the mark.
    ever.fetch_add(1, sync("smc-pattern", Release));
}

/// How many there were, of all of these. Their marks are seen.
pub fn so_far<'e>(evers: impl Iterator<Item = &'e AtomicU64>) -> u64 {
    // SYNC(smc-pattern) acquire: of those that are counted.
    evers.map(|ever| ever.load(sync("smc-pattern", Acquire))).sum()
}

/// How many there are, of all that anything was read of before.
pub fn by_now<'e>(evers: impl Iterator<Item = &'e AtomicU64>) -> u64 {
    // SYNC(smc-pattern) acquire: who has read a pattern finds it counted.
    fence(sync("smc-pattern", Acquire));
    evers.map(|ever| ever.load(Relaxed)).sum()
}
