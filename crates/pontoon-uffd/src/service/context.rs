//! What a signal's context tells.
#![allow(unsafe_code)] // The kernel's structures are given by pointer.

use core::ffi::c_void;

use libc::{c_int, siginfo_t};

/// A signal, as the kernel told of it.
///
/// Invariant K1: `info` and `context` are what a handler that was installed with `SA_SIGINFO` was
/// given, and it has not returned.
#[derive(Clone, Copy)]
pub(crate) struct Delivered {
    pub(super) signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
}

/// Memory that broke while it was read.
const BUS_MCEERR_AR: c_int = 4;
/// The bit of a page fault's error code that says that it was a write.
#[cfg(target_arch = "x86_64")]
const WRITE: i64 = 2;

impl Delivered {
    /// # Safety
    ///
    /// K1.
    pub(crate) unsafe fn new(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> Self {
        Self { signal, info, context }
    }

    fn code(self) -> c_int {
        // SAFETY: K1.
        unsafe { (*self.info).si_code }
    }

    /// Whether an access of this thread raised it, and not somebody's `kill`.
    pub(crate) fn is_fault(self) -> bool {
        self.code() > 0
    }

    /// Whether memory is broken.
    pub(super) fn is_broken_memory(self) -> bool {
        self.code() == BUS_MCEERR_AR
    }

    /// The address of the access.
    pub(crate) fn address(self) -> usize {
        // SAFETY: K1.
        let info = unsafe { &*self.info };
        // SAFETY: of a SIGBUS that is a fault the kernel has filled it in, and else it is some integer.
        unsafe { info.si_addr() }.addr()
    }

    /// The thread's registers, which it goes on with.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn machine(self) -> *mut libc::ucontext_t {
        self.context.cast()
    }

    /// Whether the access was a write, where that can be told.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_write(self) -> bool {
        let context = self.context.cast::<libc::ucontext_t>();
        // SAFETY: K1.
        let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
        error & WRITE != 0
    }

    /// Whether the access was a write, where that can be told.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn is_write(self) -> bool {
        false
    }

    /// The signals that the thread had blocked.
    pub(super) fn blocked(self) -> libc::sigset_t {
        let context = self.context.cast::<libc::ucontext_t>();
        // The C library's structure has room for more signals than the kernel's, which lies behind it.
        // SAFETY: a set of signals is made of integers.
        let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
        // SAFETY: K1.
        let blocked = unsafe { &raw const (*context).uc_sigmask };
        // SAFETY: the kernel wrote the first word of it, a bit for each signal.
        let first = unsafe { blocked.cast::<u64>().read() };
        // SAFETY: it has room for 1024 bits.
        unsafe { (&raw mut set).cast::<u64>().write(first) };
        set
    }

    /// Calls a handler that takes the signal alone.
    ///
    /// # Safety
    ///
    /// `handler` is a function that was installed for this signal without `SA_SIGINFO`.
    pub(super) unsafe fn call_plain(self, handler: usize) {
        // SAFETY: as the caller promises.
        let handler = unsafe {
            core::mem::transmute::<*const c_void, extern "C" fn(c_int)>(
                core::ptr::with_exposed_provenance(handler),
            )
        };
        handler(self.signal);
    }

    /// Calls a handler that takes all that is known of the signal.
    ///
    /// # Safety
    ///
    /// `handler` is a function that was installed for this signal with `SA_SIGINFO`.
    pub(super) unsafe fn call_with_info(self, handler: usize) {
        // SAFETY: as the caller promises.
        let handler = unsafe {
            core::mem::transmute::<*const c_void, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(
                core::ptr::with_exposed_provenance(handler),
            )
        };
        handler(self.signal, self.info, self.context);
    }
}
