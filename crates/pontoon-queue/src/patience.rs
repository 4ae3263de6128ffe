//! How long the host waits for something that goes on.

use std::time::Duration;

use pontoon_signal::{Bound, Host, Nanos, Os};

/// How long the host waits: for `idle` without progress, and for `cap` in all.
///
/// What waits for others has a chain of them down to a root. While the root goes on, the time
/// without progress starts anew; the cap does not. Of zero, the host looks once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    idle: Duration,
    cap: Duration,
}

impl Patience {
    /// At most `idle` without progress, and ten times as long in all.
    pub fn within(idle: Duration) -> Self {
        Self { idle, cap: idle.saturating_mul(10) }
    }

    /// The same, but at most `cap` in all.
    pub fn at_most(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// The longest without progress.
    pub fn idle(self) -> Duration {
        self.idle
    }

    /// The longest in all.
    pub fn cap(self) -> Duration {
        self.cap
    }

    /// Of a wait for a signal that is no queue's, of which it is not known what it waits for.
    pub(crate) fn bound(self) -> Bound {
        Bound::within(self.idle.min(self.cap).max(Duration::from_nanos(1)))
    }

    /// The longer of both.
    pub(crate) fn or_longer(self, other: Self) -> Self {
        Self { idle: self.idle.max(other.idle), cap: self.cap.max(other.cap) }
    }
}

/// A patience that several waits share: what one has used up, the next has not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    patience: Patience,
    started: Nanos,
}

impl Deadline {
    /// One that starts now.
    pub(crate) fn of(patience: Patience) -> Self {
        Self { patience, started: Os.now() }
    }

    /// What is left of it.
    pub(crate) fn left(self) -> Patience {
        let waited = Os.now().since(self.started).as_duration();
        self.patience.at_most(self.patience.cap.saturating_sub(waited))
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_past(self) -> bool {
        self.left().cap.is_zero()
    }
}

impl Default for Patience {
    /// Two seconds without progress, twenty in all.
    fn default() -> Self {
        Self::within(Duration::from_secs(2))
    }
}
