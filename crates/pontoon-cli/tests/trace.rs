//! `pontoon train --trace` as a user runs it, and the profile that is printed.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn train(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pontoon"))
        .arg("train")
        .args(arguments)
        .env("PONTOON_PROFILE", "/nonexistent/profile")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs with a trace: what was printed, and the trace.
fn traced(folder: &Folder, arguments: &[&str]) -> (Value, Value) {
    let file = folder.path("trace.json");
    let output = train(&[arguments, &["--trace", &file, "--json", "--bound", "10min"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let printed = serde_json::from_slice(&output.stdout).unwrap();
    (printed, serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap())
}

/// A point in time, in whole nanoseconds.
fn ns(event: &Value, key: &str) -> i64 {
    let us = event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event} is no number"));
    let ns = us * 1e3;
    assert!((ns - ns.round()).abs() < 1e-3, "{key} of {event} is no whole number of ns");
    ns.round() as i64
}

type Track = (u64, u64);

fn track(event: &Value) -> Track {
    let number = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"));
    (number("pid"), number("tid"))
}

/// What a trace has, once it was found to be well-formed.
struct Found {
    /// By category.
    complete: HashMap<String, usize>,
    flows: usize,
    depths: usize,
}

fn check(trace: &Value) -> Found {
    let events = trace["traceEvents"].as_array().unwrap();
    let mut found = Found { complete: HashMap::new(), flows: 0, depths: 0 };
    let mut tracks: BTreeMap<Track, Vec<(i64, i64)>> = BTreeMap::new();
    let (mut named, mut starts, mut ends) = (Vec::new(), HashMap::new(), HashMap::new());
    for event in events {
        let (at, track) = (ns(event, "ts"), track(event));
        assert!(at >= 0, "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                let dur = ns(event, "dur");
                assert!(dur >= 0, "{event}");
                tracks.entry(track).or_default().push((at, at + dur));
                let cat = event["cat"].as_str().unwrap().to_owned();
                if cat == "wait" {
                    assert!(event["args"]["cause"].is_string(), "{event}");
                    assert!(event["args"]["waited_for"].is_string(), "{event}");
                }
                *found.complete.entry(cat).or_default() += 1;
            }
            "s" => assert_eq!(starts.insert(event["id"].as_u64().unwrap(), (at, track)), None),
            "f" => {
                assert_eq!(event["bp"], "e");
                assert_eq!(ends.insert(event["id"].as_u64().unwrap(), (at, track)), None);
            }
            "M" => named.push((event["name"].as_str().unwrap(), track)),
            "C" => {
                assert!(event["args"]["commands"].as_i64().unwrap() >= 0, "{event}");
                found.depths += 1;
            }
            other => panic!("an event of kind {other}"),
        }
    }
    for (track, spans) in &mut tracks {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:?} of {track:?} overlap");
        }
        assert!(named.contains(&("thread_name", *track)), "{track:?} has no name");
        assert!(named.iter().any(|(what, of)| *what == "process_name" && of.0 == track.0));
    }
    assert_eq!(starts.len(), ends.len());
    for (id, (from, at)) in &starts {
        let (to, on) = ends.get(id).unwrap_or_else(|| panic!("flow {id} has no end"));
        assert!(from <= to, "flow {id} goes back from {from} to {to}");
        for (at, time) in [(at, from), (on, to)] {
            let within = |span: &&(i64, i64)| (span.0..=span.1).contains(time);
            assert!(tracks[at].iter().any(|span| within(&span)), "flow {id} touches nothing");
        }
    }
    found.flows = starts.len();
    found
}

#[test]
fn a_trace_is_well_formed_and_has_every_command() {
    let folder = Folder::new("trace");
    for way in [&[][..], &["--auto"], &["--trust"]] {
        let (printed, trace) =
            traced(&folder, &[&["--devices", "3", "--epochs", "1"], way].concat());
        let found = check(&trace);
        assert_eq!(trace["otherData"]["dropped"], 0);
        assert_eq!(
            printed["commands"].as_u64().unwrap() as usize,
            found.complete["work"],
            "{way:?}"
        );
        assert!(found.complete["wait"] > 0 && found.complete["access"] > 0);
        // Each edge is an arrow, whether it took a wait or not.
        let edges = printed["edges_a_step"].as_f64().unwrap() * printed["steps"].as_f64().unwrap();
        assert!(found.flows >= edges.round() as usize, "{way:?}: {} of {edges}", found.flows);
        assert!(found.depths > 0);
    }
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["trace.json"], "the file is replaced, and nothing else is left");
}

#[test]
fn ways_without_a_session_have_their_commands_drawn() {
    let folder = Folder::new("trace-ways");
    for way in ["lock", "device"] {
        let (printed, trace) = traced(&folder, &["--sync", way, "--epochs", "1"]);
        let found = check(&trace);
        assert_eq!(printed["trace"]["spans"].as_u64().unwrap() as usize, found.complete["work"]);
        assert_eq!((found.complete.len(), found.flows), (1, 0), "{way}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_anything_runs() {
    let folder = Folder::new("trace-bad");
    for file in ["/nonexistent/trace.json", folder.0.to_str().unwrap(), "a\n/b"] {
        let output = train(&["--trace", file, "--epochs", "10000"]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert_eq!(text(&output.stdout), "", "{file}");
        let error = text(&output.stderr);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("error: cannot write the trace"), "{error}");
    }
}

#[test]
fn a_run_that_fails_leaves_its_trace() {
    let folder = Folder::new("trace-failed");
    let file = folder.path("failed.json");
    let output = train(&["--inject", "kill-producer", "--trace", &file]);
    assert_eq!(output.status.code(), Some(1));
    let said = format!("trace of what ran until it failed: {file}\n");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    let trace = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(check(&trace).complete["work"] > 0);
}

#[test]
fn the_profile_has_its_names_and_warns_of_a_high_share() {
    // A slow producer holds the others back for longer than all the rest takes.
    let slow = ["--epochs", "1", "--inject", "slow-producer", "--bound", "8s"];
    let output = train(&[slow.as_slice(), &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let profile = &printed["profile"];
    assert_eq!(profile["iterations"], printed["steps"]);
    for name in ["count", "total_us", "mean_us", "p99_us"] {
        assert!(profile["waits"]["dependency"][name].as_f64().unwrap() > 0.0, "{name}: {profile}");
    }
    for name in ["asked", "merged", "flushes", "invalidations", "elided"] {
        assert!(profile["maintenance"][name].as_u64().unwrap() > 0, "{name}: {profile}");
    }
    assert_eq!(profile["fence_allocations"], 0);
    assert_eq!(profile["sync_share"], printed["sync_share"]);
    assert!(profile["longest"]["waited_for"].as_str().unwrap().starts_with("device"), "{profile}");
    assert!(profile["slowest"]["step_ms"].as_f64().unwrap() >= 2000.0, "{profile}");
    let warning = profile["warning"].as_str().unwrap();
    assert!(warning.contains("dependency waits") && warning.contains("queue"), "{warning}");

    let output = train(&slow);
    let report = text(&output.stdout);
    for part in ["slowest step", "waits by cause", "dependency: ", "caches", "fences made"] {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert!(report.lines().last().unwrap().starts_with("warning: synchronisation takes "));
}

/// A folder of this test's own, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
