//! What is built of lines: groups, barriers and buffers.

use super::{Memory, Model, asleep, check, spinning, table};
use loom::thread;
use pontoon_signal::{
    Barrier, DoubleBuffer, Rank, Seq, SlotId, Stage, Turn, Wait, WaitError, wait_all, wait_any,
    wait_quorum, wait_settled,
};

pub(crate) const MODELS: &[Model] = &[
    ("wait_all_hands_over_both", wait_all_hands_over_both),
    ("wait_any_hands_over_its_one", wait_any_hands_over_its_one),
    ("wait_quorum_asleep_hands_over_who_came", wait_quorum_asleep_hands_over_who_came),
    ("wait_settled_asleep_misses_neither_line", wait_settled_asleep_misses_neither_line),
    ("wait_settled_asleep_learns_of_an_end", wait_settled_asleep_learns_of_an_end),
    ("a_barrier_hands_over_both_ways", a_barrier_hands_over_both_ways),
    ("buffers_go_round", buffers_go_round),
    ("buffers_go_round_asleep", buffers_go_round_asleep),
    ("buffers_seen_to_be_free_are_filled", buffers_seen_to_be_free_are_filled),
    ("a_stage_hands_on", a_stage_hands_on),
];

const SLOTS: [SlotId; 2] = [SlotId::new(0, 0), SlotId::new(1, 0)];

/// SYNC(slot-publish): one fence is enough for all members.
fn wait_all_hands_over_both() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let producers = [0, 1].map(|index| {
            let mut publisher = table.publisher(SLOTS[index]).unwrap();
            let memory = memory[index].clone();
            thread::spawn(move || {
                memory.write(1);
                publisher.pub_release(1);
                publisher
            })
        });
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
        let acquired = wait_all(&waits, spinning()).unwrap().acq_fence();
        assert!(acquired.member(0).is_some() && acquired.member(1).is_some());
        assert_eq!((memory[0].read(), memory[1].read()), (1, 1));
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-publish): the proof of the member that came is good for it.
fn wait_any_hands_over_its_one() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let producers = [0, 1].map(|index| {
            let mut publisher = table.publisher(SLOTS[index]).unwrap();
            let memory = memory[index].clone();
            thread::spawn(move || {
                memory.write(1);
                publisher.pub_release(1);
                publisher
            })
        });
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
        let (index, observed) = wait_any(&waits, &mut Turn::default(), spinning()).unwrap();
        let _its = observed.acq_fence();
        assert_eq!(memory[index].read(), 1);
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-publish), SYNC(slot-park): one of two is enough to be woken, and the proofs are good.
fn wait_quorum_asleep_hands_over_who_came() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let producers = [0, 1].map(|index| {
            let mut publisher = table.publisher(SLOTS[index]).unwrap();
            let memory = memory[index].clone();
            thread::spawn(move || {
                memory.write(1);
                publisher.pub_release(1);
                publisher
            })
        });
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
        let acquired = wait_quorum(&waits, 1, asleep()).unwrap().acq_fence();
        assert!(acquired.members().count() >= 1);
        for index in acquired.members() {
            assert_eq!(memory[index].read(), 1);
        }
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-park): an idle unit of a device, asleep on a queue's arrivals and on the device's
/// changes at once. Whichever comes wakes it, and the other is not lost.
fn wait_settled_asleep_misses_neither_line() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let producers = [0, 1].map(|index| {
            let mut publisher = table.publisher(SLOTS[index]).unwrap();
            let memory = memory[index].clone();
            thread::spawn(move || {
                memory.write(1);
                publisher.pub_release(1);
                publisher
            })
        });
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        let mut missing = vec![0, 1];
        while !missing.is_empty() {
            let waits: Vec<_> =
                missing.iter().map(|&index| Wait::new(&waiters[index], Seq::new(1))).collect();
            wait_settled(&waits, asleep()).unwrap();
            let before = missing.len();
            missing.retain(|&index| match waiters[index].try_wait(Seq::new(1)).unwrap() {
                Some(observed) => {
                    let _its = observed.acq_fence();
                    assert_eq!(memory[index].read(), 1);
                    false
                }
                None => true,
            });
            assert!(missing.len() < before, "woken by nothing");
        }
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-park), SYNC(slot-abort): the same, of a queue that is dropped while the device has
/// no changes.
fn wait_settled_asleep_learns_of_an_end() {
    check(2, || {
        let (table, memory) = (table(), Memory::new());
        let changes = table.publisher(SLOTS[1]).unwrap();
        let mut arrivals = table.publisher(SLOTS[0]).unwrap();
        let queue = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(1);
                arrivals.pub_release(1);
            }
        });
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        // The first target is reached; past it there is only the end.
        for target in [1, 2] {
            let waits =
                [Wait::new(&waiters[0], Seq::new(target)), Wait::new(&waiters[1], Seq::new(1))];
            wait_settled(&waits, asleep()).unwrap();
            match waiters[0].try_wait(Seq::new(target)) {
                Ok(observed) => {
                    let _its = observed.expect("it is settled").acq_fence();
                    assert_eq!(target, 1);
                }
                Err(error) => assert_eq!(target, 2, "{error}"),
            }
            assert_eq!(memory.read(), 1);
        }
        queue.join().unwrap();
        drop(changes);
    });
}

