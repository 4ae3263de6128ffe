//! Sleeping until a line changes, and waking whoever sleeps.

use crate::shim::{AtomicU32, Ordering::*, fence, fence_after_add, sync};

/// The word a waiter sleeps on: bit 0 says that somebody sleeps, the rest counts wakes.
///
/// One word holds both, so that a sleeper announces itself and learns the count in one step. A
/// sleeper that dies leaves the bit set; the next publish clears it and has paid one system call.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Park {
    word: AtomicU32,
}

const SLEEPS: u32 = 1;

/// What the park word held when a sleeper announced itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u32);

impl Park {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Announces a sleeper. The caller then looks at the line once more before it sleeps.
    pub(crate) fn announce(&self) -> Seen {
        let seen = Seen(self.word.fetch_or(SLEEPS, Relaxed) | SLEEPS);
        // SYNC(slot-park) full: between announcing and looking again. Either this look sees what
        // was published, or the publisher, past its own fence, sees the announcement.
        fence(sync("slot-park", SeqCst));
        seen
    }

    /// Wakes whoever sleeps; called after each change of value or abort. No system call while
    /// nobody sleeps.
    #[inline]
    pub(crate) fn notify(&self) {
        // SYNC(slot-park) full: between publishing and looking for sleepers; see `announce`.
        fence(sync("slot-park", SeqCst));
        let word = self.word.load(Relaxed);
        if word & SLEEPS != 0 {
            self.wake(word);
        }
    }

    /// As [`notify`](Self::notify), directly after an add.
    #[inline]
    pub(crate) fn notify_after_add(&self) {
        // SYNC(slot-park) full: between publishing and looking for sleepers; see `announce`.
        fence_after_add(sync("slot-park", SeqCst));
        let word = self.word.load(Relaxed);
        if word & SLEEPS != 0 {
            self.wake(word);
        }
    }

    #[cold]
    fn wake(&self, word: u32) {
        // The carry clears the bit and counts the wake. If another waker came first, it wakes all.
        if self.word.compare_exchange(word, word.wrapping_add(1), Relaxed, Relaxed).is_ok() {
            self.wake_all();
        }
    }
}

#[cfg(not(pontoon_loom))]
mod futex {
    use super::{Park, Seen};
    use crate::{Nanos, shim::AtomicU32};
    use rustix::thread::futex;

    /// The most words one system call can sleep on (the kernel's FUTEX_WAITV_MAX).
    pub(crate) const PARK_MAX: usize = 128;

    // The futexes are not private: a line may be shared with another process.
    const FLAGS: futex::Flags = futex::Flags::empty();

    impl Park {
        /// Sleeps until a wake after `seen`, at most `at_most`. May return early.
        pub(crate) fn sleep(&self, seen: Seen, at_most: Nanos) {
            // Whatever it returns, the caller polls again: a changed word, a wake, a signal and
            // the time-out need no telling apart.
            let _ = futex::wait(&self.word, FLAGS, seen.0, Some(&timespec(at_most)));
        }

        pub(super) fn wake_all(&self) {
            // It fails only for an address that is no word of ours.
            let _ = futex::wake(&self.word, FLAGS, i32::MAX as u32);
        }
    }

    /// Sleeps until one of `parks` is woken, at most `at_most`; at most [`PARK_MAX`] of them.
    pub(crate) fn sleep_any<'a>(
        parks: impl Iterator<Item = (&'a Park, Seen)>,
        now: Nanos,
        at_most: Nanos,
    ) {
        let mut list = [futex::Wait::new(); PARK_MAX];
        let mut count = 0;
        for (entry, (park, seen)) in list.iter_mut().zip(parks) {
            let word: *const AtomicU32 = &park.word;
            entry.val = u64::from(seen.0);
            entry.uaddr = futex::WaitPtr::new(word.cast_mut().cast());
            entry.flags = futex::WaitFlags::SIZE_U32;
            count += 1;
        }
        let until = timespec(now.saturating_add(at_most));
        let clock = rustix::thread::ClockId::Monotonic;
        let slept = futex::waitv(&list[..count], futex::WaitvFlags::empty(), Some(&until), clock);
        if matches!(slept, Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)) {
            // Kernels before 5.16, and sandboxes: look again after a short sleep instead.
            let nap = timespec(at_most.min(Nanos(100_000)));
            let _ = rustix::thread::clock_nanosleep_relative(clock, &nap);
        }
    }

    fn timespec(nanos: Nanos) -> rustix::time::Timespec {
        // Clamped to 31 years: the kernel refuses a time that its own clock cannot hold.
        let nanos = nanos.0.min(1_000_000_000 * 1_000_000_000);
        rustix::time::Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        }
    }
}
#[cfg(not(pontoon_loom))]
pub(crate) use futex::*;

#[cfg(pontoon_loom)]
mod modelled {
    use super::{Park, Seen};
    use crate::{Nanos, shim::Ordering::Relaxed};
    use loom::sync::{Condvar, Mutex};

    pub(crate) const PARK_MAX: usize = 128;

    loom::lazy_static! {
        /// The kernel's futex queues, all in one: a wake of any word wakes the sleepers of all,
        /// which they must bear anyway.
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    impl Park {
        pub(crate) fn sleep(&self, seen: Seen, at_most: Nanos) {
            sleep_any([(self, seen)].into_iter(), Nanos(0), at_most);
        }

        pub(super) fn wake_all(&self) {
            let _guard = KERNEL.0.lock().unwrap();
            KERNEL.1.notify_all();
        }
    }

    /// A futex as loom sees it: compare and sleep are one step, and a wake that was lost is a
    /// deadlock, for there is no time-out here.
    pub(crate) fn sleep_any<'a>(
        mut parks: impl Iterator<Item = (&'a Park, Seen)>,
        _now: Nanos,
        _at_most: Nanos,
    ) {
        let guard = KERNEL.0.lock().unwrap();
        if parks.all(|(park, seen)| park.word.load(Relaxed) == seen.0) {
            drop(KERNEL.1.wait(guard).unwrap());
        }
    }
}
#[cfg(pontoon_loom)]
pub(crate) use modelled::*;
