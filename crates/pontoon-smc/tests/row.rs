//! Threads that serve faults, and accesses that wait in a row for them.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{pair, silent::Silent};
use pontoon_hal::{conformance::part, link::Link, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Extent, Pool, Settings};
use pontoon_uffd::{Features, Paged, Service};

/// Sixteen threads miss at once, and two serve: none waits for the deadlines of those before it in the row.
#[test]
fn no_access_waits_for_the_deadlines_of_others() {
    const DEADLINE: Duration = Duration::from_secs(3);
    const PAGES: usize = 256;
    let pair = pair(PAGES);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = Settings::for_pages(64);
    settings.deadline = DEADLINE;
    (settings.threshold, settings.ahead, settings.low) = (1000, 1, 0);
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, Service::Served);
    let Some(paged) = part::needed("userfaultfd", paged) else { return };
    let extent = Extent::new(0..PAGES * PAGE, home, 0);
    let window = pool.window(paged.clone(), vec![extent]).unwrap();
    let _serving = paged.serve(window.pager(), 2).unwrap();
    silent.be_silent(true);
    let longest = thread::scope(|scope| {
        let access = |page: usize| {
            let started = Instant::now();
            window.word(page * PAGE).unwrap().load(Relaxed);
            started.elapsed()
        };
        let threads: Vec<_> = (0..16).map(|page| scope.spawn(move || access(page))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    silent.be_silent(false);
    // Its own, and that of the two that all threads were at when it came; one after the other it would be eight.
    assert!(longest < 2 * DEADLINE + Duration::from_secs(5), "{longest:?}");
}
