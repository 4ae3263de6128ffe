//! What is built of lines: groups, barriers and buffers.

use super::{Memory, Model, asleep, check, spinning, table};
use loom::thread;
use pontoon_signal::{
    Barrier, DoubleBuffer, Rank, Seq, SlotId, Turn, Wait, WaitError, wait_all, wait_any,
};

pub(crate) const MODELS: &[Model] = &[
    ("wait_all_hands_over_both", wait_all_hands_over_both),
    ("wait_any_hands_over_its_one", wait_any_hands_over_its_one),
    ("a_barrier_hands_over_both_ways", a_barrier_hands_over_both_ways),
    ("buffers_go_round", buffers_go_round),
    ("buffers_go_round_asleep", buffers_go_round_asleep),
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
