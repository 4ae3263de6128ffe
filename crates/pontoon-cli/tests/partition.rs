//! `pontoon train` over hosts that are cut off from each other, lose what they send, or lose a rank.

mod common;

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::{
    Chance, Ended, Process, TOKEN, WATCHDOG,
    hosts::{Hosts, script},
    number,
    outcome::{Gone, Outcome, judge, told},
    pontoon,
};
use pontoon::{hal::conformance::part, ucx::Library};
use rustix::process::Signal;

/// A run long enough to be met by what happens to it.
const RUN: [&str; 6] = ["--devices", "1", "--epochs", "2", "--verify", "--json"];
/// The job's port on its first host, where nobody else listens.
const PORT: &str = "29500";

/// Hosts to run ranks on, or `None` with the reason printed.
fn hosts(name: &str, count: u32) -> Option<Hosts> {
    part::needed("ucx", Library::open())?;
    Hosts::up(name, count)
}

/// Starts rank `rank` of `world`: each on a host of its own, from host 1 on, and again from there.
fn start(hosts: &Hosts, count: u32, rank: u32, world: u32, arguments: &[&str]) -> Process {
    let mut command = Command::new(script());
    command.args(["exec", &hosts.name(1 + rank % count)]);
    let rank_itself = common::rank_command(arguments);
    command.arg(rank_itself.get_program()).args(rank_itself.get_args());
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", hosts.address(1)).env("MASTER_PORT", PORT);
    command.env("PONTOON_TOKEN", TOKEN).env("PONTOON_PROFILE", "/nonexistent/profile");
    Process::start(&mut command)
}

/// Starts all ranks of a job.
fn start_all(hosts: &Hosts, count: u32, world: u32, arguments: &[&str]) -> Vec<Process> {
    (0..world).map(|rank| start(hosts, count, rank, world, arguments)).collect()
}

fn end_all(ranks: Vec<Process>, what: &str) -> Vec<Ended> {
    let deadline = Instant::now() + WATCHDOG;
    ranks.into_iter().map(|rank| rank.end_by(deadline, what)).collect()
}

/// The digest of a run over `count` hosts in which nothing happens, and how long it takes here.
fn whole_run(hosts: &Hosts, count: u32, world: u32) -> (String, Duration) {
    let began = Instant::now();
    let ended = end_all(start_all(hosts, count, world, &RUN), "a whole run");
    let took = began.elapsed();
    assert!(ended.iter().all(|ended| ended.status.success()), "{ended:?}");
    let run = ended[0].json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    (run["weights_digest"].as_str().expect("text").to_owned(), took)
}

fn show(what: &str, whole: Duration, outcomes: &[Outcome]) {
    println!("{what}, in runs of {whole:?}: {}", told(outcomes));
}

#[test]
fn the_digest_over_hosts_is_that_of_one_process() {
    let Some(hosts) = hosts("dg", 3) else { return };
    let rsh = format!("{} exec {{host}}", script().display());
    let mut alone = pontoon(&["train", "--epochs", "2", "--json"]);
    let alone = Process::start(&mut alone).end("train").json();
    let two = hosts.names.rsplit_once(',').expect("three").0.to_owned();
    for (ranks, names) in [("2", &two), ("3", &hosts.names), ("5", &hosts.names)] {
        for edges in [&[][..], &["--auto"], &["--trust"], &["--params", "smc"]] {
            let given =
                ["train", "--procs", ranks, "--hosts", names, "--rsh", &rsh, "--epochs", "2"];
            let ways = ["--devices", "2", "--json", "--lost-after", "20s"];
            let ended = Process::start(&mut pontoon(&[&given[..], &ways, edges].concat()));
            let ended = ended.end("train over hosts");
            assert!(ended.status.success(), "{ranks} {edges:?}: {ended:?}");
            let run = ended.json();
            assert_eq!(run["weights_digest"], alone["weights_digest"], "{ranks} {edges:?}");
        }
    }
}

/// What stands between a host and the others.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Its cable is out.
    Link,
    /// All it sends and is sent is dropped, and nobody is told.
    Filter,
}

#[test]
fn a_host_that_is_cut_off_is_named_and_never_spoils_a_digest() {
    let Some(hosts) = hosts("ct", 3) else { return };
    let mut chance = Chance::new("cuts");
    let (digest, whole) = whole_run(&hosts, 3, 3);
    let mut outcomes = Vec::new();
    for round in 0..number("PONTOON_CUTS", 9) {
        let (how, host) = (chance.of(&[Cut::Link, Cut::Filter]), round % 3);
        let (goes_on, after) = (chance.below(2) == 0, chance.part(whole));
        let params = chance.of(&["message", "smc"]);
        let what = &format!("{how:?} of host {} after {after:?}, {params}", host + 1);
        let name = hosts.name(host + 1);
        let on_death = if goes_on { "continue" } else { "end" };
        let ways = ["--join-bound", "5s", "--on-peer-death", on_death, "--params", params];
        let given = [&RUN[..], &ways].concat();
        let ranks = start_all(&hosts, 3, 3, &given);
        thread::sleep(after);
        let (cut, heal) = match how {
            Cut::Link => (["cut", &name], ["heal", &name]),
            Cut::Filter => (["drop", &name], ["clear", &name]),
        };
        hosts.run(&cut);
        let ended = end_all(ranks, what);
        hosts.run(&heal);
        outcomes.push(judge_cut(what, &ended, host, goes_on, &digest));
    }
    show("cut off", whole, &outcomes);
}

