//! What the process does on a signal, before and after a library was loaded.
#![allow(unsafe_code)] // sigaction is a C call.

use std::{mem::MaybeUninit, ptr};

use libc::{SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGSEGV, sigaction};

/// Those that UCX has taken in some version: errors, and the one that shows its state.
const TAKEN_BY_UCX: [i32; 5] = [SIGILL, SIGBUS, SIGFPE, SIGSEGV, SIGHUP];

/// The C library's own, in all that it sets: a default that was set has it, one that never was has
/// not.
const SA_RESTORER: i32 = 0x0400_0000;

/// The dispositions of these signals at one moment.
pub(crate) struct Dispositions(Vec<(i32, sigaction)>);

impl Dispositions {
    /// As they are now.
    pub(crate) fn now() -> Self {
        let look = |&signal: &i32| {
            let mut now = MaybeUninit::uninit();
            // SAFETY: with no new action this only writes the old one, into room for it.
            let code = unsafe { sigaction(signal, ptr::null(), now.as_mut_ptr()) };
            // SAFETY: the call that succeeded has written it.
            (code == 0).then(|| (signal, unsafe { now.assume_init() }))
        };
        Self(TAKEN_BY_UCX.iter().filter_map(look).collect())
    }

    /// Puts back those that differ by now, and says how many did. The environment of the load
    /// should have left none: this is for a UCX that does not know these settings.
    pub(crate) fn put_back(&self) -> usize {
        let now = Self::now();
        let told = |action: &sigaction| (action.sa_sigaction, action.sa_flags & !SA_RESTORER);
        let differ = self.0.iter().zip(&now.0).filter(|(then, now)| told(&then.1) != told(&now.1));
        let mut count = 0;
        for ((signal, then), _) in differ {
            // SAFETY: `then` is what sigaction gave, so it may be set again.
            count += usize::from(unsafe { sigaction(*signal, then, ptr::null_mut()) } == 0);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::Dispositions;

    extern "C" fn handler(_: i32) {}

    #[test]
    fn a_handler_that_was_taken_is_put_back() {
        let before = Dispositions::now();
        assert_eq!(before.put_back(), 0);
        // SAFETY: the handler does nothing, and no SIGHUP is sent meanwhile.
        unsafe { libc::signal(libc::SIGHUP, handler as extern "C" fn(i32) as usize) };
        assert_eq!(before.put_back(), 1);
        assert_eq!(before.put_back(), 0);
    }
}
