//! Memory of which nobody may take much at once: a length that was announced is no reason to.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Write, stderr},
    process::abort,
};

/// Twice the longest frame that there is.
const MOST: usize = 32 << 20;

struct Bounded;

#[global_allocator]
static BOUNDED: Bounded = Bounded;

fn check(bytes: usize) {
    if bytes > MOST {
        let _ = writeln!(stderr(), "{bytes} bytes were asked for at once, of {MOST} at most");
        abort();
    }
}

// SAFETY: it is the system's, for as long as nobody asks for too much.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check(bytes);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}
