//! Raw stores that are written through: by each kind of instruction, over a real link, counted.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;
mod raw;

use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use common::{Pair, Plain, counted::Counted, pair, patient, silent::Silent};
use pontoon_hal::{conformance::part, link::Link, paging::PAGE};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_smc::{Arrival, Extent, Pool, Settings, SmcError, Through, Window};
use pontoon_uffd::{Features, Paged, Service, Serving, on_this_thread};

struct Real {
    window: Window,
    through: Through,
    _serving: Serving,
}

fn settings() -> Settings {
    let mut settings = Settings::for_pages(64);
    // A loaded machine is no dead home.
    settings.deadline = Duration::from_secs(20);
    settings
}

/// A window on all of the pair's memory; `None`, and says so, on a kernel that cannot.
fn plain(
    pair: &Pair,
    link: &Arc<dyn Link>,
    settings: Settings,
    service: Service,
) -> Option<(Window, Serving)> {
    let bytes = pair.layout.pages() * PAGE;
    let paged = part::needed("userfaultfd", Paged::reserve(&Features::probe(), bytes, service))?;
    // For as long as the thread is.
    core::mem::forget(on_this_thread().unwrap());
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(link, pair.region.clone()).unwrap().unwrap();
    let window = pool.window(paged.clone(), vec![Extent::new(0..bytes, home, 0)]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    Some((window, serving))
}

/// One that is written through.
fn real(
    pair: &Pair,
    link: &Arc<dyn Link>,
    settings: Settings,
    service: Service,
    arrival: Arrival,
) -> Option<Real> {
    let (window, serving) = plain(pair, link, settings, service)?;
    let through = window.write_through(0..window.bytes(), arrival, patient()).unwrap();
    Some(Real { window, through, _serving: serving })
}

/// As most tests want it: all of it, at home at once, over a link that counts.
fn counted(pair: &Pair, service: Service) -> Option<(Real, Arc<Counted>)> {
    let link = Counted::over(&pair.link, pair.layout.data());
    let shared: Arc<dyn Link> = Arc::clone(&link) as _;
    let real = real(pair, &shared, settings(), service, Arrival::AtHome)?;
    Some((real, link))
}

fn at_home(pair: &Pair, at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes).map(|at| pair.at_home(at)).collect()
}

const BOTH: [Service; 2] = [Service::InThread, Service::Served];

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

/// What was stored before goes home first, and what lies beside stays as it was.
#[test]
fn a_range_of_a_window_is_written_through_and_the_rest_is_released() {
    let pair = pair(4);
    let bytes = 4 * PAGE;
    let Some((window, _serving)) = plain(&pair, &pair.link, settings(), Service::InThread) else {
        return;
    };
    for page in 0..4 {
        window.word(page * PAGE).unwrap().store(1, Relaxed);
    }
    let through = window.write_through(PAGE + 9..3 * PAGE, Arrival::AtHome, patient()).unwrap();
    assert_eq!(through.bytes(), PAGE..3 * PAGE);
    let homes = || [0, 1, 2, 3].map(|page| pair.at_home(page * PAGE));
    assert_eq!(homes(), [0, 1, 1, 0]);
    for page in 0..4 {
        window.word(page * PAGE).unwrap().store(2, Relaxed);
    }
    assert_eq!(homes(), [0, 2, 2, 0]);
    assert_eq!(window.release(0..bytes, patient()).unwrap().pages, 2);
    assert_eq!(homes(), [2, 2, 2, 2]);
    let none = window.write_through(bytes..bytes, Arrival::AtHome, patient());
    assert!(matches!(none, Err(SmcError::OutOfRange { .. })));
}

#[test]
fn where_stores_cannot_be_trapped_the_error_says_what_to_do() {
    let pair = pair(4);
    let pool = Pool::new(settings()).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let extent = Extent::new(0..4 * PAGE, home, 0);
    let window = pool.window(Plain::new(4), vec![extent]).unwrap();
    let error = window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap_err();
    assert!(error.to_string().contains("use cells"), "{error}");
}

