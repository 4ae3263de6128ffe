//! `pontoon train` over ranks of one host, as a user runs it: real processes, some of which die.

mod common;

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::Path,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use common::{
    Chance, Ended, Place, Process, number,
    outcome::{Gone, Outcome, judge, told},
    pontoon,
};
use pontoon::{hal::conformance::part, ucx::Library};
use rustix::process::Signal;
use serde_json::Value;

/// On a busy machine a rank may have no turn for a second, which is not what these tests are about.
const PATIENT: &[&str] = &["--lost-after", "20s", "--bound", "20s"];

/// Starts ranks as a user would, and waits for their end.
fn procs(arguments: &[&str]) -> Ended {
    let mut command = pontoon(&["train", "--procs"]);
    Process::start(command.args(arguments)).end(&format!("train --procs {arguments:?}"))
}

/// The object that a run with `--json` prints.
fn result(arguments: &[&str]) -> Value {
    let ended = procs(&[arguments, &["--json"], PATIENT].concat());
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    assert_eq!(ended.out.lines().count(), 1, "nothing but the object: {ended:?}");
    ended.json()
}

#[test]
fn the_digest_is_the_same_for_every_number_of_ranks_and_devices() {
    let mut digests = BTreeSet::new();
    for (ranks, devices) in [1, 2, 3, 4].into_iter().flat_map(|ranks| [(ranks, 1), (ranks, 2)]) {
        for edges in [&[][..], &["--auto"], &["--trust"]] {
            let (ranks, devices) = (ranks.to_string(), devices.to_string());
            let common = [&*ranks, "--devices", &devices, "--epochs", "1", "--verify"];
            let run = result(&[&common[..], edges].concat());
            assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
            let [devices, ranks] = [devices, ranks].map(|text| text.parse::<u64>().expect("it is"));
            assert_eq!(
                (run["devices"].as_u64(), run["ranks"].as_u64()),
                (Some(ranks * devices), Some(ranks))
            );
            digests.insert(run["weights_digest"].as_str().expect("text").to_owned());
        }
    }
    let mut alone = pontoon(&["train", "--epochs", "1", "--json"]);
    let alone = Process::start(&mut alone).end("train").json();
    digests.insert(alone["weights_digest"].as_str().expect("text").to_owned());
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn the_digest_is_the_same_whoever_starts_what_is_sent() {
    let mut digests = BTreeSet::new();
    for initiate in ["host", "ring", "direct", "triggered", "auto"] {
        // A batch that leaves the last step short: its messages are others.
        let given = ["3", "--devices", "2", "--epochs", "2", "--batch", "100", "--verify"];
        let run = result(&[&given[..], &["--initiate", initiate]].concat());
        assert_eq!(run["weights_digest"], run["reference_digest"], "{initiate}: {run}");
        digests.insert(run["weights_digest"].as_str().expect("text").to_owned());
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn the_digest_is_the_same_by_messages_and_by_memory_of_rank_0() {
    let transports: &[_] = match part::needed("ucx", Library::open()) {
        Some(_) => &["shm", "ucx"],
        None => &["shm"],
    };
    let given = |ranks, edges, more: &[&str]| {
        // A batch that leaves the last step short, and a share of it to not every rank.
        let common = [ranks, edges, "--devices", "1", "--batch", "100", "--epochs", "2"];
        result(&[&common[..], &["--verify"], more].concat())
    };
    let by_messages = given("3", "--auto", &[]);
    assert!(by_messages["smc"].is_null(), "{by_messages}");
    // Batches of one shard: all ranks but one have no part of a step, and load its parameters all the same.
    let tiny = ["4", "--auto", "--devices", "1", "--batch", "7", "--epochs", "1", "--verify"];
    let tiny = result(&[&tiny[..], &["--params", "smc"]].concat());
    assert_eq!(tiny["weights_digest"], tiny["reference_digest"], "{tiny}");
    for transport in transports {
        for (ranks, edges) in [("1", "--auto"), ("2", "--auto"), ("3", "--trust"), ("4", "--auto")]
        {
            let run = given(ranks, edges, &["--params", "smc", "--transport", transport]);
            assert_eq!(run["weights_digest"], by_messages["weights_digest"], "{ranks}: {run}");
            let others = ranks.parse::<u64>().expect("a number") - 1;
            let figure = |name: &str| run["smc"][name].as_u64().expect("a figure");
            assert_eq!(figure("registrations"), others, "once a rank: {run}");
            for name in ["pages_fetched", "bytes_released", "bytes_changed"] {
                assert_eq!(figure(name) > 0, others > 0, "{name} {ranks} {transport}: {run}");
            }
        }
    }
}

#[test]
fn what_libraries_print_comes_not_between_what_the_command_says() {
    if part::needed("ucx", Library::open()).is_none() {
        return;
    }
    // UCX says so much only where it is told to, but what watches memory for it warns there by itself.
    let mut command = pontoon(&["train", "--procs", "2", "--devices", "1", "--epochs", "1"]);
    command.args(["--transport", "ucx", "--json"]).args(PATIENT);
    command.envs([("UCX_LOG_FILE", "stdout"), ("UCX_LOG_LEVEL", "info")]);
    let ended = Process::start(&mut command).end("train with a library that prints");
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.out.lines().count(), 1, "{ended:?}");
    assert!(ended.json()["weights_digest"].is_string(), "{ended:?}");
    assert!(ended.err.contains("UCX  INFO"), "it said nothing, so nothing is shown: {ended:?}");
}

#[test]
fn batches_that_do_not_divide_change_nothing() {
    let data =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ranks-{}.csv", std::process::id()));
    let mut chance = Chance::new("pixels");
    let mut text = String::new();
    for row in 0..120 {
        (0..64).for_each(|_| write!(text, "{},", chance.below(17)).expect("text"));
        writeln!(text, "{}", row % 10).expect("text");
    }
    fs::write(&data, text).expect("written");
    for (ranks, devices, batch) in
        [("3", "2", "1"), ("4", "1", "5"), ("2", "2", "65536"), ("3", "3", "7"), ("4", "16", "30")]
    {
        let at = data.to_str().expect("text");
        let run =
            ["--devices", devices, "--batch", batch, "--epochs", "2", "--data", at, "--verify"];
        let run = result(&[&[ranks][..], &run].concat());
        assert_eq!(run["weights_digest"], run["reference_digest"], "{ranks} {devices} {batch}");
    }
    fs::remove_file(data).expect("removed");
}

/// As two runs of one script do, whose token is in a file and whose job has no name.
#[test]
fn jobs_with_one_name_and_token_do_not_meet() {
    let given = [&["--devices", "1", "--epochs", "1", "--verify", "--json"][..], PATIENT].concat();
    let jobs: Vec<_> = (0..3).map(|_| Place::new().start_all(3, &given)).collect();
    for ended in jobs.into_iter().map(|job| job.into_iter().map(|rank| rank.end("one of jobs"))) {
        let ended: Vec<_> = ended.collect();
        assert!(ended.iter().all(|ended| ended.status.success()), "{ended:?}");
        let run = ended[0].json();
        assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    }
}

#[test]
fn people_get_the_report_of_rank_0_alone() {
    let ended = procs(&["2", "--epochs", "1", "--bound", "10min", "--lost-after", "20s"]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.err, "");
    assert_eq!(ended.out.matches("weights digest").count(), 1, "{ended:?}");
    assert!(ended.out.contains("across 8 devices of 2 ranks"), "{ended:?}");
}

#[test]
fn survivors_say_what_they_saw_and_which_rank_speaks() {
    let ended = procs(&["3", "--devices", "1", "--inject", "kill-producer", "--bound", "60s"]);
    assert_eq!(ended.status.code(), Some(137), "that of the first to fail: {ended:?}");
    assert_eq!(ended.out, "");
    for rank in [0, 1] {
        let start = format!("rank {rank}: error: rank 2 is dead: ");
        let lines: Vec<_> = ended.err.lines().filter(|line| line.starts_with(&start)).collect();
        assert_eq!(lines.len(), 1, "{start}: {ended:?}");
    }
    let died = "was ended by SIGKILL after ";
    let line = ended.err.lines().find(|line| line.contains(died)).expect("the launcher's");
    assert!(line.starts_with("pontoon launch: rank 2 (pid "), "{line}");
    assert!(line.ends_with("the 2 others have 10s to end"), "{line}");
    assert!(!ended.err.contains("ending the rank"), "both ended by themselves: {ended:?}");
}

#[test]
fn the_others_go_on_without_a_rank_that_died() {
    let given = ["3", "--devices", "2", "--epochs", "2", "--inject", "kill-producer"];
    let ways = ["--on-peer-death", "continue", "--verify", "--json"];
    let ended = procs(&[&given[..], &ways, PATIENT].concat());
    assert!(ended.status.success(), "{ended:?}");
    let run = ended.json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert_eq!(run["lost_ranks"][0][0], 2, "{run}");
    let whole = result(&["3", "--devices", "2", "--epochs", "2"]);
    assert_ne!(run["weights_digest"], whole["weights_digest"], "it went on without the part");
    let step = run["lost_ranks"][0][1].as_u64().expect("a step");
    let line =
        format!("rank 0: rank 2 died; the others go on without its part from step {step} on");
    assert!(ended.err.lines().any(|it| it == line), "{line}: {ended:?}");
}

/// One run in which one rank is killed.
#[derive(Debug)]
struct Kill {
    transport: &'static str,
    world: u32,
    devices: &'static str,
    edges: &'static str,
    means: [&'static str; 2],
    goes_on: bool,
    victim: u32,
    after: Duration,
}

impl Kill {
    fn draw(chance: &mut Chance, transport: &'static str, whole: Duration) -> Self {
        let world = 2 + chance.below(3);
        Self {
            transport,
            world,
            devices: chance.of(&["1", "2"]),
            edges: chance.of(&["--auto", "--trust", "--verify"]),
            means: chance.of(&[
                ["--initiate", "auto"],
                ["--initiate", "ring"],
                ["--initiate", "host"],
                ["--initiate", "triggered"],
                ["--params", "smc"],
                ["--params", "smc"],
            ]),
            goes_on: chance.below(2) == 0,
            victim: chance.below(world),
            after: chance.part(whole),
        }
    }

    fn run(&self, digest: &str) -> Outcome {
        let what = &format!("{self:?}");
        let on_death = if self.goes_on { "continue" } else { "end" };
        let given = ["--devices", self.devices, "--epochs", EPOCHS, "--verify", "--json"];
        let ways = ["--join-bound", "5s", "--on-peer-death", on_death];
        let ways = ways.into_iter().chain(["--transport", self.transport]).chain(self.means);
        let edges = (self.edges != "--verify").then_some(self.edges);
        let arguments = given.into_iter().chain(ways).chain(edges).chain(PATIENT.iter().copied());
        let arguments: Vec<_> = arguments.collect();
        let mut ranks = Place::new().start_all(self.world, &arguments);
        thread::sleep(self.after);
        let killed = ranks[self.victim as usize].signal(Signal::KILL);
        let deadline = Instant::now() + common::WATCHDOG;
        let ended: Vec<_> = ranks.into_iter().map(|rank| rank.end_by(deadline, what)).collect();
        let is_dead = killed && ended[self.victim as usize].status.code().is_none();
        let gone = if is_dead { vec![self.victim] } else { Vec::new() };
        judge(what, &ended, &Gone { ranks: &gone, goes_on: self.goes_on }, digest)
    }
}

/// How long the runs are in which ranks are killed.
const EPOCHS: &str = "2";
/// How many of these run beside each other: some only wait for a rank that never comes.
const AT_A_TIME: u32 = 3;

/// The next run, unless enough ranks were killed.
fn next(
    drawn: &Mutex<(Chance, Vec<Outcome>)>,
    transport: &'static str,
    wanted: u32,
    whole: Duration,
) -> Option<Kill> {
    let (chance, outcomes) = &mut *drawn.lock().expect("no panic");
    let hit = outcomes.iter().filter(|outcome| **outcome != Outcome::TooLate).count();
    (hit < wanted as usize).then(|| Kill::draw(chance, transport, whole))
}

/// The digest of a run in which nobody dies, and how long it takes here.
fn whole_run() -> (String, Duration) {
    let began = Instant::now();
    let given = ["--devices", "1", "--epochs", EPOCHS, "--verify", "--json"];
    let ranks = Place::new().start_all(3, &[&given[..], PATIENT].concat());
    let ended: Vec<_> = ranks.into_iter().map(|rank| rank.end("a whole run")).collect();
    assert!(ended.iter().all(|ended| ended.status.success()), "{ended:?}");
    let digest = ended[0].json()["weights_digest"].as_str().expect("text").to_owned();
    (digest, began.elapsed())
}

#[test]
fn a_rank_killed_at_any_time_is_named_and_never_spoils_a_digest() {
    kill("shm", number("PONTOON_KILLS", 40));
}

#[test]
fn a_rank_killed_at_any_time_that_is_reached_by_ucx_is_named_as_well() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    kill("ucx", number("PONTOON_KILLS", 40) / 4);
}

/// Runs ranks that reach each other by `transport`, and kills one in each run, `wanted` in all.
fn kill(transport: &'static str, wanted: u32) {
    let chance = Chance::new("kills");
    let (digest, whole) = whole_run();
    let drawn = Mutex::new((chance, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(kill) = next(&drawn, transport, wanted, whole) {
                    let outcome = kill.run(&digest);
                    drawn.lock().expect("no panic").1.push(outcome);
                }
            });
        }
    });
    let (_, outcomes) = drawn.into_inner().expect("no panic");
    println!("killed over {transport}, in runs of {whole:?}: {}", told(&outcomes));
    let met = |wanted| outcomes.contains(&wanted);
    let is_short = wanted < 30;
    assert!(is_short || (met(Outcome::Ended) && met(Outcome::WentOn)), "{}", told(&outcomes));
}

