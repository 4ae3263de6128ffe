//! Flags that others change: by plain loads they never do, by fresh ones they do; and extents of which nothing is kept.
#![cfg(not(pontoon_loom))]

mod common;

use std::time::{Duration, Instant};

use common::{Plain, pair, patient};
use pontoon_hal::{
    conformance::part,
    paging::{PAGE, PageFault, Served},
};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Arrival, Export, Extent, Pool, Settings, SmcError};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};

const PAGES: usize = 64;

#[test]
fn a_flag_that_is_polled_by_plain_loads_never_changes() {
    let pair = pair(PAGES);
    let export = Export::over(pair.home.block().clone()).unwrap();
    for service in [Service::InThread, Service::Served] {
        let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, service);
        let Some(paged) = part::needed("userfaultfd", paged) else { return };
        let _stack = on_this_thread().unwrap();
        let mut settings = Settings::for_pages(128);
        settings.deadline = Duration::from_secs(20);
        let pool = Pool::new(settings).unwrap();
        let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        let window =
            pool.window(paged.clone(), vec![Extent::new(0..PAGES * PAGE, home, 0)]).unwrap();
        let _serving = paged.serve(window.pager(), 2).unwrap();
        assert!(export.write(8, &1_u64.to_ne_bytes()));
        let (flag, cell) = (window.word(8).unwrap(), window.cell(8).unwrap());
        assert_eq!(flag.load(Relaxed), 1);
        assert!(export.write(8, &2_u64.to_ne_bytes()));
        let polling = Instant::now();
        while polling.elapsed() < Duration::from_millis(200) {
            assert_eq!(flag.load(Relaxed), 1, "{service:?}: a plain load of a page that is here");
            assert_eq!(cell.load_fresh(patient()), Ok(2));
        }
        window.acquire(0..PAGE, patient()).unwrap();
        assert_eq!(flag.load(Relaxed), 2, "after an acquire it is what home had then");
        drop(_serving);
    }
}

#[test]
fn nothing_of_an_uncached_extent_is_ever_here() {
    let pair = pair(PAGES);
    let pool = Pool::new(Settings::for_pages(64)).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let kept = Extent::new(0..32 * PAGE, home.clone(), 0);
    let flags = Extent::new(32 * PAGE..PAGES * PAGE, home, 32 * PAGE).uncached();
    let window = pool.window(Plain::new(PAGES), vec![kept, flags]).unwrap();
    let at = 40 * PAGE;
    // What a plain access comes to: a signal, as outside any mapping.
    let pager = window.pager();
    for write in [true, false] {
        assert_eq!(pager.fault(PageFault { page: 40, write }), Served::Refused);
        assert_eq!(pager.fault(PageFault { page: 31, write }), Served::Again);
    }
    let uncached = SmcError::Uncached { bytes: 32 * PAGE..PAGES * PAGE };
    let refusal = Err(uncached.clone());
    assert_eq!(window.word(at).map(drop), refusal);
    assert_eq!(window.try_read(at).map(drop), refusal);
    assert_eq!(window.get(at, &mut [0]), refusal);
    assert_eq!(window.put(at, &[0]), refusal);
    assert_eq!(window.prefetch(0..at + 1), refusal);
    assert_eq!(window.pages(at..at + PAGE).map(drop), refusal);
    assert_eq!(window.with_resident(at..at + 1, patient(), |_| ()), refusal);
    assert_eq!(window.write_through(at..at + 1, Arrival::AtHome, patient()).map(drop), refusal);
    let text = uncached.to_string();
    assert!(text.contains("cells") && !text.contains('\n'), "{text}");

    let resident = pool.resident();
    let (flag, queue) = (window.cell(at).unwrap(), window.slice::<u32>(at + 8, 5000).unwrap());
    flag.store(1, patient()).unwrap();
    flag.post(2).unwrap();
    flag.drain(patient()).unwrap();
    assert_eq!((flag.load_fresh(patient()), pair.at_home(at)), (Ok(2), 2));
    assert_eq!(flag.fetch_add(3, patient()), Ok(2));
    assert_eq!(window.publish(0..PAGE, at, 1, patient()), Ok(5));
    queue.write(1, &[7; 4000], patient()).unwrap();
    queue.post(0, &[8]).unwrap();
    queue.drain(patient()).unwrap();
    let mut found = [0; 4001];
    queue.read_fresh(0, &mut found, patient()).unwrap();
    assert_eq!((found[0], &found[1..]), (8, &[7; 4000][..]));
    let whole = 0..PAGES * PAGE;
    assert_eq!(window.release(whole.clone(), patient()).unwrap().bytes, 0);
    assert_eq!(window.acquire(whole.clone(), patient()).unwrap().merged, 0);
    window.check(whole).unwrap();
    assert_eq!(pool.resident(), resident, "no page of it came");
}
