//! Waiting on several slots, and barriers, from counters that start anywhere.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Barrier, Bound, ClaimError, Ending, GROUP_MAX, Publisher, Rank, Seq, SignalTable, SlotId,
    TableShape, Turn, Wait, WaitError, Waiter,
    shim::{AtomicU32, Ordering::Relaxed},
    wait_all, wait_any, wait_in_order, wait_quorum, wait_settled,
};
use std::{
    thread,
    time::{Duration, Instant},
};

const STARTS: [u64; 3] = [0, u32::MAX as u64 - 1, u64::MAX - 1];

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn short() -> Bound {
    Bound::within(Duration::from_millis(2))
}

struct Group<const N: usize> {
    start: Seq,
    table: SignalTable,
    publishers: [Option<Publisher>; N],
    waiters: [Waiter; N],
}

impl<const N: usize> Group<N> {
    fn each_start(test: impl Fn(Self)) {
        for start in STARTS.map(Seq::new) {
            let shape = TableShape::new(N as u32, 1).starting_at(start);
            let table = SignalTable::in_process(shape);
            let slot = |index| SlotId::new(index as u32, 0);
            let publishers =
                core::array::from_fn(|index| Some(table.publisher(slot(index)).unwrap()));
            let waiters = core::array::from_fn(|index| table.waiter(slot(index)).unwrap());
            test(Self { start, table, publishers, waiters });
        }
    }

    fn publish(&mut self, index: usize) {
        self.publishers[index].as_mut().expect("alive").pub_release(1);
    }

    fn kill(&mut self, index: usize) {
        self.publishers[index] = None;
    }

    /// Waits for `n` counts on every member.
    fn waits(&self, n: u32) -> [Wait<'_>; N] {
        core::array::from_fn(|index| Wait::new(&self.waiters[index], self.start + n))
    }
}

fn dead(error: &WaitError) -> u32 {
    match error {
        WaitError::PeerDead { rank, .. } => rank.0,
        other => panic!("{other}"),
    }
}

#[test]
fn all_wait_for_the_last() {
    Group::<3>::each_start(|mut group| {
        group.publish(0);
        group.publish(2);
        let error = wait_all(&group.waits(1), short()).unwrap_err();
        assert!(error.is_timeout());
        assert_eq!(error.at().slot, SlotId::new(1, 0), "the one that is missing");
        group.publish(1);
        let waits = group.waits(1);
        let acquired = wait_all(&waits, patient()).unwrap().acq_fence();
        assert_eq!(acquired.members().collect::<Vec<_>>(), [0, 1, 2]);
        for index in 0..3 {
            assert_eq!(acquired.member(index).unwrap().value(), group.start + 1);
        }
        assert!(acquired.member(3).is_none() && acquired.member(usize::MAX).is_none());
        let reached = |index: usize| group.waiters[index].counters().unwrap().reached_count();
        assert_eq!([reached(0), reached(1), reached(2)], [1, 1, 1]);
    });
}

#[test]
fn all_fail_as_soon_as_one_is_dead() {
    Group::<3>::each_start(|mut group| {
        group.kill(1);
        assert_eq!(dead(&wait_all(&group.waits(1), patient()).unwrap_err()), 1);
        assert_eq!(group.waiters[1].counters().unwrap().ended_count(), 1);
    });
}

#[test]
fn a_dead_member_that_had_published_counts() {
    Group::<2>::each_start(|mut group| {
        group.publish(0);
        group.publish(1);
        group.kill(1);
        let waits = group.waits(1);
        let all = wait_all(&waits, patient()).unwrap().acq_fence();
        assert_eq!(all.members().count(), 2);
    });
}

#[test]
fn any_is_fair() {
    Group::<3>::each_start(|mut group| {
        for index in 0..3 {
            group.publish(index);
        }
        let (waits, mut turn) = (group.waits(1), Turn::default());
        let served: Vec<_> = (0..7)
            .map(|_| {
                let (index, observed) = wait_any(&waits, &mut turn, patient()).unwrap();
                assert_eq!(observed.acq_fence().value(), group.start + 1);
                index
            })
            .collect();
        assert_eq!(served, [0, 1, 2, 0, 1, 2, 0]);
    });
}

#[test]
fn any_serves_the_living_until_all_are_dead() {
    Group::<3>::each_start(|mut group| {
        let mut turn = Turn::default();
        group.kill(0);
        let error = wait_any(&group.waits(1), &mut turn, short()).unwrap_err();
        assert!(error.is_timeout());
        assert_eq!(error.at().slot, SlotId::new(1, 0), "the first that could still come");
        group.publish(2);
        let served = wait_any(&group.waits(1), &mut turn, patient()).unwrap().0;
        assert_eq!(served, 2);
        group.kill(1);
        group.kill(2);
        assert_eq!(wait_any(&group.waits(1), &mut turn, patient()).unwrap().0, 2, "it had come");
        assert_eq!(dead(&wait_any(&group.waits(2), &mut turn, patient()).unwrap_err()), 0);
    });
}

