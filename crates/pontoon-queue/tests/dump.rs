//! What a session prints of who waits for whom, and what the environment makes of it.

use std::{
    process::{Command, Output},
    time::Duration,
};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{Buffer, Dump, HostError, Next, Patience, Reason, Refusal, Session};
use pontoon_signal::{Rank, Seq};
use serde_json::{Value, json};

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

/// Names that no format takes as they are.
const QUEUE: &str = "a \"fast\"\nqueue";
const COMMAND: &str = "slow \\n & \"sure\"";

/// A wait expires: queue b waits for the other, in which a command is slow.
fn expire<'d>(mut session: Session<'d, CpuDevice>, devices: &'d [CpuDevice; 2]) {
    let (sender, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    // It ends when the sender is dropped.
    let slow = Kernel::new(move |_| {
        let _ = gate.lock().unwrap().recv();
    });
    let first = session.stream(&devices[0], Engine::Compute, QUEUE).unwrap();
    let second = session.stream(&devices[1], Engine::Compute, "b").unwrap();
    let buffer = Buffer::<_, u32>::allocate(&devices[0], 4).unwrap();
    session.launch(first, COMMAND, &slow, [buffer.write(..)], []).unwrap();
    let nothing = Kernel::new(|_| {});
    let fence = session.launch(second, "after", &nothing, [buffer.write(..)], []).unwrap();
    session.wait(&fence, Patience::within(Duration::from_millis(20))).unwrap_err();
    drop(sender);
    let _ = session.wait(&fence, patience()).unwrap();
}

#[test]
#[ignore = "run in a process of its own by the tests below"]
fn in_a_process_of_its_own() {
    expire(Session::auto(), &[device(0), device(1)]);
}

#[test]
#[ignore = "run in a process of its own by the tests below"]
fn given_to_the_session() {
    expire(Session::auto().with_dump(Dump::Json), &[device(0), device(1)]);
}

#[test]
#[ignore = "run in a process of its own by the tests below"]
fn refused() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(patience());
    let [first, second] =
        [0, 1].map(|at| session.stream(&devices[at], Engine::Compute, ["a", "b"][at]).unwrap());
    let buffer = Buffer::<_, u32>::allocate(&devices[0], 4).unwrap();
    let nothing = Kernel::new(|_| {});
    session.launch(first, "fill", &nothing, [buffer.write(..)], []).unwrap();
    let refused = session.launch(second, "use", &nothing, [buffer.read(..)], []).unwrap_err();
    assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
    let refused = session.to_vec(&buffer).unwrap_err();
    assert!(matches!(refused, HostError::Refused(Refusal::Missing(_))), "{refused}");
    let done = session.semaphore("done");
    let mut waits = session.batch();
    waits.wait_semaphore(done, 1).launch("held", &nothing, [], []);
    let held = session.submit(first, waits.seal().unwrap()).unwrap();
    let _ = session.wait(&held, patience()).unwrap_err();
    let mut signals = session.batch();
    signals.launch("late", &nothing, [], []).signal(done, 1);
    session.submit(first, signals.seal().unwrap()).unwrap_err();
    session.signal(done, 1).unwrap();
    session.drain(first, patience()).unwrap();
}

/// What another process prints that runs one of the tests above.
fn stderr_of(test: &str, environment: &[(&str, &str)]) -> String {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env_remove("PONTOON_DUMP_DEPS").env_remove("PONTOON_FULL_SYNC");
    command.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    stderr
}

