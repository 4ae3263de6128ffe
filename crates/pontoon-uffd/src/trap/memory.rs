//! Memory of this process that a handler reads.
#![allow(unsafe_code)] // It is named by addresses of the interrupted thread's.

use core::ptr::with_exposed_provenance;

/// The most bytes of an instruction.
pub(super) const CODE: usize = 15;

/// Reads the bytes of the instruction at `address` that are on its page, or all if `beyond` says that it goes on. How
/// many.
///
/// # Safety
///
/// Invariant K3: the processor has fetched the instruction from there, of which more is on the next page if `beyond` is
/// set: what it fetches from can be read.
pub(super) unsafe fn code(address: u64, beyond: bool, into: &mut [u8; CODE]) -> usize {
    let page = rustix::param::page_size();
    let address = address as usize;
    let on_page = page - address % page;
    let length = if beyond { CODE } else { CODE.min(on_page) };
    let from = with_exposed_provenance::<u8>(address);
    // SAFETY: K3.
    unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), length) };
    length
}

/// Copies memory of this process, as far as it can be read: how many bytes. The kernel looks, so that a page that
/// is not in place is no fault of this thread.
pub(super) fn copy(address: u64, into: &mut [u8]) -> usize {
    let page = rustix::param::page_size();
    let mut done = 0;
    while done < into.len() {
        let at = address as usize + done;
        let bytes = (page - at % page).min(into.len() - done);
        let to = libc::iovec { iov_base: into[done..].as_mut_ptr().cast(), iov_len: bytes };
        let from =
            libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(at), iov_len: bytes };
        // SAFETY: it has no arguments.
        let process = unsafe { libc::getpid() };
        // SAFETY: the kernel writes `bytes` bytes of `into` at most, and checks whatever it reads.
        let copied =
            unsafe { libc::process_vm_readv(process, &raw const to, 1, &raw const from, 1, 0) };
        if copied != bytes as isize {
            return done + usize::try_from(copied).unwrap_or(0);
        }
        done += bytes;
    }
    done
}
