//! In steady state neither submitting nor running a command allocates.
//!
//! That `submit` takes no lock and makes no system call but to wake a sleeper cannot be counted so
//! simply; it is seen in `CpuQueue::submit`, which touches two counters, a place in a ring and a
//! fault that was or was not set.
#![allow(unsafe_code)] // An allocator that counts is one.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::*;
use pontoon_hal::{Access, Device, Engine, Queue};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

struct Counting;

/// Allocations of all threads.
static ALL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Allocations of this thread.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALL.fetch_add(1, Relaxed);
    let _ = OWN.try_with(|own| own.set(own.get() + 1));
}

// SAFETY: it is the system's allocator, asked for what was asked for.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test alone, so that nothing else allocates in this process meanwhile.
#[test]
fn neither_submitting_nor_running_allocates() {
    let device = device(1, 2, 16);
    let mut main = device.open_queue(Engine::Compute, "main").unwrap();
    let mut other = device.open_queue(Engine::Compute, "other").unwrap();
    let mut copies = device.open_queue(Engine::Copy, "copies").unwrap();
    let (from, to) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    let fill = fill();
    let own = || OWN.with(Cell::get);
    let mut submitting = 0;
    let mut before = 0;
    for round in 0..3000 {
        if round == 1000 {
            (submitting, before) = (0, ALL.load(Relaxed));
        }
        let start = own();
        let access = [Access::write(&from, 0..4096)];
        let filled = submit(&mut main, launch("fill", &fill, &access, &[round]));
        submit(&mut copies, wait(main.completions(), filled));
        let (read, written) = (Access::read(&from, 0..4096), Access::write(&to, 0..4096));
        let copied = submit(&mut copies, copy("copy", read, written));
        submit(&mut other, wait(copies.completions(), copied));
        let access = [Access::write(&to, 0..64)];
        let done = submit(&mut other, launch("fill", &fill, &access, &[round + 1]));
        submit(&mut main, wait(other.completions(), done));
        submitting += own() - start;
        if round % 50 == 49 {
            // The host's waiter counts its waits and so allocates; a bare look does not.
            let last = main.submitted();
            until("a round never ended", || main.completions().value() == last);
        }
    }
    let all = ALL.load(Relaxed) - before;
    assert_eq!(submitting, 0, "allocations while submitting 12000 commands");
    assert_eq!(all, 0, "allocations while running 12000 commands");
}