/// Starts three ranks whose last one stops itself half-way, and waits until it did.
fn stopped(arguments: &[&str]) -> [Process; 3] {
    let given = ["--devices", "1", "--inject", "stop-producer", "--verify", "--json"];
    let mut ranks = Place::new().start_all(3, &[&given[..], arguments].concat());
    let stat = format!("/proc/{}/stat", ranks[2].pid());
    let began = Instant::now();
    loop {
        let stat = fs::read_to_string(&stat).expect("a process");
        if stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")) {
            return ranks.try_into().unwrap_or_else(|_| unreachable!("three were started"));
        }
        assert!(!ranks[2].has_ended(), "{:?}", ranks.remove(2).end("the last"));
        assert!(began.elapsed() < common::WATCHDOG, "it does not stop: {stat}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_stopped_rank_is_noticed_and_ends_when_it_runs_again() {
    let [first, second, mut last] = stopped(&["--epochs", "1"]);
    for (rank, process) in [first, second].into_iter().enumerate() {
        let ended = process.end("beside a stopped rank");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let wanted =
            format!("rank {rank}: error: rank 2 is dead: nothing was heard of it any more");
        assert!(ended.error().starts_with(&wanted), "{ended:?}");
    }
    assert!(last.signal(Signal::CONT), "it is still there");
    let last = last.end("a rank that was stopped");
    assert_eq!(last.status.code(), Some(1), "{last:?}");
    // Rank 0, which would tell it so, is gone by now.
    assert!(last.error().starts_with("rank 2: error: "), "{last:?}");
}

/// It may still write into what was its share.
#[test]
fn a_rank_that_comes_back_too_late_spoils_nothing() {
    let [first, second, mut last] = stopped(&["--epochs", "12", "--on-peer-death", "continue"]);
    thread::sleep(Duration::from_millis(2500));
    assert!(last.signal(Signal::CONT), "it is still there");
    let (first, second) = (first.end("rank 0"), second.end("rank 1"));
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let run = first.json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert_eq!(run["lost_ranks"][0][0], 2, "{run}");
    let last = last.end("a rank that was stopped");
    assert_eq!(last.status.code(), Some(1), "{last:?}");
    let wanted = "rank 2: error: the others took this rank for dead: nothing was heard of it";
    assert!(last.error().starts_with(wanted), "{last:?}");
}

/// The launcher would wait for it for ever.
#[test]
fn a_stopped_rank_holds_up_no_job() {
    let given = ["3", "--devices", "1", "--epochs", "2", "--inject", "stop-producer", "--verify"];
    for (on_death, status) in [("end", 1), ("continue", 0)] {
        let ended = procs(&[&given[..], &["--on-peer-death", on_death, "--json"]].concat());
        assert_eq!(ended.status.code(), Some(status), "{ended:?}");
        assert!(ended.err.contains("rank 2: injected: rank 2 is stopped half-way\n"), "{ended:?}");
        // As long again as the others took to call it dead.
        for line in [
            "pontoon launch: rank 2 is stopped and alone left; unless it goes on, the job is ended in 1s",
            "pontoon launch: ending the rank that does not end: 2",
        ] {
            assert!(ended.err.lines().any(|it| it == line), "{line}: {ended:?}");
        }
        assert!(!ended.err.contains("killing"), "it was asked, and heard it: {ended:?}");
    }
}

/// It is the one that the others cannot do without, so that all of them end, and it does not.
#[test]
fn a_stopped_rank_0_holds_up_no_job_either() {
    let given =
        ["--procs", "3", "--devices", "1", "--epochs", "10000", "--on-peer-death", "continue"];
    let mut command = pontoon(&[&["train"], &given[..], &["--json"]].concat());
    // Inherited by all that it starts, and by nobody else.
    let mark = format!("PONTOON_TEST_MARK={}", std::process::id());
    let (name, value) = mark.split_once('=').expect("a pair");
    let launcher = Process::start(command.env(name, value));
    let began = Instant::now();
    let first = loop {
        if let Some(pid) = process_with(&[&mark, "RANK=0"]) {
            break pid;
        }
        assert!(began.elapsed() < common::WATCHDOG, "rank 0 does not come");
        thread::sleep(Duration::from_millis(5));
    };
    // Any time is good, and some of it after the first step.
    thread::sleep(Duration::from_secs(3));
    let first = rustix::process::Pid::from_raw(first).expect("a number");
    rustix::process::kill_process(first, Signal::STOP).expect("sent");
    let ended = launcher.end("beside a stopped rank 0");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let has = |part: &str| ended.err.lines().any(|line| line.contains(part));
    assert!(has("the other is stopped and has 1s to go on"), "{ended:?}");
    assert!(has("pontoon launch: ending the rank that does not end: 0"), "{ended:?}");
}

/// A process whose environment has all of these.
fn process_with(variables: &[&str]) -> Option<i32> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).find(|pid| {
        // The agent has not got a rank, and what a rank runs has its number.
        let at = format!("/proc/{pid}");
        let is_rank = fs::read(format!("{at}/cmdline"))
            .is_ok_and(|line| line.split(|&byte| byte == 0).nth(1) == Some(b"train"));
        is_rank
            && fs::read(format!("{at}/environ")).is_ok_and(|all| {
                let has =
                    |wanted: &&str| all.split(|&byte| byte == 0).any(|it| it == wanted.as_bytes());
                variables.iter().all(has)
            })
    })
}

/// A job takes nobody back: whoever comes again is told so, and the others are not disturbed.
#[test]
fn a_rank_that_is_started_again_is_refused_and_the_others_go_on() {
    let place = Place::new();
    let given = ["--devices", "1", "--epochs", "20", "--verify", "--json"];
    let given = [&given[..], &["--on-peer-death", "continue"], PATIENT].concat();
    let first = place.start(0, 3, &given);
    let second = place.start(1, 3, &given);
    let killed = [&given[..], &["--inject", "kill-producer"]].concat();
    let killed = place.start(2, 3, &killed).end("one that kills itself");
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let again = place.start(2, 3, &given).end("one that comes again");
    let wanted = "rank 2: error: rank 2 cannot come back: the job takes nobody back";
    assert_eq!(again.refusal(), wanted);
    let mut command = common::rank_command(&given);
    command.envs(place.variables(2, 3)).env("PONTOON_EPOCH", "1");
    let again = Process::start(&mut command).end("one that comes in a later epoch");
    assert_eq!(again.refusal(), wanted);
    let (first, second) = (first.end("rank 0"), second.end("rank 1"));
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let run = first.json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert_eq!(run["lost_ranks"][0][0], 2, "{run}");
}
