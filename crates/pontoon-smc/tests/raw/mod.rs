//! Stores by single instructions, and allocations counted.
#![allow(unsafe_code, dead_code, reason = "what a program does that knows of no window")]
#![allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    arch::{asm, x86_64::*},
    cell::Cell,
};

type Store = fn(*mut u8, &[u8]);

/// Its name, how many bytes it stores, and itself.
pub(crate) const STORES: &[(&str, usize, Store)] = &[
    ("mov of a byte", 1, |to, from| unsafe {
        asm!("mov [{}], {}", in(reg) to, in(reg_byte) from[0])
    }),
    ("mov of 2 bytes", 2, |to, from| {
        let value = u16::from_ne_bytes(part(from));
        unsafe { asm!("mov [{}], {:x}", in(reg) to, in(reg) value) }
    }),
    ("mov of 4 bytes", 4, |to, from| {
        let value = u32::from_ne_bytes(part(from));
        unsafe { asm!("mov [{}], {:e}", in(reg) to, in(reg) value) }
    }),
    ("mov of 8 bytes", 8, |to, from| store_word(to, u64::from_ne_bytes(part(from)))),
    ("movnti", 8, |to, from| {
        let value = u64::from_ne_bytes(part(from));
        unsafe { asm!("movnti [{}], {}", in(reg) to, in(reg) value) }
    }),
    ("movq", 8, |to, from| unsafe {
        let value = _mm_cvtsi64_si128(i64::from_ne_bytes(part(from)));
        asm!("movq [{}], {}", in(reg) to, in(xmm_reg) value);
    }),
    ("movaps", 16, |to, from| unsafe {
        asm!("movaps [{}], {}", in(reg) to, in(xmm_reg) wide(from));
    }),
    ("movups", 16, |to, from| unsafe {
        asm!("movups [{}], {}", in(reg) to, in(xmm_reg) wide(from));
    }),
    ("movdqu", 16, |to, from| unsafe {
        asm!("movdqu [{}], {}", in(reg) to, in(xmm_reg) wide(from));
    }),
    ("movntdq", 16, |to, from| unsafe {
        asm!("movntdq [{}], {}", in(reg) to, in(xmm_reg) wide(from));
    }),
    ("AVX of 16 bytes", 16, |to, from| unsafe {
        asm!("vmovdqu xmm8, [{}]", "vmovdqu [{}], xmm8", in(reg) from.as_ptr(), in(reg) to, out("xmm8") _);
    }),
    ("AVX of 32 bytes", 32, |to, from| unsafe {
        asm!("vmovdqu ymm8, [{}]", "vmovdqu [{}], ymm8", in(reg) from.as_ptr(), in(reg) to, out("xmm8") _);
    }),
    ("AVX-512 of 64 bytes", 64, |to, from| unsafe {
        asm!("vmovdqu64 zmm8, [{}]", "vmovdqu64 [{}], zmm8", in(reg) from.as_ptr(), in(reg) to, out("xmm8") _);
    }),
    ("rep movsb", 100, rep_movs),
];

pub(crate) fn has(name: &str) -> bool {
    match name.split(' ').next() {
        Some("AVX") => std::is_x86_feature_detected!("avx"),
        Some("AVX-512") => std::is_x86_feature_detected!("avx512f"),
        _ => true,
    }
}

/// Whether it may store to any address, and stores more than one byte.
pub(crate) fn goes_anywhere(name: &str) -> bool {
    !matches!(name, "mov of a byte" | "movaps" | "movntdq")
}

fn part<const N: usize>(from: &[u8]) -> [u8; N] {
    from[..N].try_into().expect("so many")
}

fn wide(from: &[u8]) -> __m128i {
    assert!(from.len() >= 16);
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

pub(crate) fn store_word(to: *mut u8, value: u64) {
    unsafe { asm!("mov [{}], {}", in(reg) to, in(reg) value) }
}

pub(crate) fn locked_increment(at: *mut u8) {
    unsafe { asm!("lock inc dword ptr [{}]", in(reg) at) }
}

pub(crate) fn rep_movs(to: *mut u8, from: &[u8]) {
    unsafe {
        asm!("rep movsb", inout("rdi") to => _, inout("rsi") from.as_ptr() => _, inout("rcx") from.len() => _);
    }
}

pub(crate) fn rep_stos(to: *mut u8, value: u8, bytes: usize) {
    unsafe { asm!("rep stosb", inout("rdi") to => _, in("al") value, inout("rcx") bytes => _) }
}

/// Bytes of a window that nobody stores to meanwhile.
pub(crate) fn bytes<'w>(first: core::ptr::NonNull<u8>, bytes: usize) -> &'w [u8] {
    unsafe { core::slice::from_raw_parts(first.as_ptr(), bytes) }
}

/// As the C library copies.
#[inline(never)]
pub(crate) fn copy(to: *mut u8, from: &[u8]) {
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has allocated.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

struct Counting;

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
