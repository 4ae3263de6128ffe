//! What a user can get wrong about ranks, and what strangers do at their door: one clear line and
//! status 2, or no harm.

mod common;

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    hal::conformance::part,
    signal::shim::{AtomicU32, Ordering::Relaxed},
    ucx::Library,
};

use common::{Ended, Place, Process, WATCHDOG, hosts, pontoon, rank_command};

const MAGIC: &[u8; 8] = b"pontoonJ";
const OTHER_TOKEN: &str = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// A run that is short, and in which no rank is lost because the machine of the test is busy.
const SHORT: [&str; 6] = ["--devices", "1", "--epochs", "1", "--lost-after", "20s"];

/// Rank `rank` of `world` with some variables changed, or taken away.
fn rank_with(place: &Place, rank: u32, world: u32, change: &[(&str, Option<&str>)]) -> Command {
    let mut command = rank_command(&SHORT);
    command.envs(place.variables(rank, world));
    for (name, value) in change {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn end_of(mut command: Command) -> Ended {
    Process::start(&mut command).end("one that is refused")
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], body].concat()
}

#[test]
fn ranks_that_do_not_come_are_listed() {
    let place = Place::new();
    let given = [&SHORT[..], &["--join-bound", "5s"]].concat();
    let there = [0, 2].map(|rank| (rank, place.start(rank, 4, &given)));
    for (rank, process) in there {
        let ended = process.end("one that waits for the others");
        let refusal = ended.refusal();
        assert!(refusal.starts_with(&format!("rank {rank}: error: waited 5.")), "{refusal}");
        assert!(refusal.ends_with(" for 2 of 4 ranks: absent are ranks 1, 3"), "{refusal}");
    }
}

#[test]
fn a_rank_0_that_does_not_come_is_missed() {
    let place = Place::new();
    let given = [&SHORT[..], &["--join-bound", "1s"]].concat();
    let ended = place.start(1, 2, &given).end("one that calls");
    let refusal = ended.refusal();
    let wanted = format!("rank 1: error: rank 1 called rank 0 at {}:{} ", place.host, place.port);
    assert!(refusal.starts_with(&wanted), "{refusal}");
    assert!(refusal.contains("Connection refused (os error 111); is rank 0 started"), "{refusal}");
}

#[test]
fn a_port_in_use_is_said_to_be() {
    let mut place = Place::new();
    let used = TcpListener::bind((&*place.host, 0)).expect("bound");
    place.port = used.local_addr().expect("bound").port();
    let ended = place.start(0, 2, &SHORT).end("one without a port");
    let refusal = ended.refusal();
    let wanted = format!(
        "rank 0: error: rank 0 cannot listen on {}:{}: the port is in use; choose another by \
         MASTER_PORT in all ranks",
        place.host, place.port
    );
    assert!(refusal.starts_with(&wanted), "{refusal}");
}

#[test]
fn ranks_that_disagree_on_their_number_are_named() {
    let place = Place::new();
    let ranks = [(0, 3), (1, 3), (2, 4)].map(|(rank, world)| place.start(rank, world, &SHORT));
    for (rank, process) in ranks.into_iter().enumerate() {
        let ended = process.end("one that disagrees");
        let wanted = "error: WORLD_SIZE is 4 in rank 2 and 3 in rank 0: give all ranks the same";
        assert_eq!(ended.refusal(), format!("rank {rank}: {wanted}"));
    }
}

#[test]
fn what_makes_no_job_is_refused_before_anything_starts() {
    let place = Place::new();
    for (change, part) in [
        (&[("RANK", Some("x"))][..], "error: RANK is \"x\"; expected is a rank"),
        (&[("RANK", Some("2"))], "error: RANK is 2 and WORLD_SIZE is 2; ranks are 0 to 1"),
        (&[("RANK", None)], "error: WORLD_SIZE is set and RANK is not"),
        (&[("WORLD_SIZE", Some("0"))], "error: WORLD_SIZE is 0; a job has 1 to"),
        (&[("WORLD_SIZE", Some("61"))], "WORLD_SIZE is 61, and train takes at most 60 ranks"),
        (
            &[("LOCAL_WORLD_SIZE", Some("1000000"))],
            "1000000 ranks here with --devices 1 are 1000000",
        ),
        (&[("MASTER_PORT", Some("0"))], "error: MASTER_PORT is \"0\"; expected is a TCP port"),
        (&[("MASTER_ADDR", None)], "error: MASTER_ADDR is not set"),
        (&[("PONTOON_TOKEN", None)], "error: neither PONTOON_TOKEN nor PONTOON_TOKEN_FILE is set"),
        (&[("PONTOON_TOKEN", Some("secret"))], "error: PONTOON_TOKEN: "),
    ] {
        let ended = end_of(rank_with(&place, 1, 2, change));
        let refusal = ended.refusal();
        assert!(refusal.contains(part), "{change:?}: {refusal}");
        assert!(!refusal.contains("secret"), "{refusal}");
    }
    let ended = end_of(rank_command(&SHORT));
    let wanted = "error: --join needs a launcher's variables (RANK, WORLD_SIZE, MASTER_ADDR, ";
    assert!(ended.refusal().starts_with(wanted), "{ended:?}");
}