/// Each side takes the other for dead; only that of rank 0 can go on.
fn judge_cut(what: &str, ended: &[Ended], cut: u32, goes_on: bool, digest: &str) -> Outcome {
    let all_done = ended.iter().all(|ended| ended.status.success());
    let others: Vec<u32> = (0..3).filter(|&rank| rank != cut).collect();
    // Those whose end the others have to name; of those who are none of them, each names one.
    let (gone, stay): (Vec<u32>, Vec<u32>) = match cut {
        _ if all_done && ended[0].json()["lost_ranks"].is_null() => (Vec::new(), others),
        0 => (others, vec![0]),
        cut => (vec![cut], others),
    };
    for &rank in &gone {
        let ended = &ended[rank as usize];
        if !ended.status.success() {
            let error = ended.error();
            let mut peers = (0..3).filter(|&peer| peer != rank);
            let is_named = peers.any(|peer| common::outcome::names(error, rank, peer));
            assert!(is_named || says_excluded(error, rank), "{what}: {stay:?}: {error}");
        }
    }
    judge(what, ended, &Gone { ranks: &gone, goes_on }, digest)
}

fn says_excluded(error: &str, rank: u32) -> bool {
    error.starts_with(&format!("rank {rank}: error: the others took this rank for dead"))
}

#[test]
fn frames_that_are_lost_by_chance_cost_time_and_nothing_else() {
    let Some(hosts) = hosts("ls", 2) else { return };
    let mut chance = Chance::new("losses");
    let (digest, whole) = whole_run(&hosts, 2, 2);
    let mut outcomes = Vec::new();
    for round in 0..number("PONTOON_LOSSES", 3) {
        let percent = [1, 10, 3, 5][round as usize % 4].to_string();
        let name = hosts.name(1 + chance.below(2));
        hosts.run(&["drop", &name, &percent]);
        // TCP sends again after 200 ms, and twice that the next time.
        let given = [&RUN[..], &["--join-bound", "60s", "--bound", "20s", "--lost-after", "10s"]];
        let what = &format!("{percent} % lost at {name}");
        let ended = end_all(start_all(&hosts, 2, 2, &given.concat()), what);
        hosts.run(&["clear", &name]);
        let all_done = ended.iter().all(|ended| ended.status.success());
        // Whoever gives up names the other.
        let gone: Vec<u32> = if all_done { Vec::new() } else { vec![0, 1] };
        for (rank, ended) in (0..).zip(&ended).filter(|(_, ended)| !ended.status.success()) {
            let error = ended.error();
            assert!(common::outcome::names(error, rank, 1 - rank), "{what}: {error}");
        }
        if all_done {
            let run = ended[0].json();
            assert_eq!(run["weights_digest"], digest.as_str(), "{what}: {run}");
        }
        outcomes.push(if gone.is_empty() { Outcome::Complete } else { Outcome::Ended });
    }
    show("with losses", whole, &outcomes);
    assert!(outcomes.contains(&Outcome::Complete), "{}", told(&outcomes));
}

#[test]
fn a_rank_killed_on_any_host_is_named_and_never_spoils_a_digest() {
    let Some(hosts) = hosts("kl", 2) else { return };
    let mut chance = Chance::new("kills over hosts");
    let (digest, whole) = whole_run(&hosts, 2, 3);
    let mut outcomes = Vec::new();
    for _ in 0..number("PONTOON_HOST_KILLS", 12) {
        let (victim, after) = (chance.below(3), chance.part(whole));
        let goes_on = chance.below(2) == 0;
        let on_death = if goes_on { "continue" } else { "end" };
        let params = chance.of(&["message", "smc"]);
        let ways = ["--join-bound", "5s", "--lost-after", "20s", "--on-peer-death", on_death];
        let given = [&RUN[..], &ways, &["--params", params]].concat();
        let mut ranks = start_all(&hosts, 2, 3, &given);
        thread::sleep(after);
        let killed = ranks[victim as usize].signal(Signal::KILL);
        let what = &format!("rank {victim} killed after {after:?}, {params}");
        let ended = end_all(ranks, what);
        let is_dead = killed && ended[victim as usize].status.code().is_none();
        let gone = if is_dead { vec![victim] } else { Vec::new() };
        outcomes.push(judge(what, &ended, &Gone { ranks: &gone, goes_on }, &digest));
    }
    show("killed over hosts", whole, &outcomes);
}

#[test]
fn a_rank_that_is_started_again_elsewhere_is_refused_and_the_others_go_on() {
    let Some(hosts) = hosts("rs", 3) else { return };
    let given = ["--devices", "1", "--epochs", "12", "--verify", "--json", "--lost-after", "20s"];
    let given = [&given[..], &["--on-peer-death", "continue"]].concat();
    let first = start(&hosts, 2, 0, 2, &given);
    let killed = [&given[..], &["--inject", "kill-producer"]].concat();
    let killed = start(&hosts, 2, 1, 2, &killed).end("one that kills itself");
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let again = start(&hosts, 2, 1, 2, &given).end("one that comes again");
    let wanted = "rank 1: error: rank 1 cannot come back: the job takes nobody back";
    assert_eq!(again.refusal(), wanted);
    let first = first.end("rank 0");
    assert!(first.status.success(), "{first:?}");
    let run = first.json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert_eq!(run["lost_ranks"][0][0], 1, "{run}");
}
