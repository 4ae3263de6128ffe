//! Whoever asks whether pages hold the pattern is told so as long as they do.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::{sync::Arc, time::Duration};

use common::{Change, Client, Plain, pair, silent::Silent, start::Start, until};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{Extent, Pool, Settings, SmcError, Window};
use setup::{BOTH, plain};

const PAGES: usize = 256;
const PATTERN: u64 = 0xFFF8_DEAD_DEAD_DEAD;

fn settings() -> Settings {
    let mut settings = Settings::for_pages(64);
    settings.deadline = Duration::from_millis(50);
    (settings.threshold, settings.ahead, settings.low) = (1_000_000, 1, 0);
    settings
}

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
        let pool = Pool::new(settings()).unwrap();
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

/// The pattern comes to a page while others are read, and has gone when all were: no check finds it.
#[test]
fn bytes_that_were_the_pattern_are_not_got() {
    const READ: usize = 4;
    for service in BOTH {
        let pair = pair(PAGES);
        (0..READ).for_each(|page| pair.put_home(page * PAGE, &[page as u8 + 1; PAGE]));
        let silent = Silent::over(&pair.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let Some((window, _serving)) = plain(&pair, &link, settings(), service) else { return };
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
