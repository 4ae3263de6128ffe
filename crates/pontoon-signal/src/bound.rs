//! How long a wait may last.

use core::{fmt, time::Duration};

use crate::{Host, Nanos};

/// How long a wait may last, and how it passes the time.
///
/// A wait ends when its deadline passes or its tries are used up, whichever comes first. With a
/// deadline alone it polls `spin` times back to back, then yields the core between polls, then
/// sleeps until the line changes. With counted tries it polls that often, the backoff apart.
///
/// ```
/// use pontoon_signal::Bound;
/// use std::time::Duration;
///
/// let usual = Bound::within(Duration::from_secs(2));
/// let polls = Bound::fixed(1_000, Duration::from_micros(1), Duration::from_secs(1))?; // some 1 ms
/// # let _ = (usual, polls);
/// # Ok::<(), pontoon_signal::ZeroBound>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    tries: u64,
    backoff: Nanos,
    spin: u32,
    yields: u32,
    deadline: Nanos,
}

/// Tries that are never used up.
const UNCOUNTED: u64 = u64::MAX;
/// A deadline that never comes: 584 years after the machine was started.
const NEVER: Nanos = Nanos(u64::MAX);
/// Polls back to back before a wait gives way: some 10 us, about the cost of one sleep and wake.
const SPIN: u32 = 4_000;
/// Yields of the core before a wait sleeps.
const YIELDS: u32 = 16;
const BACKOFF: Nanos = Nanos(50);
/// A backoff from which on a wait sleeps instead of keeping the core: what a wake costs is less.
const NAP: Nanos = Nanos(50_000);

impl Bound {
    /// At most `deadline`, however many polls that is.
    ///
    /// # Panics
    ///
    /// If `deadline` is zero: a wait that may not wait is [`try_wait`](crate::Waiter::try_wait).
    pub fn within(deadline: Duration) -> Self {
        let bound = Self::fixed(UNCOUNTED, BACKOFF.as_duration(), deadline)
            .expect("a bound of zero would never wait: use try_wait");
        bound.spinning(SPIN)
    }

    /// At most `tries` polls, `backoff` apart, and at most `deadline`. A deadline too long for 64
    /// bits of nanoseconds is shortened to that, 584 years.
    ///
    /// Up to 50 us of backoff keep the core busy, longer ones sleep; a publish ends such a sleep.
    ///
    /// # Errors
    ///
    /// [`ZeroBound`] if `tries` or `deadline` is zero.
    pub fn fixed(tries: u64, backoff: Duration, deadline: Duration) -> Result<Self, ZeroBound> {
        if tries == 0 {
            return Err(ZeroBound { what: "tries" });
        }
        if deadline.is_zero() {
            return Err(ZeroBound { what: "deadline" });
        }
        // Only `never_give_up` never gives up.
        let longest = Nanos(NEVER.0 - 1);
        let (backoff, deadline) = (backoff.into(), Nanos::from(deadline).min(longest));
        Ok(Self { tries, backoff, spin: 0, yields: YIELDS, deadline })
    }

    /// No bound in time. The wait still ends when the line does: by an abort, the producer's
    /// death or a failed link.
    pub const fn never_give_up() -> Self {
        let (tries, backoff, deadline) = (UNCOUNTED, BACKOFF, NEVER);
        Self { tries, backoff, spin: SPIN, yields: YIELDS, deadline }
    }

    /// The same bound, polling `spin` times back to back before it first gives way.
    pub const fn spinning(self, spin: u32) -> Self {
        Self { spin, ..self }
    }

    /// The same bound, yielding the core `yields` times before it first sleeps.
    pub const fn yielding(self, yields: u32) -> Self {
        Self { yields, ..self }
    }

    /// What is left of it after `spent`; at least one poll.
    pub const fn less(self, spent: Nanos) -> Self {
        if self.deadline.0 == NEVER.0 {
            return self;
        }
        let left = self.deadline.since(spent);
        Self { deadline: if left.0 == 0 { Nanos(1) } else { left }, ..self }
    }

    /// The most polls it allows; `None` if only the deadline counts.
    pub const fn tries(self) -> Option<u64> {
        if self.tries == UNCOUNTED { None } else { Some(self.tries) }
    }

