//! `pontoon bench` and `pontoon tune` as a user runs them: names, units and form of what they
//! print. How long anything took is nobody's business here.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

fn pontoon(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pontoon")).args(args).output().expect("it starts")
}

/// Every line of standard output, parsed.
fn lines(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert!(errors.is_empty(), "{errors}");
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn figures(which: &str) -> Option<Vec<(String, String)>> {
    let lines = lines(&pontoon(&["bench", which, "--quick", "--json"]));
    if let Some(why) = lines.iter().find_map(|line| line.get("skipped")) {
        println!("skipped: {why}");
        return None;
    }
    let text = |line: &Value, key: &str| line[key].as_str().expect(key).to_owned();
    for line in &lines {
        let [median, p99, min] = ["median", "p99", "min"].map(|key| line[key].as_f64().expect(key));
        // A difference may come out below zero in a round that something else disturbed.
        let is_difference = line["name"] == "submit/elided_wait";
        assert!(median > 0.0 && (min > 0.0 || is_difference), "{line}");
        assert!(min <= median && median <= p99, "{line}");
        assert!(line["rounds"].as_u64().expect("rounds") >= 3, "{line}");
    }
    Some(lines.iter().map(|line| (text(line, "name"), text(line, "unit"))).collect())
}

fn expected(names: &[(&str, &str)]) -> Vec<(String, String)> {
    names.iter().map(|&(name, unit)| (name.to_owned(), unit.to_owned())).collect()
}

#[test]
fn signal_prints_its_figures() {
    let Some(found) = figures("signal") else { return };
    assert_eq!(
        found,
        expected(&[
            ("signal/thread/roundtrip", "ns"),
            ("signal/thread/roundtrip/raw", "ns"),
            ("signal/thread/roundtrip/raw/again", "ns"),
            ("signal/thread/oneway", "ns"),
            ("signal/thread/oneway/raw", "ns"),
            ("signal/thread/ratio/raw", "x"),
            ("signal/process/roundtrip", "ns"),
            ("signal/process/roundtrip/raw", "ns"),
            ("signal/process/roundtrip/raw/again", "ns"),
            ("signal/process/oneway", "ns"),
            ("signal/process/oneway/raw", "ns"),
            ("signal/process/ratio/raw", "x"),
            ("signal/timeout/100us/overshoot", "ns"),
            ("signal/timeout/1ms/overshoot", "ns"),
            ("signal/timeout/10ms/overshoot", "ns"),
            ("signal/timeout/100ms/overshoot", "ns"),
        ])
    );
}

#[test]
fn handoff_prints_its_figures() {
    let Some(found) = figures("handoff") else { return };
    let mut names = Vec::new();
    for unrelated in [0, 1, 2, 4] {
        for way in ["device", "lock", "signals"] {
            names.push((format!("handoff/{way}/unrelated{unrelated}"), "ms".to_owned()));
        }
    }
    names.extend(expected(&[
        ("handoff/produce/alone", "ms"),
        ("handoff/consume/alone", "ms"),
        ("handoff/ideal/alone", "ms"),
        ("handoff/ideal/loaded", "ms"),
        ("handoff/ratio/ideal", "x"),
        ("handoff/ratio/ideal/loaded", "x"),
        ("handoff/ratio/lock", "x"),
        ("handoff/ratio/device", "x"),
    ]));
    assert_eq!(found, names);
}

#[test]
fn fanin_prints_its_figures() {
    let Some(found) = figures("fanin") else { return };
    assert_eq!(
        found,
        expected(&[
            ("fanin/signals/1", "ms"),
            ("fanin/signals/2", "ms"),
            ("fanin/signals/4", "ms"),
            ("fanin/lock/1", "ms"),
            ("fanin/lock/2", "ms"),
            ("fanin/lock/4", "ms"),
            ("fanin/signals/growth", "x"),
            ("fanin/lock/growth", "x"),
        ])
    );
}

#[test]
fn submit_prints_its_figures() {
    let Some(found) = figures("submit") else { return };
    assert_eq!(
        found,
        expected(&[
            ("submit/auto", "ns"),
            ("submit/check", "ns"),
            ("submit/trust", "ns"),
            ("submit/bare", "ns"),
            ("submit/auto/ratio/bare", "x"),
            ("submit/check/ratio/bare", "x"),
            ("submit/auto/parked", "ns"),
            ("submit/auto/tracker", "ns"),
            ("submit/check/tracker", "ns"),
            ("submit/elided_wait", "ns"),
            ("submit/deadlock_check", "ns"),
            ("submit/deadlock_check/parked", "ns"),
            ("submit/fence_cycle", "ns"),
            ("submit/fence_cycle/named", "ns"),
            ("submit/roundtrip", "ns"),
            ("submit/roundtrip/condvar", "ns"),
            ("submit/roundtrip/channel", "ns"),
            ("submit/roundtrip/ratio/condvar", "x"),
            ("submit/roundtrip/ratio/channel", "x"),
        ])
    );
}

#[test]
fn check_prints_its_figures() {
    let Some(found) = figures("check") else { return };
    assert_eq!(
        found,
        expected(&[
            ("check/intervals/10", "ns"),
            ("check/intervals/100", "ns"),
            ("check/intervals/1000", "ns"),
            ("check/intervals/10000", "ns"),
            ("check/intervals/100000", "ns"),
            ("check/intervals/growth", "x"),
            ("check/step/check/4", "ms"),
            ("check/step/trust/4", "ms"),
            ("check/step/check/2", "ms"),
            ("check/step/trust/2", "ms"),
            ("check/step/ratio/trust", "x"),
            ("check/step/ratio/trust/2", "x"),
        ])
    );
}

#[test]
fn link_prints_its_figures_or_says_what_is_missing() {
    let lines = lines(&pontoon(&["bench", "link", "--quick", "--json"]));
    let name = |line: &Value| line["name"].as_str().expect("a name").to_owned();
    let (skipped, found): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.get("skipped").is_some());
    for line in &skipped {
        // Without two CPUs there is nothing; without UCX there is the rest.
        let what = name(line);
        assert!(what == "link" || what == "link/idle/cpu" || what.contains("ucx"), "{line}");
        println!("skipped: {what}: {}", line["skipped"]);
    }
    let is_skipped = |of: &str| skipped.iter().any(|line| of.starts_with(&name(line)));
    if is_skipped("link") {
        return;
    }
    for line in &found {
        let [median, p99, min] = ["median", "p99", "min"].map(|key| line[key].as_f64().expect(key));
        assert!(0.0 < min && min <= median && median <= p99, "{line}");
        assert!(line["rounds"].as_u64().expect("rounds") >= 3, "{line}");
    }
    let mut expected: Vec<(String, &str)> = Vec::new();
    for size in ["8B", "4KiB", "4MiB"] {
        let name = format!("link/shm/put_signal/{size}");
        expected.extend([(name.clone(), "ns"), (format!("{name}/raw"), "ns")]);
        expected.push((format!("{name}/ratio/raw"), "x"));
        if size != "8B" {
            expected.push((format!("{name}/memcpy"), "ns"));
            expected.push((format!("{name}/ratio/memcpy"), "x"));
        }
    }
    expected.push(("link/idle/cpu/shm".into(), "%"));
    for way in ["link/ucx-tcp", "link/ucx-shm"] {
        let put = |size: &str| format!("{way}/put_signal/{size}");
        let units = [put("8B"), put("4KiB"), put("4MiB"), format!("{way}/put/4MiB/bandwidth")];
        for (name, unit) in units.into_iter().zip(["ns", "ns", "ns", "MB/s"]) {
            expected.push((name.clone(), unit));
            expected.push((format!("{name}/ucx_perftest"), unit));
            expected.push((format!("{name}/ratio/ucx_perftest"), "x"));
        }
        if way == "link/ucx-tcp" {
            expected.push(("link/idle/cpu".into(), "%"));
        }
    }
    // A rival's own row goes with its ratio.
    let is_there = |of: &str| {
        let ratio = of.strip_suffix("/ucx_perftest").map(|it| format!("{it}/ratio/ucx_perftest"));
        of == "link/idle/cpu/shm"
            || !is_skipped(of) && ratio.is_none_or(|ratio| !is_skipped(&ratio))
    };
    expected.retain(|(name, _)| is_there(name));
    let found: Vec<_> =
        found.iter().map(|line| (name(line), line["unit"].as_str().expect("a unit"))).collect();
    assert_eq!(found, expected);
}