/// SYNC(slot-publish), in both directions at once.
fn a_barrier_hands_over_both_ways() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let [mut mine, mut theirs] =
            [0, 1].map(|rank| Barrier::join(&table, Rank(rank), 0..2, 0).unwrap());
        let other = thread::spawn({
            let memory = memory.clone();
            move || {
                memory[1].write(2);
                theirs.wait(spinning()).unwrap();
                assert_eq!(memory[0].read(), 1);
                theirs
            }
        });
        memory[0].write(1);
        mine.wait(spinning()).unwrap();
        assert_eq!(memory[1].read(), 2);
        other.join().unwrap();
    });
}

/// SYNC(slot-publish), SYNC(slot-abort): three items through two buffers, so that one comes back,
/// and then the end. loom watches the buffers themselves.
fn buffers_go_round() {
    check(2, || {
        let (mut writer, mut reader) = DoubleBuffer::new([0, 0]);
        let producer = thread::spawn(move || {
            for item in 1..=3 {
                let mut buffer = writer.fill(spinning()).unwrap();
                *buffer = item;
                buffer.publish();
            }
        });
        for item in 1..=3 {
            assert_eq!(*reader.next(spinning()).unwrap(), item);
        }
        let error = reader.next(spinning()).map(|buffer| *buffer).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        producer.join().unwrap();
    });
}

/// SYNC(slot-publish): the writer only tries, so that it fills a buffer which it saw come back
/// together with the one before, and looks no more.
fn buffers_seen_to_be_free_are_filled() {
    check(2, || {
        let (mut writer, mut reader) = DoubleBuffer::new([0, 0]);
        let producer = thread::spawn(move || {
            for item in 1..=4 {
                loop {
                    if let Some(mut buffer) = writer.try_fill().unwrap() {
                        *buffer = item;
                        buffer.publish();
                        break;
                    }
                    thread::yield_now();
                }
            }
            writer
        });
        for item in 1..=4 {
            assert_eq!(*reader.next(spinning()).unwrap(), item);
        }
        producer.join().unwrap();
    });
}

/// SYNC(slot-park): the same with one buffer and both ends asleep, each waiting for the other.
fn buffers_go_round_asleep() {
    check(2, || {
        let (mut writer, mut reader) = DoubleBuffer::starting_at(Seq::new(u64::MAX), [0]);
        let producer = thread::spawn(move || {
            for item in 1..=2 {
                let mut buffer = writer.fill(asleep()).unwrap();
                *buffer = item;
                buffer.publish();
            }
        });
        for item in 1..=2 {
            assert_eq!(*reader.next(asleep()).unwrap(), item);
        }
        producer.join().unwrap();
    });
}

/// SYNC(slot-publish), SYNC(slot-park): an item runs through a stage from thread to thread, all of
/// them asleep while they wait, and the end runs after it (SYNC(slot-abort)).
fn a_stage_hands_on() {
    check(2, || {
        let (mut source, input) = DoubleBuffer::new([0]);
        let (output, mut sink) = DoubleBuffer::new([0]);
        let first = thread::spawn(move || {
            let mut buffer = source.fill(asleep()).unwrap();
            *buffer = 1;
            buffer.publish();
        });
        let middle = thread::spawn(move || {
            let mut stage = Stage::new(input, output);
            stage.run(asleep(), |from, to| *to = *from + 1).unwrap();
            assert!(stage.run(asleep(), |_, _| {}).is_err());
        });
        assert_eq!(*sink.next(asleep()).unwrap(), 2);
        assert!(sink.next(asleep()).is_err());
        first.join().unwrap();
        middle.join().unwrap();
    });
}
