//! The handler of SIGBUS, and the windows that it serves.
#![allow(unsafe_code)] // A signal handler is a C function.

use core::ffi::c_void;
use std::sync::Arc;

use libc::{SIGBUS, c_int, siginfo_t};
use pontoon_signal::{SystemError, shim::Ordering::Relaxed};

use super::{context::Delivered, hook::Hook};
use crate::{
    Fault, Installed, Pager, ServeError, Served, Service, Window,
    table::{Place, Table},
    window::Tracking,
};

/// How many windows of a process may be served in their threads.
pub const WINDOWS_MAX: usize = 64;

static WINDOWS: Table<Record, WINDOWS_MAX> = Table::new();
// SAFETY: `on_sigbus` does nothing that a handler may not do, wherever a thread is.
static HOOK: Hook = unsafe { Hook::new(SIGBUS, on_sigbus) };

/// A window and who serves it.
struct Record {
    window: Arc<Window>,
    pager: Arc<dyn Pager>,
}

/// A window whose faults are served, until this is dropped. A fault that comes later is nobody's, and
/// ends the process unless another handler knows better: so keep it as long as the window is used.
#[derive(Debug)]
#[must_use]
pub struct Attached {
    window: Arc<Window>,
    place: Option<Place>,
}

/// Has `pager` serve the faults of `window` in the threads that make them; see [`Pager`] for what
/// holds there. It puts a handler of SIGBUS in force for the process, which stays: signals that are for
/// none of our windows go to whoever handled them before, as the kernel would have sent them.
///
/// A thread that touches the window must not block SIGBUS, or the kernel ends the process; and
/// should have a stack for it, see [`on_this_thread`](crate::on_this_thread).
///
/// # Errors
///
/// [`ServeError`]: the window is for a server, or served already, or there are too many of them.
pub fn attach(window: &Arc<Window>, pager: Arc<dyn Pager>) -> Result<Attached, ServeError> {
    if window.service() != Service::InThread {
        return Err(ServeError::OtherService);
    }
    if window.served.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
        return Err(ServeError::Served);
    }
    // From here on it is given back on every way out.
    let mut attached = Attached { window: Arc::clone(window), place: None };
    reinstall()?;
    let record = Record { window: Arc::clone(window), pager };
    let place = WINDOWS.insert(window.addresses(), record);
    attached.place = Some(place.map_err(|_| ServeError::Full { windows: WINDOWS_MAX })?);
    Ok(attached)
}

/// Whether our handler of SIGBUS is in force: a library that is loaded later may have installed its own.
///
/// # Errors
///
/// What the kernel says.
pub fn check() -> Result<Installed, SystemError> {
    HOOK.check()
}

/// Puts our handler in force if it is not, in front of the one that is: that one gets what is not for
/// our windows.
///
/// # Errors
///
/// [`ServeError::TakenOver`] after many times, or what the kernel says.
pub fn reinstall() -> Result<(), ServeError> {
    HOOK.reinstall()
}

/// The handler. It must not unwind: a panic of a pager's ends the process here.
extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: K1, the kernel calls it so; and so does another's handler that knows of ours.
    let delivered = unsafe { Delivered::new(signal, info, context) };
    HOOK.handle(delivered, serve);
}

fn serve(delivered: Delivered) -> Served {
    let address = delivered.address();
    let served = WINDOWS.find(address as u64, |record| record.serve(address, delivered));
    served.unwrap_or(Served::NotMine)
}

impl Record {
    fn serve(&self, address: usize, delivered: Delivered) -> Served {
        if !self.window.is_here() {
            return Served::NotMine; // a child's own mapping, where the parent has a window
        }
        let Some((page, at)) = self.window.page_at(address) else { return Served::NotMine };
        let write = delivered.is_write();
        if let Tracking::Faults(_) = &self.window.tracking
            && (write || cfg!(not(target_arch = "x86_64")))
            && self.window.note_if_resident(page)
        {
            return Served::Again;
        }
        let poisoned = delivered.is_broken_memory() || self.window.is_poisoned(page);
        let waited = core::time::Duration::ZERO;
        self.pager.fault(Fault { page, at, write, poisoned, waited })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            drop(WINDOWS.remove(place));
        }
        self.window.served.store(0, Relaxed);
    }
}
