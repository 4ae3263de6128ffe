//! Addresses that are set aside.
#![allow(unsafe_code)] // Mapping memory is a promise to the compiler that only this file makes.

use core::{ffi::c_void, ops::Range, ptr::NonNull};

use pontoon_signal::{SystemError, shim::AtomicU64};
use rustix::{
    fd::BorrowedFd,
    io::Errno,
    mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags},
};

use crate::{error::system, process};

/// A range of addresses with nothing behind it at first, of whole pages.
///
/// It is not counted as memory that will be used (`MAP_NORESERVE`), a child of `fork` does not get it
/// (`MADV_DONTFORK`: else it would read zeros where the parent reads what came from afar), it is in
/// no core dump, and has no huge pages.
///
/// Invariant R1: in the process that made it `[base, base + bytes)` is mapped from the constructor until
/// `drop`, at first readable
/// and writable; afterwards an access may raise a signal, as pages are poisoned or closed, and reads
/// and writes no foreign memory. R2: nobody has a reference to any of it but to atomics, of which any
/// bytes are valid and others, the kernel among them, may write.
#[derive(Debug)]
pub(crate) struct Reserved {
    base: NonNull<c_void>,
    bytes: usize,
    /// Who has it.
    process: u64,
}

// SAFETY: R1, the mapping belongs to the value, not to a thread; R2 for what is read and written.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

