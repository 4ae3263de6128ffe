//! How long the host spins for a queue before it blocks, learnt from that queue's waits.

use std::time::Duration;

use pontoon_signal::{Bound, Nanos};

/// What a sleep and a wake cost, about: spinning for longer than that saves nothing.
const WAKE: Nanos = Nanos(20_000);
/// What a poll costs, about.
const POLL_NS: u64 = 3;
/// Polls of a wait that is not expected to end soon.
const FEW: u32 = 64;
/// The weight of the newest wait in the mean, as a power of two: an eighth.
const WEIGHT: u32 = 3;

/// The mean of how long the host's last waits for a queue took.
///
/// Spinning for twice the mean reaches most waits without a sleep; where even the mean costs more
/// than a wake, the wait blocks almost at once. Which is the rule of Karlin, Li, Manasse and Owicki
/// ("Empirical studies of competitive spinning", SOSP 1991): spin no longer than a block costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    mean: Nanos,
}

impl Default for Spin {
    /// Expects a wait as long as a wake, until it knows better.
    fn default() -> Self {
        Self { mean: Nanos(WAKE.0 / 2) }
    }
}

impl Spin {
    /// Learns that a wait took `waited`.
    pub(super) fn learn(&mut self, waited: Nanos) {
        // An outlier must not be remembered for ever.
        let waited = waited.0.min(64 * WAKE.0);
        self.mean.0 = self.mean.0 - (self.mean.0 >> WEIGHT) + (waited >> WEIGHT);
    }

    /// The bound of a wait of at most `deadline`.
    pub(super) fn within(self, deadline: Duration) -> Bound {
        let polls = match self.mean {
            Nanos(mean) if mean <= WAKE.0 => (2 * mean / POLL_NS).max(u64::from(FEW)) as u32,
            _ => FEW,
        };
        Bound::within(deadline.max(Duration::from_nanos(1))).spinning(polls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_short_waits_is_spun_for_and_one_of_long_waits_is_not() {
        let mut spin = Spin::default();
        (0..100).for_each(|_| spin.learn(Nanos(2_000)));
        let short = spin.within(Duration::from_secs(1)).spin();
        assert!((1_000..2_000).contains(&short), "{short}");
        (0..100).for_each(|_| spin.learn(Nanos(1_000_000_000)));
        assert_eq!(spin.within(Duration::from_secs(1)).spin(), FEW);
        (0..100).for_each(|_| spin.learn(Nanos(1_000)));
        assert!(spin.within(Duration::from_secs(1)).spin() < short, "it forgets");
    }
}
