//! Memory with a page on either side that nobody may touch.

use std::{
    ffi::c_void,
    ptr::{NonNull, null_mut},
    sync::OnceLock,
};

use pontoon_signal::{LINE_BYTES, Mapping};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

/// Bytes that end where the second page begins, or less than a line before it: the first of them is on
/// a line. There is one such memory, which each takes over from the one before.
#[derive(Debug)]
pub(crate) struct Guarded {
    base: NonNull<u8>,
    bytes: usize,
}

const ROOM: usize = 64 << 10;

/// The address of so much room.
fn room() -> NonNull<u8> {
    static ROOM_AT: OnceLock<usize> = OnceLock::new();
    let at = ROOM_AT.get_or_init(|| {
        let page = rustix::param::page_size();
        let (all, none) = (ROOM + 2 * page, ProtFlags::empty());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(null_mut(), all, none, MapFlags::PRIVATE) };
        // SAFETY: within what was mapped.
        let room = unsafe { base.expect("memory").byte_add(page) };
        // SAFETY: as above, and nobody uses it yet.
        unsafe { mprotect(room, ROOM, MprotectFlags::READ | MprotectFlags::WRITE) }.expect("pages");
        room.expose_provenance()
    });
    NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(*at)).expect("a mapping").cast()
}

impl Guarded {
    /// A copy of `bytes`. Those before it must be gone.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let from_end = bytes.len().next_multiple_of(LINE_BYTES);
        assert!(from_end <= ROOM, "-max_len is too large");
        // SAFETY: within the room.
        let base = unsafe { room().add(ROOM - from_end) };
        // SAFETY: as above, and nobody else uses it.
        unsafe { base.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Self { base, bytes: bytes.len() }
    }
}

// SAFETY: the address is of the process, not of a thread.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

// SAFETY: what is mapped is never unmapped; who has it makes no references but to atomics.
unsafe impl Mapping for Guarded {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
