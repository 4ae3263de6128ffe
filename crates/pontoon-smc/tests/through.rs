//! Raw stores that are written through: by each kind of instruction, over a real link, counted.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;
mod raw;
mod setup;

use std::{sync::Barrier, thread};

use common::{pair, patient};
use pontoon_hal::paging::PAGE;
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_uffd::{Service, on_this_thread};
use setup::{BOTH, at_home, counted};

/// Each kind of store: the bytes are home when it returns, by one write, and the window has them.
#[test]
fn one_store_is_one_write_at_home() {
    for service in BOTH {
        let pair = pair(8);
        let Some((real, link)) = counted(&pair, service) else { return };
        let base = real.window.base().as_ptr();
        let mut at = 100_usize;
        for (name, bytes, store) in raw::STORES {
            if !raw::has(name) {
                eprintln!("skipped: the processor has no {name}");
                continue;
            }
            // Aligned for those that want it, then across a page for those that do not.
            for place in [at.next_multiple_of(64), PAGE * 3 - bytes / 2] {
                if place % 64 != 0 && !raw::goes_anywhere(name) {
                    continue;
                }
                let (writes, changes) = link.counts();
                let source: Vec<u8> = (0..*bytes).map(|byte| (byte * 7 + at) as u8).collect();
                store(base.wrapping_add(place), &source);
                assert_eq!(at_home(&pair, place, *bytes), source, "{name} at {place}, {service:?}");
                assert_eq!(link.counts(), (writes + 1, changes), "{name} at {place}, {service:?}");
                let mut here = vec![0; *bytes];
                real.window.get(place, &mut here).unwrap();
                assert_eq!(here, source, "{name} at {place} here, {service:?}");
            }
            at += 128;
        }
        real.through.check().unwrap();
        let statistics = real.window.statistics();
        assert_eq!(statistics.trapped, statistics.through);
        assert_eq!((statistics.lost, statistics.stray), (0, 0));
        if service == Service::Served {
            assert_eq!(link.elsewhere(), 0, "a link was used where a store was trapped");
        }
        assert_eq!(real.window.release(0..real.window.bytes(), patient()).unwrap().bytes, 0);
    }
}

/// Ten thousand bytes across pages are one write.
#[test]
fn a_string_move_is_one_write() {
    for service in BOTH {
        let pair = pair(8);
        let Some((real, link)) = counted(&pair, service) else { return };
        let source: Vec<u8> = (0..10_000_u32).map(|at| (at * 31 % 251) as u8).collect();
        let base = real.window.base().as_ptr();
        // One page is here before, and is to have them as well.
        real.window.prefetch(PAGE..2 * PAGE).unwrap();
        raw::rep_movs(base.wrapping_add(77), &source);
        assert_eq!(link.counts(), (1, 0));
        assert!(at_home(&pair, 77, source.len()) == source);
        raw::rep_stos(base.wrapping_add(2 * PAGE + 5), 0x5A, 10_000);
        assert_eq!(link.counts(), (2, 0));
        assert!(at_home(&pair, 2 * PAGE + 5, 10_000).iter().all(|&byte| byte == 0x5A));
        let mut here = vec![0; 100];
        real.window.get(2 * PAGE - 45, &mut here).unwrap();
        assert_eq!(here, [&source[2 * PAGE - 45 - 77..][..50], &[0x5A; 50]].concat());
    }
}

/// What a program calls to copy is written through too, whatever it is made of.
#[test]
fn copies_of_the_c_library_are_written_through() {
    let pair = pair(8);
    let Some((real, link)) = counted(&pair, Service::InThread) else { return };
    let base = real.window.base().as_ptr();
    for bytes in [1, 3, 8, 15, 31, 64, 100, 257, 1000, 5000, 20_000] {
        let source: Vec<u8> = (0..bytes).map(|at| (at * 13 + bytes) as u8).collect();
        raw::copy(base.wrapping_add(50), &source);
        assert!(at_home(&pair, 50, bytes) == source, "{bytes}");
    }
    real.through.check().unwrap();
    assert!(real.through.refusals().is_empty(), "{:?}", real.through.refusals());
    assert_eq!(link.counts().0, real.window.statistics().trapped);
}

