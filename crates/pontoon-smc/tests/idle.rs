//! What a pool costs that has nothing to do.
#![cfg(not(pontoon_loom))]

mod common;

use std::time::{Duration, Instant};

use common::{Client, Plain, pair};
use pontoon_hal::paging::PAGE;
use pontoon_smc::{Extent, Pool, Settings};

/// So many words can be asked for with a check in much less time than it takes to look at all slots for each.
#[test]
fn a_check_does_not_look_at_the_whole_pool() {
    const PAGES: usize = 64;
    const SLOTS: usize = 1 << 16;
    const READS: u32 = 100_000;
    let pair = pair(PAGES);
    let mut settings = Settings::for_pages(SLOTS);
    settings.lock = false;
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    client.touch(0);
    let started = Instant::now();
    for read in 0..READS {
        assert_eq!(client.window.try_read(0), Ok(0));
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(20), "{read} of {READS} reads in {waited:?}");
    }
}