    /// The longest it allows; `None` if it never gives up.
    pub const fn deadline(self) -> Option<Duration> {
        if self.deadline.0 == NEVER.0 { None } else { Some(self.deadline.as_duration()) }
    }

    /// Polls back to back before the wait first gives way.
    pub const fn spin(self) -> u32 {
        self.spin
    }

    /// The pause between polls once spinning did not help.
    pub const fn backoff(self) -> Duration {
        self.backoff.as_duration()
    }
}

impl Default for Bound {
    /// Two seconds.
    fn default() -> Self {
        Self::within(Duration::from_secs(2))
    }
}

/// A bound that would not let a wait poll even once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroBound {
    /// The part that was zero: `tries` or `deadline`.
    pub what: &'static str,
}

impl fmt::Display for ZeroBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bound needs a {} above zero", self.what)
    }
}

impl core::error::Error for ZeroBound {}

/// What a wait does between two polls.
pub(crate) enum Next {
    Poll,
    Sleep(Nanos),
    GiveUp,
}

/// A bound being used up by one wait, or by several in a row that share it.
pub(crate) struct Budget<'h, H> {
    host: &'h H,
    bound: Bound,
    polls: u64,
    yields: u32,
    started: Option<Nanos>,
}

/// How many spinning polls go between two looks at the clock. A look costs as much as ten to fifty
/// polls, and what arrives meanwhile waits for its end; so many polls take some 500 ns.
const POLLS_A_LOOK: u64 = 512;
/// The longest sleep between two polls: what a wake lost in a foreign publisher can cost.
const LONGEST_SLEEP: Nanos = Nanos(20_000_000);

impl<'h, H: Host> Budget<'h, H> {
    pub(crate) fn new(host: &'h H, bound: Bound) -> Self {
        Self { host, bound, polls: 0, yields: 0, started: None }
    }

    /// How many polls may follow each other before [`missed`](Self::missed) has anything to do.
    /// A loop over so many keeps its count in a register, which a waiter notices.
    #[inline]
    pub(crate) fn burst(&self) -> u64 {
        // loom must see that a spinning thread lets others run.
        if cfg!(pontoon_loom) {
            return 1;
        }
        let to_look = POLLS_A_LOOK - self.polls % POLLS_A_LOOK;
        let spinning = u64::from(self.bound.spin).saturating_sub(self.polls);
        to_look.min(self.bound.tries - self.polls).min(spinning).max(1)
    }

    /// Counts `polls` that missed before one that did not, less than a burst: what comes after may
    /// share the budget.
    #[inline]
    pub(crate) fn passed(&mut self, polls: u64) {
        self.polls += polls;
    }

    /// Called after `polls` that missed, a burst at most: passes the time, or says that none is
    /// left.
    #[inline]
    pub(crate) fn missed(&mut self, polls: u64) -> Next {
        self.polls += polls;
        if self.polls >= self.bound.tries {
            return Next::GiveUp;
        }
        let spinning = self.polls < u64::from(self.bound.spin);
        // loom must see that a spinning thread lets others run.
        if cfg!(pontoon_loom) && spinning {
            self.host.yield_now();
        }
        if spinning && !self.polls.is_multiple_of(POLLS_A_LOOK) {
            return Next::Poll;
        }
        self.look_at_the_clock(spinning)
    }

    #[cold]
    fn look_at_the_clock(&mut self, spinning: bool) -> Next {
        let now = self.host.now();
        let started = *self.started.get_or_insert(now);
        let left = self.bound.deadline.since(now.since(started));
        if left == Nanos(0) {
            return Next::GiveUp;
        }
        if spinning {
            return Next::Poll;
        }
        let counted = self.bound.tries != UNCOUNTED;
        if counted && self.bound.backoff >= NAP {
            return Next::Sleep(left.min(self.bound.backoff));
        }
        if counted || self.yields < self.bound.yields {
            self.yields = self.yields.saturating_add(1);
            self.host.pause(self.bound.backoff.min(left));
            self.host.yield_now();
            return Next::Poll;
        }
        Next::Sleep(left.min(LONGEST_SLEEP))
    }

