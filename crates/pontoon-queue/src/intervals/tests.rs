//! Against one value for each byte, in every representation and over every way between two.

use std::{cell::RefCell, collections::BTreeMap, ops::Range};

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};

use super::*;

fn all(map: &Intervals<u16>) -> Vec<(Range<u64>, u16)> {
    let mut runs = Vec::new();
    map.clone().update(0..u64::MAX, |range, value| runs.push((range, *value)));
    runs
}

fn kind<T>(map: &Intervals<T>) -> &'static str {
    match &map.cells {
        Cells::Whole(_) => "whole",
        Cells::Few(_) => "few",
        Cells::Many(_) => "many",
    }
}

#[test]
fn used_whole_it_is_one_cell() {
    let mut map = Intervals::<u16>::new(100);
    map.update(0..100, |range, value| {
        assert_eq!(range, 0..100);
        *value = 7;
    });
    assert!(matches!(map.cells, Cells::Whole(7)));
}

#[test]
fn of_no_bytes_there_is_nothing_to_see() {
    let mut map = Intervals::<u16>::new(0);
    map.update(0..9, |range, _| panic!("{range:?}"));
    assert_eq!(map.runs(), 1);
}

#[test]
fn a_part_is_cut_out_and_merges_when_told() {
    let mut map = Intervals::<u16>::new(100);
    map.update(10..20, |_, value| *value = 1);
    assert_eq!(all(&map), [(0..10, 0), (10..20, 1), (20..100, 0)]);
    map.update(15..30, |_, value| *value = 1);
    map.compact();
    assert_eq!(all(&map), [(0..10, 0), (10..30, 1), (30..100, 0)]);
    map.update(10..30, |_, value| *value = 0);
    assert_eq!(map.runs(), 3);
    map.compact();
    assert!(matches!(map.cells, Cells::Whole(0)));
}

#[test]
fn filled_by_parts_and_then_used_whole_it_is_one_cell_again() {
    for parts in [2, 1000] {
        let mut map = Intervals::<u16>::new(parts);
        (0..parts).for_each(|at| map.update(at..at + 1, |_, value| *value = at as u16));
        assert_eq!(map.runs(), parts as usize);
        (0..PATIENCE).for_each(|_| map.update(0..parts, |_, value| *value = 1));
        assert!(matches!(map.cells, Cells::Whole(1)));
    }
}

#[test]
fn cuts_that_never_come_again_are_merged() {
    let mut map = Intervals::<u16>::new(1 << 20);
    for at in 0..100_000 {
        map.update(at..at + 7, |_, value| *value = 1);
        assert!(map.runs() <= 2 * 3 + SLACK);
    }
}

/// What an operation does to the values it sees.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Two of these in a row often leave equal neighbours.
    Set(u16),
    /// Keeps neighbours different.
    Add(u16),
    Look,
    /// Changes nothing, and then compacts.
    Compact,
}

type Op = (Range<u64>, Change);

const LARGEST: u64 = 4096;

/// Ranges of parts, empty ones and such as lie partly or all past any size.
fn part() -> impl Strategy<Value = Range<u64>> {
    let anywhere = || 0..LARGEST + 100;
    prop_oneof![
        4 => (anywhere(), 1..40_u64).prop_map(|(start, length)| start..start + length),
        4 => (0..LARGEST / 16, 1..4_u64).prop_map(|(at, count)| at * 16..(at + count) * 16),
        2 => (anywhere(), anywhere()).prop_map(|(a, b)| a.min(b)..a.max(b)),
        1 => anywhere().prop_map(|at| at..at),
        1 => anywhere().prop_map(|at| at..u64::MAX),
    ]
}

