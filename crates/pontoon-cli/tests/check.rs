//! `pontoon check` as a user runs it: what it finds in the scenarios, and what it refuses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn check(args: &[&str], files: &[PathBuf]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.arg("check").args(args).args(files).output().expect("it starts")
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The scenarios of a folder, in order.
fn scenarios(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    let is_scenario = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".json") && !name.ends_with(".expect.json")
    };
    let mut files: Vec<_> = files.filter(is_scenario).collect();
    files.sort();
    files
}

/// Findings as the format has them: without the keys that it leaves to us, in some fixed order.
fn bare(findings: &Value) -> Vec<String> {
    let mut bare: Vec<_> = findings
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| {
            let mut finding = finding.as_object().expect("an object").clone();
            finding.retain(|key, _| {
                ["kind", "buffer", "range", "first", "second", "cycle"].contains(&key.as_str())
            });
            Value::Object(finding).to_string()
        })
        .collect();
    bare.sort();
    bare
}

#[test]
fn what_has_no_end_is_refused_and_a_pipe_is_read() {
    for endless in ["/dev/zero", "/dev/urandom"] {
        let output = check(&[], &[endless.into()]);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        let wanted =
            format!("error: {endless}: holds more than 268435456 bytes, the most that is read\n");
        assert_eq!((output.status.code(), said), (Some(2), wanted));
    }
    let scenario = fs::File::open(&scenarios(&folder("tests/scenarios"))[0]).expect("a file");
    let mut cat = Command::new("cat").stdin(scenario).stdout(Stdio::piped()).spawn().expect("cat");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.args(["check", "/dev/stdin"]).stdin(cat.stdout.take().expect("piped"));
    let output = command.output().expect("it starts");
    cat.wait().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("/dev/stdin: "), "{output:?}");
}