    /// How long the wait has lasted, as far as it looked at the clock.
    pub(crate) fn waited(&self) -> Nanos {
        self.started.map_or(Nanos(0), |started| self.host.now().since(started))
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Budget, Next, ZeroBound};
    use crate::{
        Host, Nanos,
        host::Sleeper,
        shim::{AtomicU64, Ordering::Relaxed},
    };
    use proptest::prelude::*;
    use std::{sync::Arc, time::Duration, vec::Vec};

    /// A clock that goes on by a nanosecond with every look at it.
    #[derive(Clone)]
    struct Looks(Arc<AtomicU64>);

    impl Host for Looks {
        fn now(&self) -> Nanos {
            Nanos(self.0.fetch_add(1, Relaxed))
        }

        fn pause(&self, _: Nanos) {}

        fn yield_now(&self) {}

        fn sleep(&self, _: Sleeper<'_>, _: Nanos) {}

        fn sleep_any<'a>(&self, _: impl Iterator<Item = Sleeper<'a>>, _: Nanos) {}
    }

    /// At which polls a wait that misses for ever looks at the clock, and after how many it ends.
    fn course(bound: Bound, bursts: bool) -> (Vec<u64>, u64) {
        let host = Looks(Arc::new(AtomicU64::new(0)));
        let mut budget = Budget::new(&host, bound);
        let mut looks = Vec::new();
        loop {
            let before = host.0.load(Relaxed);
            let burst = if bursts { budget.burst() } else { 1 };
            let next = budget.missed(burst);
            if host.0.load(Relaxed) != before {
                looks.push(budget.polls());
            }
            if matches!(next, Next::GiveUp) {
                return (looks, budget.polls());
            }
        }
    }

    proptest! {
        #[test]
        fn bursts_change_neither_the_looks_nor_the_end(
            tries in prop_oneof![1u64..400, Just(u64::MAX)],
            deadline in 1u64..60,
            spin in 0u32..300,
            yields in 0u32..9,
        ) {
            let deadline = Duration::from_nanos(deadline);
            let bound = Bound::fixed(tries, Duration::ZERO, deadline).unwrap();
            let bound = bound.spinning(spin).yielding(yields);
            prop_assert_eq!(course(bound, true), course(bound, false));
        }
    }

    #[test]
    fn a_bound_of_zero_is_refused_by_name() {
        let (none, some) = (Duration::ZERO, Duration::from_millis(1));
        assert_eq!(Bound::fixed(0, some, some), Err(ZeroBound { what: "tries" }));
        assert_eq!(Bound::fixed(1, none, none), Err(ZeroBound { what: "deadline" }));
    }

    #[test]
    #[should_panic(expected = "use try_wait")]
    fn within_nothing_is_a_sentence() {
        let _ = Bound::within(Duration::ZERO);
    }

    #[test]
    fn counted_tries_last_as_long_as_their_backoffs() {
        let table = crate::SignalTable::in_process(crate::TableShape::new(1, 1));
        let slot = crate::SlotId::new(0, 0);
        let (waiter, publisher) = (table.waiter(slot).unwrap(), table.publisher(slot).unwrap());
        for backoff in [Duration::from_micros(20), Duration::from_millis(1)] {
            let bound = Bound::fixed(50, backoff, Duration::from_secs(60)).unwrap();
            let start = std::time::Instant::now();
            let error = waiter.wait_ge_bounded(publisher.value() + 1, bound).unwrap_err();
            // One backoff fewer than polls; a sleep may end a little early.
            assert!(start.elapsed() >= backoff * 45, "{backoff:?}: {:?}", start.elapsed());
            assert!(matches!(error, crate::WaitError::TimedOut { polls: 50, .. }), "{error:?}");
        }
    }

    #[test]
    fn the_unbounded_one_is_spelled_out() {
        assert_ne!(Bound::within(Duration::MAX), Bound::never_give_up());
        assert!(Bound::within(Duration::MAX).deadline().is_some());
        assert_eq!(Bound::never_give_up().deadline(), None);
        assert_eq!(Bound::default().deadline(), Some(Duration::from_secs(2)));
    }
}
