//! Memory that several processes map.
#![allow(unsafe_code)] // Mapping memory is a promise to the compiler that only this file makes.

use core::{ffi::c_void, fmt, ptr::NonNull};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
};

use crate::{LINE_BYTES, OpenError, SystemError};

/// Memory that others may reach too, and that a [`Block`](crate::Block) keeps.
///
/// # Safety
///
/// `[base, base + bytes)` is mapped readable and writable, and stays so and where it is, as long as the
/// value lives. No Rust reference to bytes of it exists while others may write them, but to atomics.
pub unsafe trait Mapping: fmt::Debug + Send + Sync {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;

    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// The file to hand to another process, if there is one.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

// SAFETY: S1; what S3 says of files with names ends the process, and reads no foreign memory.
unsafe impl Mapping for SharedMap {
    fn base(&self) -> NonNull<u8> {
        self.base()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file()
    }
}

/// A shared mapping of a file: page-aligned, from its first byte on.
///
/// A memfd is of a size that nobody can change. A file with a name is so only as long as those who
/// may write it, the user's own processes, leave its size alone: the kernel seals no such file.
///
/// Invariant S1: `[base, base + mapped)` is mapped readable and writable from the constructor until
/// `drop`; `bytes` of them are the file's, and those behind, on its last page, nobody is given. S2: of `create`, `private` and `open`, the file is sealed against shrinking, so no access
/// within can raise SIGBUS. S3: of `on_file`, `open_named` and `view`, an access can raise SIGBUS if
/// a process of the same user shrinks the file: that ends this process, and reads no foreign memory.
#[derive(Debug)]
pub struct SharedMap {
    base: NonNull<c_void>,
    bytes: usize,
    mapped: usize,
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
        Self::of_pages(&file, bytes, MapFlags::SHARED).map(|map| map.keeping(file))
    }

    /// As [`create`](Self::create) for this process alone: no file stays open, so there may be
    /// more of them than files.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn private(name: &str, bytes: usize) -> Result<Self, SystemError> {
        let (file, bytes) = new_file(name, bytes)?;
        Self::of_pages(&file, bytes, MapFlags::SHARED)
    }

    /// Maps what another process created. The file is closed: what is mapped stays, and who has many
    /// peers has descriptors left.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unsealed`] if the file is not sealed against shrinking,
    /// [`OpenError::Truncated`] if it is shorter than a line, else [`OpenError::System`].
    pub fn open(file: OwnedFd) -> Result<Self, OpenError> {
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {}
            // Not every kind of file can be sealed.
            Ok(_) | Err(Errno::INVAL) => return Err(OpenError::Unsealed),
            Err(errno) => return Err(SystemError::of("fcntl")(errno).into()),
        }
        let bytes = size(&file)?;
        Ok(Self::of_pages(&file, bytes, MapFlags::SHARED)?)
    }

    /// Makes an empty file `bytes` long, rounded up to whole pages, takes the room for that at
    /// once, and maps it. For files with a name, mode 0600, in a folder of mode 0700 (S3): what is
    /// in them outlives the process.
    ///
    /// # Errors
    ///
    /// What the kernel says: no room, most of all.
    pub fn on_file(file: OwnedFd, bytes: usize) -> Result<Self, SystemError> {
        let bytes = whole_pages(bytes)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(SystemError::of("ftruncate"))?;
        // Without it a full file system would raise SIGBUS at the first touch of a page.
        // It may take long, and a signal then ends it half-way.
        let room = || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64);
        rustix::io::retry_on_intr(room).map_err(SystemError::of("fallocate"))?;
        Self::of_pages(&file, bytes, MapFlags::SHARED).map(|map| map.keeping(file))
    }

    /// Maps a file with a name that another process of this user made by
    /// [`on_file`](Self::on_file) (S3).
    ///
    /// # Errors
    ///
    /// [`OpenError::Truncated`] if it is shorter than a line, else [`OpenError::System`].
    pub fn open_named(file: OwnedFd) -> Result<Self, OpenError> {
        let bytes = size(&file)?;
        Ok(Self::of_pages(&file, bytes, MapFlags::SHARED)?)
    }

    /// Maps a file that need be open for reading only (S3). The map shows what is in the file; a page
    /// that is written through it becomes this process's own, and the file never sees it.
    ///
    /// # Errors
    ///
    /// As for [`open_named`](Self::open_named).
    pub fn view(file: OwnedFd) -> Result<Self, OpenError> {
        let bytes = size(&file)?;
        // Kept by nobody: who has a view has nothing to hand over.
        Ok(Self::of_pages(&file, bytes, MapFlags::PRIVATE)?)
    }

    /// Maps the `bytes` of a file, and with them all of its last page.
    fn of_pages(file: &OwnedFd, bytes: usize, how: MapFlags) -> Result<Self, SystemError> {
        let mapped = whole_pages(bytes)?;
        Ok(Self { base: map(file, mapped, how)?, bytes, mapped, file: None })
    }

    fn keeping(mut self, file: OwnedFd) -> Self {
        self.file = Some(file);
        self
    }

    /// The first byte. It stays where it is as long as the map lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// The size in bytes: that of the file, a multiple of the page size if it was made here.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file to hand to another process; `None` of one that this process did not
    /// create, and of a [private](Self::private) map.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

