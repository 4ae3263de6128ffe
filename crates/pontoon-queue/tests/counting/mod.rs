//! An allocator that counts what each thread asks of it, so that tests that run at once do not count
//! each other's.
#![allow(unsafe_code)] // An allocator is unsafe.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread allocated and did not free.
#[allow(dead_code, reason = "not every test looks at what is held")]
pub(crate) fn held() -> i64 {
    HELD.get()
}

fn count(allocations: u64, bytes: i64) {
    let _ = ALLOCATIONS.try_with(|all| all.set(all.get() + allocations));
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: it is the system's allocator, asked for what was asked for.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(1, bytes as i64 - layout.size() as i64);
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
