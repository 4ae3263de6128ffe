//! What is kept of a buffer's bytes, and a clock, allocate nothing once they have met all that comes.

mod counting;

use std::hint::black_box;

use pontoon_queue::{Axis, Clock, Intervals};

use counting::allocations;

/// How much `work` allocates in rounds 100 to 1000.
fn once_warm(mut work: impl FnMut(u64)) -> u64 {
    let mut before = allocations();
    drop(black_box(Box::new(0)));
    assert_eq!(allocations(), before + 1, "the allocator does not count");
    for round in 0..1000 {
        if round == 100 {
            before = allocations();
        }
        work(round);
    }
    allocations() - before
}

/// Each round writes every part, overlapped by others, sets all bytes alike, and looks at some:
/// neighbours differ and are equal by turns.
fn cycle(map: &mut Intervals<u64>, parts: u64, round: u64) {
    for at in 0..parts {
        map.update(at * 64..at * 64 + 64, |_, value| *value += at * round);
        map.update(at * 64 + 16..at * 64 + 80, |_, value| *value += 1);
    }
    map.update(0..parts * 64, |_, value| *value = round);
    map.update(64..100, |_, value| assert_eq!(*value, round));
}

#[test]
fn a_cycle_of_partial_updates_allocates_nothing_with_few_runs_or_many() {
    for (parts, runs) in [(1, 2..4), (4, 8..16), (100, 150..256), (1000, 2000..4000)] {
        let mut map = Intervals::new(parts * 64);
        assert_eq!(once_warm(|round| cycle(&mut map, parts, round)), 0, "{parts} parts");
        assert!(runs.contains(&map.runs()), "{} runs of {parts} parts", map.runs());
    }
}

#[test]
fn a_buffer_used_whole_allocates_nothing() {
    let mut map = Intervals::new(4096);
    assert_eq!(once_warm(|round| map.update(0..4096, |_, value| *value = round)), 0);
    assert_eq!(map.runs(), 1);
}

/// Few values at a time over cuts that never come again, so that merges keep coming.
#[test]
fn cuts_that_merges_take_away_allocate_nothing_in_vectors() {
    let mut map = Intervals::new(1 << 40);
    let allocated = once_warm(|round| {
        for at in 0..20 {
            let start = (round * 20 + at) * 1000;
            map.update(start..start + 7, |_, value| *value = 1);
            map.update(start..start + 7, |_, value| *value = 0);
        }
    });
    assert_eq!(allocated, 0);
}

#[test]
fn a_clock_that_is_set_and_joined_allocates_nothing() {
    let (mut mine, mut theirs, mut kept) = (Clock::new(4), Clock::new(8), Clock::default());
    let allocated = once_warm(|round| {
        theirs.advance(Axis(7), round);
        theirs.advance(Axis(2), round * 4);
        theirs.mark(Axis(2), round * 4 + 2);
        mine.mark(Axis(2), round * 4 + 3);
        mine.join(&theirs);
        kept.clone_from(&mine);
        assert!(kept.covers(Axis(2), round * 4 + 3) && !kept.covers_first(Axis(2), round * 4 + 1));
    });
    assert_eq!(allocated, 0);
}