/// A sealed file of `bytes` zeroes, rounded up to whole pages, and its size.
fn new_file(name: &str, bytes: usize) -> Result<(OwnedFd, usize), SystemError> {
    let bytes = whole_pages(bytes)?;
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(SystemError::of("memfd_create"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(SystemError::of("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(SystemError::of("fcntl"))?;
    Ok((file, bytes))
}

fn whole_pages(bytes: usize) -> Result<usize, SystemError> {
    let bytes = bytes.max(1).checked_next_multiple_of(rustix::param::page_size());
    bytes.ok_or(SystemError::of("ftruncate")(Errno::FBIG))
}

/// The size of a file, which holds a line at least: nothing that is mapped here is shorter.
fn size(file: &OwnedFd) -> Result<usize, OpenError> {
    let size = rustix::fs::fstat(file).map_err(SystemError::of("fstat"))?.st_size;
    let bytes = usize::try_from(size).unwrap_or(0);
    if bytes < LINE_BYTES {
        return Err(OpenError::Truncated { bytes, wanted: LINE_BYTES });
    }
    Ok(bytes)
}

/// Maps so many bytes of `file`. Whoever calls owns the mapping.
fn map(file: &OwnedFd, bytes: usize, how: MapFlags) -> Result<NonNull<c_void>, SystemError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let none = core::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let base = unsafe { rustix::mm::mmap(none, bytes, protection, how, file, 0) };
    let base = base.map_err(SystemError::of("mmap"))?;
    NonNull::new(base).ok_or(SystemError::of("mmap")(Errno::NOMEM))
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: S1, the mapping is ours and whoever borrowed from it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::SharedMap;
    use crate::{LINE_BYTES, OpenError, SystemError};
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
    fn a_view_shows_the_file_and_changes_nothing() {
        let new = |size| {
            let file = rustix::fs::memfd_create("named", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, size).unwrap();
            file
        };
        let file = new(0);
        let copy = file.try_clone().unwrap();
        let shared = SharedMap::on_file(file, 5000).unwrap();
        let view = SharedMap::view(copy).unwrap();
        assert_eq!((shared.bytes(), view.file().is_none()), (view.bytes(), true));
        // SAFETY: S1, one byte; nobody else has the map.
        let put = |map: &SharedMap, byte| unsafe { map.base().write_volatile(byte) };
        // SAFETY: as above.
        let get = |map: &SharedMap| unsafe { map.base().read_volatile() };
        put(&shared, 7);
        assert_eq!(get(&view), 7);
        put(&view, 9);
        assert_eq!((get(&shared), get(&view)), (7, 9));
        for bytes in [0, LINE_BYTES - 1] {
            let short = OpenError::Truncated { bytes, wanted: LINE_BYTES };
            assert_eq!(SharedMap::view(new(bytes as u64)).unwrap_err(), short);
            assert_eq!(SharedMap::open_named(new(bytes as u64)).unwrap_err(), short);
        }
        // The rest of its last page is mapped, and is not the file's.
        assert_eq!(SharedMap::open_named(new(5000)).unwrap().bytes(), 5000);
    }

    #[test]
    fn a_size_beyond_all_memory_is_an_error() {
        let refused = SharedMap::create("huge", usize::MAX).unwrap_err();
        assert_eq!(refused, SystemError::of("ftruncate")(Errno::FBIG));
        let refused = SharedMap::private("huge", 1 << 62).unwrap_err();
        assert!(["ftruncate", "mmap"].contains(&refused.call), "{refused}");
    }
}
