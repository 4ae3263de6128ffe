//! How much of one thing went on beside another, by the times when each began and ended.

use std::time::Duration;

/// From when until when something went on, by one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    fn len(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    fn within(self, other: Self) -> u64 {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }.len()
    }
}

/// How long something went on in all, and how much of that beside something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) all: Duration,
    pub(crate) beside: Duration,
}

impl Overlap {
    /// Of `these`, beside `those`, of which no two go on at once.
    pub(crate) fn of(these: &[Span], those: &[Span]) -> Self {
        let beside = |span: &Span| those.iter().map(|other| span.within(*other)).sum::<u64>();
        let all = these.iter().map(|span| span.len()).sum();
        let beside = these.iter().map(beside).sum();
        Self { all: Duration::from_nanos(all), beside: Duration::from_nanos(beside) }
    }

    /// In percent; nothing is beside anything for none of its time.
    pub(crate) fn percent(self) -> f64 {
        let all = self.all.as_secs_f64();
        if all > 0.0 { 100.0 * self.beside.as_secs_f64() / all } else { 0.0 }
    }
}

impl std::ops::AddAssign for Overlap {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.beside += other.beside;
    }
}
