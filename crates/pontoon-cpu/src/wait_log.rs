//! How long a device's queues were held back by waits.

use std::time::Duration;

use hdrhistogram::Histogram;
use pontoon_signal::Nanos;

/// How long the wait commands of a device held back their queues, and how long each signal took
/// from its publish to the queue that waited for it.
#[derive(Clone, Debug)]
pub struct WaitLog {
    held: Histogram<u64>,
    delivery: Histogram<u64>,
    timeouts: u64,
}

/// Waits above a minute count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;

impl Default for WaitLog {
    fn default() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are constants");
        Self { held: histogram(), delivery: histogram(), timeouts: 0 }
    }
}

impl WaitLog {
    /// `delivery` is `None` where the signal was there before the queue came to wait for it.
    pub(crate) fn record(&mut self, held: Nanos, delivery: Option<Nanos>) {
        self.held.saturating_record(held.0.max(1));
        if let Some(delivery) = delivery {
            self.delivery.saturating_record(delivery.0.max(1));
        }
    }

    pub(crate) fn record_timeout(&mut self) {
        self.timeouts += 1;
    }

    /// Adds what another device logged.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can fail to fit.
        let _ = self.held.add(&other.held);
        let _ = self.delivery.add(&other.delivery);
        self.timeouts += other.timeouts;
    }

    /// Wait commands that were reached.
    pub fn waits(&self) -> u64 {
        self.held.len()
    }

    /// Wait commands that used up their bound.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Mean time that a wait held back its queue; the producer's own work is part of it.
    pub fn held_mean(&self) -> Duration {
        Duration::from_nanos(self.held.mean() as u64)
    }

    /// The time that 99 of 100 waits stayed below.
    pub fn held_p99(&self) -> Duration {
        Duration::from_nanos(self.held.value_at_quantile(0.99))
    }

    /// Median time from a publish until the queue held back by it went on.
    pub fn delivery_median(&self) -> Duration {
        Duration::from_nanos(self.delivery.value_at_quantile(0.5))
    }

    /// The delivery time that 99 of 100 stayed below.
    pub fn delivery_p99(&self) -> Duration {
        Duration::from_nanos(self.delivery.value_at_quantile(0.99))
    }
}
