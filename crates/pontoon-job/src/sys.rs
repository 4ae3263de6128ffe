//! Small things of the operating system that several modules use.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
};

use pontoon_signal::{Host, Nanos, Os, SystemError};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd},
    fd::OwnedFd,
};

/// The time, on the clock that signals use.
pub(crate) fn now() -> Nanos {
    Os.now()
}

/// The lock's value, whether or not somebody panicked with it: all that is kept under locks here
/// is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn system_error(call: &'static str, error: &io::Error) -> SystemError {
    SystemError { call, code: error.raw_os_error().unwrap_or(0) }
}

pub(crate) fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as _ }
}

pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SystemError> {
    Builder::new().name(name.into()).spawn(run).map_err(|error| system_error("clone", &error))
}

/// Ends another thread's sleep in `poll`.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let failed =
            |errno: rustix::io::Errno| SystemError { call: "eventfd", code: errno.raw_os_error() };
        eventfd(0, flags).map(Self).map_err(failed)
    }

    /// The count cannot overflow: it would take 2^64 wakes. So a failure cannot lose a wake.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes back the wakes so far. What they announced is to be looked at after this.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}
