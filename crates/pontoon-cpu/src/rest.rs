//! How an idle unit passes the time: it stays awake while that pays, and sleeps otherwise.

use std::{sync::OnceLock, thread, time::Duration};

use pontoon_signal::{
    Bound, Host, Nanos, Os, Wait,
    shim::{AtomicU32, Ordering::Relaxed},
    wait_settled,
};

/// Looks at all signals before an idle unit first thinks of the time or of others.
const SPIN: u32 = 64;
/// Times that an idle unit gives its core away before it sleeps.
const YIELDS: u32 = 4;
/// How long it may pay to stay awake for the next command: what a sleep and a wake cost, from the
/// publish that ends it until the unit runs again.
const PAYS: Nanos = Nanos(30_000);
/// A yield that took this long gave the core to somebody else, who may want it again.
const SOMEBODY_RAN: Nanos = Nanos(3_000);
/// How many rests that would have paid weigh as much as what was learnt before.
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
        if polls(waits) {
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
        let _ = wait_settled(waits, bound.spinning(0).yielding(YIELDS));
        AWAKE.fetch_add(1, Relaxed);
        self.was(Os.now().since(start) <= Nanos(2 * PAYS.0));
    }

    /// Stays awake while that pays, and tells whether a wait was settled meanwhile. Never takes the
    /// core from somebody who wants it: not while more units are awake than there are cores, and
    /// not after a yield that somebody used.
    fn stays_awake(&self, waits: &[Wait<'_>], start: Nanos) -> bool {
        let mut now = start;
        while self.short > 0 && now.since(start) < PAYS && AWAKE.load(Relaxed) <= cores() {
            thread::yield_now();
            let back = Os.now();
            if polls(waits) {
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

/// Whether a wait is settled within a few polls.
fn polls(waits: &[Wait<'_>]) -> bool {
    let some = Bound::fixed(u64::from(SPIN), Duration::ZERO, Duration::MAX);
    some.is_ok_and(|some| wait_settled(waits, some.spinning(SPIN)).is_ok())
}

fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, |cores| cores.get() as u32))
}
