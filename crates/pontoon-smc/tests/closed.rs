//! Windows over the kernel's paging that come and go in one pool: what was stored is home though nobody released it, and
//! their addresses are nobody's in the end. One test, as it looks at all that the process has mapped.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::fs;

use common::{pair, patient, until};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Arrival, Extent, Pool};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};
use setup::{BOTH, at_home, settings};

/// More than there are numbers, three times.
const WINDOWS: usize = 200;
/// Pages of each; the last is read only.
const PAGES: usize = 6;
const STORED: usize = PAGES - 1;

/// Ranges of addresses whose faults userfaultfd has.
fn watched() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = smaps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    flags.filter(|flags| flags.split_whitespace().any(|flag| flag == "um" || flag == "uw")).count()
}

fn value(window: usize, page: usize, word: usize) -> u64 {
    (window << 32 | page << 16 | word) as u64 + 1
}

#[test]
fn windows_come_and_go_and_what_was_stored_to_them_is_home() {
    let _stack = on_this_thread().unwrap();
    for service in BOTH {
        let pair = pair(WINDOWS * PAGES);
        let pool = Pool::new(settings()).unwrap();
        let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        for number in 0..WINDOWS {
            let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, service);
            let Some(paged) = part::needed("userfaultfd", paged) else { return };
            let at = number * PAGES * PAGE;
            let stored = Extent::new(0..STORED * PAGE, home.clone(), at);
            let read = STORED * PAGE..PAGES * PAGE;
            let read = Extent::new(read, home.clone(), at + STORED * PAGE).read_only();
            let window = pool.window(paged.clone(), vec![stored, read]).unwrap();
            assert!(watched() > 0);
            let serving = paged.serve(window.pager(), 1).unwrap();
            let window = window.served_by(serving);
            drop(paged);
            let is_through = number % 8 == 0 && cfg!(target_arch = "x86_64");
            let through = || window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap();
            let _through = is_through.then(through);
            for page in 0..STORED {
                for word in [0, 77, 511] {
                    let place = window.word(page * PAGE + word * 8).unwrap();
                    place.store(value(number, page, word), Relaxed);
                }
            }
            window.word(STORED * PAGE).unwrap().load(Relaxed);
        }
        until("the windows to be closed", || pool.resident() == 0 && watched() == 0);
        for number in 0..WINDOWS {
            for page in 0..STORED {
                for word in 0..512 {
                    let at = (number * PAGES + page) * PAGE + word * 8;
                    let found = at_home(&pair, at, 8).try_into().unwrap();
                    let is_stored = [0, 77, 511].contains(&word);
                    let stored = if is_stored { value(number, page, word) } else { 0 };
                    assert_eq!(u64::from_ne_bytes(found), stored, "{service:?}: {number} {page}");
                }
            }
            assert!(pair.version(number * PAGES + 1) > 0, "others are told");
        }
        // As many at the same time as ever, and not one more.
        let open = |number: usize| {
            let paged = Paged::reserve(&Features::probe(), PAGE, Service::Served).unwrap();
            pool.window(paged, vec![Extent::new(0..PAGE, home.clone(), number * PAGE)])
        };
        let all: Vec<_> = (0..64).map(|number| open(number).unwrap()).collect();
        let refused = open(64).map(drop).unwrap_err();
        assert!(refused.to_string().contains("64 windows at most at the same time"), "{refused}");
        drop(all);
        // At once: the pool's thread is asked, and waited for.
        open(64).unwrap();
    }
}
