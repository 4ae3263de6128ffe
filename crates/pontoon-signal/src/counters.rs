//! How the waits of one waiter ended so far.

use crate::shim::{AtomicU64, Ordering::Relaxed};

/// How the waits of one [`Waiter`](crate::Waiter) ended so far; readable while it goes on.
#[repr(align(128))]
#[derive(Debug)]
pub struct WaitCounters {
    reached: AtomicU64,
    timed_out: AtomicU64,
    ended: AtomicU64,
}

impl Default for WaitCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { reached: zero(), timed_out: zero(), ended: zero() }
    }
}

impl WaitCounters {
    /// Waits that reached their target.
    pub fn reached_count(&self) -> u64 {
        self.reached.load(Relaxed)
    }

    /// Waits that used up their bound.
    pub fn timed_out_count(&self) -> u64 {
        self.timed_out.load(Relaxed)
    }

    /// Waits whose line ended short of the target.
    pub fn ended_count(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    #[inline]
    pub(crate) fn reached(&self) {
        add_one(&self.reached);
    }

    pub(crate) fn timed_out(&self) {
        add_one(&self.timed_out);
    }

    pub(crate) fn ended(&self) {
        add_one(&self.ended);
    }
}

/// The waiter is the only writer (it is `!Sync`), so a load and a store lose nothing.
#[inline]
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}