#[test]
fn every_scenario_gives_exactly_its_findings() {
    let files = scenarios(&folder("tests/scenarios"));
    assert!(files.len() >= 62, "{} scenarios", files.len());
    let output = check(&["--json"], &files);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(answers.len(), files.len());
    let mut wrong = Vec::new();
    for (file, answer) in files.iter().zip(&answers) {
        assert_eq!(answer["file"].as_str(), file.to_str());
        let expected = fs::read(file.with_extension("expect.json")).expect("expectations");
        let expected: Value = serde_json::from_slice(&expected).expect("JSON");
        let clean = file.file_name().is_some_and(|it| it.to_string_lossy().starts_with("clean-"));
        assert_eq!(clean, expected == Value::Array(Vec::new()), "{}", file.display());
        let (found, expected) = (bare(&answer["findings"]), bare(&expected));
        if found != expected {
            wrong.push(format!("{}\n found {found:?}\n expected {expected:?}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_example_shows_the_finding_that_it_is_named_after() {
    let files = scenarios(&folder("../../examples/scenarios"));
    let kinds: Vec<_> = files.iter().map(|file| file.file_stem().expect("a name")).collect();
    assert_eq!(
        kinds,
        ["RAW", "WAR", "WAW", "deadlock", "never-signalled", "use-after-free", "visibility"]
    );
    for (file, kind) in files.iter().zip(&kinds) {
        let output = check(&["--json"], std::slice::from_ref(file));
        assert_eq!(output.status.code(), Some(1));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["findings"][0]["kind"].as_str(), kind.to_str());
        assert_eq!(answer["findings"].as_array().map(Vec::len), Some(1), "{}", file.display());
        assert!(answer["findings"][0]["fix"].is_string());
    }
}

#[test]
fn people_get_both_entries_the_bytes_and_the_edge() {
    let file = folder("tests/scenarios/kv-offload-reads-before-compute.json");
    let output = check(&[], std::slice::from_ref(&file));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let file = file.display();
    let expected = format!(
        "{file}: RAW: nothing orders this read after this write\n  \
         first   #0 \"attention-step-1\" on compute\n  \
         second  #1 \"offload-block-0\" on store\n  \
         bytes   kv[0..4096]\n  \
         fix     store waits for compute#0\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn the_status_is_that_of_the_worst_file_and_the_others_are_checked() {
    let clean = folder("tests/scenarios/clean-two-readers.json");
    let found = folder("tests/scenarios/crossed-waits-between-two-queues.json");
    let missing = folder("tests/scenarios/there-is-none.json");
    assert_eq!(check(&[], std::slice::from_ref(&clean)).status.code(), Some(0));
    assert_eq!(check(&[], &[clean.clone(), found.clone()]).status.code(), Some(1));
    let output = check(&["--json"], &[missing, found, clean]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
}

/// What stands in a file in place of one part of a scenario, and what must be said of it.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("\"pontoon-scenario/1\"", "\"pontoon-scenario/2\"", "line 2: format: expected"),
    ("\"queues\"", "\"queuse\"", "line 4: queuse: expected no such key"),
    ("\"id\": \"b\"", "\"id\": \"a\"", "line 3: buffers[1].id: expected an id that nothing else"),
    ("\"id\": \"b\"", "\"id\": \"host\"", "line 3: buffers[1].id: expected an id other than host"),
    (
        "\"id\": \"s\"",
        "\"id\": \"a\"",
        "line 5: semaphores[0].id: expected an id that nothing else",
    ),
    ("\"offset\": 4", "\"offset\": 5", "line 3: buffers[1].offset: expected an offset"),
    ("\"of\": \"a\"", "\"of\": \"b\"", "line 3: buffers[1].o"),
    ("\"size\": 8", "\"size\": -8", "line 3: buffers[0].size: expected a whole number"),
    ("\"device\": \"d\"", "\"kind\": \"copy\"", "line 4: queues[0]: expected the key \"device\""),
    (
        "\"order\": \"launch\"",
        "\"order\": \"any\"",
        "line 4: queues[1].order: expected complete or launch",
    ),
    ("\"credits\": 1", "\"credits\": 0", "line 4: queues[1].credits: expected"),
    ("\"kernel\"", "\"colonel\"", "line 7: program[0].do: expected kernel"),
    ("\"on\": \"q\"", "\"on\": \"b\"", "line 7: program[0].on: expected the id of a queue"),
    ("a[0..8]", "a[0..9]", "line 7: program[0].reads[0]: expected bytes"),
    ("a[0..8]", "a[8..0]", "line 7: program[0].reads[0]: expected bytes"),
    ("a[0..8]", "c", "line 7: program[0].reads[0]: expected \"buffer\""),
    ("s>=1", "s>1", "line 8: program[1].wait[0]: expected"),
    ("s>=1", "t>=1", "line 8: program[1].wait[0]: expected"),
    ("s>=1", "s>=-1", "line 8: program[1].wait[0]: expected"),
    ("\"s=2\"", "\"s=1\"", "line 9: program[2].signal[0]: expected a signal to a value above 1"),
    ("\"s=2\"", "\"s+=0\"", "line 9: program[2].signal[0]: expected a signal to a value above 1"),
    ("\"by\": \"host:x\"", "\"by\": \"q\"", "line 10: program[3].by: expected host or host:NAME"),
    ("\"rank\": \"r0\"", "\"rank\": \"r1\"", "line 10: program[3].rank: expected one of ranks"),
    (
        "\"ranks\": [\"r0\"",
        "\"ranks\": [\"r0\", \"r1\"",
        "line 10: program[3].id: expected an entry of every",
    ),
    ("\"buf\": \"b\"", "\"buf\": \"q\"", "line 11: program[4].buf: expected the id of a buffer"),
    (
        "\"do\": \"lock\"",
        "\"do\": \"unlock\"",
        "line 12: program[5].lock: expected a lock that this",
    ),
    (
        "\"label\": \"x\"",
        "\"label\": \"x\", \"label\": \"y\"",
        "line 12: expected JSON: the key \"label\" is there twice",
    ),
    ("\n ]}", "\n ]", "line 14: expected JSON"),
];

const SCENARIO: &str = r#"{
 "format": "pontoon-scenario/1",
 "buffers": [{"id": "a", "size": 8}, {"id": "b", "of": "a", "offset": 4, "size": 4}],
 "queues": [{"id": "q", "device": "d"}, {"id": "p", "device": "d", "order": "launch", "credits": 1}],
 "semaphores": [{"id": "s"}], "locks": ["m"], "ranks": ["r0"],
 "program": [
  {"on": "q", "do": "kernel", "reads": ["a[0..8]"], "signal": ["s=1"]},
  {"on": "host", "do": "wait", "wait": ["s>=1", "q", "event:e"]},
  {"on": "q", "do": "copy", "signal": ["s=2"]},
  {"on": "q", "by": "host:x", "do": "collective", "id": "c", "rank": "r0", "wait": ["s>=0"]},
  {"on": "host", "do": "free", "buf": "b"},
  {"on": "host", "do": "lock", "lock": "m", "label": "x"}
 ]}
"#;

#[test]
fn a_file_that_is_no_scenario_is_refused_with_its_place() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("mistake.json");
    fs::write(&file, SCENARIO).expect("written");
    let output = check(&[], std::slice::from_ref(&file));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    for (right, wrong, said) in MISTAKES {
        assert!(SCENARIO.contains(right), "{right}");
        fs::write(&file, SCENARIO.replacen(right, wrong, 1)).expect("written");
        let output = check(&[], std::slice::from_ref(&file));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(output.stdout.is_empty(), "{wrong}");
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        let expected = format!("error: {}: {said}", file.display());
        assert!(errors.starts_with(&expected), "{wrong}:\n {errors} is not\n {expected}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
