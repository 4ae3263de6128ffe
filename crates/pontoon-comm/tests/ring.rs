//! The ring as its users see it.
#![cfg(not(pontoon_loom))]

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use pontoon_comm::{
    Operation, Task,
    ring::{DEPTH_MAX, DEPTH_MIN, PushError, Ring, RingError, Taken},
};
use pontoon_signal::{Bound, Ending, Rank, Seq, WaitError};
use proptest::prelude::*;

/// Where rings start: in the middle, at zero, and so that every number wraps soon.
const STARTS: [u64; 4] = [0, 12_345, u64::MAX - 2, 0_u64.wrapping_sub(1 << 20)];

fn task(number: u64) -> Task {
    // Every third is too wide for one slot.
    let to = if number.is_multiple_of(3) { u64::MAX - number } else { number & 0xFFFF };
    Task {
        operation: Operation::Put,
        route: 7,
        strong: false,
        n: 1,
        from: number & 0xFFFF,
        to,
        bytes: 8,
    }
}

fn small(number: u64) -> Task {
    Task { to: 0, from: number, ..task(1) }
}

/// All of a ring's tasks.
fn take_all(consumer: &mut pontoon_comm::ring::Consumer) -> Vec<Task> {
    let mut all = Vec::new();
    while consumer.drain(u32::MAX, |_, task| {
        all.push(*task.expect("a task"));
        Taken::Yes
    }) > 0
    {}
    all
}

#[test]
fn a_depth_that_makes_no_ring_is_refused() {
    for depth in [0, 1, 2, 3, 5, 100, DEPTH_MAX + 1, 2 * DEPTH_MAX, u32::MAX] {
        let error = Ring::open(depth, Seq::new(0)).expect_err("no ring");
        assert_eq!(error, RingError::Depth(depth));
        assert!(error.to_string().contains(&format!("depth {depth}:")), "{error}");
    }
    assert!(
        Ring::open(DEPTH_MIN, Seq::new(0)).is_ok() && Ring::open(DEPTH_MAX, Seq::new(0)).is_ok()
    );
}

/// A task of zeros is a task: nothing is told by a value that no task may have.
#[test]
fn a_task_of_zeros_arrives() {
    let zeros =
        Task { operation: Operation::Put, route: 0, strong: false, n: 0, from: 0, to: 0, bytes: 0 };
    for start in STARTS {
        let (ring, mut consumer) = Ring::open(4, Seq::new(start)).expect("a ring");
        for _ in 0..20 {
            assert!(consumer.is_empty());
            ring.push(&zeros).expect("room");
            assert!(!consumer.is_empty());
            assert_eq!(take_all(&mut consumer), [zeros]);
        }
    }
}

#[test]
fn a_full_ring_claims_nothing_and_says_how_full() {
    for start in STARTS {
        let (ring, mut consumer) = Ring::open(8, Seq::new(start)).expect("a ring");
        for number in 0..6 {
            ring.push(&small(number)).expect("room");
        }
        let before = ring.positions();
        let wide = task(0);
        assert_eq!(ring.push(&wide), Err(PushError::Full { wanted: 4, free: 2 }));
        let three = [small(6), small(7), small(8)];
        assert_eq!(ring.push_all(&three), Err(PushError::Full { wanted: 3, free: 2 }));
        let nine = [small(0); 9];
        assert_eq!(ring.push_all(&nine), Err(PushError::TooMany { wanted: 9, depth: 8 }));
        assert_eq!(ring.positions(), before);
        ring.push_all(&three[..2]).expect("room for two");
        let all: Vec<_> = take_all(&mut consumer).iter().map(|task| task.from).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
        ring.push_all(&[wide, wide]).expect("all is free again");
        assert_eq!(take_all(&mut consumer), [wide, wide]);
    }
}

#[test]
fn what_is_not_taken_stays_with_all_behind_it() {
    let (ring, mut consumer) = Ring::open(8, Seq::new(u64::MAX)).expect("a ring");
    ring.push_all(&[small(0), small(1), small(2)]).expect("room");
    let mut seen = Vec::new();
    let taken = consumer.drain(10, |_, task| {
        seen.push(task.expect("a task").from);
        if seen.len() == 2 { Taken::No } else { Taken::Yes }
    });
    assert_eq!((taken, seen), (1, vec![0, 1]));
    assert_eq!(ring.credits().value(), Seq::new(0), "credit for what was taken alone");
    assert_eq!(take_all(&mut consumer), [small(1), small(2)]);
}

