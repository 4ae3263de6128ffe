//! Cells and slices: values that are at home when the call returns, whatever is here.
#![cfg(not(pontoon_loom))]

mod common;

use std::{sync::Arc, thread, time::Duration};

use common::{
    Client, Pair, Plain, counted::Counted, modest::Modest, pair, patient, silent::Silent,
};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_signal::Bound;
use pontoon_smc::{Extent, Pool, Settings, SmcError, Value};

const PAGES: usize = 128;
const WHOLE: core::ops::Range<usize> = 0..PAGES * PAGE;

fn pool() -> Pool {
    let mut settings = Settings::for_pages(64);
    (settings.deadline, settings.ahead) = (Duration::from_millis(50), 1);
    Pool::new(settings).unwrap()
}

fn over(link: &Arc<dyn Link>, pair: &Pair, pool: &Pool) -> Client {
    let home = pool.home(link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    Client::new(pool.window(plain.clone(), vec![Extent::new(WHOLE, home, 0)]).unwrap(), plain)
}

fn scene() -> (Pair, Client) {
    let pair = pair(PAGES);
    let client = over(&pair.link, &pair, &pool());
    (pair, client)
}

/// A value of each type is its bytes, at home and here, and those beside it are as they were.
#[test]
fn values_of_each_type_are_their_bytes() {
    fn each<T: Value + PartialEq + std::fmt::Debug>(values: [T; 2], bytes: [&[u8]; 2]) {
        let (pair, client) = scene();
        pair.put_home(0, &[7; 64]);
        // One page is here and the other comes later.
        client.touch(0);
        for (at, (value, bytes)) in [16, PAGE + 16].into_iter().zip(values.into_iter().zip(bytes)) {
            let at = at + bytes.len();
            let beside = [at - 1, at + bytes.len()].map(|at| (pair.at_home(at), client.load(at)));
            let cell = client.window.cell_of::<T>(at).unwrap();
            cell.store(value, patient()).unwrap();
            assert_eq!(cell.load_fresh(patient()), Ok(value));
            for (place, &byte) in bytes.iter().enumerate() {
                let found = (pair.at_home(at + place), client.load(at + place));
                assert_eq!(found, (byte, byte), "byte {place} of {value:?}");
            }
            let after = [at - 1, at + bytes.len()].map(|at| (pair.at_home(at), client.load(at)));
            assert_eq!(after, beside, "{value:?}");
        }
        if size_of::<T>() > 1 {
            let refused = client.window.cell_of::<T>(1).map(drop).unwrap_err();
            assert_eq!(refused, SmcError::Misaligned { offset: 1 });
        }
        client.window.cell_of::<T>(WHOLE.end - size_of::<T>() + 1).map(drop).unwrap_err();
        client.window.cell_of::<T>(usize::MAX - 7).map(drop).unwrap_err();
    }
    each([1_u8, 0xFE], [&[1], &[0xFE]]);
    each([-1_i8, 3], [&[0xFF], &[3]]);
    each([0x1234_u16, 9], [&0x1234_u16.to_ne_bytes(), &9_u16.to_ne_bytes()]);
    each([-2_i16, 9], [&(-2_i16).to_ne_bytes(), &9_i16.to_ne_bytes()]);
    each([0x1234_5678_u32, 9], [&0x1234_5678_u32.to_ne_bytes(), &9_u32.to_ne_bytes()]);
    each([-3_i32, 9], [&(-3_i32).to_ne_bytes(), &9_i32.to_ne_bytes()]);
    each([u64::MAX - 7, 9], [&(u64::MAX - 7).to_ne_bytes(), &9_u64.to_ne_bytes()]);
    each([i64::MIN, 9], [&i64::MIN.to_ne_bytes(), &9_i64.to_ne_bytes()]);
    each([1.5_f32, -0.25], [&1.5_f32.to_ne_bytes(), &(-0.25_f32).to_ne_bytes()]);
    each([1.5_f64, -0.25], [&1.5_f64.to_ne_bytes(), &(-0.25_f64).to_ne_bytes()]);
}

/// What was stored here before, by a plain store that nobody released, is before.
#[test]
fn a_write_is_after_the_stores_before_it() {
    let (pair, client) = scene();
    for value in [0, 5_u8] {
        (8..16).for_each(|at| client.store(at, 0xAA));
        client.window.cell_of::<u8>(9).unwrap().store(value, patient()).unwrap();
        client.window.slice::<u16>(10, 2).unwrap().write(0, &[0, 0x0101], patient()).unwrap();
        let wanted = [0xAA, value, 0, 0, 1, 1, 0xAA, 0xAA];
        (16..24).for_each(|at| client.store(at, 0xAA));
        let posted = client.window.cell(16).unwrap();
        posted.post(u64::from_ne_bytes([0, 5, 5, 0, 0, 0, 0, value])).unwrap();
        posted.drain(patient()).unwrap();
        assert_eq!((8..16).map(|at| client.load(at)).collect::<Vec<_>>(), wanted);
        client.window.release(WHOLE, patient()).unwrap();
        assert_eq!((8..16).map(|at| pair.at_home(at)).collect::<Vec<_>>(), wanted);
        let both = (16..24).map(|at| (client.load(at), pair.at_home(at)));
        let wanted = [0, 5, 5, 0, 0, 0, 0, value].map(|byte| (byte, byte));
        assert_eq!(both.collect::<Vec<_>>(), wanted);
    }
}

/// Numbers of four bytes are changed at once, beside writes to the other four; where that is not to be had, it is
/// said by name.
#[test]
fn whole_numbers_are_changed_at_once() {
    const ROUNDS: u32 = 2_000;
    let (pair, client) = scene();
    client.touch(0);
    let window = &client.window;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let (low, wide) = (window.cell_of::<u32>(32), window.cell_of::<i64>(40));
                let (low, wide) = (low.unwrap(), wide.unwrap());
                for _ in 0..ROUNDS {
                    low.fetch_add(1, patient()).unwrap();
                    wide.fetch_add(-1, patient()).unwrap();
                }
            });
        }
        scope.spawn(move || {
            let beside = window.cell_of::<f32>(36).unwrap();
            for round in 0..ROUNDS {
                beside.store(round as f32, patient()).unwrap();
                assert_eq!(beside.load_fresh(patient()), Ok(round as f32));
            }
        });
    });
    let low = window.cell_of::<u32>(32).unwrap();
    assert_eq!(low.load_fresh(patient()), Ok(2 * ROUNDS));
    assert_eq!(window.cell_of(40).unwrap().load_fresh(patient()), Ok(-2 * i64::from(ROUNDS)));
    assert_eq!(low.compare_exchange(1, 2, patient()), Ok(2 * ROUNDS), "it is not 1");
    assert_eq!(low.compare_exchange(2 * ROUNDS, 7, patient()), Ok(2 * ROUNDS));
    assert_eq!((pair.at_home(32), client.load(32)), (7, 7));
    let last = window.cell_of::<i32>(4).unwrap();
    last.store(i32::MAX, patient()).unwrap();
    assert_eq!(last.fetch_add(1, patient()), Ok(i32::MAX));
    assert_eq!(last.load_fresh(patient()), Ok(i32::MIN), "it wraps, and takes nothing from beside");
    assert_eq!(pair.at_home(0), 0);

    let modest = over(&Modest::over(&pair.link), &pair, &pool());
    let refused = modest.window.cell_of::<u32>(32).unwrap().fetch_add(1, patient()).unwrap_err();
    assert!(matches!(refused, SmcError::Unable { link: "modest", .. }), "{refused}");
    assert!(refused.to_string().contains("8 bytes") && !refused.to_string().contains('\n'));
    modest.window.cell_of::<u64>(32).unwrap().fetch_add(0, patient()).unwrap();
}

