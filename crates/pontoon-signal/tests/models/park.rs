//! Sleeping and waking. A lost wake is a deadlock here.

use super::{Memory, Model, SLOT, asleep, check, table};
use loom::thread;
use pontoon_signal::{Ending, Seq, SlotId, Turn, Wait, WaitError, wait_all, wait_any};

pub(crate) const MODELS: &[Model] = &[
    ("a_sleeper_is_woken", a_sleeper_is_woken),
    ("a_sleeper_outlasts_an_early_wake", a_sleeper_outlasts_an_early_wake),
    ("two_that_add_wake_one", two_that_add_wake_one),
    ("one_publish_wakes_two", one_publish_wakes_two),
    ("an_ending_wakes", an_ending_wakes),
    ("a_death_wakes", a_death_wakes),
    ("all_asleep_are_woken", all_asleep_are_woken),
    ("any_asleep_is_woken", any_asleep_is_woken),
];

/// SYNC(slot-park): the publisher sees the sleeper, or the sleeper sees the publish.
fn a_sleeper_is_woken() {
    check(3, || {
        let (table, memory) = (table(), Memory::new());
        let mut publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                publisher.pub_release(1);
                publisher
            }
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _now = waiter.wait_ge_bounded(Seq::new(1), asleep()).unwrap().acq_fence();
        assert_eq!(memory.read(), 7);
        producer.join().unwrap();
    });
}

/// SYNC(slot-park): a wake that came too early does not use up the next one.
fn a_sleeper_outlasts_an_early_wake() {
    check(3, || {
        let table = table();
        let mut publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn(move || {
            publisher.pub_release(1);
            publisher.pub_release(1);
            publisher
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _now = waiter.wait_ge_bounded(Seq::new(2), asleep()).unwrap().acq_fence();
        producer.join().unwrap();
    });
}

/// SYNC(slot-park): of two that wake at once one may do nothing, but not both.
fn two_that_add_wake_one() {
    check(2, || {
        let table = table();
        let producers = [(); 2].map(|()| {
            let publisher = table.shared_publisher(SLOT).unwrap();
            thread::spawn(move || {
                publisher.pub_release(1);
                publisher
            })
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _both = waiter.wait_ge_bounded(Seq::new(2), asleep()).unwrap().acq_fence();
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-park): one publish wakes all who sleep.
fn one_publish_wakes_two() {
    check(2, || {
        let table = table();
        let mut publisher = table.publisher(SLOT).unwrap();
        let sleepers = [(); 2].map(|()| {
            let waiter = table.waiter(SLOT).unwrap();
            thread::spawn(move || drop(waiter.wait_ge_bounded(Seq::new(1), asleep()).unwrap()))
        });
        publisher.pub_release(1);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

/// SYNC(slot-park), SYNC(slot-abort): so does an abort.
fn an_ending_wakes() {
    check(3, || {
        let table = table();
        let ender = thread::spawn({
            let table = table.clone();
            move || table.end(SLOT, Ending::LinkFailed { code: -5 }).unwrap()
        });
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.wait_ge_bounded(Seq::new(1), asleep()).unwrap_err();
        assert!(matches!(error, WaitError::LinkFailed { code: -5, .. }), "{error}");
        assert!(ender.join().unwrap());
    });
}

/// SYNC(slot-park), SYNC(slot-abort): and so does a producer that is dropped.
fn a_death_wakes() {
    check(3, || {
        let table = table();
        let publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn(move || drop(publisher));
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.wait_ge_bounded(Seq::new(1), asleep()).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        producer.join().unwrap();
    });
}

/// SYNC(slot-park): a group that sleeps on two lines is woken by each that it still misses.
fn all_asleep_are_woken() {
    check(2, || {
        let table = table();
        let slots = [SlotId::new(0, 0), SlotId::new(1, 0)];
        let producers = slots.map(|slot| {
            let mut publisher = table.publisher(slot).unwrap();
            thread::spawn(move || {
                publisher.pub_release(1);
                publisher
            })
        });
        let waiters = slots.map(|slot| table.waiter(slot).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
        let acquired = wait_all(&waits, asleep()).unwrap().acq_fence();
        assert_eq!(acquired.members().count(), 2);
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-park): and one that wants any of two, by the only one that comes.
fn any_asleep_is_woken() {
    check(3, || {
        let table = table();
        let slots = [SlotId::new(0, 0), SlotId::new(1, 0)];
        let mut publisher = table.publisher(slots[1]).unwrap();
        let producer = thread::spawn(move || {
            publisher.pub_release(1);
            publisher
        });
        let waiters = slots.map(|slot| table.waiter(slot).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
        let (index, observed) = wait_any(&waits, &mut Turn::default(), asleep()).unwrap();
        assert_eq!((index, observed.acq_fence().value()), (1, Seq::new(1)));
        producer.join().unwrap();
    });
}
