//! Whether a proxy still gets round, as those see it who wait for it.

use std::time::{Duration, Instant};

use pontoon_signal::Seq;

use super::Shared;
use crate::lane::Lane;

/// What was seen of a proxy, and of one of its lanes.
pub(crate) struct Pulse<'p> {
    proxy: &'p Shared,
    lane: &'p Lane,
    seen: [Seq; 2],
    moved: Instant,
}

impl<'p> Pulse<'p> {
    pub(crate) fn of(proxy: &'p Shared, lane: &'p Lane) -> Self {
        Self { proxy, lane, seen: Self::look(proxy, lane), moved: Instant::now() }
    }

    /// A lane on which something gets done is as good a sign as a beat.
    fn look(proxy: &Shared, lane: &Lane) -> [Seq; 2] {
        [proxy.beat().value(), lane.done.value()]
    }

    /// For how long nothing has moved, if that is longer than `stall`.
    pub(crate) fn missed(&mut self, stall: Duration) -> Option<Duration> {
        let (now, seen) = (Instant::now(), Self::look(self.proxy, self.lane));
        if seen != self.seen {
            (self.seen, self.moved) = (seen, now);
        }
        let silent = now.saturating_duration_since(self.moved);
        (silent > stall).then_some(silent)
    }
}