/// Values that follow each other are one write, up to 64 KiB; none beside them changes.
#[test]
fn a_slice_is_one_write() {
    let pair = pair(PAGES);
    let counted = Counted::over(&pair.link, pair.layout.data());
    let link: Arc<dyn Link> = Arc::clone(&counted) as _;
    let client = over(&link, &pair, &pool());
    (0..PAGES).step_by(2).for_each(|page| client.touch(page));
    for (offset, len, writes) in [
        (0, 1, 1),
        (4, 3, 1),
        (PAGE - 4, 2, 1),
        (8, 16 * 1024, 1),
        (12, 16 * 1024 - 1, 1),
        (12, 16 * 1024, 2),
        (4 * PAGE, 40_000, 3),
    ] {
        let values: Vec<f32> = (0..len).map(|at| (at + offset) as f32).collect();
        let before = counted.counts().0;
        let slice = client.window.slice::<f32>(offset, len).unwrap();
        slice.write(0, &values, patient()).unwrap();
        assert_eq!(counted.counts().0 - before, writes, "{len} at {offset}");
        let mut found = vec![0.0; len];
        slice.read_fresh(0, &mut found, patient()).unwrap();
        assert_eq!(found, values);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        for (at, byte) in (offset..).zip(bytes) {
            assert_eq!((pair.at_home(at), client.load(at)), (byte, byte), "byte {at}");
        }
    }
    let slice = client.window.slice::<u16>(100, 50).unwrap();
    slice.write(49, &[1], patient()).unwrap();
    slice.write(49, &[1, 2], patient()).unwrap_err();
    slice.write(usize::MAX, &[1], patient()).unwrap_err();
    slice.read_fresh(51, &mut [0], patient()).unwrap_err();
    client.window.slice::<u16>(100, usize::MAX).map(drop).unwrap_err();
    client.window.slice::<u32>(98, 1).map(drop).unwrap_err();
    assert_eq!(slice.len(), 50);
}

