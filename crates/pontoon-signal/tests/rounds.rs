//! Double buffers and chains of stages, from counters that start anywhere.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Bound, BufferReader, BufferWriter, DoubleBuffer, Rank, Seq, Stage, WaitError,
};
use std::{thread, time::Duration};

const STARTS: [u64; 3] = [0, u32::MAX as u64 - 1, u64::MAX - 1];

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn short() -> Bound {
    Bound::within(Duration::from_millis(2))
}

fn each_start(count: usize, test: impl Fn(BufferWriter<u64>, BufferReader<u64>)) {
    for start in STARTS.map(Seq::new) {
        let (writer, reader) = DoubleBuffer::starting_at(start, vec![0; count]);
        test(writer, reader);
    }
}

fn put(writer: &mut BufferWriter<u64>, item: u64) {
    let mut buffer = writer.fill(patient()).unwrap();
    *buffer = item;
    buffer.publish();
}

fn is_peer_dead(error: &WaitError) -> bool {
    matches!(error, WaitError::PeerDead { .. })
}

#[test]
fn every_item_arrives_once_and_in_order() {
    for count in [1, 2, 3, 7] {
        each_start(count, |mut writer, mut reader| {
            let producer = thread::spawn(move || {
                for item in 0..500 {
                    put(&mut writer, item);
                }
            });
            for item in 0..500 {
                assert_eq!(*reader.next(patient()).unwrap(), item);
            }
            assert!(is_peer_dead(&reader.next(patient()).map(|buffer| *buffer).unwrap_err()));
            producer.join().unwrap();
        });
    }
}

#[test]
fn a_writer_is_at_most_a_round_ahead() {
    each_start(2, |mut writer, mut reader| {
        put(&mut writer, 1);
        put(&mut writer, 2);
        assert!(writer.fill(short()).map(|buffer| *buffer).unwrap_err().is_timeout());
        let held = reader.next(patient()).unwrap();
        assert!(writer.fill(short()).map(|buffer| *buffer).unwrap_err().is_timeout());
        assert_eq!(*held, 1);
        drop(held);
        put(&mut writer, 3);
        assert_eq!(*reader.next(patient()).unwrap(), 2);
        assert_eq!(*reader.next(patient()).unwrap(), 3);
        assert!(reader.next(short()).map(|buffer| *buffer).unwrap_err().is_timeout());
    });
}

#[test]
fn trying_never_waits() {
    each_start(2, |mut writer, mut reader| {
        assert!(reader.try_next().unwrap().is_none());
        for item in 1..=2 {
            let mut buffer = writer.try_fill().unwrap().expect("a free buffer");
            *buffer = item;
            buffer.publish();
        }
        assert!(writer.try_fill().unwrap().is_none());
        let (slot, target) = reader.pending();
        assert!(slot.value().is_at_or_past(target));
        assert_eq!(slot.value(), writer.published());
        let mut first = reader.try_next().unwrap().expect("a filled buffer");
        assert_eq!(core::mem::take(&mut *first), 1);
        drop(first);
        assert_eq!(*writer.try_fill().unwrap().expect("it came back"), 0);
        drop(writer);
        assert_eq!(*reader.try_next().unwrap().expect("what was published"), 2);
        assert!(is_peer_dead(&reader.try_next().map(|_| ()).unwrap_err()));
    });
}

#[test]
fn an_unpublished_buffer_is_filled_again() {
    each_start(2, |mut writer, mut reader| {
        *writer.fill(patient()).unwrap() = 7;
        assert!(reader.next(short()).map(|buffer| *buffer).unwrap_err().is_timeout());
        let mut buffer = writer.fill(patient()).unwrap();
        assert_eq!(*buffer, 7, "the same one");
        *buffer = 8;
        buffer.publish();
        assert_eq!(*reader.next(patient()).unwrap(), 8);
    });
}

#[test]
fn forgotten_buffers_come_back_with_the_next() {
    each_start(3, |mut writer, mut reader| {
        for item in 0..30 {
            put(&mut writer, 2 * item);
            put(&mut writer, 2 * item + 1);
            core::mem::forget(reader.next(patient()).unwrap());
            assert_eq!(*reader.next(patient()).unwrap(), 2 * item + 1);
        }
    });
}

