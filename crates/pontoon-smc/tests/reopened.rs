//! A window over a paging that another had before: what was guarded there is, and no call of ours stores to it.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::sync::Arc;

use common::{pair, patient, until};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Arrival, Extent, Pool};
use pontoon_uffd::{Features, Paged, on_this_thread};
use setup::{BOTH, at_home, settings};

const PAGES: usize = 4;

#[test]
fn what_was_guarded_before_is_written_by_calls_as_ever() {
    let _stack = on_this_thread().unwrap();
    let is_through = cfg!(target_arch = "x86_64");
    for (service, read_only) in BOTH.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let pair = pair(PAGES);
        let pool = Pool::new(settings()).unwrap();
        let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, service);
        let Some(paged) = part::needed("userfaultfd", paged) else { return };
        let open = |read_only| {
            let extent = Extent::new(0..PAGES * PAGE, home.clone(), 0);
            let extent = if read_only { extent.read_only() } else { extent };
            let window = pool.window(paged.clone(), vec![extent]).unwrap();
            let serving = paged.serve(window.pager(), 2).unwrap();
            (window, serving)
        };
        let (window, serving) = open(read_only);
        window.word(0).unwrap().load(Relaxed);
        if !read_only && is_through {
            drop(window.write_through(0..3 * PAGE, Arrival::AtHome, patient()).unwrap());
        }
        drop((window, serving));
        until("it to be closed", || Arc::strong_count(&paged) == 1);
        let (window, _serving) = open(false);
        assert_eq!(window.word(0).unwrap().load(Relaxed), 0);
        window.prefetch(0..PAGES * PAGE).unwrap();
        let cell = window.cell(0).unwrap();
        assert_eq!(cell.fetch_add(5, patient()).unwrap(), 0);
        window.slice::<u8>(PAGE, 9).unwrap().write(0, &[7; 9], patient()).unwrap();
        pair.put_home(2 * PAGE, &[9]);
        pair.publish(2 * PAGE);
        assert_eq!(window.acquire(2 * PAGE..3 * PAGE, patient()).unwrap().merged, 1);
        let words = [0, 1, 2].map(|page| window.word(page * PAGE).unwrap().load(Relaxed));
        assert_eq!(words, [5, u64::from_ne_bytes([7; 8]), 9], "{service:?} {read_only}");
        assert_eq!((at_home(&pair, 0, 1), at_home(&pair, PAGE, 9)), (vec![5], vec![7; 9]));
        if is_through {
            let _through = window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap();
            window.word(8).unwrap().store(3, Relaxed);
            assert_eq!(at_home(&pair, 8, 1), [3], "{service:?} {read_only}");
        }
    }
}
