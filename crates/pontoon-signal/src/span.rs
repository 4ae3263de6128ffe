//! What touches the bytes of regions: copies, and atomic operations on words.
#![allow(unsafe_code)] // Shared bytes are reached through pointers.

use core::{arch::asm, ffi::c_void, marker::PhantomData, ops::Range, ptr::NonNull};

use crate::{
    Block,
    shim::{AtomicU64, Ordering::*},
};

/// Bytes of a block, for links: they copy from and to memory that other processes write.
///
/// Invariant X1: `[first, first + bytes)` is mapped as long as `'b`: it lies within a block, which
/// keeps its mapping, or is a slice. X2: nobody holds a reference to any of it, in this process or
/// another, but a slice's and those of words, which are atomics: others may write it at any time, so
/// it is read and written as raw bytes, of which every pattern is valid, and nothing here decides by
/// what it reads. X3: a word is touched by a relaxed atomic, and all else by `copy_bytes`, never by
/// a plain access of Rust's: one at the same time as a write of another's would be a data race, and
/// undefined.
///
/// Why X3 is enough: `copy_bytes` calls a function of which the compiler knows the signature and
/// nothing else, for a black box of assembly gives its address (Rust Reference, *asm.rules.black-box*).
/// What such a function does is whatever a program could do, and one that moves each byte by a relaxed
/// load and a relaxed store does what the C library's `memmove` does on the machine: every byte that
/// an instruction moves, however wide it is, is that of one store (Intel SDM volume 3, 9.1.1; Arm ARM
/// B2.2). So a reader sees of each byte an old or a new value, and the bytes beside it may be of
/// another time. Rust and C++ forbid atomics of two sizes on the same bytes at the same time, and have
/// no words for memory of other processes at all: a copy over a word while a thread of this process
/// adds to it is therefore more than the languages promise, and tears or loses the addition at worst.
#[derive(Clone, Copy, Debug)]
pub struct Span<'b> {
    first: NonNull<u8>,
    bytes: usize,
    block: PhantomData<&'b Block>,
}

/// Up to here aligned bytes go word by word, which is faster than a call.
const FEW: usize = 64;
const WORD: usize = size_of::<u64>();

impl<'b> Span<'b> {
    /// The bytes `range` of `block`, if they are within it.
    #[inline]
    pub fn of(block: &'b Block, range: Range<usize>) -> Option<Self> {
        let bytes = range.end.checked_sub(range.start)?;
        (range.end <= block.bytes()).then(|| {
            // SAFETY: B1 of the block, and the start is not past its end.
            let first = unsafe { block.base().add(range.start) };
            Self { first, bytes, block: PhantomData }
        })
    }

    /// The bytes of a slice, to be read only.
    #[inline]
    fn of_slice(slice: &'b [u8]) -> Self {
        Self { first: NonNull::from(slice).cast(), bytes: slice.len(), block: PhantomData }
    }

    #[inline]
    fn is_aligned(self) -> bool {
        self.first.addr().get().is_multiple_of(WORD)
    }

    /// The word at `offset`, if it is within the span and aligned in memory.
    #[inline]
    pub fn word(self, offset: usize) -> Option<&'b AtomicU64> {
        if offset.checked_add(WORD)? > self.bytes {
            return None;
        }
        // SAFETY: X1, within.
        let word: NonNull<AtomicU64> = unsafe { self.first.add(offset) }.cast();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: X1 and X2; an atomic of any bytes is valid, and others may write it.
        Some(unsafe { word.as_ref() })
    }

    /// All of it as words, if it is made of whole ones, aligned in memory.
    #[inline]
    pub fn words(self) -> Option<&'b [AtomicU64]> {
        let first: NonNull<AtomicU64> = self.first.cast();
        if !first.is_aligned() || !self.bytes.is_multiple_of(WORD) {
            return None;
        }
        // SAFETY: X1 and X2; atomics of any bytes are valid, and others may write them.
        Some(unsafe { core::slice::from_raw_parts(first.as_ptr(), self.bytes / WORD) })
    }

    /// Copies as many bytes as the shorter of both has.
    ///
    /// Words of `to` whose addresses are multiples of 8 are written whole, if `to` begins and ends on
    /// such: a writer that is killed half-way leaves the old or the new of each. The few that go word by
    /// word are so by the language; of a long copy it was observed, of a C library that stores whole
    /// vectors from the start on and from the end back, and nobody promises it.
    #[inline]
    pub fn copy_to(self, to: Span<'_>) {
        let bytes = self.bytes.min(to.bytes);
        if bytes == WORD
            && let (Some(from), Some(to)) = (self.word(0), to.word(0))
        {
            return to.store(from.load(Relaxed), Relaxed);
        }
        if bytes > FEW || !bytes.is_multiple_of(WORD) || !self.is_aligned() || !to.is_aligned() {
            return copy_long(self, to, bytes);
        }
        for offset in (0..bytes).step_by(WORD) {
            if let (Some(from), Some(to)) = (self.word(offset), to.word(offset)) {
                to.store(from.load(Relaxed), Relaxed);
            }
        }
    }

    /// Copies `bytes` here, as many as there is room for.
    #[inline]
    pub fn put(self, bytes: &[u8]) {
        // One word at any address of the source, which is this thread's own.
        if let (Ok(word), Some(place)) = (<[u8; WORD]>::try_from(bytes), self.word(0)) {
            return place.store(u64::from_ne_bytes(word), Relaxed);
        }
        copy_long(Span::of_slice(bytes), self, bytes.len().min(self.bytes));
    }
}

