//! What a fence pool allocates: nothing once it has grown, and no more for what fails.

use pontoon_queue::{FencePool, PoolSpec};
use pontoon_signal::{Bound, Host, Nanos, Os, Rank};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes allocated and not freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: all of it is the system allocator's doing; the count changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        HELD.with(|held| held.set(held.get() + layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Thirty fences at a time, of two labels.
fn cycle(pool: &mut FencePool) {
    let mut pairs = [const { None }; 30];
    for (number, pair) in pairs.iter_mut().enumerate() {
        let label = if number % 2 == 0 { "even" } else { "odd" };
        *pair = Some(pool.create(label).unwrap());
    }
    for (completer, fence) in pairs.into_iter().flatten() {
        completer.complete(Ok(()));
        fence.wait(Bound::within(Duration::from_secs(30))).unwrap();
    }
}

#[test]
fn a_pool_that_has_grown_allocates_nothing() {
    let mut pool = FencePool::new(Rank(0), PoolSpec { lines: 4, ..PoolSpec::default() });
    cycle(&mut pool);
    let before = ALLOCATIONS.with(Cell::get);
    assert!(before > 0, "the first cycle grows the pool");
    for _ in 0..100 {
        cycle(&mut pool);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    assert_eq!(pool.report().growths, 4);
}

#[test]
fn the_lines_of_fences_that_failed_are_let_go() {
    let mut pool = FencePool::new(Rank(0), PoolSpec { lines: 16, ..PoolSpec::default() });
    let mut fail = |times| {
        for _ in 0..times {
            drop(pool.create("work").unwrap());
        }
        HELD.with(Cell::get)
    };
    let before = fail(100);
    let after = fail(10_000);
    assert!(after - before < 10_000, "{} bytes for 10,000 fences", after - before);
    assert_eq!(pool.report().dropped, 10_100);
}

/// Run by hand: `cargo test --release -p pontoon-queue --test pool_no_alloc -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn create_and_complete() {
    const USES: u64 = 300_000;
    let mut pool = FencePool::new(Rank(0), PoolSpec::default());
    let runs = (0..15).map(|_| {
        let before = Os.now();
        for _ in 0..USES {
            let (completer, _fence) = pool.create("work").unwrap();
            completer.complete(Ok(()));
        }
        Os.now().since(before)
    });
    let Nanos(best) = runs.min().unwrap();
    println!("{:.1} ns a fence", best as f64 / USES as f64);
}