#[test]
fn a_quorum_bears_as_many_dead_as_it_can() {
    Group::<3>::each_start(|mut group| {
        group.kill(0);
        group.publish(1);
        let error = wait_quorum(&group.waits(1), 2, short()).unwrap_err();
        assert!(error.is_timeout());
        assert_eq!(error.at().slot, SlotId::new(2, 0));
        group.publish(2);
        let waits = group.waits(1);
        let acquired = wait_quorum(&waits, 2, patient()).unwrap().acq_fence();
        assert_eq!(acquired.members().collect::<Vec<_>>(), [1, 2]);
        assert!(acquired.member(0).is_none());
        group.kill(2);
        assert_eq!(dead(&wait_quorum(&group.waits(2), 2, patient()).unwrap_err()), 0);
        assert!(wait_quorum(&group.waits(2), 0, short()).is_ok());
    });
}

#[test]
fn in_order_looks_at_each_in_its_turn() {
    Group::<3>::each_start(|mut group| {
        group.kill(2);
        group.publish(1);
        let error = wait_in_order(&group.waits(1), short()).unwrap_err();
        assert!(error.is_timeout(), "the dead one's turn has not come");
        assert_eq!(error.at().slot, SlotId::new(0, 0));
        group.publish(0);
        assert_eq!(dead(&wait_in_order(&group.waits(1), patient()).unwrap_err()), 2);
        let waits = group.waits(1);
        let two = wait_in_order(&waits[..2], patient()).unwrap().acq_fence();
        assert_eq!(two.members().count(), 2);
    });
}

#[test]
fn settled_is_reached_or_dead() {
    Group::<3>::each_start(|mut group| {
        let error = wait_settled(&group.waits(1), short()).unwrap_err();
        assert!(error.is_timeout() && error.at().slot == SlotId::new(0, 0), "{error}");
        group.publish(2);
        wait_settled(&group.waits(1), patient()).unwrap();
        group.kill(1);
        wait_settled(&group.waits(2), patient()).unwrap();
        let counters = group.waiters[1].counters().unwrap();
        assert_eq!((counters.reached_count(), counters.ended_count()), (0, 0));
    });
}

#[test]
fn groups_asleep_are_woken() {
    Group::<3>::each_start(|mut group| {
        let bound = patient().spinning(0).yielding(0);
        let (start, mut publishers) = (group.start, group.publishers.each_mut().map(Option::take));
        let producer = thread::spawn(move || {
            for publisher in publishers.iter_mut().flatten() {
                thread::sleep(Duration::from_millis(5)); // a slow producer
                publisher.pub_release(1);
            }
            publishers
        });
        let waits = group.waits(1);
        let two = wait_quorum(&waits, 2, bound).unwrap().acq_fence();
        assert!(two.members().count() >= 2);
        let _ = wait_all(&group.waits(1), bound).unwrap().acq_fence();
        let sleepy = group.waiters[0].wait_ge_bounded(start + 2, short()).unwrap_err();
        assert!(sleepy.is_timeout());
        let ender = thread::spawn({
            let table = group.table.clone();
            move || {
                thread::sleep(Duration::from_millis(5)); // as above
                table.end_all(Ending::LinkFailed { code: 2 });
            }
        });
        let error = wait_all(&group.waits(2), bound).unwrap_err();
        assert!(matches!(error, WaitError::LinkFailed { code: 2, .. }), "{error}");
        ender.join().unwrap();
        drop(producer.join().unwrap());
    });
}

/// Those who are not woken look again after 20 ms: a round would take that long, where it takes
/// some 0.05 ms.
#[test]
fn one_publish_wakes_all_who_sleep() {
    let table = SignalTable::in_process(TableShape::new(2, 1));
    let (call, answer) = (SlotId::new(0, 0), SlotId::new(1, 0));
    let (rounds, sleepers) = (1_000, 4);
    let (mut caller, answers) = (table.publisher(call).unwrap(), table.waiter(answer).unwrap());
    let answering = table.shared_publisher(answer).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..sleepers {
            let (waiter, answering) = (table.waiter(call).unwrap(), answering.clone());
            scope.spawn(move || {
                for round in 1..=rounds {
                    let bound = patient().spinning(0).yielding(0);
                    let _ = waiter.wait_ge_bounded(Seq::new(round), bound).unwrap();
                    answering.pub_release(1);
                }
            });
        }
        for round in 1..=rounds {
            caller.pub_release(1);
            let all = Seq::new(round * sleepers);
            let _ = answers.wait_ge_bounded(all, patient()).unwrap();
        }
    });
    let took = start.elapsed();
    println!("{rounds} rounds with {sleepers} asleep: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}: wakes are lost");
}

