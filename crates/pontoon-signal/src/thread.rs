//! Threads, and pieces of work, that no handler of the program's signals runs in the middle of.
//!
//! A signal of a process is handled by any of its threads that does not block it. A handler of the program's may
//! do what the rest of it does, and so wait for what the very thread that it runs on holds.
#![allow(unsafe_code)] // A thread's mask is the C library's.

use core::{marker::PhantomData, mem::MaybeUninit, ptr};
use std::{
    string::ToString,
    thread::{Builder, JoinHandle},
};

use libc::{SIG_SETMASK, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, c_int, sigset_t};

use crate::SystemError;

/// What an instruction raises comes to its thread, blocked or not: the kernel ends the process if it is blocked.
const OWN: [c_int; 6] = [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS];

/// Starts a thread that blocks all signals but those that its own instructions raise.
///
/// # Errors
///
/// That no thread was to be had.
pub fn spawn_undisturbed<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SystemError> {
    let builder = Builder::new().name(name.to_string());
    // It has the mask of who starts it, from its first instruction on.
    undisturbed(|| builder.spawn(work))
        .map_err(|error| SystemError { call: "clone", code: error.raw_os_error().unwrap_or(0) })
}

/// Does `work` while the calling thread blocks all signals but those that its own instructions raise. What comes
/// meanwhile is handled by another thread, or afterwards.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::now();
    work()
}

/// Signals that are blocked until this is dropped, on the thread that made it.
struct Blocked {
    /// What was blocked before; `None` if nothing was changed.
    before: Option<sigset_t>,
    this_thread: PhantomData<*mut ()>,
}

impl Blocked {
    fn now() -> Self {
        Self { before: swap(&all_but_own()), this_thread: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            swap(before);
        }
    }
}

fn all_but_own() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it writes a whole set into room for one; those that the C library needs itself stay out of it.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: the call has written it, and fails for no valid pointer.
    let mut set = unsafe { set.assume_init() };
    for signal in OWN {
        // SAFETY: it changes a set that is whole.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}

/// Blocks these signals alone, and says which were blocked before.
fn swap(set: &sigset_t) -> Option<sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: it reads one whole set and writes another into room for it.
    let code =
        unsafe { libc::pthread_sigmask(SIG_SETMASK, ptr::from_ref(set), before.as_mut_ptr()) };
    // SAFETY: the call that succeeded has written it.
    (code == 0).then(|| unsafe { before.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::{OWN, spawn_undisturbed, undisturbed};
    use libc::{SIG_BLOCK, SIGKILL, SIGSTOP, c_int};

    fn is_blocked(signal: c_int) -> bool {
        let mut set = core::mem::MaybeUninit::uninit();
        // SAFETY: with no new set this only writes the old one, into room for it.
        unsafe { libc::pthread_sigmask(SIG_BLOCK, core::ptr::null(), set.as_mut_ptr()) };
        // SAFETY: the call has written it.
        let set = unsafe { set.assume_init() };
        // SAFETY: it reads the set.
        unsafe { libc::sigismember(&raw const set, signal) == 1 }
    }

    fn blocked() -> impl Iterator<Item = c_int> {
        (1..32).filter(|&signal| is_blocked(signal))
    }

    #[test]
    fn all_is_blocked_but_what_instructions_raise_and_only_meanwhile() {
        let before: std::vec::Vec<_> = blocked().collect();
        let never = [SIGKILL, SIGSTOP];
        let open = |signal: &c_int| OWN.contains(signal) || never.contains(signal);
        let closed: std::vec::Vec<_> = (1..32).filter(|signal| !open(signal)).collect();
        assert_eq!(undisturbed(|| blocked().collect::<std::vec::Vec<_>>()), closed);
        let thread = spawn_undisturbed("test", || {
            let name = std::thread::current().name().map(std::string::ToString::to_string);
            (name, blocked().collect::<std::vec::Vec<_>>())
        });
        let (name, its) = thread.unwrap().join().unwrap();
        assert_eq!((name.as_deref(), its), (Some("test"), closed));
        assert_eq!(blocked().collect::<std::vec::Vec<_>>(), before);
    }
}
