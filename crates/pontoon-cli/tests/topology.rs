//! `pontoon doctor --topology` as a user runs it: alone, and as the ranks of a job.

mod common;

use std::{
    fs,
    io::Read,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use common::{Ended, Place, Process, WATCHDOG, outcome::names, pontoon};
use pontoon::{hal::conformance::part, ucx::Library};
use rustix::process::Signal;
use serde_json::Value;

const TOPOLOGY: [&str; 2] = ["doctor", "--topology"];

/// Runs it to its end, with `more` arguments.
fn alone(more: &[&str]) -> Ended {
    Process::start(&mut pontoon(&[&TOPOLOGY, more].concat())).end("doctor --topology")
}

/// The objects that were printed, each by its name.
fn objects(ended: &Ended) -> Vec<(String, Value)> {
    assert!(ended.status.success(), "{ended:?}");
    let object = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        (object["name"].as_str().expect("a name").to_owned(), object)
    };
    ended.out.lines().map(object).collect()
}

#[track_caller]
fn of<'o>(objects: &'o [(String, Value)], name: &str) -> &'o Value {
    let found = objects.iter().find(|(its, _)| its == name);
    &found.unwrap_or_else(|| panic!("no {name} in {objects:?}")).1
}

#[track_caller]
fn is_measured(pair: &Value, link: &str) {
    assert_eq!((&pair["link"], &pair["not_measured"]), (&link.into(), &Value::Null), "{pair}");
    for key in ["latency_ns", "bytes_per_s"] {
        assert!(pair[key].as_u64().is_some_and(|it| it > 0), "{key} of {pair}");
    }
    assert!(pair["blocks"].as_u64().is_some_and(|blocks| blocks >= 5), "{pair}");
}

/// Whether two ranks find a processor each; says so if not.
fn has_two_cpus() -> bool {
    let count = thread::available_parallelism().map_or(1, usize::from);
    if count < 2 {
        println!("skipped: it needs two CPUs, and this process may use {count}");
    }
    count >= 2
}

#[test]
fn alone_two_ranks_are_measured_over_each_link_and_every_line_is_an_object() {
    if !has_two_cpus() {
        return;
    }
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    let ended = alone(&["--json"]);
    let objects = objects(&ended);
    for link in ["shm", "ucx"] {
        is_measured(of(&objects, &format!("topology/{link}/pair/0-1")), link);
        let [near, far] = [0, 1].map(|rank| of(&objects, &format!("topology/{link}/rank/{rank}")));
        assert!(near["pid"] != far["pid"] && near["cpus"] != far["cpus"], "{near} {far}");
    }
    let mut names: Vec<_> = objects.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), objects.len(), "a name twice: {ended:?}");
}

#[test]
fn alone_the_table_has_the_nodes_and_what_is_skipped() {
    if !has_two_cpus() {
        return;
    }
    let mut command = pontoon(&TOPOLOGY);
    command.env("PONTOON_UCX_LIBRARY", "/nowhere/libucp.so");
    let ended = Process::start(&mut command).end("without UCX");
    assert!(ended.status.success() && ended.err.is_empty(), "{ended:?}");
    let nodes = fs::read_to_string("/sys/devices/system/node/online");
    let node = nodes.ok().map(|text| format!("  node {}  cpus ", text.trim()));
    // Where there are several, they have a line each.
    if let Some(line) = node.filter(|line| !line.contains(['-', ','])) {
        assert!(ended.out.contains(&line), "{line} is not in {}", ended.out);
    }
    let (shm, ucx) = ended.out.split_once("two ranks on this host over ucx\n").expect("both");
    let row = shm.lines().find(|line| line.trim_start().starts_with("0-1 ")).expect("a pair");
    assert!(row.contains(" shm ") && row.ends_with("B/s"), "{row}");
    assert!(ucx.starts_with("  skipped: UCX is absent: ") && ucx.contains("libucx0"), "{ucx}");
    assert!(ended.out.lines().all(|line| line == line.trim_end()), "{}", ended.out);
}