#[test]
fn a_closed_ring_refuses_and_ends_the_wait_for_credits() {
    let (ring, mut consumer) = Ring::open(4, Seq::new(0)).expect("a ring");
    ring.push_all(&[small(0); 4]).expect("room");
    let waiter = thread::spawn({
        let credits = ring.credits().clone();
        move || {
            credits
                .waiter()
                .wait_ge_bounded(Seq::new(1), Bound::within(Duration::from_secs(60)))
                .map(|_| ())
        }
    });
    let ending = Ending::PeerDead { rank: Rank(3) };
    ring.close(ending);
    assert!(matches!(
        waiter.join().expect("no panic"),
        Err(WaitError::PeerDead { rank: Rank(3), .. })
    ));
    let before = ring.positions();
    assert_eq!(ring.push(&small(9)), Err(PushError::Ended(Some(ending))));
    assert_eq!(ring.positions(), before);
    // What was pushed before is still there.
    assert_eq!(take_all(&mut consumer).len(), 4);
    assert_eq!(ring.push(&small(9)), Err(PushError::Ended(Some(ending))));
}

/// Who waits for credit is woken when the consumer goes, however it goes.
#[test]
fn a_consumer_that_is_dropped_ends_the_wait_for_credits() {
    let (ring, consumer) = Ring::open(4, Seq::new(0)).expect("a ring");
    ring.push_all(&[small(0); 4]).expect("room");
    drop(consumer);
    assert!(matches!(ring.push(&small(1)), Err(PushError::Ended(Some(_)))));
}

#[test]
fn many_producers_lose_and_mix_nothing() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 5_000;
    for start in STARTS {
        let (ring, mut consumer) = Ring::open(16, Seq::new(start)).expect("a ring");
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|who| {
                let ring = ring.clone();
                thread::spawn(move || {
                    for number in 0..EACH {
                        let task = Task { route: who as u16, n: number as u32, ..task(number) };
                        let deadline = Bound::within(Duration::from_secs(60));
                        loop {
                            // Before the push: a credit that comes between is not missed.
                            let next = ring.credits().value() + 1;
                            match ring.push(&task) {
                                Ok(_) => break,
                                Err(PushError::Full { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                            let waiter = ring.credits().waiter();
                            let waited = waiter.wait_ge_bounded(next, deadline).map(|_| ());
                            waited.expect("credits come");
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; PRODUCERS as usize];
        let mut last = Instant::now();
        while next.iter().sum::<u64>() < PRODUCERS * EACH {
            let taken = consumer.drain(5, |_, found| {
                let found = found.expect("a task");
                let number = &mut next[usize::from(found.route)];
                assert_eq!(u64::from(found.n), *number, "of producer {}", found.route);
                assert_eq!((found.from, found.to), (task(*number).from, task(*number).to));
                *number += 1;
                Taken::Yes
            });
            if taken > 0 {
                last = Instant::now();
            }
            assert!(last.elapsed() < Duration::from_secs(90), "nothing comes any more");
            if taken == 0 {
                thread::yield_now();
            }
        }
        producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
        assert!(consumer.is_empty());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u64>),
    Drain(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = proptest::collection::vec(0..1000_u64, 0..6).prop_map(Step::Push);
    let drain = (0..8_u32, 0..8_u32).prop_map(|(most, refuse_at)| Step::Drain(most, refuse_at));
    proptest::collection::vec(prop_oneof![push, drain], 0..200)
}

proptest! {
    /// Against a plain queue that counts slots.
    #[test]
    fn it_does_what_a_queue_does(steps in steps(), start in proptest::sample::select(&STARTS[..]), depth in 2..6_u32) {
        let depth = 1 << depth;
        let (ring, mut consumer) = Ring::open(depth, Seq::new(start)).expect("a ring");
        let (mut model, mut used) = (VecDeque::new(), 0_u32);
        let slots = |task: &Task| if task.to > u64::from(u32::MAX) { 4 } else { 1 };
        for step in steps {
            match step {
                Step::Push(numbers) => {
                    let tasks: Vec<_> = numbers.into_iter().map(task).collect();
                    let wanted: u32 = tasks.iter().map(slots).sum();
                    match ring.push_all(&tasks) {
                        Ok(claimed) => {
                            prop_assert_eq!(claimed.end.ahead_of(claimed.first), i64::from(wanted));
                            used += wanted;
                            model.extend(tasks);
                        }
                        Err(PushError::Full { wanted: told, free }) => {
                            prop_assert_eq!((told, free), (wanted, depth - used));
                            prop_assert!(wanted > free);
                        }
                        Err(error) => prop_assert!(wanted > depth, "{}", error),
                    }
                }
                Step::Drain(most, refuse_at) => {
                    let mut found = Vec::new();
                    consumer.drain(most, |_, task| {
                        if found.len() as u32 == refuse_at {
                            return Taken::No;
                        }
                        found.push(*task.expect("a task"));
                        Taken::Yes
                    });
                    let wanted = model.len().min(most as usize).min(refuse_at as usize);
                    let expected: Vec<_> = model.drain(..wanted).collect();
                    used -= expected.iter().map(slots).sum::<u32>();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
