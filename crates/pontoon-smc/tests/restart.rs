//! Homes that are started again, or are elsewhere: nothing that was stored and is not home is lost without a word, and
//! nothing of the former home is taken for what this one has.
#![cfg(not(pontoon_loom))]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Client, Plain, patient, start::Start, until};
use pontoon_hal::{link::LinkError, paging::PAGE};
use pontoon_signal::{Bound, Rank};
use pontoon_smc::{Extent, OpenError, Pool, Settings};

const PAGES: usize = 64;
const WHOLE: core::ops::Range<usize> = 0..PAGES * PAGE;

fn scene() -> (Start, Pool, Client) {
    let mut settings = Settings::for_pages(64);
    settings.deadline = Duration::from_millis(20);
    (settings.threshold, settings.ahead, settings.low) = (3, 1, 0);
    let (first, pool) = (Start::new(PAGES), Pool::new(settings).unwrap());
    let plain = Plain::new(PAGES);
    let extent = Extent::new(WHOLE, first.home(&pool), 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    (first, pool, client)
}

/// Its versions begin anew, and may be those that the former home had.
#[test]
fn pages_that_are_here_are_those_of_the_home_that_was_started_again() {
    let (first, pool, client) = scene();
    first.pair.put_home(0, &[1]);
    assert_eq!((client.load(0), client.load(PAGE)), (1, 0));
    let second = Start::new(PAGES);
    second.pair.put_home(0, &[2]);
    second.pair.put_home(PAGE + 9, &[3]);
    first.silent.die();
    client.window.heal(0, second.home(&pool), 0).unwrap();
    let acquired = client.window.acquire(WHOLE, patient()).unwrap();
    assert_eq!((acquired.merged, acquired.bytes, acquired.conflicts), (2, 2, 0));
    assert_eq!((client.load(0), client.load(PAGE), client.load(PAGE + 9)), (2, 0, 3));
    assert_eq!(client.window.acquire(WHOLE, patient()).unwrap().merged, 0, "it is known now");
}

/// What was released is the former home's; what was not goes to the new one, whatever that has.
#[test]
fn what_was_not_released_is_kept_and_goes_to_the_home_that_was_started_again() {
    let (first, pool, client) = scene();
    client.store(8, 1);
    client.store(16, 1);
    client.store(24, 1);
    client.window.release(WHOLE, patient()).unwrap();
    client.store(8, 2);
    first.silent.die();
    client.window.release(WHOLE, patient()).unwrap_err();
    client.store(24, 2);
    let second = Start::new(PAGES);
    second.pair.put_home(0, &[9; 32]);
    client.window.heal(0, second.home(&pool), 0).unwrap();
    client.window.acquire(WHOLE, patient()).unwrap();
    assert_eq!([8, 16, 24].map(|byte| client.load(byte)), [2, 9, 2]);
    client.window.release(WHOLE, patient()).unwrap();
    assert_eq!([8, 16, 24].map(|byte| second.pair.at_home(byte)), [2, 9, 2]);
    assert_eq!((client.window.unsent(), client.window.lost()), (vec![], vec![]));
}

/// A word of which some bytes were released before goes there whole: what it was in two parts it never was.
#[test]
fn a_word_that_was_stored_to_is_never_half_of_the_former_home_and_half_of_the_next() {
    for acquires in [true, false] {
        let (first, pool, client) = scene();
        for at in [8, 16, 24] {
            (at..at + 8).for_each(|byte| client.store(byte, 1));
        }
        client.window.release(WHOLE, patient()).unwrap();
        client.store(11, 2);
        first.silent.die();
        client.window.release(WHOLE, patient()).unwrap_err();
        client.store(20, 2);
        let second = Start::new(PAGES);
        second.pair.put_home(8, &[9; 24]);
        client.window.heal(0, second.home(&pool), 0).unwrap();
        if acquires {
            client.window.acquire(WHOLE, patient()).unwrap();
        }
        client.window.release(WHOLE, patient()).unwrap();
        client.window.acquire(WHOLE, patient()).unwrap();
        let wanted = [[1, 1, 1, 2, 1, 1, 1, 1], [1, 1, 1, 1, 2, 1, 1, 1], [9; 8]].concat();
        let found = (8..32).map(|byte| (client.load(byte), second.pair.at_home(byte)));
        assert_eq!(found.collect::<Vec<_>>(), wanted.iter().map(|&b| (b, b)).collect::<Vec<_>>());
    }
}

/// What was sent and not said to be home may have been lost with it.
#[test]
fn what_was_on_its_way_when_home_died_is_sent_again() {
    let (first, pool, client) = scene();
    client.store(8, 1);
    first.silent.add_nothing(true);
    client.window.release(WHOLE, Bound::within(Duration::from_millis(20))).unwrap_err();
    assert_eq!(first.pair.at_home(8), 1, "it was there, and nobody said so");
    let second = Start::new(PAGES);
    first.silent.die();
    client.window.heal(0, second.home(&pool), 0).unwrap();
    client.window.release(WHOLE, patient()).unwrap();
    assert_eq!(second.pair.at_home(8), 1);
}

/// A release was given up, its bytes are at home after all, and meanwhile they are again what they were.
#[test]
fn what_was_taken_back_before_it_is_sent_again_does_not_stay_at_home() {
    let (first, _pool, client) = scene();
    client.store(8, 1);
    client.store(PAGE + 8, 1);
    first.silent.be_silent(true);
    client.window.release(WHOLE, Bound::within(Duration::from_millis(20))).unwrap_err();
    client.store(8, 0);
    client.store(PAGE + 8, 0);
    first.silent.be_silent(false);
    assert_eq!(first.pair.at_home(8), 1, "it came late");
    // What others released beside it comes, and what is here stays.
    first.pair.put_home(PAGE + 9, &[5]);
    first.pair.publish(PAGE);
    client.window.acquire(WHOLE, patient()).unwrap();
    assert_eq!((client.load(PAGE + 8), client.load(PAGE + 9)), (0, 5));
    client.window.release(WHOLE, patient()).unwrap();
    assert_eq!((first.pair.at_home(8), first.pair.at_home(PAGE + 8)), (0, 0));
    assert_eq!(client.window.release(WHOLE, patient()).unwrap().bytes, 0, "nothing is owed");
}

/// A link knows its regions, and whether their ranks are gone: an extent is not moved to what cannot be.
#[test]
fn a_home_of_an_earlier_start_is_refused_and_nothing_is_moved() {
    let (first, pool, client) = scene();
    let second = Start::new(PAGES);
    let gone = second.home(&pool);
    second.silent.die();
    let refused = client.window.heal(0, gone, 0).unwrap_err();
    let OpenError::Link(LinkError::PeerDead { .. }) = refused else { panic!("{refused}") };
    // The key of one start, by the link to another.
    let other = Start::new(PAGES);
    let stale = pool.home(&other.pair.link, first.pair.region.clone()).unwrap().unwrap();
    let refused = client.window.heal(0, stale, 0).unwrap_err();
    let OpenError::Link(LinkError::Foreign(_)) = refused else { panic!("{refused}") };
    let short = client.window.heal(0, first.home(&pool), PAGE).unwrap_err();
    let wanted =
        OpenError::Short { home: Rank(0), asked: PAGE..PAGES * PAGE + PAGE, bytes: PAGES * PAGE };
    assert_eq!(short, wanted);
    first.pair.put_home(5 * PAGE, &[4]);
    assert_eq!(client.load(5 * PAGE), 4, "it is where it was");
    assert_eq!(client.window.check(WHOLE), Ok(()));
}

/// Whoever is started again and again is not kept in memory for each time.
#[test]
fn homes_that_an_extent_was_at_are_let_go_of() {
    let (first, pool, client) = scene();
    let mut last = first.link();
    for start in 1..20_u8 {
        let next = Start::new(PAGES);
        next.pair.put_home(0, &[start]);
        client.window.heal(0, next.home(&pool), 0).unwrap();
        client.window.acquire(WHOLE, patient()).unwrap();
        assert_eq!(client.load(0), start);
        let former = Arc::downgrade(&std::mem::replace(&mut last, next.link()));
        drop(next);
        if start > 1 {
            // The pool's own handle goes when it hears of the next link.
            until("the former home to go", || former.strong_count() <= 1);
        }
    }
    assert_eq!(pool.registrations(), 20);
}

/// One home after another dies while accesses are under way: those that had the pattern are fetched from the next.
#[test]
fn pages_with_the_pattern_are_fetched_from_the_next_home() {
    let (first, pool, client) = scene();
    first.silent.be_silent(true);
    let pattern = client.load(PAGE);
    assert_ne!(pattern, 6);
    let second = Start::new(PAGES);
    second.pair.put_home(PAGE, &[6]);
    client.window.heal(0, second.home(&pool), 0).unwrap();
    assert_eq!(client.load(PAGE), 6);
    assert_eq!(client.window.try_read(PAGE).map(|word| word as u8), Ok(6));
    first.silent.be_silent(false);
    until("the slot of the late answer", || pool.resident() == 1);
    assert_eq!(client.load(PAGE), 6, "which lands nowhere");
}
