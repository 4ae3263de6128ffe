//! Who handled a signal before, and how it is asked.
#![allow(unsafe_code)] // Handlers of others are called.

use core::{mem::MaybeUninit, ptr};
use std::sync::OnceLock;

use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK,
    SIGURG, c_int, sigaction, sigset_t,
};
use pontoon_signal::{
    SystemError,
    shim::{AtomicU64, Ordering::Relaxed},
};
use rustix::io::Errno;

use super::context::Delivered;
use crate::{ServeError, error::system};

/// How often somebody may take the signal over, and be put behind again.
pub(super) const TAKEOVERS: usize = 8;

/// What the C library adds to the flags of its own.
const SA_RESTORER: c_int = 0x0400_0000;

/// Handlers of others, the first that was there and those that took the signal over later.
///
/// A foreign fault goes to the latest of them. That one may have remembered ours as who was before it,
/// and call it: a circle. It is told by the signals that are blocked. The kernel calls our handler with
/// every signal blocked, and we call another's with [`MARK`] open, whatever it asked for: so where
/// it is open, our handler was called by another's, and the fault goes to the first.
///
/// Invariant H1: an action is what `sigaction` gave of the signal that is handled. A handler that was installed may be
/// called with what the kernel called ours with.
#[derive(Debug)]
pub(super) struct Previous {
    first: OnceLock<Action>,
    later: [OnceLock<Action>; TAKEOVERS],
}

/// The signal that is open while another's handler runs. By default nothing comes of it.
const MARK: c_int = SIGURG;

/// A disposition.
pub(super) struct Action {
    action: sigaction,
    /// 1 once a handler that wants a single call had it.
    reset: AtomicU64,
}

// SAFETY: a disposition is a function's address, flags and a set of signals.
unsafe impl Send for Action {}
// SAFETY: as for `Send`; what changes is an atomic.
unsafe impl Sync for Action {}

impl core::fmt::Debug for Action {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Action({:#x}, {:#x})", self.action.sa_sigaction, self.action.sa_flags)
    }
}

impl Previous {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new(), later: [const { OnceLock::new() }; TAKEOVERS] }
    }

    /// Remembers who is there now, before it is displaced.
    pub(super) fn remember(&self, action: Action) -> Result<(), ServeError> {
        let Err(action) = self.first.set(action) else { return Ok(()) };
        if self.newest().is_some_and(|newest| newest.is(&action)) {
            return Ok(());
        }
        let left = self.later.iter().try_fold(action, |action, place| match place.set(action) {
            Ok(()) => Err(()),
            Err(action) => Ok(action),
        });
        left.map_or(Ok(()), |_| Err(ServeError::TakenOver { times: TAKEOVERS }))
    }

    fn newest(&self) -> Option<&Action> {
        self.later.iter().rev().find_map(OnceLock::get).or_else(|| self.first.get())
    }

    /// Has whoever was there before handle a signal that is not for us, as the kernel would have.
    pub(super) fn handle(&self, delivered: Delivered) {
        let by_another = blocked_now().is_some_and(|set| !contains(&set, MARK));
        let action = if by_another { self.first.get() } else { self.newest() };
        match action {
            Some(action) => action.handle(delivered),
            None => end_by_default(delivered),
        }
    }
}

impl Action {
    /// The one that is in force.
    pub(super) fn now(signal: c_int) -> Result<Self, SystemError> {
        let mut now = MaybeUninit::uninit();
        // SAFETY: with no new action this only writes the old one, into room for it.
        let code = unsafe { sigaction(signal, ptr::null(), now.as_mut_ptr()) };
        if code != 0 {
            return Err(system("sigaction")(Errno::INVAL));
        }
        // SAFETY: the call that succeeded has written it.
        Ok(Self { action: unsafe { now.assume_init() }, reset: AtomicU64::new(0) })
    }