#[test]
fn the_ranks_of_a_job_measure_and_rank_0_prints() {
    let program = env!("CARGO_BIN_EXE_pontoon");
    let launch = ["launch", "-n", "3", "--", program, "doctor", "--topology"];
    let ended = Process::start(&mut pontoon(&launch)).end("launch");
    assert!(ended.status.success() && ended.err.is_empty(), "{ended:?}");
    assert!(ended.out.lines().all(|line| line.starts_with("[0] ")), "{}", ended.out);
    let rows = |start: &str| {
        let starts = |line: &&str| line[4..].trim_start().starts_with(start);
        ended.out.lines().filter(starts).count()
    };
    for row in ["rank 0 ", "rank 1 ", "rank 2 ", "0-1 ", "0-2 ", "1-2 "] {
        assert_eq!(rows(row), 1, "{row}: {}", ended.out);
    }
    assert_eq!(rows("not measured"), 0, "{}", ended.out);
    assert!(ended.out.contains("between rank 0 and the others of 3: "), "{}", ended.out);
}

#[test]
fn the_objects_of_a_job_are_those_of_rank_0() {
    let ranks = Place::new();
    let ranks: Vec<_> = (0..3).map(|rank| start(&ranks, rank, &["--json"])).collect();
    let ended: Vec<_> = ranks.into_iter().map(|rank| rank.end("a rank")).collect();
    let objects = objects(&ended[0]);
    for pair in ["0-1", "0-2", "1-2"] {
        is_measured(of(&objects, &format!("topology/job/pair/{pair}")), "shm");
    }
    let shape = of(&objects, "topology/job/shape/16777216");
    assert!(shape["flat_ns"].is_u64() && shape["ring_ns"].is_u64(), "{shape}");
    for other in &ended[1..] {
        assert!(other.status.success() && other.out.is_empty(), "{other:?}");
    }
}

fn start(place: &Place, rank: u32, more: &[&str]) -> Process {
    let mut command = pontoon(&[&TOPOLOGY, more].concat());
    Process::start(command.envs(place.variables(rank, 3)))
}

/// How long a process has been at work, in clock ticks: fields 14 and 15 of its `stat`.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn a_rank_that_is_killed_while_they_measure_is_named_by_all_others() {
    for victim in 0..3 {
        let place = Place::new();
        // Longer than any of this takes: they are killed in the first pair, 0-1.
        let long = ["--blocks", "100000", "--within", "60s"];
        let mut ranks: Vec<_> = (0..3).map(|rank| start(&place, rank, &long)).collect();
        // Joining takes less; ranks that measure are at work all the time.
        let (began, busy) = (Instant::now(), 50);
        while ticks(ranks[0].pid()) < busy || ticks(ranks[1].pid()) < busy {
            if began.elapsed() > WATCHDOG || ranks[0].has_ended() {
                let spent: Vec<_> = ranks.iter().map(|rank| ticks(rank.pid())).collect();
                let ended: Vec<_> = ranks.into_iter().map(|rank| rank.end("a rank")).collect();
                panic!("they do not measure: {spent:?} {ended:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        assert!(ranks[victim as usize].signal(Signal::KILL), "it had ended");
        let until = Instant::now() + Duration::from_secs(30);
        for (rank, process) in (0..).zip(ranks) {
            let ended = process.end_by(until, "after a death");
            if rank != victim {
                assert_eq!(ended.status.code(), Some(1), "{ended:?}");
                let error = ended.error();
                assert!(names(error, rank, victim), "{victim} is dead, and {error}");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (more, part) in [
        (&["--blocks", "4"][..], "4 is not in 5.."),
        (&["--within", "0s"], "expected more than zero"),
        (&["--within", "soon"], "such as 500ms"),
        (&["--join-bound", "0s"], "expected more than zero"),
    ] {
        let ended = alone(more);
        assert!(ended.refusal().contains(part), "{ended:?}");
    }
    let without = Process::start(&mut pontoon(&["doctor", "--blocks", "9"])).end("no topology");
    assert!(without.refusal().contains("--topology"), "{without:?}");
    let half = Process::start(pontoon(&TOPOLOGY).env("RANK", "1")).end("half a job");
    assert!(half.refusal().contains("WORLD_SIZE"), "{half:?}");
}

/// 20 s unless it is given.
#[test]
fn a_rank_waits_for_the_others_no_longer_than_it_is_told() {
    let began = Instant::now();
    let ended = start(&Place::new(), 0, &["--join-bound", "300ms"]).end("alone in its job");
    let refusal = ended.refusal();
    assert!(refusal.contains("absent are ranks 1, 2"), "{refusal}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut command = pontoon(&TOPOLOGY);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("UTF-8");
    assert_eq!((child.wait().expect("waited for").code(), &*errors), (Some(0), ""));
}
