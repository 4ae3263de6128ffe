//! A home whose registration ends while windows map it: what is here stays, the rest reads the pattern, and the window
//! says so.
#![cfg(not(pontoon_loom))]

mod common;

use std::{thread, time::Duration};

use common::{Pair, pair, patient, until};
use pontoon_hal::{conformance::part, link::LinkError, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Arrival, Extent, Pool, Settings, SmcError};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};

const PAGES: usize = 64;
const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;

#[test]
fn a_registration_that_ends_is_a_home_that_is_unavailable() {
    // Where threads serve it they go on while its tables are being written.
    let services = [Service::InThread].into_iter().chain([Service::Served; 10]);
    for service in services {
        let _stack = on_this_thread().unwrap();
        let mut settings = Settings::for_pages(128);
        (settings.deadline, settings.threshold) = (Duration::from_millis(500), 3);
        let pool = Pool::new(settings).unwrap();
        let first = pair(PAGES);
        first.put_home(0, &[7; 8]);
        let home = pool.home(&first.link, first.region.clone()).unwrap().unwrap();
        let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, service);
        let Some(paged) = part::needed("userfaultfd", paged) else { return };
        let extent = Extent::new(0..PAGES * PAGE, home, 0).pattern(PATTERN);
        let window = pool.window(paged.clone(), vec![extent]).unwrap();
        let _serving = paged.serve(window.pager(), 2).unwrap();
        let window = &window;
        let word = |at: usize| window.word(at).unwrap();
        assert_eq!(word(0).load(Relaxed) as u8, 7);
        word(8).store(1, Relaxed);

        let Pair { link, home: registered, region, .. } = first;
        drop(registered);
        thread::scope(|scope| {
            for me in 1..4 {
                scope.spawn(move || {
                    let _stack = on_this_thread().unwrap();
                    for page in 0..10 {
                        let at = (10 * me + page) * PAGE;
                        assert_eq!(word(at).load(Relaxed), PATTERN, "{service:?}: page {page}");
                        // At once: who has read it is told what it is.
                        window.check(at..at + 8).unwrap_err();
                        word(at).store(3, Relaxed);
                    }
                });
            }
        });
        assert_eq!(word(0).load(Relaxed) as u8, 7, "what is here is here");
        let whole = 0..PAGES * PAGE;
        // One that is just becoming the pattern may be counted twice.
        until("all to be the pattern", || {
            let told = window.check(whole.clone());
            matches!(told, Err(SmcError::Unavailable { poisoned: 30, .. }))
        });
        window.try_read(11 * PAGE).unwrap_err();
        for refused in [
            window.release(whole.clone(), patient()).map(drop),
            window.acquire(whole.clone(), patient()).map(drop),
            window.cell(0).unwrap().store(1, patient()),
            window.cell(0).unwrap().load_fresh(patient()).map(drop),
            window.slice::<u8>(0, 9).unwrap().write(0, &[1; 9], patient()),
            window.write_through(0..PAGE, Arrival::AtHome, patient()).map(drop),
        ] {
            let refused = refused.unwrap_err();
            let is_its = matches!(
                refused,
                SmcError::Unavailable { .. } | SmcError::Link(LinkError::Key { .. })
            );
            assert!(is_its && !refused.to_string().contains('\n'), "{service:?}: {refused:?}");
        }
        let page = 0..PAGE;
        until("what was stored to be kept, and no more", || {
            window.unsent() == core::slice::from_ref(&page)
        });
        assert!(pool.home(&link, region).is_ok(), "a home is asked only when it is used");

        // Elsewhere, all is well.
        let second = pair(PAGES);
        second.put_home(20 * PAGE, &[9; 8]);
        let home = pool.home(&second.link, second.region.clone()).unwrap().unwrap();
        window.heal(0, home, 0).unwrap();
        assert_eq!((word(20 * PAGE).load(Relaxed) as u8, word(8).load(Relaxed)), (9, 1));
        window.check(whole.clone()).unwrap();
        window.release(whole, patient()).unwrap();
        assert_eq!(second.at_home(8), 1);
        assert_eq!(window.lost(), vec![10 * PAGE..40 * PAGE]);
    }
}
