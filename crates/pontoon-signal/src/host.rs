//! What a waiter needs from where it runs: a clock, and ways to give way.

use crate::{
    Nanos,
    park::{self, Park, Seen},
    shim,
};

/// The machine a publisher or waiter runs on.
///
/// H1: `now` never goes back. H2: none of the calls fails, allocates or takes a lock. A simulator
/// implements it with a virtual clock; everything else uses [`Os`].
pub trait Host: Clone + Send + Sync + 'static {
    /// The time. All users of one line must share the clock.
    fn now(&self) -> Nanos;

    /// The time as of the last tick, some milliseconds ago at most: for notes that a look at the
    /// clock would cost more than they are worth.
    #[inline]
    fn tick(&self) -> Nanos {
        self.now()
    }

    /// Stays on the core for about `time`, so that the next poll does not follow at once.
    fn pause(&self, time: Nanos);

    /// Gives the core to another runnable thread, if there is one.
    fn yield_now(&self);

    /// Sleeps until the line is published or ended, at most `at_most`. May return early.
    fn sleep(&self, sleeper: Sleeper<'_>, at_most: Nanos);

    /// Sleeps until one of the lines is published or ended, at most `at_most`. May return early.
    fn sleep_any<'a>(&self, sleepers: impl Iterator<Item = Sleeper<'a>>, at_most: Nanos);
}

/// A line that a waiter announced itself on and may now sleep on.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper<'a> {
    pub(crate) park: &'a Park,
    pub(crate) seen: Seen,
}

/// The operating system's monotonic clock, scheduler and futexes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl Host for Os {
    #[cfg(not(pontoon_loom))]
    #[inline]
    fn now(&self) -> Nanos {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    #[cfg(all(not(pontoon_loom), any(target_os = "linux", target_os = "android")))]
    #[inline]
    fn tick(&self) -> Nanos {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// loom has no time: a deadline never comes, and a wait ends by its tries.
    #[cfg(pontoon_loom)]
    fn now(&self) -> Nanos {
        Nanos(1)
    }

    #[inline]
    fn pause(&self, time: Nanos) {
        // One hint takes 20 to 70 ns on current x86, less than the clock costs to read.
        if time.0 <= 100 {
            shim::spin_loop();
            return;
        }
        let start = self.now();
        loop {
            shim::spin_loop();
            if cfg!(pontoon_loom) || self.now().since(start) >= time {
                return;
            }
        }
    }

    fn yield_now(&self) {
        shim::yield_now();
    }

    fn sleep(&self, sleeper: Sleeper<'_>, at_most: Nanos) {
        sleeper.park.sleep(sleeper.seen, at_most);
    }

    fn sleep_any<'a>(&self, sleepers: impl Iterator<Item = Sleeper<'a>>, at_most: Nanos) {
        park::sleep_any(sleepers.map(|s| (s.park, s.seen)), self.now(), at_most);
    }
}
