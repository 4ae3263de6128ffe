//! How long waits took, in a fixed size.

use core::fmt;

use pontoon_signal::Nanos;

/// Times are told apart from here on, in nanoseconds, as a power of two.
const FINEST_BITS: u32 = 5;
/// Classes an octave, as a power of two.
const PARTS_BITS: u32 = 2;
const PARTS: usize = 1 << PARTS_BITS;
/// Up to 2^37 ns, which is 137 s; the last class has all that is longer.
const CLASSES: usize = 128;

/// How often, and how long: a count in each of some classes a quarter of an octave wide, 32 ns to
/// two minutes. A quantile is exact to a quarter of its value; count, total and mean are exact.
///
/// It has a fixed size and is copied as a whole, so that what happened between two moments is the
/// [difference](Self::since) of two copies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Times {
    total: Nanos,
    classes: [u32; CLASSES],
}

impl Default for Times {
    fn default() -> Self {
        Self { total: Nanos(0), classes: [0; CLASSES] }
    }
}

impl Times {
    /// Counts one that took `time`.
    pub fn record(&mut self, time: Nanos) {
        let class = &mut self.classes[class_of(time)];
        *class = class.saturating_add(1);
        self.total = self.total.saturating_add(time);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.classes.iter().copied().map(u64::from).sum()
    }

    /// How long they took, all together.
    pub fn total(&self) -> Nanos {
        self.total
    }

    /// How long one took on average; zero if there was none.
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.0.checked_div(self.count()).unwrap_or(0))
    }

    /// The time that `share` of them did not exceed: the upper end of its class. Zero if there was
    /// none.
    pub fn quantile(&self, share: f64) -> Nanos {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let reached = self.classes.iter().position(|&class| {
            seen += u64::from(class);
            seen >= wanted
        });
        // No class tells more than that all of them together took that long.
        reached.map_or(Nanos(0), |class| upper_end(class).min(self.total))
    }

    /// Those since `earlier`, which is an earlier copy.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.total = self.total.since(earlier.total);
        for (class, before) in since.classes.iter_mut().zip(&earlier.classes) {
            *class = class.saturating_sub(*before);
        }
        since
    }

    /// Adds those that another counted.
    pub fn merge(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            *class = class.saturating_add(*more);
        }
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mean, p99) = (self.mean(), self.quantile(0.99));
        write!(f, "{} of {} in all, mean {mean}, p99 {p99}", self.count(), self.total)
    }
}

fn class_of(time: Nanos) -> usize {
    let units = time.0 >> FINEST_BITS;
    let octave = (u64::BITS - units.leading_zeros()).saturating_sub(PARTS_BITS + 1);
    let class = octave as usize * PARTS + (units >> octave) as usize;
    class.min(CLASSES - 1)
}

/// The longest time of a class.
fn upper_end(class: usize) -> Nanos {
    let octave = (class / PARTS).saturating_sub(1);
    let units = (class - octave * PARTS) as u64 + 1;
    match class {
        last if last == CLASSES - 1 => Nanos(u64::MAX),
        _ => Nanos((units << (octave as u32 + FINEST_BITS)) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        let mut last = 0;
        for class in 0..CLASSES - 1 {
            let end = upper_end(class).0;
            assert_eq!((class_of(Nanos(end)), class_of(Nanos(end + 1))), (class, class + 1));
            let width = end + 1 - last;
            assert!(width <= (1 << FINEST_BITS).max(end / PARTS as u64 + 1), "{class}: {width}");
            last = end + 1;
        }
        assert_eq!(class_of(Nanos(u64::MAX)), CLASSES - 1);
    }

    #[test]
    fn a_quantile_is_within_a_quarter() {
        let mut times = Times::default();
        (1..=1000).for_each(|us| times.record(Nanos(us * 1000)));
        assert_eq!((times.count(), times.mean()), (1000, Nanos(500_500)));
        let p99 = times.quantile(0.99).0;
        assert!((990_000..=990_000 * 5 / 4).contains(&p99), "{p99}");
        let mut one = Times::default();
        one.record(Nanos(1_000_000_000_000));
        assert_eq!(one.quantile(0.5), Nanos(1_000_000_000_000));
        assert_eq!(Times::default().quantile(0.99), Nanos(0));
    }

    #[test]
    fn a_difference_has_what_came_since() {
        let mut times = Times::default();
        times.record(Nanos(5_000));
        let before = times;
        times.record(Nanos(70));
        times.record(Nanos(9_000_000));
        let since = times.since(&before);
        assert_eq!((since.count(), since.total()), (2, Nanos(9_000_070)));
        let mut both = before;
        both.merge(&since);
        assert_eq!(both, times);
    }
}
