//! `pontoon train` as a user runs it.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Far beyond what any of these runs takes: it catches a hang, not a slow machine.
const WATCHDOG: Duration = Duration::from_secs(120);

fn train(arguments: &[&str]) -> Output {
    train_with("/nonexistent/profile", arguments)
}

fn train_with(profile: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pontoon"))
        .arg("train")
        .args(arguments)
        .env("PONTOON_PROFILE", profile)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > WATCHDOG {
            child.kill().unwrap();
            panic!("train {arguments:?} hangs");
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The last object that a run with `--json` prints.
fn result(arguments: &[&str]) -> Value {
    let output = train(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let last = text(&output.stdout).lines().last().expect("an object");
    serde_json::from_str(last).unwrap()
}

#[test]
fn the_digest_is_the_same_for_every_number_of_devices_and_every_way() {
    let mut digests = BTreeSet::new();
    for way in ["signals", "lock", "device"] {
        for devices in ["1", "2", "3", "4", "7"] {
            let run = result(&["--sync", way, "--devices", devices, "--epochs", "2", "--verify"]);
            assert_eq!(run["weights_digest"], run["reference_digest"], "{way} {devices}");
            digests.insert(run["weights_digest"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn batches_that_do_not_divide_change_nothing() {
    for (batch, devices) in [("1", "3"), ("5", "4"), ("65536", "4"), ("30", "64")] {
        let few = ["--batch", batch, "--devices", devices, "--epochs", "1", "--verify"];
        let run = result(&few);
        assert_eq!(run["weights_digest"], run["reference_digest"], "{few:?}");
    }
}

#[test]
fn it_learns_the_digits_and_reports_what_synchronisation_cost() {
    // A bound so long that the host does not lose patience on a busy machine.
    let run = result(&["--epochs", "8", "--bound", "10min"]);
    assert!(run["test_accuracy"].as_f64().unwrap() >= 0.95, "{run}");
    for name in ["step_ms", "sync_share", "sync_points_a_step", "wait_mean_us", "wait_p99_us"] {
        assert!(run[name].as_f64().unwrap() > 0.0, "{name} of {run}");
    }
    assert!(run["sync_share"].as_f64().unwrap() <= 1.0);
    assert_eq!(run["timeouts"], 0);
}

#[test]
fn people_get_a_report_and_no_bar_in_a_pipe() {
    let output = train(&["--epochs", "1", "--bound", "10min"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    for part in ["test accuracy", "weights digest", "sync points", "p99", "sync share"] {
        assert!(text(&output.stdout).contains(part), "{part}");
    }
}

#[test]
fn a_dead_producer_is_named_within_the_bound() {
    for way in ["signals", "lock", "device"] {
        let started = Instant::now();
        let output = train(&["--sync", way, "--inject", "kill-producer", "--bound", "60s"]);
        assert_eq!(output.status.code(), Some(1), "{way}");
        assert_eq!(text(&output.stdout), "", "{way}");
        let error = text(&output.stderr);
        assert!(error.contains("producer 3") || error.contains("device 3"), "{way}: {error}");
        assert!(started.elapsed() < Duration::from_secs(50), "{way} used up its bound");
    }
    let error = train(&["--inject", "kill-producer"]).stderr;
    let error = text(&error);
    assert!(error.starts_with("injected: device 3 dies half-way\n"), "{error}");
    assert!(error.contains("producer 3 is dead; waited for producer 3 slot"), "{error}");
}

#[test]
fn a_run_and_a_wait_that_is_too_short_are_told_in_words() {
    let output = train(&["--devices", "1", "--epochs", "1"]);
    assert!(text(&output.stdout).contains(" samples, after 1 epoch (train loss "), "{output:?}");
    let longer = "a longer --bound gives it more time";
    let output = train(&["--devices", "2", "--epochs", "1", "--bound", "1us"]);
    let error = text(&output.stderr);
    assert!(error.trim_end().ends_with(longer) && error.contains("waited "), "{error}");
    let dead = train(&["--devices", "2", "--epochs", "1", "--inject", "kill-producer"]);
    assert!(!text(&dead.stderr).contains(longer), "{dead:?}");
}

#[test]
fn a_slow_producer_is_named_and_survived() {
    for way in ["signals", "lock", "device"] {
        let healthy = result(&["--epochs", "2", "--sync", way]);
        let slow = ["--epochs", "2", "--sync", way, "--inject", "slow-producer", "--bound", "4s"];
        let output = train(&[slow.as_slice(), &["--json"]].concat());
        assert!(output.status.success(), "{way}: {}", text(&output.stderr));
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["weights_digest"], healthy["weights_digest"], "{way}");
        assert!(run["timeouts"].as_u64().unwrap() >= 3, "{way}: {run}");
        let named = "slow: ";
        let is_named = |line: &str| line.starts_with(named) && line.contains("device 3");
        let warnings = text(&output.stderr);
        assert!(warnings.lines().filter(|line| is_named(line)).count() >= 3, "{way}: {warnings}");
        assert!(warnings.contains("for producer 3 slot"), "{way}: {warnings}");
        if way == "lock" {
            // Who holds the lock keeps others from theirs, so the first that is missing may be one of
            // them.
            assert!(warnings.contains("for the gradient of device "), "{warnings}");
        }
    }
}

#[test]
fn the_bound_is_the_profiles_unless_given() {
    let folder = Folder::new("profile");
    let of = |ns: &str| {
        let path = |path| format!("{path}.spin 1\n{path}.yields 1\n{path}.deadline_ns {ns}\n");
        format!("version 1\n{}{}", path("thread"), path("process"))
    };
    let short = folder.file("short", &of("1"));
    let output = train_with(&short, &["--epochs", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("for producer"), "{output:?}");
    let output = train_with(&short, &["--epochs", "1", "--bound", "60s"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let longest = folder.file("longest", &of("18446744073709551615"));
    assert!(train_with(&longest, &["--epochs", "1"]).status.success());

    let broken = folder.file("broken", "version 1\nthread.spin many\n");
    let output = train_with(&broken, &["--epochs", "1"]);
    assert!(output.status.success(), "{output:?}");
    // That the machine is slow is no news of the profile.
    let told = text(&output.stderr).lines().filter(|line| !line.starts_with("slow: "));
    let warning = told.collect::<Vec<_>>().join("\n");
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(warning.starts_with("warning: ") && warning.contains("broken, line 2"), "{warning}");
    let output = train_with(&broken, &["--epochs", "1", "--bound", "60s"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn many_epochs_over_many_rows_begin_at_once() {
    // Orders made up front would take minutes and 30 GB before the first step.
    let folder = Folder::new("many-rows");
    let file = folder.file("rows.csv", &"1,0\n".repeat(1_000_000));
    let output = train(&["--data", &file, "--epochs", "10000", "--bound", "1ns", "--batch", "64"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("for producer"), "{output:?}");
}

#[test]
fn a_bound_that_cannot_be_kept_ends_the_run_with_a_name() {
    let output = train(&["--bound", "1ns"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let last = error.lines().last().unwrap();
    assert!(last.starts_with("error: ") && last.contains("for producer"), "{error}");
}

/// Each of the fences that the job of two devices waits for in a step.
const FENCES_OF_TWO: usize = 13;

/// What `text` says after `prefix`, up to `end`.
fn between<'t>(text: &'t str, prefix: &str, end: &str) -> &'t str {
    let from = text.find(prefix).unwrap_or_else(|| panic!("{text:?} has no {prefix:?}"));
    let rest = &text[from + prefix.len()..];
    &rest[..rest.find(end).unwrap_or_else(|| panic!("{rest:?} has no {end:?}"))]
}

/// Both ways to find a missing fence, for every fence there is: at submit, and afterwards by running
/// the job again with edges added.
#[test]
fn a_dropped_fence_is_refused_and_bisection_names_the_same_edge() {
    let ends = |fence: usize| match fence {
        10 | 11 => ("gradient", "update"),
        12 => ("update", "a host read"),
        own => [
            ("copy features", "normalise"),
            ("copy numbers", "augment"),
            ("normalise", "gradient"),
            ("augment", "gradient"),
            ("update", "gradient"),
        ][own % 5],
    };
    for fence in 0..FENCES_OF_TWO {
        let inject = format!("drop-fence={fence}");
        let arguments = ["--devices", "2", "--epochs", "1", "--inject", &inject];
        let output = train(&arguments);
        assert_eq!(output.status.code(), Some(1), "{inject}");
        let refused = text(&output.stderr);
        let edge = between(refused, "missing dependency ", ": ");
        let (earlier, later) = ends(fence);
        let (from, to) = match fence {
            10 | 11 => (fence - 10, Some(0)),
            12 => (0, None),
            4 | 9 => (0, Some(fence / 5)),
            own => (own / 5, Some(own / 5)),
        };
        let to = to.map_or("host".to_string(), |device| format!("device {device} queue"));
        assert!(edge.starts_with(&format!("{earlier} (device {from} queue ")), "{inject}: {edge}");
        assert!(edge.contains(&format!(") -> {later} ({to}")), "{inject}: {edge}");

        let output = train(&[&arguments[..], &["--trust"]].concat());
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(between(&said, "missing: ", ";"), edge, "{inject}: {said}");
    }
}

/// Wrong, and it shows: by the digest, or where the two commands happened to meet by a hazard.
#[test]
fn a_dropped_fence_that_nobody_looks_for_spoils_the_run() {
    let good = result(&["--epochs", "2"]);
    let output = train(&["--epochs", "2", "--trust", "--inject", "drop-fence", "--json"]);
    if output.status.success() {
        let bad: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(good["weights_digest"], bad["weights_digest"]);
        assert_eq!(good["weights_digest"], bad["reference_digest"]);
        assert!(bad["missing_dependency"].as_str().unwrap().contains("-> normalise"), "{bad}");
    } else {
        let error = text(&output.stderr);
        assert!(error.contains("wait for its fence first"), "{error}");
    }
    let output = train(&["--epochs", "1", "--trust", "--inject", "drop-fence", "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(said.contains("missing: copy features (device 3 queue copy) -> normalise"), "{said}");
}

#[test]
fn derived_edges_are_as_many_as_given_ones_and_give_the_same_digest() {
    let given = result(&["--epochs", "2", "--devices", "3"]);
    let derived = result(&["--epochs", "2", "--devices", "3", "--auto"]);
    let trusted = result(&["--epochs", "2", "--devices", "3", "--trust"]);
    assert_eq!((&given["edges"], &derived["edges"]), (&"check".into(), &"auto".into()));
    for other in [&derived, &trusted] {
        assert_eq!(given["weights_digest"], other["weights_digest"]);
        assert_eq!(given["edges_a_step"], other["edges_a_step"]);
        assert_eq!(other["redundant_edges_a_step"], 0.0);
    }
}

#[test]
fn bad_input_is_one_line_and_nothing_else() {
    let folder = Folder::new("bad-input");
    let ragged = folder.file("ragged.csv", &"1,2,3,4,0\n1,2,3,4\n".repeat(8));
    let label = folder.file("label.csv", &"1,2,3,4,10\n".repeat(9));
    let cases: [(&[&str], &str); 13] = [
        (&["--data", "no\nsuch\u{1b}[31m.csv"], "no\\nsuch\\u{1b}[31m.csv"),
        (&["--devices", "0"], "0 is not in 1..=64"),
        (&["--devices", "65"], "65 is not in 1..=64"),
        (&["--devices", "many"], "many"),
        (&["--bound", "0s"], "more than zero"),
        (&["--bound", "5"], "units"),
        (&["--epochs", "0"], "0 is not in"),
        (&["--batch", "0"], "0 is not in"),
        (&["--frobnicate"], "--frobnicate"),
        (&["--sync", "hope"], "hope"),
        (&["--data", "no/such/file.csv"], "no/such/file.csv"),
        (&["--data", &ragged], "line 2"),
        (&["--data", &label], "line 1"),
    ];
    for (arguments, part) in cases {
        let output = train(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let error = text(&output.stderr);
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(part), "{arguments:?}: {error}");
    }
    for arguments in [
        &["--sync", "lock", "--inject", "drop-fence"][..],
        &["--auto", "--inject", "drop-fence"],
        &["--sync", "device", "--trust"],
        &["--auto", "--trust"],
        &["--devices", "2", "--inject", "drop-fence=13"],
        &["--inject", "drop-fence=-1"],
        &["--inject", "drop-fences"],
    ] {
        let output = train(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{arguments:?}");
    }
}

#[test]
fn data_of_the_users_own_is_trained_on() {
    // Two by two pixels; the label is which one is lit.
    let rows: String = (0..40)
        .map(|row| {
            let mut cells = ["0"; 4];
            cells[row % 4] = "9";
            format!("{},{}\n", cells.join(","), row % 4)
        })
        .collect();
    let folder = Folder::new("own-data");
    let file = folder.file("lit.csv", &rows);
    let run = result(&["--data", &file, "--batch", "8", "--devices", "3", "--verify"]);
    assert_eq!(run["train_samples"], 30);
    assert_eq!(run["weights_digest"], run["reference_digest"]);
}

#[test]
fn the_share_of_synchronisation_is_one_of_the_time_whatever_the_number_of_devices() {
    // Long kernels, and more devices than cores.
    let pixels = vec!["1"; 1024].join(",");
    let rows: String = (0..600).map(|row| format!("{pixels},{}\n", row % 10)).collect();
    let folder = Folder::new("share");
    let file = folder.file("wide.csv", &rows);
    for way in ["signals", "lock", "device"] {
        for devices in ["1", "4", "8"] {
            let run = result(&[
                "--data",
                &file,
                "--batch",
                "512",
                "--epochs",
                "2",
                "--bound",
                "60s",
                "--sync",
                way,
                "--devices",
                devices,
            ]);
            let share = run["sync_share"].as_f64().unwrap();
            assert!((0.0..1.0).contains(&share), "{way}, {devices} devices: {share}");
            // One device alone hardly waits; several always do for the slowest.
            let waits = way == "signals" && devices != "1";
            assert!(share > 0.0 || !waits, "{way}, {devices} devices: {share}");
        }
    }
}

/// A folder of this test's own, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As many devices as a job may have, under the limit on open files that systems start with.
#[test]
fn many_devices_do_not_run_out_of_files() {
    let limited = r#"ulimit -n 1024 && exec "$0" "$@""#;
    let arguments = ["train", "--batch", "30", "--devices", "64", "--epochs", "1", "--json"];
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_pontoon")])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