    /// Puts `handler` in force, with every signal blocked while it runs, on the thread's other stack
    /// if it has one. The one that was in force until then.
    ///
    /// # Safety
    ///
    /// `handler` may be called for any such signal, wherever a thread is.
    pub(super) unsafe fn install(signal: c_int, handler: usize) -> Result<Self, SystemError> {
        // SAFETY: an action is made of integers and a function's address, which may be zero.
        let mut action: sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        // SAFETY: it writes the set.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        let mut old = MaybeUninit::uninit();
        // SAFETY: as the caller promises, and `old` is room for one.
        if unsafe { sigaction(signal, &raw const action, old.as_mut_ptr()) } != 0 {
            return Err(system("sigaction")(Errno::INVAL));
        }
        // SAFETY: the call that succeeded has written it.
        Ok(Self { action: unsafe { old.assume_init() }, reset: AtomicU64::new(0) })
    }

    /// Whether it is that function.
    pub(super) fn calls(&self, handler: usize) -> bool {
        self.action.sa_sigaction == handler
    }

    fn is(&self, other: &Self) -> bool {
        let told = |it: &sigaction| (it.sa_sigaction, it.sa_flags & !SA_RESTORER);
        told(&self.action) == told(&other.action)
    }

    fn handle(&self, delivered: Delivered) {
        let (handler, flags) = (self.action.sa_sigaction, self.action.sa_flags);
        let spent = flags & SA_RESETHAND != 0 && self.reset.fetch_or(1, Relaxed) != 0;
        match handler {
            SIG_IGN if !delivered.is_fault() => return,
            // The kernel does not let a fault be ignored: it would come again, for ever.
            SIG_DFL | SIG_IGN => return end_by_default(delivered),
            _ if spent => return end_by_default(delivered),
            _ => {}
        }
        let mut blocked = delivered.blocked();
        for signal in 1..=64 {
            if contains(&self.action.sa_mask, signal) {
                add(&mut blocked, signal);
            }
        }
        if flags & SA_NODEFER == 0 {
            add(&mut blocked, delivered.signal);
        }
        remove(&mut blocked, MARK);
        let ours = swap_blocked(&blocked);
        if flags & SA_SIGINFO != 0 {
            // SAFETY: H1.
            unsafe { delivered.call_with_info(handler) };
        } else {
            // SAFETY: H1.
            unsafe { delivered.call_plain(handler) };
        }
        if let Some(ours) = ours {
            swap_blocked(&ours);
        }
    }
}

/// Ends the process as if nobody had handled the signal: a fault comes again, and what somebody sent is
/// sent once more.
fn end_by_default(delivered: Delivered) {
    // SAFETY: an action is made of integers and a function's address, which may be zero.
    let mut action: sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = SIG_DFL;
    // SAFETY: it sets the default.
    unsafe { sigaction(delivered.signal, &raw const action, ptr::null_mut()) };
    if !delivered.is_fault() {
        // SAFETY: it is blocked until the handler returns.
        unsafe { libc::raise(delivered.signal) };
    }
}

fn blocked_now() -> Option<sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: with no new set this only writes the old one, into room for it.
    let code = unsafe { libc::pthread_sigmask(SIG_BLOCK, ptr::null(), set.as_mut_ptr()) };
    // SAFETY: the call that succeeded has written it.
    (code == 0).then(|| unsafe { set.assume_init() })
}

/// Blocks these signals alone, and says which were blocked before.
fn swap_blocked(set: &sigset_t) -> Option<sigset_t> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: it reads one set and writes the other.
    let code = unsafe { libc::pthread_sigmask(SIG_SETMASK, set, old.as_mut_ptr()) };
    // SAFETY: the call that succeeded has written it.
    (code == 0).then(|| unsafe { old.assume_init() })
}

fn contains(set: &sigset_t, signal: c_int) -> bool {
    // SAFETY: it reads the set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

fn add(set: &mut sigset_t, signal: c_int) {
    // SAFETY: it writes the set.
    unsafe { libc::sigaddset(set, signal) };
}

fn remove(set: &mut sigset_t, signal: c_int) {
    // SAFETY: it writes the set.
    unsafe { libc::sigdelset(set, signal) };
}