const OPEN: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Reserved {
    /// Sets `bytes` aside, a multiple of the page size above zero.
    pub(crate) fn new(bytes: usize) -> Result<Self, SystemError> {
        Self::plain(bytes)?.advised()
    }

    /// As [`new`](Self::new), over the `bytes` of a file, which is not shorter.
    pub(crate) fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Self, SystemError> {
        let none = core::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { rustix::mm::mmap(none, bytes, OPEN, MapFlags::SHARED, file, 0) };
        Self::at(base, bytes)?.advised()
    }

    fn advised(self) -> Result<Self, SystemError> {
        for (advice, required) in ADVICE {
            match self.advise(0..self.bytes, advice) {
                Err(errno) if required => return Err(system("madvise")(errno)),
                _ => {}
            }
        }
        Ok(self)
    }

    /// The same as ordinary memory of this process, which a child has too.
    pub(crate) fn plain(bytes: usize) -> Result<Self, SystemError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = core::ptr::null_mut();
        // Where the program has all its memory locked, also what is to come, the kernel would have every page of it here at
        // once, but for those that nobody may touch.
        let closed = ProtFlags::empty();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { rustix::mm::mmap_anonymous(none, bytes, closed, flags) };
        let plain = Self::at(base, bytes)?;
        let (first, bytes) = plain.part(0..bytes);
        // SAFETY: R1; it changes what the kernel may do with the pages, of which there are none.
        unsafe { rustix::mm::munlock(first, bytes) }.map_err(system("munlock"))?;
        plain.open(0..bytes).map_err(system("mprotect"))?;
        Ok(plain)
    }

    fn at(base: Result<*mut c_void, Errno>, bytes: usize) -> Result<Self, SystemError> {
        let base = base.map_err(system("mmap"))?;
        let base = NonNull::new(base).ok_or_else(|| system("mmap")(Errno::NOMEM))?;
        Ok(Self { base, bytes, process: process::current() })
    }

    /// Whether this is the process that has it, and no child of it.
    pub(crate) fn is_here(&self) -> bool {
        self.process == process::current()
    }

    /// Whether `address` is within.
    pub(crate) fn holds(&self, address: usize) -> bool {
        (self.start()..self.start() + self.bytes).contains(&address)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    pub(crate) fn start(&self) -> usize {
        self.base.as_ptr().addr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The words of a range of bytes, or `None` if they are not within it or not whole words, or this is a
    /// child of the process that has them.
    pub(crate) fn words(&self, range: Range<usize>) -> Option<&[AtomicU64]> {
        let bytes = range.end.checked_sub(range.start)?;
        if !self.is_here()
            || range.end > self.bytes
            || !range.start.is_multiple_of(8)
            || !bytes.is_multiple_of(8)
        {
            return None;
        }
        // SAFETY: R1, within.
        let first = unsafe { self.base().add(range.start) };
        // SAFETY: R1 and R2, and the base of a page is aligned.
        Some(unsafe { core::slice::from_raw_parts(first.cast().as_ptr(), bytes / 8) })
    }

    /// Takes the pages of a range of bytes away: they are absent from then on.
    pub(crate) fn drop_pages(&self, range: Range<usize>) -> Result<(), Errno> {
        match self.advise(range.clone(), Advice::LinuxDontNeed) {
            // So says a kernel of memory that the program has locked meanwhile, with all that it has. Since Linux 5.18
            // such pages can go too.
            Err(Errno::INVAL) => self.advise(range, Advice::LinuxDontneedLocked),
            other => other,
        }
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Errno> {
        let (first, bytes) = self.part(range);
        // SAFETY: R1 and R2, within; the kernel stores zeros at most.
        unsafe { rustix::mm::madvise(first, bytes, advice) }
    }

    /// Whether the page at `at` is in memory, as far as the kernel says.
    pub(crate) fn is_resident(&self, at: usize, page: usize) -> bool {
        let (first, bytes) = self.part(at..at + page);
        let mut resident = [0_u8];
        // SAFETY: it writes a byte for the one page, and nothing else.
        let code = unsafe { libc::mincore(first, bytes, resident.as_mut_ptr()) };
        code == 0 && resident[0] & 1 != 0
    }

    /// Has every access to a range of bytes raise SIGSEGV.
    pub(crate) fn close(&self, range: Range<usize>) -> Result<(), Errno> {
        self.protect(range, MprotectFlags::empty())
    }

    /// Undoes [`close`](Self::close).
    pub(crate) fn open(&self, range: Range<usize>) -> Result<(), Errno> {
        self.protect(range, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Has every store to a range of bytes raise SIGSEGV.
    pub(crate) fn read_only(&self, range: Range<usize>) -> Result<(), Errno> {
        self.protect(range, MprotectFlags::READ)
    }

    fn protect(&self, range: Range<usize>, how: MprotectFlags) -> Result<(), Errno> {
        let (first, bytes) = self.part(range);
        // SAFETY: R1 allows it: an access raises a signal at most.
        unsafe { rustix::mm::mprotect(first, bytes, how) }
    }

    /// Puts the page `other` in place of the one at `at`, in one step.
    pub(crate) fn replace(&self, at: usize, other: Self) -> Result<(), Errno> {
        let (target, bytes) = self.part(at..at + other.bytes);
        let flags = MremapFlags::MAYMOVE;
        // SAFETY: `other` is given up with the page and has no borrowers; the target is R1's, which
        // stays mapped, and by R2 whoever looks there has atomics.
        let moved =
            unsafe { rustix::mm::mremap_fixed(other.base.as_ptr(), bytes, bytes, flags, target) };
        if moved.is_ok() {
            core::mem::forget(other);
        }
        moved.map(drop)
    }

    /// The part `range` as the kernel wants it. Those who call have checked it.
    fn part(&self, range: Range<usize>) -> (*mut c_void, usize) {
        assert!(range.start <= range.end && range.end <= self.bytes, "R1: within the reservation");
        assert!(self.is_here(), "R1: of this process");
        (self.base.as_ptr().wrapping_byte_add(range.start), range.end - range.start)
    }
}

/// What the kernel is told of such memory, and whether it has to listen: one without huge pages has
/// none to give.
const ADVICE: [(Advice, bool); 3] = [
    (Advice::LinuxDontFork, true),
    (Advice::LinuxDontDump, true),
    (Advice::LinuxNoHugepage, false),
];

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_here() {
            return; // a child has something else there, or nothing
        }
        // SAFETY: R1, the mapping is ours and whoever borrowed from it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}