/// Stores go on while the range becomes written through, and so do acquires: none is lost.
#[test]
fn stores_that_go_on_meanwhile_are_all_at_home() {
    const WORDS: usize = 4 * PAGE / 8;
    for _ in 0..10 {
        let pair = pair(4);
        let Some((window, _serving)) = plain(&pair, &pair.link, settings(), Service::InThread)
        else {
            return;
        };
        let (window, stop, begun) = (&window, &AtomicU64::new(0), &AtomicU64::new(0));
        let (last, _through) = thread::scope(|scope| {
            let storing = scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                let mut last = vec![0; WORDS];
                for at in (0..WORDS).cycle() {
                    last[at] += 1;
                    raw::store_word(window.base().as_ptr().wrapping_add(8 * at), last[at]);
                    begun.store(1, Relaxed);
                    if stop.load(Relaxed) != 0 {
                        break;
                    }
                }
                last
            });
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                while stop.load(Relaxed) == 0 {
                    window.acquire(0..4 * PAGE, patient()).unwrap();
                }
            });
            while begun.load(Relaxed) == 0 {
                thread::yield_now();
            }
            let through = window.write_through(0..4 * PAGE, Arrival::AtHome, patient());
            stop.store(1, Relaxed);
            (storing.join().unwrap(), through.unwrap())
        });
        let expected: Vec<u8> = last.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(at_home(&pair, 0, 4 * PAGE) == expected, "a store is lost");
        let mut here = vec![0; 4 * PAGE];
        window.get(0, &mut here).unwrap();
        assert!(here == expected, "a store is lost here");
        assert_eq!(window.statistics().lost, 0);
    }
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

#[test]
fn posted_stores_are_at_home_after_a_drain() {
    let pair = pair(130);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let real = real(&pair, &link, settings(), Service::InThread, Arrival::Posted);
    let Some(real) = real else { return };
    silent.be_silent(true);
    for page in 0..130 {
        // Nothing is here: each is on its way when the store returns.
        raw::store_word(real.window.base().as_ptr().wrapping_add(page * PAGE), 3);
        assert_eq!(pair.at_home(page * PAGE), 0);
    }
    let short = Bound::within(Duration::from_millis(50));
    assert!(real.through.drain(short).is_err());
    silent.be_silent(false);
    real.through.drain(patient()).unwrap();
    assert!((0..130).all(|page| pair.at_home(page * PAGE) == 3 && pair.version(page) == 1));
    real.through.drain(patient()).unwrap();
    assert!((0..130).all(|page| pair.version(page) == 1), "there was nothing to say");
}

