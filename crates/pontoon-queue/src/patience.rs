//! How long the host waits for something that goes on.

use std::time::Duration;

/// How long the host waits: for `idle` without progress, and for `cap` in all.
///
/// What waits for others has a chain of them down to a root. While the root goes on, the time
/// without progress starts anew; the cap does not.
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
}

impl Default for Patience {
    /// Two seconds without progress, twenty in all.
    fn default() -> Self {
        Self::within(Duration::from_secs(2))
    }
}
