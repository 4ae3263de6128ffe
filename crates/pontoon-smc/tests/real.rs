//! Windows over the kernel's paging, served where accesses fault and by threads: plain loads and stores.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Pair, pair, patient, silent::Silent};
use pontoon_hal::{conformance::part, link::Link, paging::PAGE};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{Class, Extent, Pool, Settings, Window};
use pontoon_uffd::{Features, Paged, Service, Serving, on_this_thread};

struct Real {
    window: Window,
    _serving: Serving,
}

fn settings(pages: usize) -> Settings {
    let mut settings = Settings::for_pages(pages);
    // A loaded machine is no dead home.
    settings.deadline = Duration::from_secs(20);
    settings
}

/// A window of a pool of its own on all of the pair's memory; `None`, and says so, on a kernel that cannot, unless it is to.
fn real(pair: &Pair, settings: Settings, service: Service, class: Class) -> Option<Real> {
    let link = Arc::clone(&pair.link);
    over(pair, &link, settings, service, class)
}

fn over(
    pair: &Pair,
    link: &Arc<dyn Link>,
    settings: Settings,
    service: Service,
    class: Class,
) -> Option<Real> {
    let bytes = pair.layout.pages() * PAGE;
    let paged = Paged::reserve(&Features::probe(), bytes, service);
    let paged = part::needed("userfaultfd", paged)?;
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(link, pair.region.clone()).unwrap().unwrap();
    let extent = Extent::new(0..bytes, home, 0).class(class);
    let window = pool.window(paged.clone(), vec![extent]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    Some(Real { window, _serving: serving })
}

const BOTH: [Service; 2] = [Service::InThread, Service::Served];

fn load(window: &Window, word: usize) -> u64 {
    window.word(word * 8).unwrap().load(Relaxed)
}

fn store(window: &Window, word: usize, value: u64) {
    window.word(word * 8).unwrap().store(value, Relaxed);
}

#[test]
fn what_is_loaded_is_homes_and_what_is_released_is_there() {
    let _stack = on_this_thread().unwrap();
    for service in BOTH {
        for class in [Class::Small, Class::Medium, Class::Large] {
            let pair = pair(2048);
            for page in 0..2048_u64 {
                pair.put_home(page as usize * PAGE, &(page + 1).to_ne_bytes());
            }
            let Some(Real { window, .. }) = &real(&pair, settings(1024), service, class) else {
                return;
            };
            for page in 0..2048 {
                assert_eq!(load(window, page * 512), page as u64 + 1, "{service:?} {class:?}");
                store(window, page * 512 + 3, 7 * page as u64);
            }
            let whole = 0..window.bytes();
            window.release(whole.clone(), patient()).unwrap();
            for page in 0..2048_usize {
                let value = u64::from_ne_bytes(
                    [0, 1, 2, 3, 4, 5, 6, 7].map(|k| pair.at_home(page * PAGE + 24 + k)),
                );
                assert_eq!(value, 7 * page as u64, "{service:?} {class:?} page {page}");
            }
            assert_eq!(window.release(whole, patient()).unwrap().bytes, 0);
        }
    }
}

/// Threads of two windows, as of two nodes, write bytes of their own in the same words, and release and acquire all
/// the time. Each finds its own bytes at every look, and in the end all find all.
#[test]
fn writers_of_one_page_lose_nothing() {
    const THREADS: usize = 2;
    const ROUNDS: u64 = 20_000;
    let pair = &pair(4);
    let Some(nodes) = (0..2)
        .map(|_| real(pair, settings(64), Service::InThread, Class::Small))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let (nodes, stop) = (&nodes, &AtomicU64::new(0));
    let set = |word: &AtomicU64, byte: usize, value: u8| {
        // A store of one byte. The processor's own is as atomic; a word of this test's is in two hands.
        let (keep, put) = (!(0xFF << (8 * byte)), u64::from(value) << (8 * byte));
        let mut seen = word.load(Relaxed);
        while let Err(now) = word.compare_exchange(seen, seen & keep | put, Relaxed, Relaxed) {
            seen = now;
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2 * THREADS)
            .map(|me| {
                scope.spawn(move || {
                    let _stack = on_this_thread().unwrap();
                    let window = &nodes[me % 2].window;
                    for round in 1..=ROUNDS {
                        for word in [0, 1, 511, 512] {
                            let place = window.word(word * 8).unwrap();
                            set(place, me, round as u8);
                            let found = place.load(Relaxed) >> (8 * me) & 0xFF;
                            assert_eq!(found, round & 0xFF, "writer {me} lost round {round}");
                        }
                        if round % 8 == 0 {
                            window.release(0..2 * PAGE, patient()).unwrap();
                        }
                    }
                    window.release(0..2 * PAGE, patient()).unwrap();
                })
            })
            .collect();
        for node in nodes {
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                while stop.load(Relaxed) == 0 {
                    node.window.acquire(0..4 * PAGE, patient()).unwrap();
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(1, Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let last = (ROUNDS & 0xFF) * 0x0101_0101;
    let _stack = on_this_thread().unwrap();
    for node in nodes {
        node.window.acquire(0..4 * PAGE, patient()).unwrap();
        for word in [0, 1, 511, 512] {
            assert_eq!(load(&node.window, word), last);
        }
        assert_eq!(node.window.statistics().conflicts, 0);
    }
}

/// Windows much larger than their pools, whose pages come and go under the feet of threads that write them; each
/// for two seconds, or as many as `PONTOON_SOAK` says.
#[test]
fn pages_that_come_and_go_lose_nothing() {
    const PAGES: usize = 1024;
    const THREADS: usize = 4;
    let soak = std::env::var("PONTOON_SOAK").ok().map(|text| text.parse().expect("seconds"));
    let time = Duration::from_secs(soak.unwrap_or(2));
    for service in BOTH {
        let pair = &pair(PAGES);
        let Some(Real { window, .. }) = &real(pair, settings(128), service, Class::Small) else {
            return;
        };
        let started = Instant::now();
        thread::scope(|scope| {
            for me in 0..THREADS {
                scope.spawn(move || {
                    let _stack = on_this_thread().unwrap();
                    let mut own = vec![0_u64; PAGES];
                    let mut random = me as u64 + 1;
                    while started.elapsed() < time {
                        for _ in 0..100 {
                            random =
                                random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
                            let page = (random >> 40) as usize % PAGES;
                            let word = page * 512 + me;
                            assert_eq!(
                                load(window, word),
                                own[page],
                                "{service:?}: page {page} of {me}"
                            );
                            own[page] += 1;
                            store(window, word, own[page]);
                        }
                        if random >> 60 == 0 {
                            window.release(0..window.bytes(), patient()).unwrap();
                            window.acquire(0..window.bytes(), patient()).unwrap();
                        }
                    }
                    for (page, &value) in own.iter().enumerate() {
                        assert_eq!(
                            load(window, page * 512 + me),
                            value,
                            "{service:?}: page {page} in the end"
                        );
                    }
                });
            }
        });
        let statistics = window.statistics();
        println!("{service:?}: {statistics:?}");
        assert!(statistics.evicted > PAGES as u64, "{statistics:?}");
        assert_eq!((statistics.poisoned, statistics.conflicts), (0, 0), "{statistics:?}");
    }
}

/// A home that stops answering is a pattern in a thread that loads, within the deadline, and no more than that.
#[test]
fn a_silent_home_is_a_pattern_in_time() {
    let _stack = on_this_thread().unwrap();
    let pair = pair(256);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = settings(64);
    settings.deadline = Duration::from_millis(100);
    settings.threshold = 2;
    let real = over(&pair, &link, settings, Service::InThread, Class::Small);
    let Some(Real { window, .. }) = &real else { return };
    assert_eq!(load(window, 0), 0);
    silent.be_silent(true);
    let started = Instant::now();
    let pattern = load(window, 100 * 512);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_ne!(pattern, 0);
    for page in 0..200 {
        load(window, page * 512);
    }
    assert!(started.elapsed() < Duration::from_secs(10), "not each waits");
    window.check(0..window.bytes()).unwrap_err();
    silent.be_silent(false);
    while window.check(0..window.bytes()).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30));
        thread::yield_now();
    }
    (0..256).for_each(|page| assert_eq!(load(window, page * 512), 0));
}
