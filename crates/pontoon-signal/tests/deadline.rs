//! How late a wait that times out returns.
//!
//! A binary of its own with one test, so that no other test takes the cores meanwhile.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{Bound, Seq, SignalTable, SlotId, TableShape, Wait, wait_all, wait_any};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits that time out, and what of the machine each uses.
const WAYS: [&str; 5] = ["usual", "spinning", "yielding", "asleep", "group asleep"];

fn bound(way: &str, deadline: Duration) -> Bound {
    let bound = Bound::within(deadline);
    match way {
        "spinning" => bound.spinning(u32::MAX),
        "yielding" => bound.spinning(0).yielding(u32::MAX),
        "asleep" | "group asleep" => bound.spinning(0).yielding(0),
        _ => bound,
    }
}

/// What a wait of `deadline` takes beyond it: the median of `waits`.
fn median_overshoot(way: &str, deadline: Duration, waits: usize) -> Duration {
    let table = SignalTable::in_process(TableShape::new(1, 2));
    let waiters = [0, 1].map(|slot| table.waiter(SlotId::new(0, slot)).unwrap());
    let group = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
    let bound = bound(way, deadline);
    let mut overshoots: Vec<_> = (0..waits)
        .map(|_| {
            let start = Instant::now();
            let error = if way.starts_with("group") {
                wait_all(&group, bound).unwrap_err()
            } else {
                waiters[0].wait_ge_bounded(Seq::new(1), bound).unwrap_err()
            };
            let took = start.elapsed();
            assert!(error.is_timeout());
            took.checked_sub(deadline).expect("a wait never gives up early")
        })
        .collect();
    overshoots.sort_unstable();
    overshoots[waits / 2]
}

/// The same of a bare loop of yields and of a bare sleep, whichever is later: what the machine
/// itself adds just now.
fn machines_own_overshoot(deadline: Duration) -> Duration {
    let median = |pass: fn(Instant, Duration)| {
        let mut overshoots: Vec<_> = (0..15)
            .map(|_| {
                let start = Instant::now();
                pass(start, deadline);
                start.elapsed().saturating_sub(deadline)
            })
            .collect();
        overshoots.sort_unstable();
        overshoots[overshoots.len() / 2]
    };
    let yielding = median(|start, deadline| {
        while start.elapsed() < deadline {
            thread::yield_now();
        }
    });
    yielding.max(median(|_, deadline| thread::sleep(deadline)))
}

#[test]
fn a_wait_is_hardly_later_than_its_deadline() {
    for way in WAYS {
        for (micros, waits) in [(100, 51), (1_000, 51), (10_000, 15), (100_000, 3)] {
            let deadline = Duration::from_micros(micros);
            let allowed = (deadline / 5).max(Duration::from_millis(1));
            // A busy machine can spoil a measurement, not three.
            let measured = (1..=3).map(|attempt| {
                let overshoot = median_overshoot(way, deadline, waits);
                println!("{way}, {deadline:?}: {overshoot:?} late (attempt {attempt})");
                overshoot
            });
            let best = measured.into_iter().find(|&overshoot| overshoot <= allowed);
            if best.is_some() {
                continue;
            }
            let own = machines_own_overshoot(deadline);
            assert!(own > allowed / 4, "{way}, {deadline:?}: three times later than {allowed:?}");
            println!(
                "skipped: {way}, {deadline:?} (the cores are busy: bare waits are {own:?} late)"
            );
        }
    }
    let table = SignalTable::in_process(TableShape::new(1, 1));
    let waiter = table.waiter(SlotId::new(0, 0)).unwrap();
    let wait = [Wait::new(&waiter, Seq::new(1))];
    let bound = Bound::within(Duration::from_nanos(1));
    assert!(wait_any(&wait, &mut Default::default(), bound).unwrap_err().is_timeout());
}