impl Span<'_> {
    /// Copies its bytes to `into`, as many as that has room for.
    pub fn get(self, into: &mut [u8]) {
        let bytes = into.len().min(self.bytes);
        copy_long(
            self,
            Span { first: NonNull::from(into).cast(), bytes, block: PhantomData },
            bytes,
        );
    }
}

#[inline(never)]
fn copy_long(from: Span<'_>, to: Span<'_>, bytes: usize) {
    // SAFETY: X1, both have `bytes` bytes.
    unsafe { copy_bytes(from.first, to.first, bytes) };
}

/// The bare copy, for comparisons with one: the first `bytes` bytes, or as many as both have.
#[doc(hidden)]
#[inline(never)]
pub fn bare_copy(from: &Block, to: &Block, bytes: usize) {
    let bytes = bytes.min(from.bytes()).min(to.bytes());
    // SAFETY: B1 of both.
    unsafe { copy_bytes(from.base(), to.base(), bytes) };
}

type Move = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

unsafe extern "C" {
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
}

/// Copies as the C library does, unknown to the compiler (X3): it costs what `ptr::copy` does. A loop
/// of atomics takes three times as long for 4 KiB, as no compiler makes vectors of them.
///
/// # Safety
///
/// Both sides have `bytes` bytes that are mapped, of which nobody has a reference but to atomics, or,
/// to those that are read, a shared one. They may overlap, and others may write them meanwhile.
#[inline]
unsafe fn copy_bytes(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) {
    let mut copy: Move = memmove;
    // SAFETY: it does nothing; and the compiler may not assume so.
    unsafe {
        asm!("/* {} */", inout(reg) copy, options(nostack, preserves_flags));
    }
    // SAFETY: as the caller promises, and by X3 for what others write meanwhile.
    unsafe { copy(to.as_ptr().cast(), from.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::Span;
    use crate::{Block, shim::Ordering::Relaxed};
    use alloc::{vec, vec::Vec};

    fn fill(block: &Block, byte: u8) {
        Span::of(block, 0..block.bytes()).unwrap().put(&vec![byte; block.bytes()]);
    }

    fn bytes(block: &Block, len: usize) -> Vec<u8> {
        // SAFETY: the block is this test's alone, and every byte was written.
        unsafe { core::slice::from_raw_parts(block.base().as_ptr(), len) }.to_vec()
    }

    #[test]
    fn every_size_and_alignment_copies_that_and_no_more() {
        let [from, to] = ["from", "to"].map(|name| Block::private(name, 512).unwrap());
        let pattern: Vec<u8> = (0..=255).collect();
        Span::of(&from, 0..256).unwrap().put(&pattern);
        for len in (0..=72).chain([100, 127, 128]) {
            for (at, onto) in [(0, 0), (8, 16), (1, 0), (0, 3), (5, 7), (8, 4)] {
                fill(&to, 0xEE);
                let source = Span::of(&from, at..at + len).unwrap();
                source.copy_to(Span::of(&to, onto..onto + len).unwrap());
                let mut expected = vec![0xEE; 256];
                expected[onto..onto + len].copy_from_slice(&pattern[at..at + len]);
                assert_eq!(bytes(&to, 256), expected, "{len} bytes from {at} to {onto}");
                fill(&to, 0xEE);
                Span::of(&to, onto..onto + len).unwrap().put(&pattern[at..at + len]);
                assert_eq!(bytes(&to, 256), expected, "{len} bytes inline to {onto}");
            }
        }
    }

    #[test]
    fn what_was_put_is_got_and_no_more() {
        let block = Block::private("got", 64).unwrap();
        Span::of(&block, 8..14).unwrap().put(b"abcdef");
        let mut into = [b'-'; 8];
        Span::of(&block, 9..13).unwrap().get(&mut into);
        assert_eq!(&into, b"bcde----");
        Span::of(&block, 8..64).unwrap().get(&mut into[..3]);
        assert_eq!(&into, b"abce----");
    }

    #[test]
    fn a_span_is_within_and_a_word_is_aligned() {
        let block = Block::private("span", 64).unwrap().part(0..64).unwrap();
        assert!(Span::of(&block, 60..68).is_none());
        let odd = 9;
        assert!(Span::of(&block, odd..8).is_none());
        let span = Span::of(&block, 4..64).unwrap();
        assert!(span.word(0).is_none() && span.word(4).is_some() && span.word(56).is_none());
        assert!(span.word(usize::MAX).is_none());
        assert!(span.words().is_none() && Span::of(&block, 8..20).unwrap().words().is_none());
        let words = Span::of(&block, 8..64).unwrap().words().unwrap();
        words[6].store(5, Relaxed);
        assert_eq!(
            (words.len(), Span::of(&block, 56..64).unwrap().word(0).unwrap().load(Relaxed)),
            (7, 5)
        );
    }
}
