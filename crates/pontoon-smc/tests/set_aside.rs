//! What the kernel knows of a window's addresses: that no child of this process has them, and no core dump.
#![cfg(not(pontoon_loom))]

mod common;

use std::fs;

use common::pair;
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_smc::{Extent, Pool, Settings};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};

/// The flags of each mapping that has any of those addresses (`VmFlags` in proc_pid_smaps(5)).
fn flags(of: core::ops::Range<usize>) -> Vec<String> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut all, mut is_its) = (Vec::new(), false);
    for line in smaps.lines() {
        let addresses = line.split(' ').next().and_then(|it| it.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) = addresses.map(|(a, b)| (number(a), number(b))) {
            is_its = start < of.end && of.start < end;
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && is_its
        {
            all.push(flags.to_owned());
        }
    }
    all
}

#[test]
fn a_window_is_in_no_dump_and_no_child() {
    const PAGES: usize = 64;
    let _stack = on_this_thread().unwrap();
    for service in [Service::InThread, Service::Served] {
        let pair = pair(PAGES);
        let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, service);
        let Some(paged) = part::needed("userfaultfd", paged) else { return };
        let pool = Pool::new(Settings::for_pages(64)).unwrap();
        let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
        let window =
            pool.window(paged.clone(), vec![Extent::new(0..PAGES * PAGE, home, 0)]).unwrap();
        let _serving = paged.serve(window.pager(), 1).unwrap();
        // With pages in place, written ones, and none.
        window.put(0, &[1; 3 * PAGE]).unwrap();
        let start = window.base().addr().get();
        let found = flags(start..start + window.bytes());
        assert!(!found.is_empty(), "{service:?}: no mapping at {start:#x}");
        for flags in &found {
            let has = |flag: &str| flags.split_whitespace().any(|it| it == flag);
            assert!(has("dd") && has("dc"), "{service:?}: dontdump and dontfork of{flags}");
        }
    }
}
