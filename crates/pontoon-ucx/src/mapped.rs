//! A peer's memory where it is mapped here: operations are loads and stores.
#![allow(unsafe_code)] // memory that others write

use std::ptr::{self, NonNull};

use pontoon_signal::{
    Block, Mapping,
    shim::{AtomicU64, Ordering::Release, sync},
};

use crate::{OperationError, OutOfRange, PeerState, Region, Remote};

/// A peer's memory that is mapped here, as that of [`Context::allocate`](crate::Context::allocate)
/// is between processes of one host.
///
/// Nothing of UCX is called, and nobody waits: what is written is there when the call returns, and
/// whoever acquires a later [`announce`](Self::announce) sees it. A peer that died takes no
/// notice; its state is looked at before each write.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'r> {
    remote: &'r Remote,
    /// Invariant P1: the peer's region is mapped from here on, readable and writable, for as long
    /// as the key of `remote` exists. A peer's death leaves the mapping.
    base: NonNull<u8>,
}

/// A peer's memory that is mapped here, kept by its key, and that by the endpoint.
#[derive(Debug)]
struct Kept {
    remote: Remote,
    /// P1, for as long as `remote` has the endpoint.
    base: NonNull<u8>,
}

// SAFETY: P1; the memory belongs to the value, not to a thread.
unsafe impl Send for Kept {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kept {}

// SAFETY: P1; no references to the bytes are made but of words, which are atomic.
unsafe impl Mapping for Kept {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.remote.bytes()
    }
}

impl Remote {
    /// The memory itself as a block, where it is mapped here. It keeps the endpoint open, whatever becomes
    /// of the peer.
    pub fn block(&self) -> Option<Block> {
        let base = self.mapped()?.base;
        Some(Block::of(Kept { remote: self.clone(), base }))
    }
}

impl<'r> Mapped<'r> {
    pub(crate) fn of(remote: &'r Remote, base: NonNull<u8>) -> Self {
        Self { remote, base }
    }

    /// Copies `bytes` bytes of `from`, from its byte `offset` on, to byte `to` and on.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was written.
    #[inline]
    pub fn write(
        &self,
        to: usize,
        from: &Region,
        offset: usize,
        bytes: usize,
    ) -> Result<(), OperationError> {
        self.copy(to, from.at(offset, bytes)?, bytes)
    }

    /// Copies `from` to byte `to` and on.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was written.
    #[inline]
    pub fn write_copy(&self, to: usize, from: &[u8]) -> Result<(), OperationError> {
        self.copy(to, from.as_ptr(), from.len())
    }

    /// Copies `bytes` readable bytes from `from` on.
    #[inline]
    fn copy(&self, to: usize, from: *const u8, bytes: usize) -> Result<(), OperationError> {
        let there = self.at(to, bytes)?;
        if let PeerState::Failed(status) = self.remote.endpoint().state() {
            return Err(self.remote.endpoint().inner().failed("a write", status));
        }
        // SAFETY: P1, and `from` is readable; the ranges may overlap where a process writes to
        // itself, and what others write there meanwhile is theirs to order.
        unsafe { ptr::copy(from, there, bytes) };
        Ok(())
    }

    /// The word at byte `offset` of the peer's memory.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if it is not aligned.
    #[inline]
    pub fn word(&self, offset: usize) -> Result<&'r AtomicU64, OutOfRange> {
        let at = self.at(offset, 8)?.cast::<u64>();
        if !at.is_aligned() {
            return Err(OutOfRange { asked: offset..offset + 8, bytes: self.remote.bytes() });
        }
        // SAFETY: P1; eight mapped bytes, aligned, for as long as the remote is borrowed.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }

    /// Adds `n` to the word at byte `offset`: whoever sees it and acquires sees all that was
    /// written here before.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if it is not aligned.
    #[inline]
    pub fn announce(&self, offset: usize, n: u64) -> Result<(), OutOfRange> {
        // SYNC(slot-add) release: pairs with the fence of whoever waits for the peer's signal. An
        // add, as several processes may announce there.
        self.word(offset)?.fetch_add(n, sync("slot-add", Release));
        Ok(())
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        OutOfRange::check(offset, len, self.remote.bytes())?;
        // SAFETY: P1, the offset is within the region or at its end.
        Ok(unsafe { self.base.add(offset) }.as_ptr())
    }
}
