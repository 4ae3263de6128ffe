//! A window whose faults nobody serves just now: calls that would have to look at its pages say so, and change nothing.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use common::{pair, patient};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Extent, Pool, SmcError};
use pontoon_uffd::{Features, Paged, Service};
use setup::{at_home, settings};

#[test]
fn calls_on_a_window_that_nobody_serves_say_so() {
    const PAGES: usize = 4;
    let pair = pair(PAGES);
    let pool = Pool::new(settings()).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, Service::Served);
    let Some(paged) = part::needed("userfaultfd", paged) else { return };
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let window = pool.window(paged.clone(), extents).unwrap();
    let serving = paged.serve(window.pager(), 1).unwrap();
    window.word(0).unwrap().store(1, Relaxed);
    drop(serving);
    let is_unserved = |error: SmcError| {
        let told = error.to_string();
        assert!(matches!(error, SmcError::Paging(_)), "{error:?}");
        assert!(told.contains("nobody serves the window's faults"), "{told}");
    };
    pair.put_home(8, &[9]);
    pair.publish(0);
    is_unserved(window.release(0..PAGE, patient()).unwrap_err());
    is_unserved(window.acquire(0..PAGE, patient()).unwrap_err());
    let cell = window.cell(16).unwrap();
    is_unserved(cell.fetch_add(1, patient()).unwrap_err());
    is_unserved(cell.compare_exchange(0, 1, patient()).unwrap_err());
    let slice = window.slice::<u8>(24, 8).unwrap();
    is_unserved(slice.write(0, &[5; 8], patient()).unwrap_err());
    assert_eq!(at_home(&pair, 0, 32), [[0; 8], [9, 0, 0, 0, 0, 0, 0, 0], [0; 8], [0; 8]].concat());
    // One that is not here is nobody's to look at.
    let other = window.cell(PAGE).unwrap();
    assert_eq!(other.fetch_add(3, patient()).unwrap(), 0);
    let _serving = paged.serve(window.pager(), 1).unwrap();
    assert_eq!(cell.fetch_add(1, patient()).unwrap(), 0);
    slice.write(0, &[5; 8], patient()).unwrap();
    assert_eq!(window.acquire(0..PAGE, patient()).unwrap().merged, 1);
    let words = [0, 8, 16, 24, PAGE].map(|at| window.word(at).unwrap().load(Relaxed));
    assert_eq!(words, [1, 9, 1, u64::from_ne_bytes([5; 8]), 3]);
    assert_eq!(window.release(0..PAGE, patient()).unwrap().pages, 1);
    assert_eq!(at_home(&pair, 0, 1), [1]);
}
