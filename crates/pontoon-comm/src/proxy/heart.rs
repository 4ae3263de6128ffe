//! The proxy's heart.

use core::time::Duration;

use pontoon_signal::{Host, Nanos, Os, Publisher};

/// Work between two looks at the clock, in bytes that a link moves.
const A_LOOK: u64 = 64 << 10;
/// What a task counts for beside its bytes: a link may take its time over small ones too.
pub(crate) const A_TASK: u64 = A_LOOK / 8;
/// What a turn counts for that finds nothing to do.
pub(crate) const A_TURN: u64 = A_LOOK / 64;

/// Keeps Y2: it beats some ten times within what is called standing still. It looks at the clock by the work
/// that was done, for a round may be one empty ring or many large writes.
#[derive(Debug)]
pub(crate) struct Heart {
    beat: Publisher,
    every: Nanos,
    beat_at: Nanos,
    work: u64,
}

impl Heart {
    pub(crate) fn new(beat: Publisher, stall: Duration) -> Self {
        Self { beat, every: Nanos::from(stall / 10), beat_at: Nanos(0), work: 0 }
    }

    /// Notes that so much was done.
    #[inline]
    pub(crate) fn after(&mut self, work: u64) {
        self.work = self.work.saturating_add(work);
        if self.work >= A_LOOK {
            self.look();
        }
    }

    /// Looks at the clock.
    pub(crate) fn look(&mut self) {
        self.work = 0;
        let now = Os.tick();
        if now.since(self.beat_at).0 >= self.every.0 {
            self.beat_at = now;
            self.beat.pub_release(1);
        }
    }
}
