//! Changes that go home by themselves, and only those.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{Client, Pair, Plain, pair, patient, until};
use pontoon_hal::paging::PAGE;
use pontoon_smc::{Extent, Pool, Settings, Triggers};

const PAGES: usize = 64;

fn scene(triggers: Triggers) -> (Pair, Client) {
    let pair = pair(PAGES);
    let mut settings = Settings::for_pages(128);
    settings.triggers = triggers;
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(pool.window(plain.clone(), extents).unwrap(), plain);
    (pair, client)
}

/// Looks of the pool's thread, of which each would have found it.
fn several_looks() {
    thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_page_goes_home_once_so_much_of_it_was_changed() {
    let (pair, client) = scene(Triggers { bytes: Some(100), pages: None });
    (0..99).for_each(|at| client.store(40 * at, 1));
    (0..8).for_each(|at| client.store(PAGE + at, 1));
    several_looks();
    assert_eq!((pair.at_home(0), client.window.statistics().triggered), (0, 0));
    client.store(40 * 99, 1);
    until("the page to go home", || pair.at_home(40 * 99) == 1);
    until("its announcement", || pair.version(0) == 1);
    assert_eq!((pair.at_home(0), pair.at_home(PAGE)), (1, 0), "and no other page");
    until("the count", || client.window.statistics().triggered == 1);
    several_looks();
    assert_eq!(pair.version(0), 1, "once");
    // What is asked for is all of it, by whomever it was sent.
    let released = client.window.release(0..PAGES * PAGE, patient()).unwrap();
    assert_eq!((released.pages, released.bytes), (1, 8));
    assert_eq!(client.window.unsent(), []);
}

#[test]
fn pages_go_home_once_there_are_so_many() {
    let (pair, client) = scene(Triggers { bytes: None, pages: Some(10) });
    (0..9).for_each(|page| client.store(3 * page * PAGE, 1));
    several_looks();
    assert_eq!((pair.at_home(0), client.window.statistics().triggered), (0, 0));
    client.store(3 * 9 * PAGE, 1);
    until("the pages to go home", || (0..10).all(|page| pair.version(3 * page) == 1));
    assert!((0..10).all(|page| pair.at_home(3 * page * PAGE) == 1));
    until("the count", || client.window.statistics().triggered == 10);
    assert_eq!(client.window.release(0..PAGES * PAGE, patient()).unwrap().bytes, 0);
}

/// Nothing goes home by itself where nothing was asked for, and a page that somebody holds is left to them.
#[test]
fn nothing_else_goes_home_by_itself() {
    let (pair, client) = scene(Triggers::default());
    (0..PAGES).for_each(|page| client.store(page * PAGE, 1));
    several_looks();
    assert_eq!((pair.at_home(0), client.window.statistics().triggered), (0, 0));

    let (pair, client) = scene(Triggers { bytes: Some(8), pages: Some(2) });
    client.touch(0);
    let held = client.window.with_resident(0..PAGE, patient(), |_| {
        (0..3).for_each(|page| client.store(page * PAGE, 1));
        until("the other pages", || pair.version(1) == 1 && pair.version(2) == 1);
        several_looks();
        pair.at_home(0)
    });
    assert_eq!(held, Ok(0));
    (1..8).for_each(|at| client.store(at, 1));
    until("the page that was held", || pair.version(0) == 1);
}

/// Threads that store all the time while pages go home by themselves: what is asked for in the end is all.
#[test]
fn a_release_means_all_whoever_sends_it() {
    let (pair, client) = scene(Triggers { bytes: Some(64), pages: Some(4) });
    let client = &client;
    let started = Instant::now();
    thread::scope(|scope| {
        for me in 0..3_usize {
            scope.spawn(move || {
                let mut round = 0_u8;
                while started.elapsed() < Duration::from_secs(1) {
                    round = round.wrapping_add(1);
                    (0..8).for_each(|page| client.store(page * PAGE + 3 * me + 8 * 17, round));
                    if round.is_multiple_of(64) {
                        client.window.release(0..8 * PAGE, patient()).unwrap();
                    }
                }
                client.window.release(0..8 * PAGE, patient()).unwrap();
            });
        }
    });
    for byte in 0..8 * PAGE {
        assert_eq!(pair.at_home(byte), client.load(byte), "byte {byte}");
    }
    assert!(client.window.statistics().triggered > 0);
}