/// All ways to several ranks, for an option that one process has no use for.
const SEVERAL_WAYS: &str = "is for several ranks: add --procs N, and --hosts a,b to spread them; or --join, where \
                            `pontoon launch` or another launcher starts this command (see --help)";

#[test]
fn options_that_ranks_do_not_go_with_are_refused() {
    for (options, part) in [
        (&["--procs", "0"][..], "--procs"),
        (&["--procs", "61"], "'--procs <N>': 61 is not in 1..=60"),
        (&["--procs", "60", "--devices", "65536"], "--devices"),
        (&["--procs", "2", "--lost-after", "1ms"], "'--lost-after <TIME>': expected at least 10ms"),
        (&["--lost-after", "5s"], SEVERAL_WAYS),
        (&["--transport", "shm"], SEVERAL_WAYS),
        (&["--on-peer-death", "end"], SEVERAL_WAYS),
        (&["--initiate", "auto"], SEVERAL_WAYS),
        (&["--params", "smc"], SEVERAL_WAYS),
        (&["--procs", "2", "--params", "smc", "--initiate", "ring"], "leave --initiate out"),
        (&["--procs", "2", "--params", "mail"], "possible values: message, smc"),
        (&["--join-bound", "5s"], SEVERAL_WAYS),
        (&["--procs", "2", "--sync", "lock"], "ranks are kept in order by signals only"),
        (&["--procs", "2", "--trace", "x"], "--trace is for one process"),
        (&["--procs", "2", "--inject", "drop-fence"], "drop-fence is for one process"),
        (&["--procs", "2", "--transport", "pigeons"], "is no transport: auto, shm or ucx"),
        (&["--procs", "2", "--on-peer-death", "cry"], "possible values: end, continue"),
        (&["--procs", "2", "--join"], "cannot be used with"),
        (&["--hosts", "a"], "--procs"),
        (&["--inject", "stop-producer"], "is for ranks"),
    ] {
        let ended = end_of(pontoon(&[&["train"], options].concat()));
        assert!(ended.refusal().contains(part), "{options:?}: {ended:?}");
        let named = format!("error: {} is for several", options[0]);
        assert!(part != SEVERAL_WAYS || ended.err.starts_with(&named), "{ended:?}");
    }
}

/// Far more than a host has CPUs for; as many as there may be on hosts of their own.
#[test]
fn more_devices_than_this_host_can_carry_are_refused() {
    let cpus = thread::available_parallelism().expect("known").get();
    if cpus >= 60 {
        println!("skipped: this host has {cpus} CPUs and can carry 60 ranks of 64 devices");
        return;
    }
    let given = ["train", "--procs", "60", "--devices", "64"];
    let ended = end_of(pontoon(&given));
    let wanted = "error: 60 ranks here with --devices 64 are 3840 devices on ";
    assert!(ended.refusal().starts_with(wanted), "{ended:?}");
    // Of ranks on other hosts these know nothing, and leave it to them.
    let elsewhere = ["--hosts", "a,b", "--rsh", "/no/shell {host}"];
    let ended = end_of(pontoon(&[&given[..], &elsewhere].concat()));
    assert!(ended.refusal().contains("/no/shell"), "{ended:?}");
}

#[test]
fn what_connects_ranks_is_compared_before_it_does() {
    for (option, values) in [("--transport", ["shm", "ucx"]), ("--lost-after", ["20s", "30s"])] {
        let place = Place::new();
        let given = |value| ["--devices", "1", "--epochs", "1", option, value];
        let ranks = [(0, values[0]), (1, values[1]), (2, values[0])];
        let ranks = ranks.map(|(rank, value)| (rank, place.start(rank, 3, &given(value))));
        for (rank, process) in ranks {
            let ended = process.end("one that was given something else");
            let wanted = format!(
                "rank {rank}: error: rank 1 has {option} {} and rank 0 {option} {}: give all ranks \
                 the same",
                values[1], values[0]
            );
            assert_eq!(ended.refusal(), wanted);
        }
    }
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let names = ["train", "--procs", "2", "--hosts", "surely.not.there.invalid"];
    let ended = end_of(pontoon(&names));
    let refusal = ended.refusal();
    let wanted =
        ["error: host surely.not.there.invalid was not reached: ", "error: cannot start the"];
    assert!(wanted.iter().any(|start| refusal.starts_with(start)), "{refusal}");
    let rsh = format!("{} exec {{host}}", hosts::script().display());
    let ended = end_of(pontoon(&["train", "--procs", "2", "--hosts", "pt77", "--rsh", &rsh]));
    let refusal = ended.refusal();
    assert!(refusal.starts_with("error: host pt77 was not reached: hosts: "), "{refusal}");
}