/// Atomics are made at home, each one change of a word.
#[test]
fn atomics_are_made_at_home() {
    for service in BOTH {
        let pair = pair(2);
        pair.put_home(64, &5_u64.to_ne_bytes());
        let Some((real, link)) = counted(&pair, service) else { return };
        let word = real.window.word(64).unwrap();
        let home = || u64::from_ne_bytes(at_home(&pair, 64, 8).try_into().unwrap());
        assert_eq!(word.load(Relaxed), 5);
        // Another rank changes it, and nobody here has acquired that.
        pair.put_home(64, &7_u64.to_ne_bytes());
        assert_eq!((word.fetch_add(3, Relaxed), home()), (7, 10));
        assert_eq!(link.counts(), (0, 1));
        assert_eq!(word.load(Relaxed), 10);
        assert_eq!((word.fetch_or(5, Relaxed), home()), (10, 15));
        assert_eq!((word.fetch_and(6, Relaxed), home()), (15, 6));
        assert_eq!((word.swap(40, Relaxed), home()), (6, 40));
        assert_eq!(word.compare_exchange(41, 1, Relaxed, Relaxed), Err(40));
        assert_eq!(word.compare_exchange(40, 1, Relaxed, Relaxed), Ok(40));
        assert_eq!((home(), word.load(Relaxed)), (1, 1));
        assert_eq!((word.fetch_sub(2, Relaxed), home()), (1, u64::MAX));
        assert_eq!(link.counts().0, 0, "none of it is a write");
        real.through.check().unwrap();
    }
}

/// Two windows, as of two nodes, and two threads of each count together, by additions and by swaps.
#[test]
fn counters_lose_nothing_under_contention() {
    const ROUNDS: u64 = 2000;
    let pair = &pair(1);
    let nodes: Option<Vec<_>> = (0..2).map(|_| counted(pair, Service::InThread)).collect();
    let Some(nodes) = &nodes else { return };
    thread::scope(|scope| {
        for me in 0..4 {
            let window = &nodes[me % 2].0.window;
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                let (sum, swaps) = (window.word(0).unwrap(), window.word(8).unwrap());
                for _ in 0..ROUNDS {
                    sum.fetch_add(1, Relaxed);
                    let mut seen = swaps.load(Relaxed);
                    while let Err(now) = swaps.compare_exchange(seen, seen + 1, Relaxed, Relaxed) {
                        seen = now;
                    }
                    // Half a word, beside another.
                    raw::locked_increment(window.base().as_ptr().wrapping_add(16 + 4 * (me / 2)));
                }
            });
        }
    });
    let word = |at| u64::from_ne_bytes(at_home(pair, at, 8).try_into().unwrap());
    assert_eq!((word(0), word(8)), (4 * ROUNDS, 4 * ROUNDS));
    assert_eq!(word(16), (2 * ROUNDS) | ((2 * ROUNDS) << 32));
    nodes.iter().for_each(|(real, _)| real.through.check().unwrap());
}

#[test]
fn stores_of_many_threads_are_all_at_home() {
    const ROUNDS: u64 = 2000;
    let pair = &pair(4);
    let Some((real, link)) = &counted(pair, Service::InThread) else { return };
    thread::scope(|scope| {
        for me in 0..4 {
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                for round in 1..=ROUNDS {
                    for page in 0..4 {
                        let at = page * PAGE + 8 * me;
                        let word = real.window.word(at).unwrap();
                        word.store(round << 8 | me as u64, Relaxed);
                        assert_eq!(word.load(Relaxed), round << 8 | me as u64);
                    }
                }
            });
        }
    });
    for (page, me) in (0..4).flat_map(|page| (0..4).map(move |me| (page, me))) {
        let last = u64::from_ne_bytes(at_home(pair, page * PAGE + 8 * me, 8).try_into().unwrap());
        assert_eq!(last, ROUNDS << 8 | me as u64);
    }
    assert_eq!(link.counts(), (16 * ROUNDS, 0));
}

