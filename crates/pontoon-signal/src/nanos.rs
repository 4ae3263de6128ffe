//! Time as signals count it.

use core::{fmt, time::Duration};

/// Nanoseconds: a point of the host's monotonic clock, or a distance between two points.
///
/// The clock is `CLOCK_MONOTONIC`, which all processes of one machine share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The distance from `earlier` to this point, or zero if it is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This point moved on by `by`, at most to the end of time.
    #[inline]
    pub const fn saturating_add(self, by: Self) -> Self {
        Self(self.0.saturating_add(by.0))
    }

    /// The same distance as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Nanos {
    /// A duration too long for 64 bits (584 years) becomes the longest there is.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", ns / 1e6),
            _ => write!(f, "{:.1} s", ns / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Nanos;
    use std::{string::ToString, time::Duration};

    #[test]
    fn shown_in_the_unit_that_fits() {
        for (ns, shown) in
            [(7, "7 ns"), (1_500, "1.5 us"), (4_800_000, "4.8 ms"), (2_000_000_000, "2.0 s")]
        {
            assert_eq!(Nanos(ns).to_string(), shown);
        }
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Nanos(1).since(Nanos(2)), Nanos(0));
        assert_eq!(Nanos(u64::MAX).saturating_add(Nanos(1)), Nanos(u64::MAX));
        assert_eq!(Nanos::from(Duration::MAX), Nanos(u64::MAX));
    }
}
