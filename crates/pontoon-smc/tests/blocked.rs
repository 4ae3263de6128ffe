//! Which signals threads of a pool and of a window take.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;

use std::time::{Duration, Instant};

use common::{pair, patient};
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_smc::{Arrival, Extent, Pool, Settings};
use pontoon_uffd::{Features, Paged, Service};
use rustix::process::Signal;

/// Which threads of this process have a name that begins so, and whether each blocks a signal.
fn threads(prefix: &str, signal: Signal) -> Vec<(String, bool)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // One that ends meanwhile has no status.
    let told =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let told = told.map(|status| {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_string()
        };
        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        (field("Name:"), blocked >> (signal.as_raw() - 1) & 1 != 0)
    });
    let mut found: Vec<_> = told.filter(|(name, _)| name.starts_with(prefix)).collect();
    found.sort();
    found.dedup();
    found
}

/// Those that serve faults, that keep a pool and that make stores.
#[test]
fn threads_of_ours_block_the_signals_of_the_program() {
    let pair = pair(4);
    let paged = Paged::reserve(&Features::probe(), 4 * PAGE, Service::Served);
    let Some(paged) = part::needed("userfaultfd", paged) else { return };
    let pool = Pool::new(Settings::for_pages(64)).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let window = pool.window(paged.clone(), vec![Extent::new(0..4 * PAGE, home, 0)]).unwrap();
    let _serving = paged.serve(window.pager(), 2).unwrap();
    let _through = window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap();
    let ours = ["pontoon-keeper", "pontoon-stores", "pontoon-uffd"];
    let started = Instant::now();
    for signal in [Signal::USR1, Signal::TERM] {
        // A thread gives itself its name.
        while threads("pontoon-", signal).len() < ours.len() {
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", threads("", signal));
        }
        assert_eq!(threads("pontoon-", signal), ours.map(|name| (name.to_string(), true)));
    }
    let open = threads("pontoon-", Signal::SEGV);
    assert!(open.iter().all(|(_, is_blocked)| !is_blocked), "{open:?}");
}
