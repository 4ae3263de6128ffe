//! The calls on a userfaultfd, one function each.
#![allow(unsafe_code)] // ioctls are calls of the kernel with pointers.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    ioctl::{Opcode, Updater, ioctl},
    mm::{UserfaultfdFlags, userfaultfd},
};

use crate::{abi, reserved::Reserved, source::Source};

/// A userfaultfd.
///
/// Invariant U1: only ranges of a [`Reserved`] are registered with it, of which nobody has a
/// reference but to atomics. So whatever the kernel does to pages by this descriptor is a store to
/// atomics at most, and a call for any other address fails. U2: an argument is the structure that
/// its request declares (`abi.rs`), and the kernel writes nothing but that structure and U1's pages.
#[derive(Debug)]
pub(crate) struct Descriptor(OwnedFd);

/// What a call did: all of it, or so many bytes before it was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    pub(crate) done: usize,
    pub(crate) errno: Errno,
}

impl Descriptor {
    /// A new descriptor that has agreed on `features`, and those that the kernel has. With
    /// `user_only` it serves no fault of the kernel's own, and needs no privileges.
    pub(crate) fn open(features: u64, user_only: bool) -> Result<(Self, u64), Errno> {
        let mut flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        if user_only {
            flags |= UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        }
        // SAFETY: U1, what is done by the descriptor is up to this type.
        let fd = Self(unsafe { userfaultfd(flags) }?);
        let mut api = abi::Api { api: abi::UFFD_API, features, ioctls: 0 };
        fd.call::<{ abi::UFFDIO_API }, _>(&mut api)?;
        Ok((fd, api.features))
    }

    /// Has the faults of `range` come here, in these modes.
    pub(crate) fn register(&self, range: &Reserved, mode: u64) -> Result<(), Errno> {
        let range = abi::Span { start: range.start() as u64, len: range.bytes() as u64 };
        self.call::<{ abi::UFFDIO_REGISTER }, _>(&mut abi::Register { range, mode, ioctls: 0 })
    }

    /// Fills absent pages at `dst`, which others see as a whole or not at all.
    pub(crate) fn copy(&self, dst: usize, source: Source<'_>, mode: u64) -> Result<(), Stopped> {
        let (src, len) = (source.address() as u64, source.bytes() as u64);
        let mut copy = abi::Copy { dst: dst as u64, src, len, mode, copy: 0 };
        let called = self.call::<{ abi::UFFDIO_COPY }, _>(&mut copy);
        called.map_err(|errno| Stopped::at(copy.copy, errno))
    }

    /// Maps pages of shared memory that are there.
    pub(crate) fn map(&self, range: abi::Span, mode: u64) -> Result<(), Stopped> {
        let mut mapped = abi::Continue { range, mode, mapped: 0 };
        let called = self.call::<{ abi::UFFDIO_CONTINUE }, _>(&mut mapped);
        called.map_err(|errno| Stopped::at(mapped.mapped, errno))
    }

    pub(crate) fn write_protect(&self, range: abi::Span, mode: u64) -> Result<(), Errno> {
        self.call::<{ abi::UFFDIO_WRITEPROTECT }, _>(&mut abi::WriteProtect { range, mode })
    }

    pub(crate) fn poison(&self, range: abi::Span, mode: u64) -> Result<(), Stopped> {
        let mut poison = abi::Poison { range, mode, updated: 0 };
        let called = self.call::<{ abi::UFFDIO_POISON }, _>(&mut poison);
        called.map_err(|errno| Stopped::at(poison.updated, errno))
    }

    /// Moves pages from one registered range to another (U1 of both).
    pub(crate) fn move_pages(&self, from: abi::Span, to: usize, mode: u64) -> Result<(), Stopped> {
        let mut moved =
            abi::Move { dst: to as u64, src: from.start, len: from.len, mode, moved: 0 };
        let called = self.call::<{ abi::UFFDIO_MOVE }, _>(&mut moved);
        called.map_err(|errno| Stopped::at(moved.moved, errno))
    }

    pub(crate) fn wake(&self, mut range: abi::Span) -> Result<(), Errno> {
        self.call::<{ abi::UFFDIO_WAKE }, _>(&mut range)
    }

    /// The next faults, as many as there are and fit: none if there are none.
    pub(crate) fn read(&self, into: &mut [abi::Message]) -> Result<usize, Errno> {
        let bytes = size_of_val(into);
        let first = into.as_mut_ptr().cast::<u8>();
        // SAFETY: U2, a message is made of integers, of which any bytes are valid.
        let into = unsafe { core::slice::from_raw_parts_mut(first, bytes) };
        match rustix::io::read(&self.0, into) {
            Ok(bytes) => Ok(bytes / size_of::<abi::Message>()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    fn call<const REQUEST: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: U2, each caller passes the structure of its request.
        let updater = unsafe { Updater::<'_, REQUEST, T>::new(argument) };
        // SAFETY: U1 and U2.
        unsafe { ioctl(&self.0, updater) }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stopped {
    /// A call that was refused with `errno`, which had done so many bytes, or none.
    fn at(done: i64, errno: Errno) -> Self {
        Self { done: usize::try_from(done).unwrap_or(0), errno }
    }
}

/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: u32 = 1;

/// Asks a descriptor of `/proc/self/pagemap` which pages of a range were written, see
/// [`abi::ScanArgument`]: how many regions it told of.
pub(crate) fn scan(
    pagemap: BorrowedFd<'_>,
    argument: &mut abi::ScanArgument,
    found: &mut [abi::PageRegion],
) -> Result<usize, Errno> {
    argument.size = size_of::<abi::ScanArgument>() as u64;
    argument.vec = if found.is_empty() { 0 } else { found.as_mut_ptr().expose_provenance() as u64 };
    argument.vec_len = found.len() as u64;
    // SAFETY: U2, and `vec` names room for so many regions, made of integers.
    unsafe { ioctl(pagemap, Counting(argument)) }
}

/// `PAGEMAP_SCAN`, whose answer is a count.
struct Counting<'a>(&'a mut abi::ScanArgument);

// SAFETY: U2, the request reads and writes a `pm_scan_arg`.
unsafe impl rustix::ioctl::Ioctl for Counting<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        abi::PAGEMAP_SCAN
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(
        count: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        Ok(usize::try_from(count).unwrap_or(0))
    }
}
