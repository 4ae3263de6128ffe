//! Memory that several processes map.
#![allow(unsafe_code)] // Mapping memory is a promise to the compiler that only this file makes.

use core::{ffi::c_void, ptr::NonNull};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
};

use crate::{LINE_BYTES, OpenError, SystemError};

/// A shared mapping of a memfd: zeroed, page-aligned, of a size that nobody can change.
///
/// Invariant S1: `[base, base + bytes)` is mapped readable and writable from `create` or `open`
/// until `drop`. S2: the file is sealed against shrinking, so no access within can raise SIGBUS.
#[derive(Debug)]
pub struct SharedMap {
    base: NonNull<c_void>,
    bytes: usize,
    /// Kept only where another process may ask for it: files are few.
    file: Option<OwnedFd>,
}

// SAFETY: S1, the mapping belongs to the value, not to the thread; what is read and written in it
// is the business of whoever dereferences `base`.
unsafe impl Send for SharedMap {}
// SAFETY: as for `Send`; the methods only hand out the address, the size and the file.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps `bytes` of new memory, rounded up to whole pages, and keeps its file for other
    /// processes. The name shows in `/proc/*/maps`.
    ///
    /// # Errors
    ///
    /// What the kernel says: no memory, or too many files.
    pub fn create(name: &str, bytes: usize) -> Result<Self, SystemError> {
        let (file, bytes) = new_file(name, bytes)?;
        Ok(Self { base: map(&file, bytes)?, bytes, file: Some(file) })
    }

    /// As [`create`](Self::create) for this process alone: no file stays open, so there may be
    /// more of them than files.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn private(name: &str, bytes: usize) -> Result<Self, SystemError> {
        let (file, bytes) = new_file(name, bytes)?;
        Ok(Self { base: map(&file, bytes)?, bytes, file: None })
    }

    /// Maps what another process created.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unsealed`] if the file is not sealed against shrinking,
    /// [`OpenError::Truncated`] if it is empty, else [`OpenError::System`].
    pub fn open(file: OwnedFd) -> Result<Self, OpenError> {
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {}
            // Not every kind of file can be sealed.
            Ok(_) | Err(Errno::INVAL) => return Err(OpenError::Unsealed),
            Err(errno) => return Err(SystemError::of("fcntl")(errno).into()),
        }
        let size = rustix::fs::fstat(&file).map_err(SystemError::of("fstat"))?.st_size;
        let bytes = usize::try_from(size).ok().filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(OpenError::Truncated { bytes: 0, wanted: LINE_BYTES })?;
        Ok(Self { base: map(&file, bytes)?, bytes, file: Some(file) })
    }

    /// The first byte. It stays where it is as long as the map lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// The size in bytes, a multiple of the page size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file to hand to another process; `None` of a [private](Self::private) map.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

/// A sealed file of `bytes` zeroes, rounded up to whole pages, and its size.
fn new_file(name: &str, bytes: usize) -> Result<(OwnedFd, usize), SystemError> {
    let page = rustix::param::page_size();
    let bytes = bytes.max(1).checked_next_multiple_of(page);
    let bytes = bytes.ok_or(SystemError::of("ftruncate")(Errno::FBIG))?;
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(SystemError::of("memfd_create"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(SystemError::of("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(SystemError::of("fcntl"))?;
    Ok((file, bytes))
}

/// Maps all of `file`. Whoever calls owns the mapping.
fn map(file: &OwnedFd, bytes: usize) -> Result<NonNull<c_void>, SystemError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let none = core::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let base = unsafe { rustix::mm::mmap(none, bytes, protection, MapFlags::SHARED, file, 0) };
    let base = base.map_err(SystemError::of("mmap"))?;
    NonNull::new(base).ok_or(SystemError::of("mmap")(Errno::NOMEM))
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
    use crate::{OpenError, SystemError};
    use rustix::{fs::MemfdFlags, io::Errno};

    #[test]
    fn an_unsealed_file_is_refused() {
        let file = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(SharedMap::open(file).unwrap_err(), OpenError::Unsealed);
    }

    #[test]
    fn a_peer_cannot_shrink_it() {
        let map = SharedMap::create("sealed", 1).unwrap();
        assert_eq!(map.bytes() % rustix::param::page_size(), 0);
        assert_eq!(rustix::fs::ftruncate(map.file().unwrap(), 0), Err(Errno::PERM));
    }

    #[test]
    fn a_size_beyond_all_memory_is_an_error() {
        let refused = SharedMap::create("huge", usize::MAX).unwrap_err();
        assert_eq!(refused, SystemError::of("ftruncate")(Errno::FBIG));
        let refused = SharedMap::private("huge", 1 << 62).unwrap_err();
        assert!(["ftruncate", "mmap"].contains(&refused.call), "{refused}");
    }
}
