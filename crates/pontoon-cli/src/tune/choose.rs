//! From what was measured to what a wait shall do.

use std::{fmt, time::Duration};

use pontoon::signal::Tuned;

use super::measure::Measured;

/// What was chosen for one path, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) tuned: Tuned,
    pub(crate) spin_because: Spin,
    pub(crate) deadline_because: Deadline,
}

/// What decided how long a wait spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spin {
    /// 99 of 100 waits are over by then.
    Tail,
    /// Three times the usual polls: nearly all waits are over before.
    Least,
    /// Five times the usual polls: those that take longer are disturbed, not slow.
    Most,
    /// Beyond, spinning would cost more than to sleep and be woken.
    Wake,
    /// There is one CPU: while a wait spins, its producer cannot run.
    OneCpu,
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tail => "99 of 100 waits are over by then",
            Self::Least => "three times the usual polls",
            Self::Most => "five times the usual polls",
            Self::Wake => "beyond, a sleep and a wake cost less",
            Self::OneCpu => "on one CPU a wait that spins keeps its producer from running",
        })
    }
}

/// What decided when a wait gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// The delay that the user tolerates.
    Tolerated,
    /// Less would end waits that are on their usual way.
    LowerBound,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tolerated => "the delay tolerated",
            Self::LowerBound => "less would end waits that are on their usual way",
        })
    }
}

/// Usual polls that a wait spins for, at least and at most.
const SPIN_TIMES: (f64, f64) = (3.0, 5.0);
const YIELDS_MAX: u32 = 64;
/// Polls between two looks at the clock: a shorter spin would look at every poll.
const SPIN_MIN: f64 = 64.0;
/// How many slow wakes a wait must survive.
const WAKES: f64 = 5.0;

/// Chooses for a path that was measured.
pub(crate) fn choose(measured: &Measured, tolerate: Duration) -> Choice {
    let usual = measured.tries.p50.max(1.0);
    let poll_ns = (measured.wait_ns.p50 / usual).max(f64::MIN_POSITIVE);
    let (least, most) = (usual * SPIN_TIMES.0, usual * SPIN_TIMES.1);
    let (mut spin, mut because) = match measured.tries.p99 {
        p99 if p99 < least => (least, Spin::Least),
        p99 if p99 > most => (most, Spin::Most),
        p99 => (p99, Spin::Tail),
    };
    let wake = measured.wake_ns.p50;
    if spin * poll_ns > wake {
        (spin, because) = (wake / poll_ns, Spin::Wake);
    }
    // Casts of floats to integers stop at the ends of the range.
    let spin = spin.max(SPIN_MIN).ceil() as u32;
    let spun = f64::from(spin) * poll_ns;
    let yields = ((wake - spun) / measured.yield_ns.max(1.0)).floor() as u32;
    let yields = yields.clamp(1, YIELDS_MAX);
    let lower = spun + f64::from(yields) * measured.yield_ns + WAKES * measured.wake_ns.p99;
    let lower = Duration::from_nanos((lower + measured.wait_ns.p99).ceil() as u64);
    let (deadline, deadline_because) = if tolerate >= lower {
        (tolerate, Deadline::Tolerated)
    } else {
        (lower, Deadline::LowerBound)
    };
    let tuned = Tuned { spin, yields, deadline };
    Choice { tuned, spin_because: because, deadline_because }
}

/// Chooses for a machine with one CPU, where nothing can be measured side by side.
pub(crate) fn choose_for_one_cpu(tolerate: Duration) -> Choice {
    let tuned = Tuned { spin: 1, yields: 16, deadline: tolerate };
    Choice { tuned, spin_because: Spin::OneCpu, deadline_because: Deadline::Tolerated }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::measure::Quantiles;

    const SECOND: Duration = Duration::from_secs(1);

    /// A poll takes 2 ns, a wake 50 us, a yield 1 us.
    fn measured(p50: f64, p99: f64) -> Measured {
        let q = |p50, p99| Quantiles { p50, p99 };
        Measured {
            tries: q(p50, p99),
            wait_ns: q(p50 * 2.0, p99 * 2.0),
            wake_ns: q(50_000.0, 100_000.0),
            yield_ns: 1_000.0,
        }
    }

    #[test]
    fn spins_for_three_to_five_times_the_usual_polls() {
        for (p99, spin, because) in
            [(150.0, 300, Spin::Least), (420.0, 420, Spin::Tail), (90_000.0, 500, Spin::Most)]
        {
            let choice = choose(&measured(100.0, p99), SECOND);
            assert_eq!((choice.tuned.spin, choice.spin_because), (spin, because));
            // 50 us of a wake, less what was spun.
            assert_eq!(choice.tuned.yields, 49);
        }
    }

    #[test]
    fn never_spins_for_longer_than_a_wake_takes() {
        let choice = choose(&measured(20_000.0, 21_000.0), SECOND);
        assert_eq!((choice.tuned.spin, choice.spin_because), (25_000, Spin::Wake));
        assert_eq!(choice.tuned.yields, 1);
    }

    #[test]
    fn the_deadline_is_what_is_tolerated_but_never_below_the_usual() {
        let choice = choose(&measured(100.0, 200.0), SECOND);
        assert_eq!((choice.tuned.deadline, choice.deadline_because), (SECOND, Deadline::Tolerated));
        let choice = choose(&measured(100.0, 200.0), Duration::from_micros(100));
        assert_eq!(choice.deadline_because, Deadline::LowerBound);
        // 300 polls, 49 yields, five slow wakes, one slow wait.
        let ns = 600 + 49_000 + 500_000 + 400;
        assert_eq!(choice.tuned.deadline, Duration::from_nanos(ns));
    }

    #[test]
    fn nonsense_measured_is_still_a_bound() {
        let zero = Quantiles { p50: 0.0, p99: 0.0 };
        for yield_ns in [0.0, f64::MAX] {
            let none = Measured { tries: zero, wait_ns: zero, wake_ns: zero, yield_ns };
            let tuned = choose(&none, SECOND).tuned;
            assert!(tuned.spin >= 1 && tuned.yields >= 1 && !tuned.deadline.is_zero());
            let _ = tuned.bound();
        }
    }
}
