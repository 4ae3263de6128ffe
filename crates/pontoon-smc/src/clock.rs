//! How long a call has waited, and how it waits.

use std::time::Duration;

use pontoon_signal::{
    Bound, Host, Nanos, Os,
    shim::{spin_loop, yield_now},
};

/// Looks before the processor is given away.
const LOOKS: u32 = 200;

/// A call's time. It neither allocates nor locks.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Nanos,
    limit: Nanos,
    looks: u32,
}

impl Clock {
    pub(crate) fn of(limit: Duration) -> Self {
        Self { started: Os.now(), limit: Nanos::from(limit), looks: 0 }
    }

    /// The same, of which so much has gone by.
    pub(crate) fn after(self, waited: Duration) -> Self {
        Self { started: Nanos(self.started.0.saturating_sub(Nanos::from(waited).0)), ..self }
    }

    /// It has so much more.
    pub(crate) fn extend(&mut self, more: Duration) {
        self.limit = Nanos(self.limit.0.saturating_add(Nanos::from(more).0));
    }

    /// For a call with that bound. One without a deadline has a day.
    pub(crate) fn bound(bound: Bound) -> Self {
        Self::of(bound.deadline().unwrap_or(Duration::from_secs(86_400)))
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(Os.now().since(self.started).0)
    }

    /// What is left, as a bound.
    pub(crate) fn left(&self) -> Bound {
        let left = Duration::from_nanos(self.limit.0).saturating_sub(self.waited());
        // A bound of nothing is none.
        Bound::within(left.max(Duration::from_nanos(1)))
    }

    pub(crate) fn is_over(&self) -> bool {
        Os.now().since(self.started).0 >= self.limit.0
    }

    /// The next pause gives the processor away at once: somebody else has to do something first.
    pub(crate) fn give_way(&mut self) {
        self.looks = LOOKS;
    }

    /// Waits a little. Whether there is any time left.
    pub(crate) fn pause(&mut self) -> bool {
        self.looks += 1;
        if self.looks < LOOKS {
            spin_loop();
            return true;
        }
        yield_now();
        !self.is_over()
    }
}