#[test]
fn a_group_has_a_greatest_size() {
    let table = SignalTable::in_process(TableShape::new(1, GROUP_MAX as u32 + 1));
    let waiters: Vec<_> =
        (0..=GROUP_MAX as u32).map(|slot| table.waiter(SlotId::new(0, slot)).unwrap()).collect();
    let waits: Vec<_> = waiters.iter().map(|waiter| Wait::new(waiter, Seq::new(0))).collect();
    let full = wait_all(&waits[..GROUP_MAX], patient()).unwrap().acq_fence();
    assert_eq!(full.members().count(), GROUP_MAX);
    let mut turn = Turn::default();
    for index in (0..GROUP_MAX).chain([0]) {
        assert_eq!(wait_any(&waits[..GROUP_MAX], &mut turn, patient()).unwrap().0, index);
    }
    let open: Vec<_> = waits.iter().map(|wait| Wait::new(wait.waiter, Seq::new(1))).collect();
    let bound = short().spinning(0).yielding(0);
    assert!(wait_all(&open[..GROUP_MAX], bound).unwrap_err().is_timeout());
    let too_wide = thread::spawn(move || {
        let waiters: Vec<_> = (0..=GROUP_MAX as u32)
            .map(|slot| table.waiter(SlotId::new(0, slot)).unwrap())
            .collect();
        let waits: Vec<_> = waiters.iter().map(|waiter| Wait::new(waiter, Seq::new(0))).collect();
        let _ = wait_all(&waits, patient());
    });
    let sentence = *too_wide.join().unwrap_err().downcast::<String>().unwrap();
    assert_eq!(sentence, "a group has at most 128 members, not 129");
}

#[test]
fn the_empty_group_is_complete() {
    assert!(wait_all::<pontoon_signal::Os>(&[], patient()).is_ok());
    assert!(wait_in_order::<pontoon_signal::Os>(&[], patient()).is_ok());
}

#[test]
#[should_panic(expected = "waiting for any of nothing would never end")]
fn any_of_nothing_is_a_sentence() {
    let _ = wait_any::<pontoon_signal::Os>(&[], &mut Turn::default(), patient());
}

#[test]
#[should_panic(expected = "a quorum of 1 needs as many members")]
fn a_quorum_of_too_few_is_a_sentence() {
    let _ = wait_quorum::<pontoon_signal::Os>(&[], 1, patient());
}

fn barrier<const N: usize>(start: Seq) -> (SignalTable, [Barrier; N]) {
    let shape = TableShape::new(N as u32, 2).first_rank(Rank(5)).starting_at(start);
    let table = SignalTable::in_process(shape);
    let all = 5..5 + N as u32;
    let members = core::array::from_fn(|index| {
        Barrier::join(&table, Rank(5 + index as u32), all.clone(), 1).unwrap()
    });
    (table, members)
}

#[test]
fn nobody_passes_a_barrier_early() {
    for start in STARTS.map(Seq::new) {
        let (_table, members) = barrier::<4>(start);
        let arrived = AtomicU32::new(0);
        thread::scope(|scope| {
            for mut member in members {
                let arrived = &arrived;
                scope.spawn(move || {
                    for round in 1..=50 {
                        arrived.fetch_add(1, Relaxed);
                        member.wait(patient()).unwrap();
                        let seen = arrived.load(Relaxed);
                        assert!((4 * round..=4 * round + 3).contains(&seen), "{round}: {seen}");
                        member.wait(patient()).unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn a_barrier_that_timed_out_goes_on_with_its_round() {
    for start in STARTS.map(Seq::new) {
        let (table, [mut early, mut late]) = barrier::<2>(start);
        for round in 1..=3 {
            let error = early.wait(short()).unwrap_err();
            assert!(error.is_timeout());
            assert_eq!(error.at().slot, SlotId::new(6, 1), "the one that is missing");
            assert!(early.wait(short()).is_err());
            let own = table.waiter(SlotId::new(5, 1)).unwrap();
            assert_eq!(own.value(), start + round, "arrived once, waited twice");
            late.wait(patient()).unwrap();
            early.wait(patient()).unwrap();
        }
    }
}

#[test]
fn a_barrier_names_its_dead() {
    for start in STARTS.map(Seq::new) {
        let (_table, [mut first, second, mut third]) = barrier::<3>(start);
        drop(second);
        assert_eq!(dead(&first.wait(patient()).unwrap_err()), 6);
        assert_eq!(dead(&third.wait(patient()).unwrap_err()), 6);
    }
}

#[test]
fn a_failed_join_harms_nobody() {
    let table = SignalTable::in_process(TableShape::new(2, 1));
    let waiter = table.waiter(SlotId::new(0, 0)).unwrap();
    let error = Barrier::join(&table, Rank(0), 0..3, 0).unwrap_err();
    assert!(matches!(error, ClaimError::NoSuchSlot { .. }));
    assert!(waiter.try_wait(Seq::new(1)).unwrap().is_none(), "the line has not ended");
    assert!(table.publisher(SlotId::new(0, 0)).is_ok());
}

#[test]
#[should_panic(expected = "rank 2 joins a barrier of others")]
fn a_barrier_of_others_is_a_sentence() {
    let _ = Barrier::join(&SignalTable::in_process(TableShape::new(3, 1)), Rank(2), 0..2, 0);
}