/// What was written is acquired by others, and what was posted is when it was drained.
#[test]
fn others_acquire_what_was_written_and_what_was_drained() {
    let (pair, client) = scene();
    let reader = over(&pair.link, &pair, &pool());
    (0..8).for_each(|page| reader.touch(page));
    let slice = client.window.slice::<u8>(PAGE - 3, 2 * PAGE).unwrap();
    slice.write(0, &[1; 6], patient()).unwrap();
    assert_eq!(reader.window.acquire(WHOLE, patient()).unwrap().merged, 2);
    assert_eq!((reader.load(PAGE - 3), reader.load(PAGE + 2)), (1, 1));
    slice.post(PAGE, &[2; 6]).unwrap();
    slice.post(PAGE, &[3; 6]).unwrap();
    assert_eq!(reader.window.acquire(WHOLE, patient()).unwrap().merged, 0, "nobody has said so");
    slice.drain(patient()).unwrap();
    assert_eq!(reader.window.acquire(WHOLE, patient()).unwrap().merged, 2);
    assert_eq!((reader.load(2 * PAGE - 3), reader.load(2 * PAGE + 2)), (3, 3));
    slice.drain(patient()).unwrap();
    assert_eq!(reader.window.acquire(WHOLE, patient()).unwrap().merged, 0, "it is said once");
}

/// A home that is silent: an error, in time; what was posted is waited for by the next drain, and not taken for what
/// another home has.
#[test]
fn what_was_posted_is_drained_once_home_answers_and_is_of_that_home() {
    let (pair, other) = (pair(PAGES), pair(PAGES));
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let pool = pool();
    let client = over(&link, &pair, &pool);
    client.touch(0);
    let (slice, short) =
        (client.window.slice::<u32>(0, 4000).unwrap(), Bound::within(Duration::from_millis(30)));
    silent.be_silent(true);
    slice.post(0, &[5; 4000]).unwrap();
    assert_eq!(client.load(0), 5, "here it is at once");
    slice.drain(short).unwrap_err();
    slice.write(0, &[6; 10], short).unwrap_err();
    assert_eq!(client.load(0), 5);
    silent.be_silent(false);
    slice.drain(patient()).unwrap();
    assert_eq!(pair.at_home(15_999), 0);
    assert_eq!(pair.at_home(15_996), 5);

    slice.post(100, &[7]).unwrap();
    client
        .window
        .heal(0, pool.home(&other.link, other.region.clone()).unwrap().unwrap(), 0)
        .unwrap();
    let refused = slice.drain(patient()).unwrap_err();
    assert!(matches!(refused, SmcError::Moved { .. }), "{refused}");
    slice.drain(patient()).unwrap();
    slice.write(100, &[8], patient()).unwrap();
    assert_eq!((pair.at_home(400), other.at_home(400)), (7, 8));
}

/// Threads that write the same values: what is here afterwards is what home has.
#[test]
fn what_is_here_does_not_fall_behind() {
    let (pair, client) = scene();
    let (client, barrier) = (&client, &std::sync::Barrier::new(3));
    thread::scope(|scope| {
        for value in [1, 2_u16] {
            scope.spawn(move || {
                let slice = client.window.slice::<u16>(8, 100).unwrap();
                for _ in 0..3_000 {
                    barrier.wait();
                    slice.write(0, &[value; 100], patient()).unwrap();
                    barrier.wait();
                }
            });
        }
        // Told after all rounds: who waits for another is not left alone.
        let reader = scope.spawn(|| {
            let mut behind = Vec::new();
            for round in 0..3_000 {
                if round % 3 == 0 {
                    // The page goes, and comes while they write.
                    (1..PAGES).for_each(|page| client.touch(page));
                }
                barrier.wait();
                client.touch(0);
                barrier.wait();
                if [8, 207].iter().any(|&at| client.load(at) != pair.at_home(at)) {
                    behind.push(round);
                }
            }
            behind
        });
        assert_eq!(reader.join().unwrap(), [0; 0], "rounds in which here was not what home had");
    });
}