#[test]
fn a_dropped_reader_stops_the_writer() {
    each_start(2, |mut writer, reader| {
        drop(reader);
        put(&mut writer, 1);
        put(&mut writer, 2);
        let error = writer.fill(patient()).map(|buffer| *buffer).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { rank: Rank(1), .. }), "{error}");
    });
}

#[test]
#[should_panic(expected = "at least one")]
fn no_buffer_is_a_sentence() {
    let _ = DoubleBuffer::<u64>::new([]);
}

type Chain = (BufferWriter<u64>, [Stage<u64, u64>; 3], BufferReader<u64>);

fn chain(start: Seq) -> Chain {
    let link = || DoubleBuffer::starting_at(start, [0, 0]);
    let ((source, a), (b, c), (d, e), (f, sink)) = (link(), link(), link(), link());
    (source, [Stage::new(a, b), Stage::new(c, d), Stage::new(e, f)], sink)
}

/// Runs `stage` until the one before or after it ends.
fn run(mut stage: Stage<u64, u64>, work: impl Fn(u64) -> u64) -> u64 {
    let mut rounds = 0;
    loop {
        match stage.run(patient(), |input, output| *output = work(*input)) {
            Ok(()) => rounds += 1,
            Err(error) if is_peer_dead(&error) => return rounds,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_slow_stage_delays_and_loses_nothing() {
    for start in STARTS.map(Seq::new) {
        let (mut source, stages, mut sink) = chain(start);
        thread::scope(|scope| {
            for (index, stage) in stages.into_iter().enumerate() {
                scope.spawn(move || {
                    let rounds = run(stage, |item| {
                        if index == 1 && item.is_multiple_of(10) {
                            thread::sleep(Duration::from_millis(1)); // the slow one
                        }
                        item + 1
                    });
                    assert_eq!(rounds, 60);
                });
            }
            scope.spawn(move || (0..60).for_each(|item| put(&mut source, item)));
            for item in 0..60 {
                assert_eq!(*sink.next(patient()).unwrap(), item + 3);
            }
            assert!(is_peer_dead(&sink.next(patient()).map(|buffer| *buffer).unwrap_err()));
        });
    }
}

#[test]
fn a_dying_stage_ends_the_chain_both_ways() {
    for start in STARTS.map(Seq::new) {
        let (mut source, [first, mut second, third], mut sink) = chain(start);
        thread::scope(|scope| {
            scope.spawn(move || run(first, |item| item));
            scope.spawn(move || {
                for _ in 0..5 {
                    second.run(patient(), |input, output| *output = *input).unwrap();
                }
            });
            scope.spawn(move || assert_eq!(run(third, |item| item), 5));
            let upstream = scope.spawn(move || {
                for item in 0.. {
                    match source.fill(patient()) {
                        Ok(mut buffer) => {
                            *buffer = item;
                            buffer.publish();
                        }
                        Err(error) => return (item, error),
                    }
                }
                unreachable!("the chain ends long before the numbers do")
            });
            for item in 0..5 {
                assert_eq!(*sink.next(patient()).unwrap(), item);
            }
            assert!(is_peer_dead(&sink.next(patient()).map(|buffer| *buffer).unwrap_err()));
            let (items, error) = upstream.join().unwrap();
            assert!(is_peer_dead(&error) && (5..=5 + 6).contains(&items), "{items}: {error}");
        });
    }
}

#[test]
fn a_round_that_timed_out_can_be_tried_again() {
    for start in STARTS.map(Seq::new) {
        let (mut source, [mut stage, _second, _third], _sink) = chain(start);
        for item in 0..2 {
            let starved = stage.run(short(), |_, _| unreachable!("there is no input"));
            assert!(starved.unwrap_err().is_timeout());
            put(&mut source, item);
            stage.run(patient(), |input, output| *output = *input).unwrap();
        }
        put(&mut source, 2);
        let full = stage.run(short(), |_, _| unreachable!("there is no output"));
        assert!(full.unwrap_err().is_timeout());
    }
}
