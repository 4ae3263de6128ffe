//! `pontoon doctor` as a user runs it.

use std::{
    collections::BTreeSet,
    io::Read,
    process::{Command, Output, Stdio},
};

use pontoon::{hal::conformance::part, ucx::Library};
use serde_json::Value;

fn doctor(profile: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.arg("doctor").env("PONTOON_PROFILE", profile).stdin(Stdio::null());
    command
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn row<'l>(lines: &'l [Value], name: &str) -> &'l Value {
    lines.iter().find(|line| line["name"] == name).expect(name)
}

#[test]
fn json_is_an_object_a_line_and_each_name_is_there_once() {
    let output = doctor("/nonexistent/profile").arg("--json").output().expect("it starts");
    assert!(output.stderr.is_empty(), "{output:?}");
    let lines = lines(&output);
    let mut names = BTreeSet::new();
    for line in &lines {
        let text = |key: &str| line[key].as_str().unwrap_or_else(|| panic!("{key} of {line}"));
        assert!(names.insert(text("name").to_owned()), "twice: {line}");
        assert!(["ok", "limited", "missing"].contains(&text("state")), "{line}");
        assert_eq!(line["found"].is_null(), text("state") == "missing", "{line}");
        assert!(!text("for").is_empty() && !text("get").is_empty(), "{line}");
    }
    let ready = row(&lines, "memfd")["state"] == "ok";
    assert_eq!(output.status.code(), Some(if ready { 0 } else { 1 }));
}

#[test]
fn the_table_has_every_row_of_the_json_and_counts_them() {
    let json = lines(&doctor("/nonexistent/profile").arg("--json").output().expect("it starts"));
    let output = doctor("/nonexistent/profile").output().expect("it starts");
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    for line in &json {
        let name = line["name"].as_str().expect("a name");
        let is_row = |row: &str| row.split_whitespace().next() == Some(name);
        assert!(table.lines().any(is_row), "{name} is not in\n{table}");
    }
    let count = |state: &str| json.iter().filter(|line| line["state"] == state).count();
    let [ok, limited, missing] = ["ok", "limited", "missing"].map(count);
    let counts = format!("{ok} ok, {limited} limited, {missing} missing");
    assert!(table.contains(&counts), "{counts} is not in\n{table}");
}

#[test]
fn a_profile_is_found_or_broken_or_not_there() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-profile");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("profile");
    let of = |text: Option<&str>| {
        let _ = std::fs::remove_file(&file);
        if let Some(text) = text {
            std::fs::write(&file, text).expect("written");
        }
        let output = doctor(file.to_str().expect("UTF-8")).arg("--json").output();
        row(&lines(&output.expect("it starts")), "profile").clone()
    };
    assert_eq!(of(None)["state"], "missing");
    let broken = of(Some("version 1\nspin\n"));
    assert_eq!(broken["state"], "limited");
    assert!(broken["found"].as_str().is_some_and(|found| found.contains("profile, line 2")));
    let good: String = ["thread", "process"]
        .map(|path| format!("{path}.spin 1\n{path}.yields 1\n{path}.deadline_ns 1\n"))
        .concat();
    let good = of(Some(&format!("version 1\n{good}")));
    assert_eq!(good["state"], "ok", "{good}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    for arguments in [&["--json"][..], &[]] {
        let mut child = doctor("/nonexistent/profile")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("UTF-8");
        let code = child.wait().expect("waited for").code();
        assert!(matches!(code, Some(0 | 1)), "{code:?}");
        assert_eq!(errors, "");
    }
}

/// What is said of UCX where that library is named.
fn of_ucx(library: Option<&str>) -> Value {
    let mut command = doctor("/nonexistent/profile");
    command.arg("--json").env_remove("PONTOON_UCX_LIBRARY");
    library.map(|library| command.env("PONTOON_UCX_LIBRARY", library));
    row(&lines(&command.output().expect("it starts")), "libucp").clone()
}

#[test]
fn a_ucx_that_is_there_is_told_with_its_version() {
    let Some(library) = part::needed("ucx", Library::open()) else { return };
    let there = of_ucx(None);
    assert_eq!(there["state"], "ok", "{there}");
    let found = there["found"].as_str().expect("text");
    assert!(found.starts_with(&format!("UCX {}, ", library.version())), "{there}");
}

#[test]
fn a_ucx_that_is_absent_or_none_is_told_to_be() {
    let absent = of_ucx(Some("/nonexistent/libucp.so.0"));
    assert_eq!(absent["state"], "missing", "{absent}");
    assert!(absent["get"].as_str().is_some_and(|get| get.contains("libucx0")), "{absent}");
    if cfg!(not(target_env = "gnu")) {
        println!("skipped: needs glibc's libc.so.6, this is built for another libc");
        return;
    }
    let other = of_ucx(Some("libc.so.6"));
    assert_eq!(other["state"], "limited", "{other}");
    assert!(other["found"].as_str().is_some_and(|it| it.contains("is not libucp")), "{other}");
}

/// Every way that is here carries what a kernel sends, or says why it is not here.
#[test]
fn a_device_is_tried_over_every_link() {
    let run = |arguments: &[&str]| {
        let mut command = doctor("/nonexistent/profile");
        command.args(["--device", "cpu"]).args(arguments);
        command.output().expect("it starts")
    };
    let output = run(&["--json"]);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{output:?}");
    let lines = lines(&output);
    let has_ucx = part::needed("ucx", Library::open()).is_some();
    for (link, by) in ["shm", "ucx-shm", "ucx-tcp"]
        .into_iter()
        .flat_map(|link| ["direct", "ring", "trigger"].map(|by| (link, by)))
    {
        let is = |line: &&Value| line["link"] == link && line["by"] == by;
        let line = lines.iter().find(is).unwrap_or_else(|| panic!("{link} {by} in {lines:?}"));
        let wanted = match (link, by) {
            ("shm", _) => "ok",
            ("ucx-tcp", "direct") => "absent",
            _ if has_ucx => "ok",
            _ => "absent",
        };
        assert_eq!(line["state"], wanted, "{line}");
    }
    let table = String::from_utf8(run(&[]).stdout).expect("UTF-8");
    assert_eq!(table.lines().filter(|line| line.starts_with("cpu ")).count(), 9, "{table}");
    let mut command = doctor("/nonexistent/profile");
    let output = command.args(["--device", "gpu"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
