//! A part of a shared mapping, as a handle that keeps it mapped.
#![allow(unsafe_code)] // A block's first byte is an address within a mapping.

use alloc::sync::Arc;
use core::{
    fmt,
    ops::Range,
    ptr::{NonNull, addr_eq},
};

use rustix::fd::BorrowedFd;

use crate::{Mapping, SharedMap, SystemError};

/// A part of a shared mapping. The value is a handle: clones name the same bytes and keep them
/// mapped, so that a device or a link may hold one for as long as it reads or writes there.
///
/// It hands out an address, never a slice: who may read or write the bytes, and when, is the
/// business of whoever dereferences it.
///
/// Invariant B1: `at + bytes` is at most the mapping's size, and `first` is its byte `at`.
#[derive(Clone, Debug)]
pub struct Block {
    map: Arc<dyn Mapping>,
    first: NonNull<u8>,
    at: usize,
    bytes: usize,
}

// SAFETY: the mapping can be sent and shared; `first` is an address in it, and is only handed out.
unsafe impl Send for Block {}
// SAFETY: as for `Send`.
unsafe impl Sync for Block {}

impl Block {
    /// All of `map`.
    pub fn of(map: impl Mapping + 'static) -> Self {
        let (first, bytes) = (map.base(), map.bytes());
        Self { map: Arc::new(map), first, at: 0, bytes }
    }

    /// New zeroed memory of this process, of `bytes` bytes rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn private(name: &str, bytes: usize) -> Result<Self, SystemError> {
        SharedMap::private(name, bytes).map(Self::of)
    }

    /// The bytes `range` of this block, or `None` if they are not within it.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let bytes = range.end.checked_sub(range.start)?;
        if range.end > self.bytes {
            return None;
        }
        // SAFETY: B1, and the start is not past the end.
        let first = unsafe { self.first.add(range.start) };
        Some(Self { map: Arc::clone(&self.map), first, at: self.at + range.start, bytes })
    }

    /// Keeps its pages in memory for as long as the mapping is there: no access waits for the kernel to bring
    /// one. Pages are brought now.
    ///
    /// # Errors
    ///
    /// What the kernel says: mostly that `RLIMIT_MEMLOCK` is less than all that is locked.
    pub fn lock(&self) -> Result<(), SystemError> {
        let base = self.first.as_ptr().cast();
        // SAFETY: B1, the bytes are mapped. Locking changes none of them.
        let locked = unsafe { rustix::mm::mlock(base, self.bytes) };
        locked.map_err(|errno| SystemError { call: "mlock", code: errno.raw_os_error() })
    }

    /// The first byte. It stays where it is as long as any handle of the mapping lives.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.first
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where `part` begins within this block, if both are of one mapping and it lies within.
    pub fn offset_of(&self, part: &Self) -> Option<usize> {
        let offset = part.at.checked_sub(self.at)?;
        let within = offset.checked_add(part.bytes)? <= self.bytes;
        let same = addr_eq(Arc::as_ptr(&self.map), Arc::as_ptr(&part.map));
        (within && same).then_some(offset)
    }

    /// Whether it is all of its mapping.
    pub fn is_whole(&self) -> bool {
        self.bytes == self.map.bytes()
    }

    /// The file of the mapping, to hand to another process, if it has one.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.map.file()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.base().as_ptr().addr())
    }
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn a_part_is_within_and_knows_where() {
        let page = rustix::param::page_size();
        let all = Block::private("parts", 2 * page).unwrap();
        let part = all.part(64..page).unwrap();
        assert_eq!((part.bytes(), all.offset_of(&part)), (page - 64, Some(64)));
        let inner = part.part(8..16).unwrap();
        assert_eq!((all.offset_of(&inner), part.offset_of(&inner)), (Some(72), Some(8)));
        assert_eq!(inner.offset_of(&part), None);
        assert_eq!(inner.base().addr().get(), all.base().addr().get() + 72);
        let other = Block::private("other", page).unwrap();
        assert_eq!(all.offset_of(&other), None);
        for (start, end) in [(0, 2 * page + 1), (5, 4), (usize::MAX, usize::MAX)] {
            assert!(all.part(start..end).is_none(), "{start}..{end}");
        }
    }
}
