//! Windows of a home that does not answer are closed beside others that need room, and by a pool that goes.
#![cfg(not(pontoon_loom))]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Change, Client, Plain, pair, settings, start::Start, until};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Extent, Home, Pool};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};

const PAGES: usize = 32;

fn client(pool: &Pool, home: &Home) -> Client {
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home.clone(), 0);
    Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain)
}

/// All of them are tried in turn, and none for long: an access to another home has its room within the deadline.
#[test]
fn windows_of_a_silent_home_keep_no_other_from_its_pages() {
    const LARGE: usize = 1024;
    let mut settings = settings(128, Duration::from_secs(2));
    settings.low = 16;
    let pool = Pool::new(settings).unwrap();
    let start = Start::new(PAGES);
    let home = start.home(&pool);
    let well = pair(LARGE);
    let good = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    let _stack = on_this_thread().unwrap();
    let paged = Paged::reserve(&Features::probe(), LARGE * PAGE, Service::InThread);
    let Some(paged) = part::needed("userfaultfd", paged) else { return };
    let extents = vec![Extent::new(0..LARGE * PAGE, good, 0)];
    let window = pool.window(paged.clone(), extents).unwrap();
    let _serving = paged.serve(window.pager(), 1).unwrap();
    let clients = (0..30).map(|page| {
        let client = client(&pool, &home);
        client.store(page * PAGE, 7);
        client
    });
    let clients: Vec<_> = clients.collect();
    let plains: Vec<_> = clients.iter().map(|client| Arc::clone(&client.plain)).collect();
    start.silent.be_silent(true);
    drop(clients);
    let mut pages = (0..LARGE).cycle();
    until("them to be given up", || {
        let page = pages.next().unwrap();
        window.word(page * PAGE).unwrap().store(1, Relaxed);
        plains.iter().all(|plain| Arc::strong_count(plain) == 1)
    });
    let statistics = window.statistics();
    assert_eq!(statistics.poisoned, 0, "{statistics:?}");
    assert!(statistics.evicted > 0, "{statistics:?}");
}

/// A pool that goes tries again, until all the time that there is for it has gone by.
#[test]
fn a_pool_that_goes_has_what_a_home_takes_that_answers_again_in_time() {
    let pool = Pool::new(settings(64, Duration::from_secs(20))).unwrap();
    let start = Start::new(PAGES);
    let (home, silent) = (start.home(&pool), Arc::clone(&start.silent));
    let client = client(&pool, &home);
    client.store(5, 7);
    client.store(PAGE + 5, 8);
    silent.be_silent(true);
    let plain = Arc::clone(&client.plain);
    client.plain.before(Change::Take, 0, move || {
        plain.before(Change::Take, 0, move || silent.be_silent(false));
    });
    drop(client);
    drop(pool);
    assert_eq!([5, PAGE + 5].map(|byte| start.pair.at_home(byte)), [7, 8]);
    assert_eq!([0, 1].map(|page| start.pair.version(page)), [1, 1], "others are told");
}

/// One home of two that were named does not take it.
#[test]
fn a_pool_that_goes_sends_to_the_next_home_in_time() {
    let pool = Pool::new(settings(64, Duration::from_secs(2))).unwrap();
    let start = Start::new(PAGES);
    let home = start.home(&pool);
    let well = pair(PAGES);
    let other = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0).or(other, 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    (0..PAGES).for_each(|page| client.store(page * PAGE + page, page as u8 + 1));
    start.silent.be_silent(true);
    drop(client);
    drop(pool);
    (0..PAGES).for_each(|page| assert_eq!(well.at_home(page * PAGE + page), page as u8 + 1));
}
