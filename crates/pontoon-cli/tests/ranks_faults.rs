//! What can go wrong between ranks that are all there: one that comes back too late, ranks that were
//! not given the same, and a launcher that is told nonsense.

mod common;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use common::{Ended, Place, Process, WATCHDOG};
use rustix::process::Signal;

/// Waits until `process` is stopped.
fn is_stopped(process: &mut Process) {
    let stat = format!("/proc/{}/stat", process.pid());
    let began = Instant::now();
    while !fs::read_to_string(&stat).expect("a process").contains(") T ") {
        assert!(!process.has_ended(), "it ended instead");
        assert!(began.elapsed() < WATCHDOG, "it does not stop");
        thread::sleep(Duration::from_millis(2));
    }
}

/// It is stopped in the last step of an epoch, whose batch is smaller: what it sends when it runs
/// again would fall on shards that are other ranks' in all other steps.
#[test]
fn a_rank_that_comes_back_from_a_smaller_batch_spoils_nothing() {
    comes_back_late("message");
}

/// Its stores are of memory that the others work on, and so are its loads.
#[test]
fn a_rank_that_comes_back_to_memory_of_rank_0_spoils_nothing() {
    comes_back_late("smc");
}

fn comes_back_late(params: &str) {
    // Two steps an epoch: half-way is the first of one, and the oldest of the four under way then,
    // which is what it has to send, the second of another.
    let given = ["--devices", "1", "--batch", "1000", "--epochs", "40", "--verify", "--json"];
    let death = ["--on-peer-death", "continue", "--lost-after", "3s", "--bound", "30s"];
    let stop = ["--inject", "stop-producer", "--params", params];
    let mut ranks = Place::new().start_all(3, &[&given[..], &death, &stop].concat());
    is_stopped(&mut ranks[2]);
    // Just after the others have gone on.
    thread::sleep(Duration::from_millis(3200));
    assert!(ranks[2].signal(Signal::CONT), "it is still there");
    let [first, second, last] = <[Process; 3]>::try_from(ranks).map_err(drop).expect("three");
    let (first, second) = (first.end("rank 0"), second.end("rank 1"));
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let run = first.json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert_eq!(run["lost_ranks"][0][0], 2, "{run}");
    let last = last.end("a rank that was stopped");
    assert_eq!(last.status.code(), Some(1), "{last:?}");
}

/// What it would train alone from there on is another job's.
#[test]
fn a_rank_0_that_was_left_behind_says_so_and_fails() {
    let given = ["--devices", "1", "--epochs", "10000", "--on-peer-death", "continue"];
    let mut ranks = Place::new().start_all(3, &given);
    // Any time is good, and some of it after the first step.
    thread::sleep(Duration::from_secs(3));
    assert!(ranks[0].signal(Signal::STOP), "it is still there");
    is_stopped(&mut ranks[0]);
    for (rank, process) in (1..).zip(ranks.drain(1..)) {
        let ended = process.end("beside a stopped rank 0");
        let wanted = format!("rank {rank}: error: rank 0 is dead: ");
        assert!(ended.error().starts_with(&wanted), "{ended:?}");
    }
    let mut first = ranks.remove(0);
    assert!(first.signal(Signal::CONT), "it is still there");
    let first = first.end("a rank 0 that was stopped");
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let wanted = "rank 0: error: the others took this rank for dead: nothing was heard of it";
    assert!(first.error().starts_with(wanted), "{first:?}");
}

#[test]
fn ranks_that_were_not_given_the_same_say_what_differs() {
    let common = ["--lost-after", "20s", "--bound", "20s"];
    let few = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("unlike-{}.csv", std::process::id()));
    fs::write(&few, "1,2,3,4,0\n4,3,2,1,1\n".repeat(20)).expect("written");
    for (usual, other, says) in [
        (&["--devices", "1"][..], &["--devices", "2"][..], "--devices 2 and rank 0 --devices 1"),
        (&["--seed", "1"], &["--seed", "7"], "--seed 7 and rank 0 --seed 1"),
        (&["--batch", "64"], &["--batch", "32"], "--batch 32 and rank 0 --batch 64"),
        (&["--epochs", "1"], &["--epochs", "2"], "--epochs 2 and rank 0 --epochs 1"),
        (
            &["--on-peer-death", "end"],
            &["--on-peer-death", "continue"],
            "--on-peer-death continue and rank 0 --on-peer-death end",
        ),
        (&[], &["--params", "smc"], "--params smc and rank 0 --params message"),
        (&[], &["--data", few.to_str().expect("text")], "--data of digest "),
    ] {
        let place = Place::new();
        let of = |rank| {
            let own = if rank == 2 { other } else { usual };
            place.start(rank, 3, &[&common[..], own].concat())
        };
        let ended: Vec<Ended> =
            [0, 1, 2].map(of).into_iter().map(|rank| rank.end("not given the same")).collect();
        for (rank, ended) in ended.iter().enumerate() {
            let wanted = format!("rank {rank}: error: rank 2 has {says}");
            assert!(ended.refusal().starts_with(&wanted), "{wanted}: {ended:?}");
        }
    }
    fs::remove_file(few).expect("removed");
}

/// A wait has to outlast the time after which a rank is known to be dead.
#[test]
fn the_others_go_on_however_late_a_death_is_noticed() {
    let given = ["--devices", "1", "--epochs", "2", "--verify", "--json"];
    let death = ["--on-peer-death", "continue", "--lost-after", "5s"];
    let stop = ["--inject", "stop-producer"];
    let mut ranks = Place::new().start_all(3, &[&given[..], &death, &stop].concat());
    let last = ranks.pop();
    for (rank, process) in ranks.into_iter().enumerate() {
        let ended = process.end("beside a stopped rank");
        assert!(ended.status.success(), "{ended:?}");
        if rank == 0 {
            let run = ended.json();
            assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
            assert_eq!(run["lost_ranks"][0][0], 2, "{run}");
        }
    }
    drop(last);
}