#[test]
fn ring_prints_its_figures() {
    let lines = lines(&pontoon(&["bench", "ring", "--quick", "--json"]));
    if let Some(why) = lines.iter().find_map(|line| line.get("skipped")) {
        println!("skipped: {why}");
        return;
    }
    let found: Vec<_> = lines.iter().map(|line| (&line["name"], &line["unit"])).collect();
    let expected = [
        ("ring/rate", "tasks/s"),
        ("ring/rate_batched", "tasks/s"),
        ("ring/rate_batched/4", "tasks/s"),
        ("ring/rate_batched/8", "tasks/s"),
        ("ring/rate_batched/16", "tasks/s"),
        ("ring/rate/proxy", "tasks/s"),
        ("ring/full/lost", "tasks"),
    ];
    assert_eq!(found.len(), expected.len());
    for ((name, unit), line) in expected.into_iter().zip(&lines) {
        assert!(line["name"] == name && line["unit"] == unit, "{line}");
        let (min, p99) = (line["min"].as_f64().expect("min"), line["p99"].as_f64().expect("p99"));
        assert!(if name == "ring/full/lost" { p99 == 0.0 } else { min > 0.0 }, "{line}");
        assert!(line["rounds"].as_u64().expect("rounds") >= 3, "{line}");
    }
}

