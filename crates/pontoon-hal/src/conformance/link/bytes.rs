//! What the ranks of a world do to their own memory.
#![allow(unsafe_code)] // The bytes of a block are reached through a pointer.

use std::ptr::NonNull;

use pontoon_signal::{Block, shim::AtomicU64};

const WORD: usize = size_of::<u64>();

/// The first of `bytes` bytes of `block` from `offset` on.
#[track_caller]
fn at(block: &Block, offset: usize, bytes: usize) -> NonNull<u8> {
    let within = offset.checked_add(bytes).is_some_and(|end| end <= block.bytes());
    assert!(within, "bytes {offset}..+{bytes} of a block of {}", block.bytes());
    // SAFETY: B1 of the block, and within, as asserted.
    unsafe { block.base().add(offset) }
}

/// Writes `bytes` at `offset`, a word at a time where they are aligned.
pub(super) fn poke(block: &Block, offset: usize, bytes: &[u8]) {
    let (first, mut done) = (at(block, offset, bytes.len()), 0);
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: `done` is below the length.
        let place = unsafe { first.add(done) };
        match rest.first_chunk::<WORD>() {
            Some(word) if place.cast::<u64>().is_aligned() => {
                // SAFETY: aligned and within; volatile, since a peer may read or write it.
                unsafe { place.cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
                done += WORD;
            }
            _ => {
                // SAFETY: within; volatile as above.
                unsafe { place.write_volatile(rest[0]) };
                done += 1;
            }
        }
    }
}

/// The `len` bytes at `offset`.
pub(super) fn peek(block: &Block, offset: usize, len: usize) -> Vec<u8> {
    let (first, mut bytes) = (at(block, offset, len), Vec::with_capacity(len));
    while bytes.len() < len {
        // SAFETY: what was read is fewer than `len`.
        let place = unsafe { first.add(bytes.len()) };
        if len - bytes.len() >= WORD && place.cast::<u64>().is_aligned() {
            // SAFETY: aligned and within; volatile, since a peer may write it.
            let word = unsafe { place.cast::<u64>().read_volatile() };
            bytes.extend_from_slice(&word.to_ne_bytes());
        } else {
            // SAFETY: within; volatile as above.
            bytes.push(unsafe { place.read_volatile() });
        }
    }
    bytes
}

/// The word at `offset`, which is aligned.
pub(super) fn word(block: &Block, offset: usize) -> &AtomicU64 {
    let word = at(block, offset, WORD).cast::<AtomicU64>();
    assert!(word.is_aligned(), "an aligned word at {offset}");
    // SAFETY: within and aligned; an atomic of any bytes is valid, and peers may write it.
    unsafe { word.as_ref() }
}

/// `len` bytes that tell `seed` and their places.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state ^ state >> 29).to_ne_bytes()
    });
    let mut bytes: Vec<u8> = words.take(len.div_ceil(WORD)).flatten().collect();
    bytes.truncate(len);
    bytes
}
