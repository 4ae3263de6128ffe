//! The stack that a thread's faults are served on.
#![allow(unsafe_code)] // The kernel is told of a stack by its address.

use core::{marker::PhantomData, mem::MaybeUninit, ptr};

use pontoon_signal::SystemError;
use rustix::io::Errno;

use crate::{error::system, reserved::Reserved};

/// Room for a pager, and below it a page that nobody may touch.
const BYTES: usize = 128 << 10;

/// Gives the calling thread a stack of its own for its faults, of 128 KiB, until what it gives is
/// dropped: on the same thread, for it cannot be sent.
///
/// A thread without one serves its faults on the stack it is on, which has to have room for that: the
/// kernel needs 1 to 11 KiB, depending on the processor's registers, and the pager what it needs. One that
/// the standard library has started has another stack, but a small one, 8 KiB on most machines: it does
/// for a pager that copies a page, and not for one that calls a library. A thread that has no room
/// left is ended with its process, by SIGSEGV.
///
/// # Errors
///
/// What the kernel says: no memory, or the call came from a handler that runs on such a stack.
pub fn on_this_thread() -> Result<AlternateStack, SystemError> {
    let guard = rustix::param::page_size();
    let stack = Reserved::plain(guard + BYTES.next_multiple_of(guard))?;
    stack.close(0..guard).map_err(system("mprotect"))?;
    let new = libc::stack_t {
        ss_sp: stack.base().as_ptr().wrapping_byte_add(guard).cast(),
        ss_flags: 0,
        ss_size: stack.bytes() - guard,
    };
    let old = swap(&new)?;
    Ok(AlternateStack { stack: Some(stack), old, this_thread: PhantomData })
}

/// A thread's stack for its faults; see [`on_this_thread`].
///
/// Invariant A1: `stack` is the alternate stack of the thread that made it, which alone has this value,
/// or is remembered by another such value as the one to give back; it is mapped until `drop` has put the
/// old one in its place, and for ever where that cannot be done.
#[derive(Debug)]
pub struct AlternateStack {
    stack: Option<Reserved>,
    old: libc::stack_t,
    this_thread: PhantomData<*mut ()>,
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let stack = self.stack.take();
        let ours = stack
            .as_ref()
            .is_some_and(|stack| current().is_some_and(|now| stack.holds(now.ss_sp.addr())));
        // Another was put in its place, which may give it back later; or the thread is on it just now.
        if !ours || swap(&self.old).is_err() {
            core::mem::forget(stack); // A1
        }
    }
}

fn swap(new: &libc::stack_t) -> Result<libc::stack_t, SystemError> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: A1, the new stack stays mapped until the thread has another; `old` is room for one.
    if unsafe { libc::sigaltstack(new, old.as_mut_ptr()) } != 0 {
        return Err(system("sigaltstack")(Errno::PERM));
    }
    // SAFETY: the call that succeeded has written it.
    Ok(unsafe { old.assume_init() })
}

fn current() -> Option<libc::stack_t> {
    let mut now = MaybeUninit::uninit();
    // SAFETY: with no new stack this only writes the old one, into room for it.
    let code = unsafe { libc::sigaltstack(ptr::null(), now.as_mut_ptr()) };
    // SAFETY: the call that succeeded has written it.
    (code == 0).then(|| unsafe { now.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::{current, on_this_thread};

    #[test]
    fn a_thread_gets_its_stack_and_has_its_old_one_back() {
        let before = current().unwrap();
        {
            let _outer = on_this_thread().unwrap();
            let outer = current().unwrap();
            assert!(outer.ss_size >= 128 << 10 && outer.ss_sp != before.ss_sp);
            drop(on_this_thread().unwrap());
            assert_eq!(current().unwrap().ss_sp, outer.ss_sp);
        }
        let after = current().unwrap();
        assert_eq!((after.ss_sp, after.ss_flags), (before.ss_sp, before.ss_flags));
    }

    #[test]
    fn stacks_may_be_given_up_in_any_order() {
        let before = current().unwrap();
        let outer = on_this_thread().unwrap();
        let inner = on_this_thread().unwrap();
        drop(outer);
        drop(inner);
        // The thread has the outer one for good, which stays mapped.
        let after = current().unwrap();
        assert_ne!((after.ss_sp, after.ss_flags), (before.ss_sp, libc::SS_DISABLE));
    }
}
