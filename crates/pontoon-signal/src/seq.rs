//! Positions of a counter that wraps.

use core::fmt;

/// A position of a 64-bit counter that only grows and may wrap.
///
/// It has no `Ord`: after a wrap `<` would lie. Two positions are compared by
/// [`is_at_or_past`](Self::is_at_or_past), which is right as long as they are less than 2^63 apart.
///
/// ```
/// use pontoon_signal::Seq;
///
/// let before = Seq::new(u64::MAX);
/// let after = before + 2;
/// assert!(after.is_at_or_past(before) && !before.is_at_or_past(after));
/// ```
///
/// ```compile_fail,E0369
/// # use pontoon_signal::Seq;
/// assert!(Seq::new(1) < Seq::new(2)); // does not compile
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(u64);

impl Seq {
    /// The position with the raw counter value `value`.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The raw counter value.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this position has reached `target`.
    #[inline]
    pub const fn is_at_or_past(self, target: Self) -> bool {
        self.0.wrapping_sub(target.0) as i64 >= 0
    }

    /// How far `self` is ahead of `earlier`, in counts; negative if it is behind.
    #[inline]
    pub const fn ahead_of(self, earlier: Self) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }
}

impl core::ops::Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, counts: u32) -> Self {
        Self(self.0.wrapping_add(u64::from(counts)))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_survives_the_wrap(start: u64, step in 1u32..) {
            let (a, b) = (Seq::new(start), Seq::new(start) + step);
            prop_assert!(b.is_at_or_past(a));
            prop_assert!(!a.is_at_or_past(b));
            prop_assert_eq!(b.ahead_of(a), i64::from(step));
        }
    }

    #[test]
    fn half_the_range_is_the_limit() {
        let zero = Seq::new(0);
        assert!(Seq::new(i64::MAX as u64).is_at_or_past(zero));
        assert!(!Seq::new(1 << 63).is_at_or_past(zero));
    }
}