/// A home that is silent or dead costs a store its deadline, no more, and is told of; the thread goes on.
#[test]
fn a_store_to_a_dead_home_is_lost_in_time_and_told_of() {
    for service in BOTH {
        let pair = pair(16);
        let silent = Silent::over(&pair.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let mut settings = settings();
        settings.deadline = Duration::from_millis(500);
        settings.threshold = 2;
        let real = real(&pair, &link, settings, service, Arrival::AtHome);
        let Some(real) = real else { return };
        let base = real.window.base().as_ptr();
        raw::store_word(base, 1);
        real.through.check().unwrap();
        silent.be_silent(true);
        let started = Instant::now();
        raw::store_word(base, 2);
        assert!(started.elapsed() < Duration::from_secs(5), "{service:?}");
        assert!(real.through.check().is_err(), "{service:?}");
        real.through.check().unwrap();
        for store in 0..96 {
            raw::store_word(base.wrapping_add(store % 16 * PAGE), 3);
        }
        // Not each waits.
        assert!(started.elapsed() < Duration::from_secs(20), "{service:?}");
        assert!(matches!(real.through.check(), Err(SmcError::TimedOut { .. } | SmcError::Link(_))));
        assert_eq!(real.window.statistics().lost, 97);
        silent.die();
        let started = Instant::now();
        for page in 0..16 {
            raw::store_word(base.wrapping_add(page * PAGE), 4);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{service:?}");
        assert_eq!(real.window.statistics().lost, 113);
        real.through.check().unwrap_err();
    }
}

/// The first stores that are trapped find all in place: nothing is allocated for them.
#[test]
fn a_trapped_store_allocates_nothing() {
    let pair = pair(4);
    let link = &pair.link;
    let real = real(&pair, link, settings(), Service::InThread, Arrival::AtHome);
    let Some(real) = real else { return };
    let (base, source) = (real.window.base().as_ptr(), vec![1; 10_000]);
    let word = real.window.word(8).unwrap();
    let before = raw::allocations();
    raw::store_word(base, 1);
    raw::rep_movs(base.wrapping_add(100), &source);
    word.fetch_add(1, Relaxed);
    word.fetch_or(8, Relaxed);
    assert_eq!(raw::allocations() - before, 0);
    assert_eq!(real.window.statistics().trapped, 4);
    drop(Vec::<u8>::with_capacity(100));
    assert_eq!(raw::allocations() - before, 1, "allocations are counted");
}

/// Pages that are fetched, that go to make room, and that hold the pattern as their home is gone.
#[test]
fn a_miss_allocates_nothing() {
    let pair = pair(256);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let Some((window, _serving)) = plain(&pair, &link, settings(), Service::InThread) else {
        return;
    };
    let words: Vec<_> = (0..256).map(|page| window.word(page * PAGE).unwrap()).collect();
    let before = raw::allocations();
    let sum = words[..200].iter().map(|word| word.load(Relaxed)).sum::<u64>();
    assert_eq!(raw::allocations() - before, 0);
    assert_eq!(sum, 0);
    assert!(window.statistics().evicted > 0, "it has 64 pages");
    silent.die();
    let before = raw::allocations();
    let reads = words[200..].iter().map(|word| word.load(Relaxed));
    assert!(reads.map(|read| u64::from(read != 0)).sum::<u64>() > 0, "some are not here");
    assert_eq!(raw::allocations() - before, 0);
}

/// What is stored to a home that was started again goes there, and what is loaded is what that has.
#[test]
fn stores_go_through_to_a_home_that_was_started_again() {
    for service in BOTH {
        let (first, second) = (pair(8), pair(8));
        let silent = Silent::over(&first.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let mut settings = settings();
        settings.deadline = Duration::from_secs(2);
        let Some(real) = real(&first, &link, settings, service, Arrival::AtHome) else { return };
        let base = real.window.base().as_ptr();
        let load = |at: usize| real.window.word(at).unwrap().load(Relaxed);
        raw::store_word(base, 1);
        assert_eq!((load(0), load(PAGE), first.at_home(0)), (1, 0, 1));
        second.put_home(8, &[9]);
        second.put_home(PAGE, &[7]);
        silent.die();
        raw::store_word(base, 2);
        real.through.check().unwrap_err();
        let again: Arc<dyn Link> = Silent::over(&second.link) as _;
        let home = real.window.pool().home(&again, second.region.clone()).unwrap().unwrap();
        real.window.heal(0, home, 0).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while load(8) != 9 {
            assert!(Instant::now() < until, "{service:?}: the pattern goes");
            real.window.acquire(0..real.window.bytes(), patient()).unwrap();
        }
        raw::store_word(base, 3);
        let word = real.window.word(PAGE).unwrap();
        assert_eq!(word.fetch_add(1, Relaxed), 7, "{service:?}");
        real.through.check().unwrap();
        assert_eq!((second.at_home(0), second.at_home(PAGE), first.at_home(0)), (3, 8, 1));
        real.window.acquire(0..real.window.bytes(), patient()).unwrap();
        assert_eq!((load(0), load(8), load(PAGE)), (3, 9, 8), "{service:?}");
    }
}
