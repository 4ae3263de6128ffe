//! What keeps a window from being closed once its handles are dropped, and what does not.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::{
    any::Any,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, pair, patient, settings, start::Start, until};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{Arrival, Extent, Home, OpenError, Pool, Window};
use pontoon_uffd::{Features, Paged, Service, Serving, on_this_thread};
use setup::BOTH;

const PAGES: usize = 32;

fn over(pool: &Pool, plain: &Arc<Plain>, home: &Home) -> Result<Window, OpenError> {
    pool.window(plain.clone(), vec![Extent::new(0..PAGES * PAGE, home.clone(), 0)])
}

fn client(pool: &Pool, home: &Home) -> Client {
    let plain = Plain::new(PAGES);
    Client::new(over(pool, &plain, home).unwrap(), plain)
}

/// Whether a window that was over that paging has it yet.
fn is_open(pool: &Pool, plain: &Arc<Plain>, home: &Home) -> bool {
    match over(pool, plain, home) {
        Ok(_) => false,
        Err(OpenError::Twice { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Returns once the keeper has closed some other window, three times.
fn rounds(pool: &Pool, home: &Home) {
    for _ in 0..3 {
        let plain = Plain::new(PAGES);
        drop(over(pool, &plain, home).unwrap());
        until("another window to be closed", || Arc::strong_count(&plain) == 1);
    }
}

/// Something that has a window.
type Keep = fn(&Window) -> Box<dyn Any>;

#[test]
fn a_window_that_anything_has_stays() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let keep: [Keep; 2] = [|window| Box::new(window.clone()), |window| Box::new(window.pager())];
    for keep in keep {
        let client = client(&pool, &home);
        let plain = Arc::clone(&client.plain);
        client.store(5, 7);
        let kept = keep(&client.window);
        drop(client);
        rounds(&pool, &home);
        assert!(is_open(&pool, &plain, &home));
        assert_eq!((pair.at_home(5), pool.resident()), (0, 1));
        drop(kept);
        until("the window to be closed", || !is_open(&pool, &plain, &home));
        assert_eq!((pair.at_home(5), pair.version(0)), (7, 1));
        until("it again", || Arc::strong_count(&plain) == 1);
        pair.put_home(5, &[0]);
        pair.put_home(0, &[0; 8]);
        // For the next one.
        let version = pontoon_signal::Span::of(pair.home.block(), 0..8).unwrap();
        version.put(&[0; 8]);
    }
}

/// However often they are asked for meanwhile: what was stored is home before they are another's.
#[test]
fn addresses_are_a_windows_until_it_is_closed() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    for round in 1..=60 {
        let client = client(&pool, &home);
        let plain = Arc::clone(&client.plain);
        client.store(5, round);
        drop(client);
        let started = Instant::now();
        while is_open(&pool, &plain, &home) {
            assert!(started.elapsed() < Duration::from_secs(30), "round {round}");
        }
        assert_eq!((pair.at_home(5), pair.version(0)), (round, u64::from(round)));
    }
}

/// Whenever it is closed: who opens a window just then has its number.
#[test]
fn the_number_of_a_window_that_was_dropped_is_always_to_be_had() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let mut all: Vec<_> =
        (0..64).map(|_| over(&pool, &Plain::new(PAGES), &home).unwrap()).collect();
    for round in 0..500 {
        drop(all.pop());
        let next = over(&pool, &Plain::new(PAGES), &home);
        all.push(next.unwrap_or_else(|error| panic!("round {round}: {error}")));
    }
}

/// The same for who serves its faults, and for a range that is written through.
#[test]
fn a_window_that_is_served_stays() {
    let _stack = on_this_thread().unwrap();
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    for service in BOTH {
        let Some((window, paged, serving)) = real(&pool, &home, 0, PAGES, service) else { return };
        window.word(0).unwrap().store(9, Relaxed);
        drop(window);
        rounds(&pool, &home);
        assert_eq!((pool.resident(), pair.at_home(0)), (1, 0), "{service:?}");
        drop(serving);
        until("the window to be closed", || Arc::strong_count(&paged) == 1);
        assert_eq!((pool.resident(), pair.at_home(0)), (0, 9), "{service:?}");
        if cfg!(target_arch = "x86_64") {
            let serve = || paged_again(&pool, &home, &paged);
            let (window, serving) = serve();
            let through = window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap();
            window.word(8).unwrap().store(11, Relaxed);
            drop((window, serving));
            rounds(&pool, &home);
            assert!(Arc::strong_count(&paged) > 1, "{service:?}");
            drop(through);
            until("it again", || Arc::strong_count(&paged) == 1);
            assert_eq!((pool.resident(), pair.at_home(8)), (0, 11));
        }
        pair.put_home(0, &[0; 16]);
    }
}

type Real = (Window, Arc<Paged>, Serving);

/// A window over the kernel's paging; `None`, and says so, on a kernel that cannot.
fn real(pool: &Pool, home: &Home, at: usize, pages: usize, service: Service) -> Option<Real> {
    let paged = Paged::reserve(&Features::probe(), pages * PAGE, service);
    let paged = part::needed("userfaultfd", paged)?;
    let extent = Extent::new(0..pages * PAGE, home.clone(), at * PAGE);
    let window = pool.window(paged.clone(), vec![extent]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    Some((window, paged, serving))
}

/// Another over the same pages.
fn paged_again(pool: &Pool, home: &Home, paged: &Arc<Paged>) -> (Window, Serving) {
    let extent = Extent::new(0..PAGES * PAGE, home.clone(), 0);
    let window = pool.window(paged.clone(), vec![extent]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    (window, serving)
}

/// What is late may yet come to a slot, so the window stays until it has; what it held is gone then, the pattern too.
#[test]
fn late_transfers_keep_a_window_until_they_come() {
    let (mute, well) = (Start::new(PAGES), pair(PAGES));
    let pool = Pool::new(settings(64, Duration::from_millis(50))).unwrap();
    let home = mute.home(&pool);
    let other = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    mute.pair.put_home(3 * PAGE, &[8]);
    let client = client(&pool, &home);
    let plain = Arc::clone(&client.plain);
    client.store(0, 1);
    mute.silent.be_silent(true);
    client.touch(3);
    assert_ne!(client.load(3 * PAGE), 8, "the pattern");
    // What is lost is not what is late.
    drop(client);
    rounds(&pool, &other);
    until("what was stored to be given up", || pool.resident() == 1);
    rounds(&pool, &other);
    assert!(is_open(&pool, &plain, &home) && pool.resident() == 1);
    mute.silent.be_silent(false);
    until("the window to be closed", || !is_open(&pool, &plain, &home));
    until("its slots", || pool.resident() == 0);
    let again = || over(&pool, &plain, &home);
    until("the next one", || {
        let Ok(window) = again() else { return false };
        let client = Client::new(window, Arc::clone(&plain));
        assert_eq!(client.load(3 * PAGE), 8);
        true
    });
}

/// A home that does not answer just then gets what was stored when it does, as long as that is within the bound.
#[test]
fn a_home_that_comes_back_in_time_has_it_all() {
    let (mute, well) = (Start::new(PAGES), pair(PAGES));
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let home = mute.home(&pool);
    let other = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    let client = client(&pool, &home);
    (0..PAGES).for_each(|page| client.store(page * PAGE + page, page as u8 + 1));
    mute.silent.be_silent(true);
    let posted = mute.silent.posted();
    drop(client);
    until("the first to be sent", || mute.silent.posted() > posted);
    rounds(&pool, &other);
    assert_eq!(pool.resident(), PAGES);
    mute.silent.be_silent(false);
    until("the window to be closed", || pool.resident() == 0);
    for page in 0..PAGES {
        assert_eq!(mute.pair.at_home(page * PAGE + page), page as u8 + 1);
        assert!(mute.pair.version(page) > 0);
    }
}

/// What does not go home is given to the next one that was named.
#[test]
fn a_window_whose_home_is_gone_is_closed_to_the_next() {
    let (mute, well) = (Start::new(PAGES), pair(PAGES));
    let pool = Pool::new(settings(64, Duration::from_millis(200))).unwrap();
    let home = mute.home(&pool);
    let other = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0).or(other, 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    (0..PAGES).for_each(|page| client.store(page * PAGE + page, page as u8 + 1));
    mute.silent.die();
    drop(client);
    until("the window to be closed", || pool.resident() == 0);
    (0..PAGES).for_each(|page| assert_eq!(well.at_home(page * PAGE + page), page as u8 + 1));
}

/// A pool that goes sends what was stored to windows that are gone, and waits for no home for long.
#[test]
fn a_pool_that_goes_closes_what_it_can_in_time() {
    for (is_silent, through_pool) in [(false, false), (false, true), (true, false), (true, true)] {
        let mute = Start::new(PAGES);
        let pool = Pool::new(settings(64, Duration::from_millis(500))).unwrap();
        let client = client(&pool, &mute.home(&pool));
        (0..PAGES).for_each(|page| client.store(page * PAGE + page, page as u8 + 1));
        let window = client.window.clone();
        drop(client);
        mute.silent.be_silent(is_silent);
        let started = Instant::now();
        // Either may be the one that ends the pool.
        if through_pool {
            drop(window);
            drop(pool);
        } else {
            drop(pool);
            drop(window);
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        for page in 0..PAGES {
            let stored = if is_silent { 0 } else { page as u8 + 1 };
            assert_eq!(mute.pair.at_home(page * PAGE + page), stored, "{is_silent} {page}");
        }
    }
}

/// Ends the threads that look at it, also when a test fails.
struct Stop<'s>(&'s AtomicU64);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(1, Relaxed);
    }
}

/// Threads store to a window much larger than the pool, while others are opened, stored to and dropped in the same one.
#[test]
fn windows_that_go_disturb_no_other() {
    const LARGE: usize = 512;
    const SMALL: usize = 24;
    const THREADS: usize = 2;
    for service in BOTH {
        let pair = &pair(LARGE + 64 * SMALL);
        let mut settings = settings(128, Duration::from_secs(20));
        settings.low = 16;
        // The pool's thread looks at all that was stored to.
        settings.triggers.bytes = Some(1);
        let pool = &Pool::new(settings).unwrap();
        let home = &pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        let Some((large, _, serving)) = real(pool, home, 0, LARGE, service) else { return };
        let (window, stop) = (&large, &AtomicU64::new(0));
        thread::scope(|scope| {
            for me in 0..THREADS {
                scope.spawn(move || {
                    let _stack = on_this_thread().unwrap();
                    let (mut own, mut random) = (vec![0_u64; LARGE], me as u64 + 1);
                    while stop.load(Relaxed) == 0 || random == me as u64 + 1 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
                        let page = (random >> 40) as usize % LARGE;
                        let word = window.word(page * PAGE + me * 8).unwrap();
                        assert_eq!(word.load(Relaxed), own[page], "{service:?}: page {page}");
                        own[page] += 1;
                        word.store(own[page], Relaxed);
                    }
                    for (page, &value) in own.iter().enumerate() {
                        let word = window.word(page * PAGE + me * 8).unwrap();
                        assert_eq!(word.load(Relaxed), value, "{service:?}: page {page} at last");
                    }
                });
            }
            let _stack = on_this_thread().unwrap();
            let stop = Stop(stop);
            let mut stored = [0_u64; 64];
            let started = Instant::now();
            let mut round = 0;
            while started.elapsed() < Duration::from_secs(3) || round < 200 {
                round += 1;
                let place = round % 64;
                let at = LARGE + place * SMALL;
                let small = BOTH[round / 64 % 2];
                let (window, _, serving) = real(pool, home, at, SMALL, small).unwrap();
                // The one before it there may not be closed yet, and then this one has what it had not stored yet.
                until("what was stored before", || {
                    let found = pair.at_home(at * PAGE + (SMALL - 1) * PAGE);
                    found == stored[place] as u8
                });
                stored[place] = (stored[place] + 1) % 256;
                for page in 0..SMALL {
                    let word = window.word(page * PAGE).unwrap();
                    word.store(stored[place], Relaxed);
                    assert_eq!(word.load(Relaxed), stored[place]);
                }
                drop((window, serving));
            }
            drop(stop);
            for (place, &stored) in stored.iter().enumerate() {
                for page in 0..SMALL {
                    let at = (LARGE + place * SMALL + page) * PAGE;
                    until("the last to be home", || pair.at_home(at) == stored as u8);
                }
            }
            println!("{service:?}: {round} windows beside {:?}", window.statistics());
        });
        let statistics = large.statistics();
        assert_eq!((statistics.poisoned, statistics.conflicts), (0, 0), "{statistics:?}");
        assert!(statistics.evicted > 1000, "{statistics:?}");
        drop((large, serving));
    }
}

/// Its pages can be neither loaded nor stored to, and make room for those of others all the same.
#[test]
fn a_window_that_nobody_serves_makes_room() {
    let _stack = on_this_thread().unwrap();
    for service in BOTH {
        let pair = pair(256);
        let mut settings = settings(64, Duration::from_secs(20));
        settings.low = 16;
        let pool = Pool::new(settings).unwrap();
        let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        let Some((idle, _, serving)) = real(&pool, &home, 0, 32, service) else { return };
        for page in 0..32 {
            let word = idle.word(page * PAGE).unwrap();
            if page % 2 == 0 {
                word.store(page as u64 + 1, Relaxed);
            } else {
                word.load(Relaxed);
            }
        }
        drop(serving);
        let (window, _, _serving) = real(&pool, &home, 32, 224, service).unwrap();
        let mut pages = (0..224).cycle();
        until("all to have made room", || {
            let page = pages.next().unwrap();
            assert_eq!(window.word(page * PAGE).unwrap().load(Relaxed), 0, "{service:?}");
            idle.statistics().evicted == 32
        });
        for page in (0..32).step_by(2) {
            assert_eq!(pair.at_home(page * PAGE), page as u8 + 1, "{service:?}");
        }
    }
}
