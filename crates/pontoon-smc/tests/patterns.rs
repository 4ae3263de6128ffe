//! Whoever asks whether pages hold the pattern is told so as long as they do.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::{sync::Arc, time::Duration};

use common::{Change, Client, Plain, pair, settings, silent::Silent, start::Start, until};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{Extent, Pool, Settings, SmcError, Window};
use pontoon_uffd::{Service, on_this_thread};
use setup::{BOTH, over, plain};

const PAGES: usize = 256;
const PATTERN: u64 = 0xFFF8_DEAD_DEAD_DEAD;

/// A deadline after which nobody waits long.
const SOON: Duration = Duration::from_millis(50);

fn is_refused(window: &Window, page: usize) -> bool {
    match window.check(page * PAGE..(page + 1) * PAGE) {
        Err(SmcError::Unavailable { poisoned, .. }) => poisoned == 1,
        other => panic!("{other:?}"),
    }
}

/// While a page with the pattern is on its way out, whoever takes it away.
#[test]
fn a_check_tells_of_a_pattern_until_it_has_gone() {
    for is_healed in [true, false] {
        let start = Start::new(PAGES);
        let pool = Pool::new(settings(64, SOON)).unwrap();
        let paging = Plain::new(PAGES);
        let extent = Extent::new(0..PAGES * PAGE, start.home(&pool), 0);
        let client = Client::new(pool.window(paging.clone(), vec![extent]).unwrap(), paging);
        start.silent.be_silent(true);
        assert_eq!(client.load(7 * PAGE), PATTERN.to_ne_bytes()[0]);
        assert!(is_refused(&client.window, 7));
        let (window, told) = (client.window.clone(), Arc::new(AtomicU64::new(0)));
        let tells = Arc::clone(&told);
        client.plain.before(Change::Take, 7, move || {
            tells.store(is_refused(&window, 7).into(), Relaxed);
        });
        start.silent.be_silent(false);
        if is_healed {
            until("the page to go", || client.window.check(0..PAGES * PAGE).is_ok());
        } else {
            until("the page to go", || {
                (8..PAGES).for_each(|page| client.touch(page));
                client.window.check(0..PAGES * PAGE).is_ok()
            });
        }
        assert_eq!(told.load(Relaxed), 1, "healed: {is_healed}");
        assert_eq!(client.load(7 * PAGE), 0);
        client.window.check(7 * PAGE..8 * PAGE).unwrap();
    }
}

/// Two threads give up on the same page at the same time, and there is no slot for it.
#[test]
fn no_pattern_that_two_threads_put_in_place_is_forgotten() {
    const FULL: usize = 65;
    const MISSED: usize = 4096;
    for service in BOTH {
        let pair = pair(FULL + MISSED);
        let silent = Silent::over(&pair.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let mut settings = settings(64, SOON);
        (settings.deadline, settings.threshold) = (Duration::from_millis(5), 1);
        let pool = Pool::new(settings).unwrap();
        let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
        let whole = 0..(FULL + MISSED) * PAGE;
        let extents = vec![Extent::new(whole.clone(), home, 0)];
        let Some((window, _serving)) = over(&pool, extents, service) else { return };
        let word = |page: usize| window.word(page * PAGE).unwrap();
        // All of the pool has to go home, and none of it can.
        (0..FULL - 1).for_each(|page| word(page).store(7, Relaxed));
        silent.be_silent(true);
        let _ = word(FULL - 1).load(Relaxed);
        let turn = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    core::mem::forget(on_this_thread().unwrap());
                    for missed in 0..MISSED {
                        turn.fetch_add(1, Relaxed);
                        until("the other", || turn.load(Relaxed) >= 2 * missed as u64 + 2);
                        let _ = word(FULL + missed).load(Relaxed);
                    }
                });
            }
        });
        silent.be_silent(false);
        until("the patterns to go", || window.check(whole.clone()).is_ok());
        let left = (FULL..FULL + MISSED).filter(|&page| word(page).load(Relaxed) == PATTERN);
        assert_eq!(left.count(), 0, "{service:?}");
        assert!(window.statistics().poisoned > MISSED as u64, "{service:?}");
    }
}

