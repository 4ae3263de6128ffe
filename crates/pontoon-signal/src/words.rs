//! Words of shared memory that several threads or processes use as atomics.
#![allow(unsafe_code)] // Shared bytes are reached through pointers.

use core::ops::Deref;

use crate::shim::AtomicU64;

#[cfg(not(pontoon_loom))]
use crate::{Block, SystemError};
#[cfg(not(pontoon_loom))]
use core::{ptr::NonNull, slice};

/// Atomic words side by side, for structures that are more than a line. A handle: clones name the
/// same words.
///
/// Invariant V1: `first` begins a line within `block`, which keeps `len` words from there on mapped.
/// V2: nobody holds a reference to any of them but as an atomic, so that any bytes are valid and
/// others may write.
#[cfg(not(pontoon_loom))]
#[derive(Clone, Debug)]
pub struct Words {
    first: NonNull<AtomicU64>,
    len: usize,
    /// V1: it keeps the words mapped.
    block: Block,
}

#[cfg(not(pontoon_loom))]
// SAFETY: V1; the words belong to the mapping, not to a thread, and are atomics.
unsafe impl Send for Words {}
#[cfg(not(pontoon_loom))]
// SAFETY: as for `Send`.
unsafe impl Sync for Words {}

#[cfg(not(pontoon_loom))]
impl Words {
    /// New words of this process, all zero, so many and more up to a whole page.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn zeroed(len: usize) -> Result<Self, SystemError> {
        let block = Block::private("pontoon-words", len.saturating_mul(8))?;
        Ok(Self { first: block.base().cast(), len, block })
    }

    /// The memory that they are in, for links: its first bytes are the words.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

#[cfg(not(pontoon_loom))]
impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: V1 and V2.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

/// The same words for the model checker.
#[cfg(pontoon_loom)]
#[derive(Clone, Debug)]
pub struct Words {
    words: alloc::sync::Arc<[AtomicU64]>,
}

#[cfg(pontoon_loom)]
impl Words {
    /// New words, all zero.
    ///
    /// # Errors
    ///
    /// None.
    pub fn zeroed(len: usize) -> Result<Self, crate::SystemError> {
        Ok(Self { words: (0..len).map(|_| AtomicU64::new(0)).collect() })
    }
}

#[cfg(pontoon_loom)]
impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::Words;
    use crate::{LINE_BYTES, shim::Ordering::Relaxed};

    #[test]
    fn clones_name_the_same_words_which_begin_on_a_line() {
        let words = Words::zeroed(112).unwrap();
        assert_eq!((words.len(), words[111].load(Relaxed)), (112, 0));
        assert!(words.as_ptr().addr().is_multiple_of(LINE_BYTES));
        words.clone()[3].store(7, Relaxed);
        assert_eq!((words[3].load(Relaxed), words[4].load(Relaxed)), (7, 0));
    }
}