#[test]
fn a_rank_with_another_token_is_refused_and_the_job_goes_on() {
    let place = Place::new();
    let first = place.start(0, 2, &SHORT);
    let wrong = end_of(rank_with(&place, 1, 2, &[("PONTOON_TOKEN", Some(OTHER_TOKEN))]));
    let wanted = "rank 1: error: rank 1 has another token than rank 0 at ";
    assert!(wrong.refusal().starts_with(wanted), "{wrong:?}");
    assert!(!wrong.err.contains(&OTHER_TOKEN[..8]), "{wrong:?}");
    let second = place.start(1, 2, &SHORT).end("the true rank");
    let first = first.end("rank 0");
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let line = "rank 0: warning: refused a stranger from=127.";
    let why = " why=it does not know the job's token unlogged=0";
    let is_it = |it: &str| it.starts_with(line) && it.ends_with(why);
    assert!(first.err.lines().any(is_it), "{first:?}");
}

/// Connects as soon as rank 0 listens.
fn connect(place: &Place) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect((&*place.host, place.port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < WATCHDOG, "rank 0 does not listen: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("not closed: {error}"),
        _ => all,
    }
}

#[test]
fn a_rank_of_another_version_is_told_and_named_with_both() {
    let place = Place::new();
    let first = place.start(0, 2, &SHORT);
    let mut stream = connect(&place);
    stream.set_read_timeout(Some(WATCHDOG)).expect("set");
    let hello = [&b"\x01"[..], MAGIC, &7u16.to_le_bytes(), b"whatever version 7 says"].concat();
    stream.write_all(&frame(&hello)).expect("sent");
    let refused = [&b"\x02"[..], MAGIC, &1u16.to_le_bytes(), b"\x00"].concat();
    assert_eq!(read_to_end(&mut stream), frame(&refused), "by version 1, for the version");
    let second = place.start(1, 2, &SHORT).end("the true rank");
    let first = first.end("rank 0");
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let why = " why=it speaks version 7 of the job's messages, and this is version 1 unlogged=0";
    assert!(first.err.lines().any(|line| line.ends_with(why)), "{first:?}");
}

#[test]
fn a_rank_0_of_another_version_is_named_with_both() {
    let mut place = Place::new();
    let listener = TcpListener::bind((&*place.host, 0)).expect("bound");
    place.port = listener.local_addr().expect("bound").port();
    let rank = place.start(1, 2, &SHORT);
    let (mut stream, _) = listener.accept().expect("it calls");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a hello");
    stream.read_exact(&mut vec![0; u32::from_le_bytes(length) as usize]).expect("all of it");
    let refused = [&b"\x02"[..], MAGIC, &9u16.to_le_bytes(), b"in words of version 9"].concat();
    stream.write_all(&frame(&refused)).expect("sent");
    let ended = rank.end("one of version 1");
    let wanted = "rank 1: error: this process speaks version 1 of the job's messages and rank 0 \
                  version 9: build all ranks from the same pontoon";
    assert_eq!(ended.refusal(), wanted);
}

#[test]
fn what_answers_and_is_no_job_is_said_to_be_none() {
    let mut place = Place::new();
    let listener = TcpListener::bind((&*place.host, 0)).expect("bound");
    place.port = listener.local_addr().expect("bound").port();
    let rank = place.start(1, 2, &SHORT);
    let (mut stream, _) = listener.accept().expect("it calls");
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent");
    let ended = rank.end("one that met a stranger");
    let wanted = format!(
        "rank 1: error: what listens on {}:{} is no pontoon job: choose another port by \
         MASTER_PORT in all ranks",
        place.host, place.port
    );
    assert_eq!(ended.refusal(), wanted);
}

