//! The only door to atomics, cells and fences; under `--cfg pontoon_loom` it leads to loom.
//!
//! `clippy.toml` bans the originals everywhere else, so nothing escapes the model checker. Every
//! ordering stronger than `Relaxed` passes through [`sync`], which names the pair it belongs to;
//! under `--cfg pontoon_weaken` the environment can weaken one named end to `Relaxed`, and the
//! tests prove that some loom model then fails.

#[cfg(pontoon_loom)]
#[allow(clippy::disallowed_types)]
mod loomed {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub use loom::thread::yield_now;

    loom::thread_local! {
        static PROCESS: core::cell::Cell<u32> = core::cell::Cell::new(1);
    }

    /// The process that the calling thread of a model is of.
    pub fn process_id() -> u32 {
        PROCESS.with(core::cell::Cell::get)
    }

    /// Makes the calling thread of a model one of process `pid`.
    pub fn be_of_process(pid: u32) {
        PROCESS.with(|process| process.set(pid));
    }

    /// loom explores instead of spinning: a spin hint is a yield there.
    pub fn spin_loop() {
        loom::thread::yield_now();
    }

    /// loom's cell, in the shape of the plain one.
    #[derive(Debug)]
    pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps `value`.
        pub fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with a pointer that is good for reading.
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            self.0.with(read)
        }

        /// Calls `write` with a pointer that is good for writing.
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(write)
        }
    }
}
#[cfg(pontoon_loom)]
pub use loomed::*;

#[cfg(not(pontoon_loom))]
#[allow(clippy::disallowed_types)]
mod plain {
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::Ordering;

    // Aliases, not `use`: clippy's disallowed-types looks through re-exports but not through
    // aliases, so these are the only doors.
    /// A 64-bit atomic.
    pub type AtomicU64 = core::sync::atomic::AtomicU64;
    /// A 32-bit atomic.
    pub type AtomicU32 = core::sync::atomic::AtomicU32;

    /// `core`'s cell with loom's two closures, so callers read the same in both worlds.
    #[derive(Debug)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps `value`.
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with a pointer that is good for reading.
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with a pointer that is good for writing.
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// This process.
    pub fn process_id() -> u32 {
        rustix::process::getpid().as_raw_pid().cast_unsigned()
    }

    /// Gives the core to another runnable thread, if there is one.
    pub fn yield_now() {
        rustix::thread::sched_yield();
    }
}
#[cfg(not(pontoon_loom))]
pub use plain::*;

/// The ordering at one end of the SYNC pair `name`.
#[cfg(not(pontoon_weaken))]
#[inline(always)]
pub const fn sync(_name: &'static str, order: Ordering) -> Ordering {
    order
}

/// The ordering at one end of the SYNC pair `name`, or what `PONTOON_WEAKEN` puts in its place:
/// `name:Order` makes all ends of that name and ordering `Relaxed`, `name:Order@file.rs:line` the
/// one that stands there, and `name:Order@file.rs:line=Other` makes that one `Other`.
#[cfg(pontoon_weaken)]
#[track_caller]
pub fn sync(name: &'static str, order: Ordering) -> Ordering {
    extern crate std;
    use std::{env, format, string::String, sync::OnceLock};
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let Some(chosen) = CHOSEN.get_or_init(|| env::var("PONTOON_WEAKEN").ok()) else {
        return order;
    };
    let at = core::panic::Location::caller();
    let file = at.file().rsplit('/').next().unwrap_or_default();
    let (site, all) =
        (format!("{name}:{order:?}@{file}:{}", at.line()), format!("{name}:{order:?}"));
    let (wanted, weaker) = chosen.split_once('=').unwrap_or((chosen, "Relaxed"));
    match weaker {
        _ if wanted != site && wanted != all => order,
        "Relaxed" => Ordering::Relaxed,
        "Acquire" => Ordering::Acquire,
        "Release" => Ordering::Release,
        "AcqRel" => Ordering::AcqRel,
        _ => panic!("PONTOON_WEAKEN names no ordering: {weaker}"),
    }
}

/// A fence; one that was weakened to `Relaxed` is no fence at all.
#[inline(always)]
#[allow(clippy::disallowed_methods)]
pub fn fence(order: Ordering) {
    #[cfg(pontoon_weaken)]
    if order == Ordering::Relaxed {
        return;
    }
    #[cfg(pontoon_loom)]
    loom::sync::atomic::fence(order);
    #[cfg(not(pontoon_loom))]
    core::sync::atomic::fence(order);
}

/// A fence of this `order` directly behind an atomic add of this thread's.
///
/// On x86-64 an add is a locked instruction, which is executed after all earlier loads and stores are
/// performed and before any later one begins (AMD64 APM volume 2, 7.4.2; Intel SDM volume 3, 8.2.2):
/// the fence is there already, and only the compiler has to keep to it. A second one took 20 to 90 ns
/// where a line went from core to core.
#[inline(always)]
#[allow(clippy::disallowed_methods)]
pub fn fence_after_add(order: Ordering) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(pontoon_loom)))]
    core::sync::atomic::compiler_fence(order);
    #[cfg(any(not(target_arch = "x86_64"), miri, pontoon_loom))]
    fence(order);
}
