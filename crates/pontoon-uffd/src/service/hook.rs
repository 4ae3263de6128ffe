//! A signal that a handler of ours gets before others do.
#![allow(unsafe_code)] // A handler is put in force.

use core::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use libc::{c_int, siginfo_t};
use pontoon_signal::SystemError;

use super::{
    context::Delivered,
    previous::{Action, Previous},
};
use crate::{ServeError, Served};

/// Whether our handler is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is.
    Ours,
    /// Another is. It may call ours, or not: a fault may end the process. See [`reinstall`](crate::reinstall).
    Another,
}

/// A handler, as the kernel calls it.
pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// A signal, our handler of it, and who is asked about what is not for that.
///
/// Invariant H2: the handler may be called for any such signal, wherever a thread is.
pub(crate) struct Hook {
    signal: c_int,
    handler: Handler,
    previous: Previous,
    one_at_a_time: Mutex<()>,
}

impl Hook {
    /// # Safety
    ///
    /// H2.
    pub(crate) const unsafe fn new(signal: c_int, handler: Handler) -> Self {
        Self { signal, handler, previous: Previous::new(), one_at_a_time: Mutex::new(()) }
    }

    pub(crate) fn check(&self) -> Result<Installed, SystemError> {
        let ours = Action::now(self.signal)?.calls(self.address());
        Ok(if ours { Installed::Ours } else { Installed::Another })
    }

    pub(crate) fn reinstall(&self) -> Result<(), ServeError> {
        let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Action::now(self.signal)?;
        if now.calls(self.address()) {
            return Ok(());
        }
        // Before, for the handler may be called at once.
        self.previous.remember(now)?;
        // SAFETY: H2.
        let displaced = unsafe { Action::install(self.signal, self.address()) }?;
        if displaced.calls(self.address()) { Ok(()) } else { self.previous.remember(displaced) }
    }

    /// What the handler does: has `serve` see to the signal if an access raised it, and whoever was before if
    /// that says that it is not ours.
    pub(crate) fn handle(&self, delivered: Delivered, serve: impl FnOnce(Delivered) -> Served) {
        // SAFETY: the address of this thread's errno, which lives as long as the thread.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { errno.read() };
        if !(delivered.is_fault() && serve(delivered) == Served::Again) {
            self.previous.handle(delivered);
        }
        // SAFETY: as above: who was interrupted may be about to look at it.
        unsafe { errno.write(before) };
    }

    fn address(&self) -> usize {
        self.handler as usize
    }
}
