//! Threads that read pages which are read only while others make room, acquire and change home.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::{thread, time::Instant};

use common::{pair, patient};
use pontoon_hal::paging::PAGE;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{Extent, Pool};
use setup::{
    BOTH,
    read_only::{PAGES, WHOLE, home, links, real},
    settings,
};

const THREADS: u64 = 3;
/// How often home changes all of its pages, at least, and how many words are read.
const ROUNDS: u64 = 60;
const READS: u64 = 10_000;

/// A page of which all words are one number: the page's, and how often it was changed.
fn word(page: usize, round: u64) -> u64 {
    (page as u64) << 32 | round
}

/// No load sees another page, one that goes back, or, after an acquire, one that is older than that.
#[test]
fn what_threads_read_grows_with_what_home_has() {
    for service in BOTH {
        let pair = pair(PAGES);
        let change = |round| {
            for page in 0..PAGES {
                let bytes = word(page, round).to_ne_bytes().repeat(PAGE / 8);
                pair.put_home(page * PAGE, &bytes);
                pair.publish(page * PAGE);
            }
        };
        change(1);
        for link in &links(&pair) {
            let pool = Pool::new(settings()).unwrap();
            let extent = Extent::new(WHOLE, home(&pool, &pair, link), 0);
            let Some((window, _serving)) = real(&pool, extent, service) else { return };
            let (acquired, is_over) = (AtomicU64::new(1), AtomicU64::new(0));
            let reads = AtomicU64::new(0);
            let began = Instant::now();
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (window, acquired, is_over, reads) = (&window, &acquired, &is_over, &reads);
                    scope.spawn(move || {
                        core::mem::forget(pontoon_uffd::on_this_thread().unwrap());
                        let (mut seen, mut random) = (vec![0; PAGES], thread + 1);
                        while is_over.load(Relaxed) == 0 && began.elapsed().as_secs() < 120 {
                            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                            let page = (random >> 33) as usize % PAGES;
                            let at = page * PAGE + (random >> 20) as usize % 512 * 8;
                            // An acquire is over before it is told of.
                            let least = acquired.load(pontoon_signal::shim::Ordering::Acquire);
                            let found = window.word(at).unwrap().load(Relaxed);
                            let round = found & 0xFFFF_FFFF;
                            assert_eq!(found, word(page, round), "page {page}");
                            assert!(round >= seen[page].max(least), "page {page}: {round}");
                            seen[page] = round;
                            reads.fetch_add(1, Relaxed);
                        }
                    });
                }
                let first = acquired.load(Relaxed) + 1;
                // As long as it takes the threads to have read.
                let is_enough = |round| round > ROUNDS && reads.load(Relaxed) > READS;
                for round in (first..).take_while(|&round| !is_enough(round)) {
                    change(round);
                    window.acquire(WHOLE, patient()).unwrap();
                    acquired.store(round, pontoon_signal::shim::Ordering::Release);
                    assert!(
                        began.elapsed().as_secs() < 120,
                        "{round} of {ROUNDS} rounds: {reads:?}"
                    );
                }
                is_over.store(1, Relaxed);
            });
            let statistics = window.statistics();
            assert_eq!(statistics.poisoned, 0, "{statistics:?}");
            assert!(statistics.evicted > ROUNDS && statistics.merged > ROUNDS, "{statistics:?}");
            change(1);
        }
    }
}
