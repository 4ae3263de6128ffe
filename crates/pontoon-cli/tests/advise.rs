//! `pontoon advise`, run as a process.

use std::process::{Command, Output};

use serde_json::Value;

fn advise(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.arg("advise").args(options).output().expect("it runs")
}

#[test]
fn advice_names_a_way_and_what_it_was_weighed_by() {
    let out = advise(&["--hosts", "1", "--json"]);
    let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!((out.status.code(), &said["advice"]), (Some(0), &"unified addressing".into()));
    let measured = &said["measured"];
    if measured["missing"].is_string() {
        println!("skipped: {}", measured["missing"]);
        return;
    }
    assert_eq!(measured["over"], "shm");
    let [again, miss] =
        ["again_ns", "miss_ns"].map(|name| measured[name].as_f64().expect("a figure"));
    assert!(
        again > 0.0 && again < miss,
        "a page that is here costs {again}, and one that is not {miss}"
    );
    let [client, remote] =
        ["client_ns", "remote_ns"].map(|name| said[name].as_f64().expect("a figure"));
    assert!(client > 0.0 && remote > 0.0, "{said}");
    let out = String::from_utf8(advise(&["--hosts", "1", "--times", "10"]).stdout).expect("text");
    for part in
        ["over shm:", "read 10 times by CPUs of one host", "* unified addressing", "advice: "]
    {
        assert!(out.contains(part), "{part} is missing: {out}");
    }
}

#[test]
fn what_makes_no_sense_is_one_line_and_two() {
    for (options, part) in [
        (&["--touch", "0"][..], "have to be at least 1"),
        (&["--bytes", "4K", "--touch", "8K"], "more than all --bytes"),
        (&["--times", "0"], "--times"),
        (&["--hosts", "none"], "--hosts"),
        (&["--by", "dog"], "--by"),
        (&["--bytes", "1X"], "such as 64M"),
    ] {
        let out = advise(options);
        let said = String::from_utf8(out.stderr).expect("text");
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
    }
}