/// Patterns of one extent are no reason to doubt another.
#[test]
fn bytes_are_got_of_an_extent_beside_one_that_fails() {
    const WELL: usize = 64;
    let [well, ill] = [pair(WELL), pair(PAGES)];
    let silent = Silent::over(&ill.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    // Fewer pages than fail, so that they fail again and again.
    let mut settings = Settings::for_pages(128);
    (settings.deadline, settings.threshold) = (Duration::from_millis(50), 1);
    let pool = Pool::new(settings).unwrap();
    let homes = [(&well.link, &well), (&link, &ill)]
        .map(|(link, pair)| pool.home(link, pair.region.clone()).unwrap().unwrap());
    let [well_home, ill_home] = homes;
    let extents = vec![
        Extent::new(0..WELL * PAGE, well_home, 0),
        Extent::new(WELL * PAGE..(WELL + PAGES) * PAGE, ill_home, 0),
    ];
    let Some((window, _serving)) = over(&pool, extents, Service::InThread) else { return };
    window.prefetch(0..WELL * PAGE).unwrap();
    silent.be_silent(true);
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            core::mem::forget(on_this_thread().unwrap());
            for page in (WELL..WELL + PAGES).cycle() {
                if is_over.load(Relaxed) != 0 {
                    return;
                }
                let _ = window.word(page * PAGE).unwrap().load(Relaxed);
            }
        });
        until("patterns", || window.statistics().poisoned > 10);
        let mut bytes = vec![1; WELL * PAGE];
        let got: Vec<_> = (0..50).map(|_| window.try_get(0, &mut bytes)).collect();
        let both = window.try_get(0, &mut vec![0; (WELL + 1) * PAGE]);
        is_over.store(1, Relaxed);
        assert!(got.iter().all(Result::is_ok), "{got:?}");
        assert!(both.is_err(), "of an extent whose home is silent");
        assert!(bytes.iter().all(|byte| *byte == 0));
    });
}

/// The pattern comes to a page while others are read, and has gone when all were: no check finds it.
#[test]
fn bytes_that_were_the_pattern_are_not_got() {
    const READ: usize = 4;
    for service in BOTH {
        let pair = pair(PAGES);
        (0..READ).for_each(|page| pair.put_home(page * PAGE, &[page as u8 + 1; PAGE]));
        let silent = Silent::over(&pair.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let Some((window, _serving)) = plain(&pair, &link, settings(64, SOON), service) else {
            return;
        };
        let mut found = vec![0; READ * PAGE];
        // The versions and the bytes of page 0, the versions of page 1, and silence until page 2.
        silent.be_silent_after(3);
        let (quiet, seen) = (Arc::clone(&silent), window.clone());
        silent.before_read(pair.layout.data() + 2 * PAGE, move || {
            quiet.be_silent(false);
            until("the pattern of page 1 to go", || seen.check(0..2 * PAGE).is_ok());
        });
        window.try_get(0, &mut found).unwrap();
        assert_eq!(window.statistics().poisoned, 1, "{service:?}");
        for (at, byte) in found.iter().enumerate() {
            assert_eq!(*byte, (at / PAGE) as u8 + 1, "{service:?}: byte {at}");
        }
        // And where it stays.
        silent.be_silent(true);
        let refused = window.try_get(0, &mut vec![0; (READ + 1) * PAGE]).unwrap_err();
        assert!(matches!(refused, SmcError::Unavailable { poisoned: 1, .. }), "{refused}");
        window.try_get(0, &mut found).unwrap();
        let outside = window.try_get(PAGES * PAGE - 8, &mut [0; 9]).unwrap_err();
        assert!(matches!(outside, SmcError::OutOfRange { .. }), "{outside}");
        window.try_get(usize::MAX, &mut [0; 9]).unwrap_err();
    }
}
