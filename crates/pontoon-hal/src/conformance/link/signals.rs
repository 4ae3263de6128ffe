//! L6: what a signal is at the peer.

use std::{
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{Bound, ClaimError, WaitError};

use super::{Checked, LinkSubject, SLOTS, World, patient, rank};
use crate::{
    conformance::MOMENT,
    link::{LinkError, Order},
};

const ROUNDS: u32 = 1_000;
/// Sleeps that nobody wakes from end by themselves after 20 ms, which would take 20 s in all.
const WOKEN: Duration = Duration::from_secs(10);

/// L6: a signal is a publish in the row of its rank: it wakes who sleeps there, leaves who and when,
/// grows by what it was told, wherever the counter starts; and its slot is one producer's.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l6_a_signal_is_a_publish<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L6", 3);
    let link = world.link(0);
    let (mut signal, waiter) = (world.signal(0, 1, 1), world.waiter(1, 0, 1));
    let start = waiter.value();
    world.holds("a new signal is not where its counter is", signal.value() == start);
    for (n, order) in [(1, Order::Weak), (1000, Order::Strong), (u32::MAX, Order::Weak)] {
        let before = signal.value();
        world.post(0, || link.signal(&mut signal, n, order));
        world.holds("a signal does not grow by what it was told", signal.value() == before + n);
        world.reached(1, &waiter, signal.value());
        world.holds("a counter is not where it was told", waiter.value() == signal.value());
    }
    let late = waiter.wait_ge_bounded(signal.value() + 1, Bound::within(MOMENT));
    let Err(WaitError::TimedOut { at, .. }) = late else {
        panic!("L6: a wait for a signal that nobody sends: {late:?}");
    };
    let producer = at.producer.map(|producer| producer.rank);
    world
        .holds("the producer of a signal is not the rank that sends it", producer == Some(rank(0)));
    world.holds("a signal leaves no time", at.last_published.is_some());
    world.holds("publishes are not counted", at.publishes == 3);
    for (from, slot) in [(0, 0), (2, 1)] {
        let other = world.waiter(1, from, slot);
        world.holds("another slot has grown", other.value() == start);
    }

    // One who sleeps before each round.
    let mut back = world.signal(1, 0, 1);
    let (first, answers) = (signal.value(), world.waiter(0, 1, 1));
    let answered = answers.value();
    let began = Instant::now();
    thread::scope(|scope| {
        let (world, back) = (&world, &mut back);
        scope.spawn(move || {
            let waiter = world.waiter(1, 0, 1);
            for round in 1..=ROUNDS {
                let asleep = patient().spinning(0).yielding(0);
                let woken = waiter.wait_ge_bounded(first + round, asleep);
                world.holds("a sleeper was not told", woken.is_ok());
                world.post(1, || world.link(1).signal(back, 1, Order::Weak));
            }
        });
        for round in 1..=ROUNDS {
            world.post(0, || link.signal(&mut signal, 1, Order::Weak));
            world.reached(0, &answers, answered + round);
        }
    });
    let woken = began.elapsed() < WOKEN;
    world.holds(&format!("{ROUNDS} sleepers took {:?}: not woken", began.elapsed()), woken);

    match link.attach_signal(rank(1), 1) {
        Err(LinkError::Slot { peer, why: ClaimError::Taken { .. } }) if peer == rank(1) => {}
        other => panic!("L6: a slot that has a producer was given to another: {other:?}"),
    }
    match link.attach_signal(rank(1), 1000 * SLOTS) {
        Err(LinkError::Slot { peer, why: ClaimError::NoSuchSlot { .. } }) if peer == rank(1) => {}
        other => panic!("L6: a slot that the table does not have was given: {other:?}"),
    }
    drop(signal);
    let mut again = None;
    world.until("a slot that was given up can be had again", || {
        again = link.attach_signal(rank(1), 1).ok();
        again.is_some()
    });
    let kept = again.is_some_and(|signal| signal.value() == first + ROUNDS);
    world.holds("a successor goes on from where the counter is", kept);
    Checked::Yes
}