#[test]
fn initiate_prints_its_figures_or_says_what_is_missing() {
    let lines = lines(&pontoon(&["bench", "initiate", "--quick", "--json"]));
    let name = |line: &Value| line["name"].as_str().expect("a name").to_owned();
    let (skipped, found): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.get("skipped").is_some());
    for line in &skipped {
        let what = name(line);
        assert!(what == "initiate" || what == "initiate/ucx-tcp", "{line}");
        println!("skipped: {what}: {}", line["skipped"]);
    }
    for line in &found {
        let [median, p99, min] = ["median", "p99", "min"].map(|key| line[key].as_f64().expect(key));
        assert!(0.0 <= min && min <= median && median <= p99 && p99 > 0.0, "{line}");
        assert!(line["rounds"].as_u64().expect("rounds") >= 3, "{line}");
    }
    let sizes = ["8B", "64B", "512B", "4KiB", "64KiB", "1MiB", "4MiB", "64MiB"];
    let mut expected: Vec<(String, &str)> = Vec::new();
    for (way, leds, sizes) in [
        ("initiate", &["direct", "ring", "host", "triggered"][..], &sizes[..]),
        ("initiate/ucx-tcp", &["ring", "host", "triggered"], &sizes[..7]),
    ] {
        if skipped.iter().any(|line| way.starts_with(&name(line))) {
            continue;
        }
        for size in sizes {
            let name = format!("{way}/{size}");
            expected.extend(leds.iter().map(|led| (format!("{name}/{led}"), "ns")));
            expected.push((format!("{name}/ratio/host"), "x"));
            expected.push((format!("{name}/auto/ratio/best"), "x"));
            expected.extend(leds.iter().map(|led| (format!("{name}/host_cpu/{led}"), "ns")));
        }
        for size in ["8B", "4KiB", "64KiB"] {
            let rate = |led| (format!("{way}/throughput/{size}/{led}"), "messages/s");
            expected.extend(leds.iter().map(rate));
        }
        expected.push((format!("{way}/proxy/use"), "%"));
        expected.push((format!("{way}/proxy/depth"), "tasks"));
        if way == "initiate" {
            expected.push(("initiate/dead_proxy/overshoot".into(), "ns"));
        }
    }
    let found: Vec<_> =
        found.iter().map(|line| (name(line), line["unit"].as_str().expect("a unit"))).collect();
    assert_eq!(found, expected);
}

