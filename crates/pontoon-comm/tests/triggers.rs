//! Triggers that come and go leave nothing behind. Alone in its process, for it looks at the memory of all.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use common::{open, pair, patient, settings};
use pontoon_comm::Comm;

/// The process's memory that is in use, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("of this");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

fn wait_for_lanes(comm: &Comm, lanes: u64) {
    let started = Instant::now();
    while comm.report().lanes != lanes {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", comm.report());
        thread::yield_now();
    }
}

#[test]
fn triggers_that_are_dropped_leave_nothing_behind() {
    let ([zero, _one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0);
    let come_and_go = |count: u32| {
        for _ in 0..count {
            let trigger = port.prepare().put(0..64, 0).and_then(|it| it.signal(1));
            let trigger = trigger.expect("in range").arm().expect("a proxy");
            trigger.fire().expect("open").wait(patient()).expect("done");
        }
        wait_for_lanes(&comm, 1);
    };
    come_and_go(500);
    let before = resident();
    come_and_go(5_000);
    // Those that stay take more than 5 KiB each.
    let grown = resident().saturating_sub(before);
    assert!(grown < 4 << 10, "5000 triggers left {grown} KiB behind");
}
