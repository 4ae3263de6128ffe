//! The link's threads sleep while nothing happens.

mod common;

use std::{fs, thread, time::Duration};

use common::{Base, Peer, Process, role, say, told};

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Some((_, base, rank)) = role() else { return };
    let process = Process::join(&base, rank, 0);
    process.connect(0);
    say("ready");
    told();
}

/// How often each thread of the link's gave way so far, by its name.
fn switches() -> Vec<(String, u64)> {
    let mut threads = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let count = |name| field(name).parse().unwrap_or(0);
        let all: u64 = count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:");
        let name = field("Name:");
        if name.starts_with("pontoon-") {
            threads.push((name, all));
        }
    }
    threads.sort();
    threads
}

#[test]
fn a_link_at_rest_takes_no_processor() {
    if role().is_some() {
        return;
    }
    let base = Base::new("idle");
    let here = Process::join(&base.0, 0, 0);
    let mut peer = Peer::start("rest", &base.0, 1);
    assert_eq!(peer.hear(), "ready");
    here.connect(1);
    // Until what began has come to rest; then a rest that is watched.
    let rests = |_| {
        let before = switches();
        thread::sleep(Duration::from_millis(300));
        let after = switches();
        assert_eq!(after.len(), 2, "a watch and a handover: {after:?}");
        before == after
    };
    let rested = (0..20).filter(|at| rests(*at)).count();
    assert!(rested >= 15, "of 20 rests {rested} were undisturbed: {:?}", switches());
}