#[test]
fn smc_prints_its_figures_or_says_what_is_missing() {
    let lines = lines(&pontoon(&["bench", "smc", "--quick", "--json"]));
    let name = |line: &Value| line["name"].as_str().expect("a name").to_owned();
    let (skipped, found): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.get("skipped").is_some());
    for line in &skipped {
        let what = name(line);
        assert!(what == "smc" || what == "smc/ucx-tcp", "{line}");
        println!("skipped: {what}: {}", line["skipped"]);
    }
    for line in &found {
        let [median, p99, min] = ["median", "p99", "min"].map(|key| line[key].as_f64().expect(key));
        assert!(min <= median && median <= p99, "{line}");
        let of = name(line);
        // Memory is registered before, and never again; what a release takes beyond a copy is a difference.
        let none = of.ends_with("/registrations");
        assert!(if none { p99 == 0.0 } else { min > 0.0 || of.ends_with("/software") }, "{line}");
        assert!(line["rounds"].as_u64().expect("rounds") >= 3, "{line}");
    }
    let every = |way: &str, names: &[(&str, &'static str)]| {
        let named = |&(name, unit): &(&str, &'static str)| (format!("{way}/{name}"), unit);
        names.iter().map(named).collect::<Vec<_>>()
    };
    let mut expected: Vec<(String, &str)> = Vec::new();
    for way in ["smc", "smc/ucx-tcp"] {
        if skipped.iter().any(|line| way.starts_with(&name(line))) {
            continue;
        }
        let mapped = way == "smc";
        expected.extend(every(way, &[("miss", "ns")]));
        if mapped {
            expected.extend(every(way, &[("miss/bare", "ns"), ("miss/ratio/bare", "x")]));
        }
        let in_order = [("prefetch/page", "ns"), ("prefetch/read_only/page", "ns")];
        expected.extend(every(way, &in_order));
        for pages in ["64", "4096"] {
            let released = format!("release/{pages}");
            expected.extend(every(way, &[(&released, "ns")]));
            if mapped {
                let way = format!("{way}/{released}");
                expected.extend(every(&way, &[("copy", "ns"), ("software", "ns")]));
            }
        }
        expected.extend(every(
            way,
            &[
                ("release/bytes/ratio/changed", "x"),
                ("release/shared/bytes/ratio/changed", "x"),
                ("acquire/clean", "ns"),
                ("bulk/copy", "ns"),
                ("bulk/remote", "ns"),
                ("bulk/smc", "ns"),
                ("bulk/ratio/copy", "x"),
                ("bulk/read_only/ratio/copy", "x"),
                ("cold/copy", "ns"),
                ("cold/remote", "ns"),
                ("cold/smc", "ns"),
                ("warm/copy", "ns"),
                ("warm/remote", "ns"),
                ("warm/smc", "ns"),
                ("warm/memory", "ns"),
                ("warm/ratio/memory", "x"),
                ("break_even", "touches"),
                ("registrations", "registrations"),
            ],
        ));
        if mapped {
            let memory =
                [("memory/dense/ratio/resident", "x"), ("memory/scattered/ratio/resident", "x")];
            expected.extend(every(way, &memory));
        }
    }
    let found: Vec<_> =
        found.iter().map(|line| (name(line), line["unit"].as_str().expect("a unit"))).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_cpu_that_cannot_be_is_one_line() {
    let me = std::process::id().to_string();
    let output = pontoon(&["bench-peer", "--cpu", "4096", "--parent", &me, "signal", "1"]);
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.starts_with("error: cpu 4096 is not in"), "{errors}");
}

#[test]
fn an_interrupt_leaves_no_process_behind() {
    use rustix::process::{Pid, Signal, kill_process};

    let place = Place::new("tune-interrupted");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_pontoon"))
        .args(["tune", "--json", "--pace", "100ms", "--profile", &place.path("profile")])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = bench.id();
    let watchdog = std::time::Instant::now();
    let peer = loop {
        let peers = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let Ok(peers) = peers else {
            println!("skipped: /proc/PID/task/PID/children is not there");
            let _ = bench.kill();
            let _ = bench.wait();
            return;
        };
        if let Some(peer) = peers.split_whitespace().next() {
            break peer.to_owned();
        }
        if bench.try_wait().expect("asked").is_some() {
            println!("skipped: no other process; a ping-pong needs two CPUs");
            return;
        }
        assert!(watchdog.elapsed().as_secs() < 60, "no other process");
        std::thread::yield_now();
    };
    // To this process alone, as by `kill -INT`; a terminal's Ctrl-C goes to both.
    kill_process(Pid::from_child(&bench), Signal::INT).expect("there");
    bench.wait().expect("ended");
    let state = || fs::read_to_string(format!("/proc/{peer}/stat")).unwrap_or_default();
    // Gone, or ended and not yet fetched by whoever inherited it.
    let is_over = |stat: &str| stat.is_empty() || stat.contains(") Z ");
    while !is_over(&state()) {
        assert!(watchdog.elapsed().as_secs() < 60, "{} is left", state());
        std::thread::yield_now();
    }
}

/// A place for one test's files, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a folder");
        Self(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tune_writes_a_profile_that_the_library_reads() {
    let place = Place::new("tune-writes");
    let file = place.path("new/folder/profile");
    let lines = lines(&pontoon(&["tune", "--json", "--tolerate", "7s", "--profile", &file]));
    let [thread, process, rings, wrote] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(wrote["profile"], *file);
    let profile = pontoon::signal::Profile::load(&file).expect("valid");
    for (line, tuned) in [(thread, profile.thread), (process, profile.process)] {
        assert_eq!(line["spin"], tuned.spin);
        assert_eq!(line["yields"], tuned.yields);
        assert_eq!(line["deadline_ns"], tuned.deadline.as_nanos() as u64);
        assert!(tuned.deadline.as_secs() >= 7);
    }
    match profile.rings {
        Some(tuned) => {
            for (line, ring) in [(&rings["small"], tuned.small), (&rings["large"], tuned.large)] {
                assert!(line["depth"] == ring.depth && line["batch"] == ring.batch, "{line}");
                assert_eq!(line["rings"], ring.rings);
            }
        }
        None => println!("skipped: {}", rings["skipped"]),
    }
    let left: Vec<_> = fs::read_dir(place.0.join("new/folder")).expect("there").collect();
    assert_eq!(left.len(), 1, "only the profile is left: {left:?}");
}

#[test]
fn tune_ends_soon_at_the_slowest_pace_and_takes_no_slower_one() {
    let place = Place::new("tune-paced");
    let file = place.path("profile");
    let started = std::time::Instant::now();
    lines(&pontoon(&["tune", "--json", "--pace", "100ms", "--profile", &file]));
    // Some 5 s on an idle machine.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    for (option, value) in [("--pace", "101ms"), ("--tolerate", "2d"), ("--tolerate", "0s")] {
        let output = pontoon(&["tune", option, value, "--profile", &file]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }
}

#[test]
fn a_profile_that_cannot_be_written_is_one_line_before_anything_is_measured() {
    let place = Place::new("tune-refused");
    fs::write(place.0.join("file"), "").expect("written");
    let file = place.path("file/profile");
    let output = pontoon(&["tune", "--profile", &file]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]));
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("cannot write the profile") && errors.contains(&file), "{errors}");
}
