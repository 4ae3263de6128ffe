//! The wait that is next on a queue, and how long it may be.

use pontoon_hal::WAIT_CAP;
use pontoon_signal::{Bound, Nanos, Seq, Waiter};

/// A wait that a queue has come to.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) label: &'static str,
    pub(crate) waiter: Waiter,
    pub(crate) target: Seq,
    bound: Bound,
    pub(crate) since: Nanos,
    pub(crate) progress: Progress,
}

/// When a signal moved last, as far as was seen.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Where it was at the last look.
    seen: Option<Seq>,
    /// When it moved, or when the wait began.
    moved: Nanos,
}

impl Held {
    pub(crate) fn new(
        label: &'static str,
        waiter: Waiter,
        target: Seq,
        bound: Bound,
        since: Nanos,
    ) -> Self {
        let progress = Progress { seen: None, moved: since };
        Self { label, waiter, target, bound, since, progress }
    }

    /// When it fails (Q4): a deadline after the signal last moved, at the cap at the latest.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let deadline = self.bound.deadline()?;
        let still = self.progress.moved.saturating_add(deadline.into());
        let cap = self.since.saturating_add(deadline.saturating_mul(WAIT_CAP).into());
        Some(still.min(cap))
    }
}

impl Progress {
    /// Notes whether the signal has moved since the last look; `now` is after that one.
    ///
    /// It asks only whether the next position is reached, and nobody is woken by a move short of
    /// the target: a unit that sleeps until the deadline sees then what moved meanwhile, and when.
    pub(crate) fn look(&mut self, waiter: &Waiter, now: Nanos) {
        let Some(seen) = self.seen else {
            self.seen = Some(waiter.value());
            return;
        };
        // What ended is the business of the look at the target.
        let Ok(Some(moved)) = waiter.try_wait(seen + 1) else { return };
        self.seen = Some(moved.value());
        // Past the fence the time that was noted before this publish is seen.
        moved.acq_fence();
        let published = waiter.last_publish().filter(|&at| at.since(self.moved) > Nanos(0));
        // Not every publisher notes the time.
        self.moved = published.map_or(now, |at| at.min(now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_hal::WAIT_CAP;
    use pontoon_signal::{Bound, Host, Nanos, Os, Publisher, Rank, Seq};

    use super::Held;
    use crate::shared::new_signal;

    const DEADLINE: Nanos = Nanos(1_000);
    const START: Nanos = Nanos(50);

    /// A wait from `since` on for what its publisher does not reach here. The counter wraps at the
    /// second publish.
    fn held(bound: Bound, since: Nanos) -> (Publisher, Held) {
        let (publisher, slot) = new_signal(Rank(1), 1, Seq::new(u64::MAX - 1));
        let target = publisher.value() + 100;
        (publisher, Held::new("w", slot.uncounted_waiter(), target, bound, since))
    }

    fn look(held: &mut Held, now: Nanos) -> Option<Nanos> {
        held.progress.look(&held.waiter, now);
        held.deadline()
    }

    fn after(start: Nanos, ns: u64) -> Nanos {
        start.saturating_add(Nanos(ns))
    }

    #[test]
    fn the_deadline_starts_anew_with_every_move_up_to_the_cap() {
        let (publisher, mut held) = held(Bound::within(DEADLINE.as_duration()), START);
        let mut publisher = publisher.undated();
        assert_eq!(look(&mut held, START), Some(after(START, DEADLINE.0)));
        let cap = after(START, DEADLINE.0 * u64::from(WAIT_CAP));
        let mut now = START;
        for _ in 0..2 * WAIT_CAP {
            now = after(now, DEADLINE.0 - 1);
            publisher.pub_release(1);
            assert_eq!(look(&mut held, now), Some(after(now, DEADLINE.0).min(cap)));
            // Without a move, time alone changes nothing.
            assert_eq!(look(&mut held, after(now, 1)), Some(after(now, DEADLINE.0).min(cap)));
        }
        assert_eq!(held.deadline(), Some(cap));
    }

    /// A unit that slept until the deadline does not give a whole one more than the signal had.
    #[test]
    fn a_move_that_is_noticed_late_counts_from_when_it_was() {
        let (mut publisher, mut held) = held(Bound::within(Duration::from_secs(60)), Os.now());
        look(&mut held, START);
        publisher.pub_release(1);
        publisher.pub_release(1);
        let published = held.waiter.last_publish().expect("it was");
        let late = after(published, Nanos::from(Duration::from_secs(50)).0);
        let deadline = after(published, Nanos::from(Duration::from_secs(60)).0);
        assert_eq!(look(&mut held, late), Some(deadline));
    }

    #[test]
    fn without_a_deadline_there_is_no_cap() {
        let (_publisher, mut held) = held(Bound::never_give_up(), START);
        assert_eq!(look(&mut held, Nanos(u64::MAX)), None);
    }
}
