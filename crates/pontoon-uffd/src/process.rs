//! Which process this is, told without a system call.
#![allow(unsafe_code)] // A page is read that the kernel clears in a child.

use core::ptr::NonNull;
use std::sync::OnceLock;

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed, process_id};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The pid, from a page that the kernel clears in a child of `fork`; by a call where it cannot.
///
/// A child has no windows, but it has the values that stand for them, and a descriptor by which it
/// could change the parent's pages: so each window knows whose it is.
pub(crate) fn current() -> u64 {
    static PAGE: OnceLock<Option<Page>> = OnceLock::new();
    let pid = || u64::from(process_id());
    let Some(page) = PAGE.get_or_init(Page::new) else { return pid() };
    match page.word().load(Relaxed) {
        0 => {
            page.word().store(pid(), Relaxed);
            pid()
        }
        known => known,
    }
}

/// Invariant G1: a page that stays mapped, and is reached through `word` alone.
#[derive(Debug)]
struct Page(NonNull<AtomicU64>);

// SAFETY: G1, it is an atomic that stays.
unsafe impl Send for Page {}
// SAFETY: as for `Send`.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Option<Self> {
        let (bytes, none) = (rustix::param::page_size(), core::ptr::null_mut());
        let open = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let page =
            unsafe { rustix::mm::mmap_anonymous(none, bytes, open, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: our own page, which holds zeros.
        unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.ok()?;
        NonNull::new(page.cast()).map(Self)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: G1.
        unsafe { self.0.as_ref() }
    }
}
