//! One line: handing over, adding, ending, tracing.

use super::{Memory, Model, SLOT, check, spinning, table};
use loom::{sync::atomic::Ordering::Relaxed, thread};
use pontoon_signal::{
    Ending, NotAnnounced, Rank, Reason, Seq, SignalTable, TableShape, TimePoints, WaitError,
};

pub(crate) const MODELS: &[Model] = &[
    ("raw_memory_is_handed_over", raw_memory_is_handed_over),
    ("a_later_publish_hands_over_the_earlier", a_later_publish_hands_over_the_earlier),
    ("a_payload_is_handed_over", a_payload_is_handed_over),
    ("a_proof_too_good_reads_nothing_half_written", a_proof_too_good_reads_nothing_half_written),
    ("two_that_add_hand_over_both", two_that_add_hand_over_both),
    ("a_fault_is_recorded_before_the_abort", a_fault_is_recorded_before_the_abort),
    ("a_publish_before_death_is_reached", a_publish_before_death_is_reached),
    ("the_first_ending_stays", the_first_ending_stays),
    ("a_record_is_whole", a_record_is_whole),
    ("a_traced_publish_has_its_time", a_traced_publish_has_its_time),
];

/// SYNC(slot-publish), by the bare verbs.
fn raw_memory_is_handed_over() {
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
        let acquired = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap().acq_fence();
        assert_eq!((acquired.value(), memory.read()), (Seq::new(1), 7));
        producer.join().unwrap();
    });
}

/// SYNC(slot-publish): who waits for the second publish may also read what the first announced.
fn a_later_publish_hands_over_the_earlier() {
    check(3, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let mut publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory[0].write(1);
                publisher.pub_release(1);
                memory[1].write(2);
                publisher.pub_release_set(Seq::new(5)).unwrap();
                publisher
            }
        });
        let waiter = table.waiter(SLOT).unwrap();
        let first = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap().acq_fence();
        assert_eq!(memory[0].read(), 1);
        let both = waiter.wait_ge_bounded(Seq::new(2), spinning()).unwrap().acq_fence();
        assert_eq!((memory[1].read(), both.value()), (2, Seq::new(5)));
        assert!(both.value().is_at_or_past(first.value()));
        producer.join().unwrap();
    });
}

/// SYNC(slot-publish) and SYNC(payload-written), through the typed hand-over.
fn a_payload_is_handed_over() {
    check(3, || {
        let table = table();
        let mut publisher = table.publisher(SLOT).unwrap();
        let (promise, payload) = publisher.promise::<u32>();
        let (waiter, target) = (table.waiter(SLOT).unwrap(), payload.target());
        let consumer = thread::spawn(move || {
            let proof = waiter.wait_ge_bounded(target, spinning()).unwrap().acq_fence();
            assert_eq!(payload.read(&proof), Ok(&9));
        });
        promise.publish(9);
        consumer.join().unwrap();
    });
}

/// SYNC(payload-written): a counter moved as a bare word, as a proof kept for half a round of the
/// counter, covers a target that is still to be published.
fn a_proof_too_good_reads_nothing_half_written() {
    check(3, || {
        let table = table();
        let mut publisher = table.publisher(SLOT).unwrap();
        let (promise, payload) = publisher.promise::<u32>();
        table.line(SLOT).unwrap().word().store(5, Relaxed);
        let waiter = table.waiter(SLOT).unwrap();
        let consumer = thread::spawn(move || {
            let observed = waiter.try_wait(payload.target()).unwrap();
            if let Some(observed) = observed {
                let read = payload.read(&observed.acq_fence()).copied();
                assert!(matches!(read, Ok(9) | Err(NotAnnounced)), "{read:?}");
            }
        });
        promise.publish(9);
        consumer.join().unwrap();
    });
}

/// SYNC(slot-add): the second add continues the release sequence of the first.
fn two_that_add_hand_over_both() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let producers = [0, 1].map(|index| {
            let publisher = table.shared_publisher(SLOT).unwrap();
            let memory = memory[index].clone();
            thread::spawn(move || {
                memory.write(index as u32 + 1);
                publisher.pub_release(1);
                publisher
            })
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _both = waiter.wait_ge_bounded(Seq::new(2), spinning()).unwrap().acq_fence();
        assert_eq!((memory[0].read(), memory[1].read()), (1, 2));
        let publishers = producers.map(|producer| producer.join().unwrap());
        drop(publishers);
    });
}

/// SYNC(slot-abort): whoever sees the ending sees what was recorded about it.
fn a_fault_is_recorded_before_the_abort() {
    check(3, || {
        let (table, fault) = (table(), Memory::new());
        let reason = Reason::new(4).unwrap();
        let ender = thread::spawn({
            let (table, fault) = (table.clone(), fault.clone());
            move || {
                fault.write(3);
                assert!(table.end(SLOT, Ending::Aborted { reason, by: Rank(6) }).unwrap());
            }
        });
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap_err();
        assert!(matches!(error, WaitError::Aborted { by: Rank(6), .. }), "{error}");
        assert_eq!(fault.read(), 3);
        ender.join().unwrap();
    });
}

/// SYNC(slot-abort): the ending of a producer brings along what it published before.
fn a_publish_before_death_is_reached() {
    check(3, || {
        let (table, memory) = (table(), Memory::new());
        let mut publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                publisher.pub_release(1);
                drop(publisher);
            }
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _first = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap().acq_fence();
        assert_eq!(memory.read(), 7);
        let error = waiter.wait_ge_bounded(Seq::new(2), spinning()).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        assert_eq!(error.at().found, Seq::new(1));
        producer.join().unwrap();
    });
}

/// SYNC(slot-abort): of two that end a line, one is the first and its word stays.
fn the_first_ending_stays() {
    check(3, || {
        let table = table();
        let other = thread::spawn({
            let table = table.clone();
            move || table.end(SLOT, Ending::LinkFailed { code: 1 }).unwrap()
        });
        let mine = table.end(SLOT, Ending::LinkFailed { code: 2 }).unwrap();
        let theirs = other.join().unwrap();
        assert!(mine != theirs, "exactly one is first");
        let code = if mine { 2 } else { 1 };
        let ending = table.line(SLOT).unwrap().ending();
        assert_eq!(ending, Some(Ending::LinkFailed { code }));
    });
}

/// SYNC(trace-record): a reader sees a record whole or not at all.
fn a_record_is_whole() {
    check(3, || {
        let table = SignalTable::in_process(TableShape::new(1, 1).traced(1));
        let mut publisher = table.publisher(SLOT).unwrap();
        publisher.pub_release(5);
        let consumer = thread::spawn({
            let waiter = table.waiter(SLOT).unwrap();
            move || waiter.try_wait(Seq::new(5)).unwrap().map(|seen| seen.acq_fence().value())
        });
        for TimePoints { value, observed, .. } in table.time_points().0 {
            assert_eq!((value, observed.0), (Seq::new(5), 1));
        }
        consumer.join().unwrap();
        assert_eq!(table.time_points().0.len(), 1);
    });
}

/// SYNC(slot-publish): the time noted before a publish is there for the waiter that records it.
fn a_traced_publish_has_its_time() {
    check(3, || {
        let table = SignalTable::in_process(TableShape::new(1, 1).traced(1));
        let mut publisher = table.publisher(SLOT).unwrap();
        let producer = thread::spawn(move || {
            publisher.pub_release(1);
            publisher
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _now = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap().acq_fence();
        let (points, dropped) = table.time_points();
        assert_eq!((points.len(), points[0].published.0, dropped), (1, 1, 0));
        producer.join().unwrap();
    });
}
