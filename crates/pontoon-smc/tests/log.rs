//! What a pool says in the log of a home that does not answer: a line a burst, however many accesses wait in vain.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, lines::Lines, pair, silent::Silent};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_smc::{Extent, Pool, Settings};

const PAGES: usize = 128;

/// How many accesses each line about them tells of.
fn of_accesses(lines: &Lines) -> Vec<u64> {
    let lines = lines.with("waited for pages in vain");
    lines.iter().map(|line| line.field("accesses").parse().unwrap()).collect()
}

#[test]
fn accesses_that_wait_in_vain_are_a_line_a_burst() {
    let lines = Lines::of_all();
    let pair = pair(PAGES);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = Settings::for_pages(256);
    (settings.deadline, settings.ahead) = (Duration::from_millis(5), 1);
    // Each of them waits.
    (settings.threshold, settings.burst) = (1000, Duration::from_secs(2));
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(pool.window(plain.clone(), extents).unwrap(), plain);
    silent.be_silent(true);
    let started = Instant::now();
    let mut pages = 0..PAGES;
    let told = |all: u64| {
        let waiting = Instant::now();
        while of_accesses(&lines).iter().sum::<u64>() < all {
            assert!(waiting.elapsed() < Duration::from_secs(30), "{:?}", of_accesses(&lines));
            thread::sleep(Duration::from_millis(5));
        }
    };
    client.touch(pages.next().unwrap());
    told(1);
    let first = started.elapsed();
    for page in pages.by_ref().take(60) {
        client.touch(page);
    }
    let is_within = started.elapsed() + Duration::from_millis(100) < first + Duration::from_secs(2);
    if is_within {
        assert_eq!(of_accesses(&lines), [1], "one of a burst");
    }
    told(61);
    assert!(started.elapsed() >= Duration::from_secs(2) || !is_within);
    let bursts = of_accesses(&lines);
    let most = 2 + started.elapsed().as_secs() as usize / 2;
    assert!(bursts.len() <= most, "{bursts:?} in {:?}", started.elapsed());
    assert_eq!(bursts.iter().sum::<u64>(), 61, "each access is in a line");
}