fn dumps(stderr: &str) -> Vec<Value> {
    stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn a_wait_that_expires_is_told_as_text() {
    let said = stderr_of("in_a_process_of_its_own", &[("PONTOON_DUMP_DEPS", "1")]);
    let queue = QUEUE.replace('\n', "\\n");
    let [about, link, root, one, other] = &said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    assert!(about.starts_with("pontoon: session 0: a wait expired: fence of device 1 stream b: "));
    assert_eq!(*link, "  link: device 1 queue b at 0 of 2, waiting");
    assert_eq!(*root, format!("  root: device 0 queue {queue} at 0 of 1, in {COMMAND}"));
    assert_eq!(*one, format!("  pending: device 0 queue {queue} at 0 of 1, in {COMMAND}"));
    let waiting = "  pending: device 1 queue b at 0 of 2, waiting";
    assert_eq!(*other, format!("{waiting} for device 0 queue {queue} to reach 1; it is at 0"));
}

#[test]
fn a_wait_that_expires_is_told_as_json() {
    let by_name = stderr_of("in_a_process_of_its_own", &[("PONTOON_DUMP_DEPS", "json")]);
    let by_builder = stderr_of("given_to_the_session", &[]);
    for said in [by_name, by_builder] {
        let [dump] = &dumps(&said)[..] else { panic!("{said}") };
        assert_eq!(
            (&dump["format"], &dump["event"]),
            (&json!("pontoon-pending/1"), &json!("expired"))
        );
        let root = json!({
            "device": 0, "queue": QUEUE, "completed": 0, "wanted": 1,
            "next": {"kind": "work", "label": COMMAND},
        });
        assert_eq!((&dump["chain"][0]["queue"], &dump["chain"][1]), (&json!("b"), &root));
        let waits = json!({
            "device": 1, "queue": "b", "submitted": 2, "completed": 0,
            "next": {"kind": "wait"}, "waits_for": {"queue": 0, "position": 1},
        });
        assert_eq!(dump["queues"][1], waits);
    }
}

/// The keys of an object.
fn keys(object: &Value) -> Vec<&String> {
    object.as_object().unwrap().keys().collect()
}

#[test]
fn the_documented_example_has_the_keys_that_are_written() {
    let page = include_str!("../../../docs/formats/pending.md");
    let example = page.split("```json").nth(1).unwrap().split("```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    let expired =
        &dumps(&stderr_of("in_a_process_of_its_own", &[("PONTOON_DUMP_DEPS", "json")]))[0];
    for path in ["", "/queues/0", "/queues/1/waits_for", "/queues/0/next", "/chain/0"] {
        assert_eq!(keys(example.pointer(path).unwrap()), keys(expired.pointer(path).unwrap()));
    }
    let refused = &dumps(&stderr_of("refused", &[("PONTOON_DUMP_DEPS", "json")]))[2];
    for path in ["/parked/0", "/parked/0/reasons/0"] {
        assert_eq!(keys(example.pointer(path).unwrap()), keys(refused.pointer(path).unwrap()));
    }
}

#[test]
fn what_is_refused_is_told() {
    let said = dumps(&stderr_of("refused", &[("PONTOON_DUMP_DEPS", "json")]));
    let events: Vec<_> = said.iter().map(|dump| dump["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["missing", "missing", "deadlock", "deadlock"]);
    assert_eq!(said[0]["chain"][0]["queue"], "a");
    assert!(said[0]["about"].as_str().unwrap().starts_with("missing dependency fill"));
    let reasons = json!([{
        "kind": "semaphore", "semaphore": "done", "wanted": 1, "reached": 0, "promised_by": null,
    }]);
    let held = json!([{"label": "held", "stream": "a", "queue": 0, "reasons": reasons}]);
    assert_eq!(said[2]["parked"], held);
    assert_eq!(said[3]["circle"].as_array().unwrap().len(), 2, "{}", said[3]);
}

#[test]
fn nothing_is_printed_unless_it_is_asked_for() {
    assert_eq!(stderr_of("in_a_process_of_its_own", &[]), "");
    assert_eq!(stderr_of("in_a_process_of_its_own", &[("PONTOON_DUMP_DEPS", "0")]), "");
}

#[test]
fn a_value_that_is_not_known_is_one_warning() {
    let wrong = [("PONTOON_DUMP_DEPS", "on"), ("PONTOON_FULL_SYNC", "all")];
    let said = stderr_of("in_a_process_of_its_own", &wrong);
    let expected = "pontoon: PONTOON_DUMP_DEPS=on is not known and changes nothing: use 0, 1, json or \
                    dot\npontoon: PONTOON_FULL_SYNC=all is not known and changes nothing: use 0, queue \
                    or device\n";
    assert_eq!(said, expected);
}

#[test]
fn a_full_sync_that_runs_out_of_patience_says_so_once() {
    let said = stderr_of("without_patience", &[("PONTOON_FULL_SYNC", "queue")]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("pontoon: full sync: device 0 queue a was not through"), "{said}");
}

#[test]
#[ignore = "run in a process of its own by the test above"]
fn without_patience() {
    let device = device(0);
    let mut session = Session::auto().with_patience(Patience::within(Duration::from_millis(5)));
    let stream = session.stream(&device, Engine::Compute, "a").unwrap();
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(200)));
    session.launch(stream, "slow", &slow, [], []).unwrap();
    let last = session.launch(stream, "slow", &slow, [], []).unwrap();
    let _ = session.wait(&last, patience()).unwrap();
}

/// Takes a DOT graph apart as graphviz does: quoted strings with their escapes undone, and what is
/// between them.
fn tokens(dot: &str) -> (String, Vec<String>) {
    let (mut plain, mut strings) = (String::new(), Vec::new());
    let mut characters = dot.chars();
    while let Some(character) = characters.next() {
        if character != '"' {
            plain.push(character);
            continue;
        }
        let mut string = String::new();
        loop {
            match characters.next().expect("a string that does not end") {
                '"' => break,
                '\\' => match characters.next().expect("an escape that does not end") {
                    'n' => string.push('\n'),
                    escaped @ ('"' | '\\') => string.push(escaped),
                    other => panic!("\\{other} is no escape of a label"),
                },
                raw => {
                    assert!(!raw.is_control(), "a raw {raw:?} in a string");
                    string.push(raw);
                }
            }
        }
        plain.push_str("\"\"");
        strings.push(string.replace("&amp;", "&"));
    }
    (plain, strings)
}

#[test]
fn the_graph_quotes_its_labels() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(patience());
    let first = session.stream(&devices[0], Engine::Compute, QUEUE).unwrap();
    let second = session.stream(&devices[1], Engine::Compute, "b").unwrap();
    let (x, y) = (session.semaphore("x"), session.semaphore("a \"y\""));
    let nothing = Kernel::new(|_| {});
    for (stream, wait, signal, label) in [(first, x, Some(y), COMMAND), (second, y, None, "second")]
    {
        let mut batch = session.batch();
        batch.wait_semaphore(wait, 1).launch(label, &nothing, [], []);
        if let Some(signal) = signal {
            batch.signal(signal, 1);
        }
        session.submit(stream, batch.seal().unwrap()).unwrap();
    }
    let pending = session.pending();
    let (plain, strings) = tokens(&pending.to_dot());
    let shape = "digraph {\n  rankdir=LR;\n  node [shape=box];\n  q0 [label=\"\"];\n  q1 [label=\"\"];\n  \
                 p0 [shape=note, label=\"\"];\n  p1 [shape=note, label=\"\"];\n  p1 -> p0 [label=\"\"];\n}\n";
    assert_eq!(plain, shape);
    assert_eq!(strings[0], format!("device 0 queue {QUEUE}\n0 of 0\nidle"));
    assert!(
        strings[2].starts_with(&format!("{COMMAND}\nstream {QUEUE}, parked")),
        "{}",
        strings[2]
    );
    assert_eq!(strings[4], "a \"y\"");

    let json: Value = serde_json::from_str(&pending.to_json()).unwrap();
    assert_eq!(
        (&json["parked"][0]["label"], &json["parked"][1]["reasons"][0]["promised_by"]),
        (&json!(COMMAND), &json!(0))
    );
    let Reason::Semaphore { promised_by: Some(0), wanted: 1, .. } = pending.parked[1].reasons[0]
    else {
        panic!("{pending}")
    };
    let said = "parked: second (stream b) waits for semaphore a \"y\" to reach 1; it is at 0, and ";
    assert!(pending.to_string().contains(said), "{pending}");

    session.signal(x, 1).unwrap();
    session.drain(first, patience()).unwrap();
    session.drain(second, patience()).unwrap();
    let done = session.pending();
    assert_eq!((done.queues.len(), &done.queues[0].next), (2, &Next::Nothing));
    assert_eq!(done.to_string(), "nothing is pending\n");
}
