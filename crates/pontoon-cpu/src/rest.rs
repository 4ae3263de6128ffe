//! How an idle unit passes the time: it stays awake while that pays, and sleeps otherwise.

use std::{sync::OnceLock, thread, time::Duration};

use pontoon_signal::{
    Bound, Host, Nanos, Os, Wait,
    shim::{AtomicU32, Ordering::Relaxed},
    wait_settled,
};

/// Looks at all signals before an idle unit first thinks of the time or of others.
const SPIN: u32 = 64;
/// As many where more units are awake than there are cores: each keeps a busy one waiting.
const SPIN_IN_A_CROWD: u32 = 4;
/// Times that an idle unit gives its core away before it sleeps. Few: a thread that yields stays on
/// its core though another be free, and one that is woken is put there.
const YIELDS: u32 = 2;
/// How long it may pay to stay awake for the next command: what a sleep and a wake cost, from the
/// publish that ends it until the unit runs again.
const PAYS: Nanos = Nanos(30_000);
/// A yield that took this long gave the core to somebody else, who may want it again.
const SOMEBODY_RAN: Nanos = Nanos(3_000);
/// So many long rests in a row are enough for a unit to stay awake no more.
const CONFIDENCE: u32 = 8;

/// Units of all devices of the process that run a command or stay awake for one. A hint: nothing
/// is ordered by it.
static AWAKE: AtomicU32 = AtomicU32::new(0);

/// How one unit rests, and what it learnt of how soon work comes.
pub(crate) struct Rest {
    /// Rises with each rest that was short, and falls with each that was long.
    short: u32,
}

impl Rest {
    /// For a unit that just woke up for the first time.
    pub(crate) fn new() -> Self {
        AWAKE.fetch_add(1, Relaxed);
        Self { short: 0 }
    }

    /// Returns when one of `waits` is settled, or perhaps earlier, but after `deadline` at the
    /// latest.
    pub(crate) fn until_settled(&mut self, waits: &[Wait<'_>], deadline: Nanos) {
        if polls(waits, if is_crowded() { SPIN_IN_A_CROWD } else { SPIN }) {
            self.was(true);
            return;
        }
        let start = Os.now();
        if self.stays_awake(waits, start) {
            self.was(true);
            return;
        }
        AWAKE.fetch_sub(1, Relaxed);
        let bound = match deadline {
            Nanos(u64::MAX) => Bound::never_give_up(),
            deadline => Bound::within(deadline.since(Os.now()).max(Nanos(1)).as_duration()),
        };
        // A time-out is as good as a wake: the unit looks at its queues again.
        let settled = wait_settled(waits, bound.spinning(0).yielding(YIELDS)).is_ok();
        AWAKE.fetch_add(1, Relaxed);
        if settled {
            // The sleep and the wake were part of it.
            self.was(Os.now().since(start) <= Nanos(2 * PAYS.0));
        }
    }

    /// Stays awake while that pays, and tells whether a wait was settled meanwhile. Never takes the
    /// core from somebody who wants it: not while more units are awake than there are cores, and
    /// not after a yield that somebody used.
    fn stays_awake(&self, waits: &[Wait<'_>], start: Nanos) -> bool {
        let mut now = start;
        while self.short > 0 && now.since(start) < PAYS && !is_crowded() {
            thread::yield_now();
            let back = Os.now();
            if polls(waits, SPIN) {
                return true;
            }
            if back.since(now) > SOMEBODY_RAN {
                return false;
            }
            now = Os.now();
        }
        false
    }

    fn was(&mut self, short: bool) {
        self.short =
            if short { CONFIDENCE.min(self.short + 1) } else { self.short.saturating_sub(1) };
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        AWAKE.fetch_sub(1, Relaxed);
    }
}

/// Whether a wait is settled within `polls` looks at all of them.
fn polls(waits: &[Wait<'_>], polls: u32) -> bool {
    let some = Bound::fixed(u64::from(polls), Duration::ZERO, Duration::MAX);
    some.is_ok_and(|some| wait_settled(waits, some.spinning(polls)).is_ok())
}

/// Whether more units are awake than there are cores.
fn is_crowded() -> bool {
    static CORES: OnceLock<u32> = OnceLock::new();
    let cores = || thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    AWAKE.load(Relaxed) > *CORES.get_or_init(cores)
}

#[cfg(test)]
mod tests {
    use pontoon_signal::{Nanos, Rank, Seq, Wait};

    use super::{CONFIDENCE, Rest};
    use crate::shared::new_signal;

    #[test]
    fn short_rests_are_learnt_and_long_ones_unlearn_them() {
        let (mut publisher, slot) = new_signal(Rank(1), 0, Seq::new(u64::MAX));
        let waiter = slot.uncounted_waiter();
        let there = publisher.pub_release(1);
        let mut rest = Rest::new();
        for _ in 0..2 * CONFIDENCE {
            rest.until_settled(&[Wait::new(&waiter, there)], Nanos(u64::MAX));
        }
        assert_eq!(rest.short, CONFIDENCE);
        for _ in 0..2 {
            rest.was(false);
        }
        assert_eq!(rest.short, CONFIDENCE - 2);
        // A deadline ends a rest, and tells nothing of how soon work comes.
        rest.until_settled(&[Wait::new(&waiter, there + 1)], Nanos(1));
        assert_eq!(rest.short, CONFIDENCE - 2);
        for _ in 0..CONFIDENCE {
            rest.was(false);
        }
        assert_eq!(rest.short, 0);
    }
}