/// Phases, since each representation is kept for a while only by updates of its own kind.
fn phase() -> impl Strategy<Value = Vec<Op>> {
    let many = (1..9_u16).prop_map(Change::Add);
    let few = (0..3_u16).prop_map(Change::Set);
    let change = prop_oneof![
        4 => few.clone(), 4 => many.clone(), 2 => Just(Change::Look)
    ];
    prop_oneof![
        2 => proptest::collection::vec((part(), many), 100..500),
        2 => proptest::collection::vec((part(), few.clone()), 100..300),
        1 => proptest::collection::vec((part(), change.clone()), 1..20),
        1 => proptest::collection::vec((Just(0..u64::MAX), change), 1..5),
        1 => (few, 60..140_usize).prop_map(|(few, count)| vec![(0..u64::MAX, few); count]),
        1 => Just(vec![(0..0, Change::Compact)]),
    ]
}

#[test]
fn it_does_what_a_value_for_each_byte_does() {
    let sizes = prop_oneof![1 => 0..20_u64, 1 => Just(LARGEST), 4 => 0..=LARGEST];
    let programs = (sizes, proptest::collection::vec(phase(), 1..30))
        .prop_map(|(size, phases)| (size, phases.into_iter().flatten().collect::<Vec<_>>()));
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let (ways, longest) = (RefCell::new(BTreeMap::new()), RefCell::new(0));
    let result = TestRunner::new(config).run(&programs, |(size, ops)| {
        let longest = &mut *longest.borrow_mut();
        *longest = ops.len().max(*longest);
        follow(size, &ops, &mut ways.borrow_mut()).map_err(TestCaseError::fail)
    });
    match result {
        Err(TestError::Fail(why, (size, ops))) => panic!("{why} with {size} bytes, {ops:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
    println!("up to {} updates; ways: {ways:?}", longest.borrow());
    for way in [("whole", "few"), ("few", "many"), ("many", "few"), ("few", "whole")] {
        assert!(ways.borrow().contains_key(&way), "{way:?} was never gone");
    }
    assert!(*longest.borrow() >= 2000, "no program was long");
}

/// Does the operations to both, and counts the updates by the representations before and after.
fn follow(
    size: u64,
    ops: &[Op],
    ways: &mut BTreeMap<(&'static str, &'static str), usize>,
) -> Result<(), String> {
    let mut map = Intervals::<u16>::new(size);
    let mut bytes = vec![0_u16; size as usize];
    for (number, (range, change)) in ops.iter().enumerate() {
        let before = kind(&map);
        let mut at = range.start;
        let mut wrong = None;
        map.update(range.clone(), |run, value| {
            let own = &mut bytes[run.start as usize..run.end as usize];
            if run.start != at || run.is_empty() || own.iter().any(|byte| byte != value) {
                wrong.get_or_insert((run.clone(), *value));
            }
            at = run.end;
            match *change {
                Change::Set(to) => *value = to,
                Change::Add(more) => *value = value.wrapping_add(more),
                Change::Look | Change::Compact => {}
            }
            own.fill(*value);
        });
        if let Some(wrong) = wrong {
            return Err(format!("update {number} saw {wrong:?}"));
        }
        if at != range.end.min(size).max(range.start) {
            return Err(format!("update {number} of {range:?} ended at {at}"));
        }
        if matches!(change, Change::Compact) {
            map.compact();
            let runs = all(&map);
            if runs.len() != map.runs().min(size as usize)
                || runs.windows(2).any(|two| two[0].1 == two[1].1)
            {
                return Err(format!("compacting left {runs:?}"));
            }
        }
        if map.runs() > map.limit.max(1) {
            return Err(format!("update {number} left {} runs", map.runs()));
        }
        *ways.entry((before, kind(&map))).or_default() += 1;
        if number % 64 == 0 || number + 1 == ops.len() {
            for (run, value) in all(&map) {
                if bytes[run.start as usize..run.end as usize].iter().any(|&byte| byte != value) {
                    return Err(format!("after update {number} {run:?} has {value}"));
                }
            }
        }
    }
    Ok(())
}
