//! Whether a proxy still gets round, as those see it who wait for it.

use std::time::{Duration, Instant};

use pontoon_signal::Seq;

use super::Shared;
use crate::lane::Lane;

/// What was seen of a proxy, and of one of its lanes.
pub(crate) struct Pulse<'p> {
    proxy: &'p Shared,
    lane: &'p Lane,
    stillness: Stillness,
}

impl<'p> Pulse<'p> {
    pub(crate) fn of(proxy: &'p Shared, lane: &'p Lane) -> Self {
        let stillness = Stillness::since(Self::look(proxy, lane), Instant::now());
        Self { proxy, lane, stillness }
    }

    /// A lane on which something gets done is as good a sign as a beat.
    fn look(proxy: &Shared, lane: &Lane) -> [Seq; 2] {
        [proxy.beat().value(), lane.done.value()]
    }

    /// For how long nothing has moved, if that is longer than `stall`. Who asks looks four times within that.
    pub(crate) fn missed(&mut self, stall: Duration) -> Option<Duration> {
        self.stillness.after(Self::look(self.proxy, self.lane), Instant::now(), stall)
    }
}

/// For how long nothing has moved, as far as it was watched.
///
/// A process that was stopped, or had no core for a while, finds afterwards that nothing has moved, since its
/// proxy had none either. So of the time between two looks no more counts than they are meant to lie apart: a
/// proxy that does not move while who waits for it gets to look again and again does stand still.
struct Stillness {
    seen: [Seq; 2],
    moved: Instant,
    looked: Instant,
    watched: Duration,
}

/// Such a part of what is called standing still counts between two looks at most.
const LOOKS: u32 = 3;

impl Stillness {
    fn since(seen: [Seq; 2], now: Instant) -> Self {
        Self { seen, moved: now, looked: now, watched: Duration::ZERO }
    }

    fn after(&mut self, seen: [Seq; 2], now: Instant, stall: Duration) -> Option<Duration> {
        if seen != self.seen {
            *self = Self::since(seen, now);
            return None;
        }
        let since_look = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.watched = self.watched.saturating_add(since_look.min(stall / LOOKS));
        let is_still = self.watched >= stall / LOOKS * LOOKS;
        let silent = now.saturating_duration_since(self.moved);
        (is_still && silent > stall).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::time::Instant;

    use pontoon_signal::Seq;

    use super::Stillness;

    const STALL: Duration = Duration::from_secs(1);
    const STILL: [Seq; 2] = [Seq::new(u64::MAX), Seq::new(7)];

    /// When it is called standing still, of looks that come after such times.
    fn called(stillness: &mut Stillness, now: &mut Instant, gaps: &[u64]) -> Vec<Option<Duration>> {
        let mut look = |&gap: &u64| {
            *now += Duration::from_millis(gap);
            stillness.after(STILL, *now, STALL)
        };
        gaps.iter().map(&mut look).collect()
    }

    #[test]
    fn what_does_not_move_in_look_after_look_stands_still() {
        let mut now = Instant::now();
        let mut stillness = Stillness::since(STILL, now);
        let late = Some(Duration::from_millis(1_250));
        let looks = called(&mut stillness, &mut now, &[250; 5]);
        assert_eq!(looks, [None, None, None, None, late]);
        // A beat or a task that is done is a move.
        for moved in [[STILL[0] + 1, STILL[1]], [STILL[0], STILL[1] + 1]] {
            now += STALL * 2;
            assert_eq!(stillness.after(moved, now, STALL), None);
        }
        now += STALL / 4;
        assert_eq!(stillness.after(STILL, now, STALL), None, "that was a move, too");
        assert_eq!(called(&mut stillness, &mut now, &[250; 5]).last(), Some(&late));
    }

    #[test]
    fn who_was_stopped_itself_takes_no_proxy_for_one_that_stands_still() {
        let mut now = Instant::now();
        let mut stillness = Stillness::since(STILL, now);
        let looks = called(&mut stillness, &mut now, &[250, 5_000, 250]);
        assert_eq!(looks, [None; 3], "the proxy was stopped as well");
        let silent = Some(Duration::from_millis(5_750));
        assert_eq!(called(&mut stillness, &mut now, &[250]), [silent], "it had its time since");
    }
}
