//! What a fence pool allocates: nothing once it has grown, and no more for what fails.

mod counting;

use pontoon_queue::{FencePool, PoolSpec};
use pontoon_signal::{Bound, Rank};
use std::time::Duration;

use counting::{allocations, held};

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
    let before = allocations();
    assert!(before > 0, "the first cycle grows the pool");
    for _ in 0..100 {
        cycle(&mut pool);
    }
    assert_eq!(allocations(), before);
    assert_eq!(pool.report().growths, 4);
}

#[test]
fn the_lines_of_fences_that_failed_are_let_go() {
    let mut pool = FencePool::new(Rank(0), PoolSpec { lines: 16, ..PoolSpec::default() });
    let mut fail = |times| {
        for _ in 0..times {
            drop(pool.create("work").unwrap());
        }
        held()
    };
    let before = fail(100);
    let after = fail(10_000);
    assert!(after - before < 10_000, "{} bytes for 10,000 fences", after - before);
    assert_eq!(pool.report().dropped, 10_100);
}
