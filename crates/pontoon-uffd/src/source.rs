//! What pages are filled from.
#![allow(unsafe_code)] // Bytes that others may write meanwhile are named by address.

use core::{marker::PhantomData, ops::Range, ptr::NonNull};

use pontoon_signal::{Block, shim::AtomicU64};

/// Bytes that a page is filled from. The kernel reads them, during the call: others may write them
/// meanwhile, and then some of both is copied.
///
/// Invariant C1: `[first, first + bytes)` is mapped and may be read as long as `'a`.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    first: NonNull<u8>,
    bytes: usize,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// The bytes `range` of `block`, if they are within it.
    pub fn of(block: &'a Block, range: Range<usize>) -> Option<Self> {
        let bytes = range.end.checked_sub(range.start)?;
        (range.end <= block.bytes()).then(|| {
            // SAFETY: within the block, and the start is not past its end.
            let first = unsafe { block.base().add(range.start) };
            Self { first, bytes, life: PhantomData }
        })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn address(&self) -> usize {
        self.first.as_ptr().expose_provenance()
    }

    /// `bytes` of it from `at` on. Those who call have checked that they are within.
    pub(crate) fn part(self, at: usize, bytes: usize) -> Self {
        assert!(at.saturating_add(bytes) <= self.bytes, "C1: within the source");
        // SAFETY: C1, within.
        Self { first: unsafe { self.first.add(at) }, bytes, life: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { first: NonNull::from(bytes).cast(), bytes: bytes.len(), life: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU64]> for Source<'a> {
    fn from(words: &'a [AtomicU64]) -> Self {
        Self { first: NonNull::from(words).cast(), bytes: size_of_val(words), life: PhantomData }
    }
}

/// A page of the same word over and over, made beforehand: what pages are filled with whose bytes
/// cannot be had.
#[derive(Clone, Debug)]
pub struct Pattern {
    page: Box<[u64]>,
}

impl Pattern {
    /// A page of `word`.
    pub fn new(word: u64) -> Self {
        Self { page: vec![word; rustix::param::page_size() / 8].into_boxed_slice() }
    }

    /// The word.
    pub fn word(&self) -> u64 {
        self.page[0]
    }
}

impl<'a> From<&'a Pattern> for Source<'a> {
    fn from(pattern: &'a Pattern) -> Self {
        let page = &*pattern.page;
        Self { first: NonNull::from(page).cast(), bytes: size_of_val(page), life: PhantomData }
    }
}
