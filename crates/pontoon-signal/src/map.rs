//! Memory that several processes map.
#![allow(unsafe_code)] // Mapping memory is a promise to the compiler that only this file makes.

use core::{ffi::c_void, ptr::NonNull};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io,
    mm::{MapFlags, ProtFlags},
};

/// A shared mapping of a memfd: zeroed, page-aligned, of a size that nobody can change.
///
/// Invariant S1: `[base, base + bytes)` is mapped readable and writable from `create` or `open`
/// until `drop`. S2: the file is sealed against shrinking, so no access within can raise SIGBUS.
#[derive(Debug)]
pub struct SharedMap {
    base: NonNull<c_void>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: S1, the mapping belongs to the value, not to the thread; what is read and written in it
// is the business of whoever dereferences `base`.
unsafe impl Send for SharedMap {}
// SAFETY: as for `Send`; the methods only hand out the address, the size and the file.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps `bytes` of new memory, rounded up to whole pages. The name shows in `/proc/*/maps`.
    ///
    /// # Errors
    ///
    /// What the kernel says: no memory, or too many files.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = bytes.max(1).checked_next_multiple_of(page).ok_or(io::Errno::NOMEM)?;
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, bytes)
    }

    /// Maps what another process created.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is not sealed against shrinking, else what the kernel says.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(io::Errno::PERM);
        }
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size);
        let bytes = bytes.ok().filter(|&bytes| bytes > 0).ok_or(io::Errno::INVAL)?;
        Self::map(file, bytes)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let none = core::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base =
            unsafe { rustix::mm::mmap(none, bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base).ok_or(io::Errno::NOMEM)?;
        Ok(Self { base, bytes, file })
    }

    /// The first byte. It stays where it is as long as the map lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// The size in bytes, a multiple of the page size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file to hand to another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: S1, the mapping is ours and whoever borrowed from it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::SharedMap;
    use rustix::{fs::MemfdFlags, io::Errno};

    #[test]
    fn an_unsealed_file_is_refused() {
        let file = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(SharedMap::open(file).unwrap_err(), Errno::PERM);
    }

    #[test]
    fn a_peer_cannot_shrink_it() {
        let map = SharedMap::create("sealed", 1).unwrap();
        assert_eq!(map.bytes() % rustix::param::page_size(), 0);
        assert_eq!(rustix::fs::ftruncate(map.file(), 0), Err(Errno::PERM));
    }

    #[test]
    fn a_size_beyond_all_memory_is_an_error() {
        assert!(SharedMap::create("huge", usize::MAX).is_err());
    }
}
