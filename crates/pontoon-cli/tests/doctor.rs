//! `pontoon doctor` as a user runs it.

use std::{
    collections::BTreeSet,
    io::Read,
    process::{Command, Output, Stdio},
};

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
        assert!(["ok", "expected", "limited", "missing"].contains(&text("state")), "{line}");
        assert_eq!(line["found"].is_null(), text("state") == "missing", "{line}");
        assert!(!text("for").is_empty() && !text("get").is_empty(), "{line}");
    }
    for name in ["userfaultfd-features", "pagemap-scan"] {
        assert_ne!(row(&lines, name)["state"], "ok", "{name} was not asked");
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
    let [ok, expected, limited, missing] = ["ok", "expected", "limited", "missing"].map(count);
    let counts = format!("{ok} ok, {expected} expected, {limited} limited, {missing} missing");
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
