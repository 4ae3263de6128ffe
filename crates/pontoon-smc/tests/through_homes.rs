//! Raw stores that are written through, and homes that do not answer or are started again.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;
mod raw;
mod setup;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{pair, patient, silent::Silent};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_signal::{Bound, shim::Ordering::Relaxed};
use pontoon_smc::{Arrival, SmcError};
use pontoon_uffd::Service;
use setup::{BOTH, plain, real, settings};

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