/// More than there may be strangers at a time, of every kind, from the first moment to the last.
#[test]
fn strangers_at_the_door_disturb_no_run() {
    let place = Place::new();
    let given = [&SHORT[..], &["--verify", "--json", "--join-bound", "60s"]].concat();
    let first = place.start(0, 3, &given);
    let over = AtomicU32::new(0);
    let (ended, met) = thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let mut slow: Vec<TcpStream> = Vec::new();
            let mut met = 0;
            let garbage: [&[u8]; 5] = [
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                &[0xff; 4096],
                &[0; 64],
                &frame(&[4; 33]),
                &frame(b"\x01pontoonJ\x01\x00cut"),
            ];
            while over.load(Relaxed) == 0 {
                let Ok(mut stream) = TcpStream::connect((&*place.host, place.port)) else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                met += 1;
                if met % 2 == 0 {
                    let _ = stream.write_all(garbage[met / 2 % garbage.len()]);
                } else {
                    // Says a byte now and then, and never a whole frame.
                    slow.push(stream);
                    for stream in &mut slow {
                        let _ = stream.write_all(&[1]);
                    }
                    if slow.len() > 200 {
                        slow.remove(0);
                    }
                }
                thread::sleep(Duration::from_millis(2));
            }
            met
        });
        drop(connect(&place));
        let others = [1, 2].map(|rank| place.start(rank, 3, &given));
        let all = [first].into_iter().chain(others);
        let ended: Vec<_> = all.map(|rank| rank.end("one beside strangers")).collect();
        over.store(1, Relaxed);
        (ended, crowd.join().expect("no panic"))
    });
    assert!(ended.iter().all(|ended| ended.status.success()), "{ended:?}");
    let run = ended[0].json();
    assert_eq!(run["weights_digest"], run["reference_digest"], "{run}");
    assert!(ended[0].err.contains("rank 0: warning: refused a stranger from="), "{ended:?}");
    // At most one line a second, however many there are.
    let lines = ended[0].err.lines().count();
    let seconds = run["seconds"].as_f64().expect("a number");
    assert!(lines < 60 + seconds as usize, "{lines} lines in {seconds} s");
    println!("strangers: {met} beside a run of {seconds:.1} s");
    assert!(met > 10, "{met} came");
}

#[test]
fn a_process_that_says_it_is_a_rank_that_is_there_is_refused() {
    let place = Place::new();
    let mut ranks = place
        .start_all(2, &[&SHORT[..], &["--inject", "stop-producer", "--bound", "60s"]].concat());
    // Half-way, rank 1 stands still; nobody takes it for dead yet.
    let stat = format!("/proc/{}/stat", ranks[1].pid());
    let began = Instant::now();
    while !std::fs::read_to_string(&stat).expect("a process").contains(") T ") {
        assert!(began.elapsed() < WATCHDOG, "it does not stop");
        thread::sleep(Duration::from_millis(2));
    }
    let ended = place.start(1, 2, &SHORT).end("a second rank 1");
    let refusal = ended.refusal();
    assert!(
        refusal.contains("is that rank already, in epoch 0: give each process its own RANK"),
        "{refusal}"
    );
    assert!(refusal.contains(&format!("pid {}", ranks[1].pid())), "{refusal}");
    assert!(ranks[1].signal(rustix::process::Signal::CONT));
    for rank in ranks {
        let ended = rank.end("one of a job with a pretender");
        assert!(ended.status.success(), "{ended:?}");
    }
}

/// A library that is not there.
const ABSENT: &str = "/nonexistent/libucp.so.0";

/// Three ranks that are to reach each other by UCX, of which the first `have` have it.
fn some_lack_ucx(have: u32) {
    let place = Place::new();
    let given = [&SHORT[..], &["--transport", "ucx"]].concat();
    let start = |rank| {
        let mut command = rank_command(&given);
        command.envs(place.variables(rank, 3));
        if rank >= have {
            command.env("PONTOON_UCX_LIBRARY", ABSENT);
        }
        Process::start(&mut command)
    };
    let ranks: Vec<_> = (0..3).map(start).collect();
    for (rank, process) in (0..).zip(ranks) {
        let ended = process.end("one without UCX");
        let refusal = ended.refusal();
        let there = if rank < have { "there, " } else { "" };
        let wanted = format!("which is reached by UCX: {there}UCX is absent: {ABSENT} could not");
        assert!(refusal.starts_with(&format!("rank {rank}: error: rank ")), "{refusal}");
        assert!(refusal.contains(&wanted), "{refusal}");
        assert!(refusal.contains("; install the package libucx0 (Debian, Ubuntu)"), "{refusal}");
    }
}

#[test]
fn without_libucp_the_package_is_named() {
    some_lack_ucx(0);
    let mut command = pontoon(&["train", "--procs", "2", "--transport", "ucx"]);
    command.env("PONTOON_UCX_LIBRARY", ABSENT);
    let ended = end_of(command);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.err.lines().next().is_some_and(|line| line.contains("libucx0")), "{ended:?}");
}

#[test]
fn a_rank_without_libucp_is_named_by_those_that_have_it() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    some_lack_ucx(2);
}