/// Whoever acquires has what was stored, and whoever stored does not read it anew.
#[test]
fn others_acquire_what_was_stored() {
    let pair = pair(4);
    let Some((writer, _)) = counted(&pair, Service::InThread) else { return };
    let Some((reader, _)) = counted(&pair, Service::InThread) else { return };
    for node in [&writer, &reader] {
        node.window.prefetch(0..4 * PAGE).unwrap();
    }
    writer.window.word(8).unwrap().store(11, Relaxed);
    assert_eq!(reader.window.word(8).unwrap().load(Relaxed), 0, "nobody has acquired yet");
    let acquired = reader.window.acquire(0..4 * PAGE, patient()).unwrap();
    assert_eq!((acquired.merged, acquired.bytes, acquired.conflicts), (1, 1, 0));
    assert_eq!(reader.window.word(8).unwrap().load(Relaxed), 11);
    assert_eq!(writer.window.acquire(0..4 * PAGE, patient()).unwrap().merged, 0);
    // And cells of the same range are what they were.
    reader.window.cell(16).unwrap().store(12, patient()).unwrap();
    assert_eq!(reader.window.word(16).unwrap().load(Relaxed), 12);
    writer.window.acquire(0..4 * PAGE, patient()).unwrap();
    assert_eq!(writer.window.word(16).unwrap().load(Relaxed), 12);
}

/// Of stores of two threads to one word the last at home is the last here.
#[test]
fn here_is_what_home_has_of_a_word_that_two_threads_store() {
    const WORDS: usize = 16;
    let pair = &pair(1);
    let Some((real, _)) = &counted(pair, Service::InThread) else { return };
    let meet = &Barrier::new(2);
    thread::scope(|scope| {
        for me in 0..2_u64 {
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                for round in 0..300_u64 {
                    for word in 0..WORDS {
                        let place = real.window.word(8 * word).unwrap();
                        place.store(round << 8 | me, Relaxed);
                        // Sometimes here, sometimes not.
                        if round % 2 == 0 {
                            place.load(Relaxed);
                        }
                    }
                    meet.wait();
                    for word in 0..WORDS {
                        let home = at_home(pair, 8 * word, 8).try_into().unwrap();
                        let here = real.window.word(8 * word).unwrap().load(Relaxed);
                        assert_eq!(here, u64::from_ne_bytes(home), "round {round} word {word}");
                    }
                    meet.wait();
                }
            });
        }
    });
}

/// System calls find pages in place, with what was stored to them.
#[test]
fn a_system_call_finds_what_was_stored() {
    let pair = pair(4);
    let Some((real, _)) = counted(&pair, Service::InThread) else { return };
    real.window.prefetch(0..4 * PAGE).unwrap();
    raw::store_word(real.window.base().as_ptr().wrapping_add(PAGE), 0x0A67_6E69_6874);
    let file = std::env::temp_dir().join(format!("pontoon-through-{}", std::process::id()));
    let written = real.window.with_resident(PAGE..PAGE + 6, patient(), |first| {
        std::fs::write(&file, raw::bytes(first, 6))
    });
    written.unwrap().unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"thing\n");
    std::fs::remove_file(&file).unwrap();
}

/// A window far larger than its pool, written through: pages come and go, and all is home all the time.
#[test]
fn pages_that_come_and_go_are_what_home_has() {
    let pages = 512;
    let pair = pair(pages);
    let Some((real, _)) = counted(&pair, Service::InThread) else { return };
    let mut random = 1_u64;
    let mut own = vec![0_u64; pages];
    for _ in 0..4000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
        let page = (random >> 40) as usize % pages;
        let word = real.window.word(page * PAGE + 24).unwrap();
        assert_eq!(word.load(Relaxed), own[page]);
        own[page] = random;
        word.store(random, Relaxed);
        // Some go without having been put in their place again.
        if random & 1 == 0 {
            assert_eq!(word.load(Relaxed), random);
        }
    }
    assert!(real.window.statistics().evicted > 1000);
}
