//! Jobs over hosts, by a remote shell that is a script on this machine.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Folder, Running, command, finish, launch, lives, pids, shown, sorted_lines, text, until,
};

/// A remote shell as `ssh` is: it prints a banner, keeps no variable and no folder, and notes its
/// arguments.
fn shell(folder: &Folder) -> String {
    let notes = folder.at("arguments");
    let script = format!(
        "echo Welcome to $1; echo \"$@\" >> {}; host=$1; shift; cd /
         exec env -i PATH=\"$PATH\" HOST=\"$host\" \"$@\"",
        shown(&notes)
    );
    format!("{} {{host}}", shown(&folder.script("rsh", &script)))
}

#[test]
fn ranks_are_spread_and_know_it() {
    let folder = Folder::new("spread");
    let rsh = shell(&folder);
    let print = "echo $HOST $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $MASTER_ADDR $A; echo $PWD";
    let place = std::env::current_dir().expect("a folder");
    for (map, wanted) in [
        ("block", ["a 0 2", "a 1 2", "b 0 2", "b 1 2", "c 0 1"]),
        ("round-robin", ["a 0 2", "b 0 2", "c 0 1", "a 1 2", "b 1 2"]),
    ] {
        let hosts = "a=10.0.0.1,b,c";
        let options = ["-n", "5", "--hosts", hosts, "--rsh", &rsh, "--map", map, "-x", "A=b"];
        let output = launch(&[&options[..], &["--", "sh", "-c", print]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut lines: Vec<_> = wanted
            .iter()
            .enumerate()
            .flat_map(|(rank, who)| {
                [format!("[{rank}] {who} 5 10.0.0.1 b"), format!("[{rank}] {}", place.display())]
            })
            .collect();
        lines.sort_unstable();
        assert_eq!(sorted_lines(&output), lines);
    }
}

#[test]
fn this_host_by_that_name_is_reached_by_no_shell() {
    let folder = Folder::new("localhost");
    let rsh = shell(&folder);
    let options = ["-n", "2", "--hosts", "localhost=10.0.0.9,b", "--rsh", &rsh];
    let output = launch(&[&options[..], &["--", "sh", "-c", "echo $HOST $MASTER_ADDR"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = sorted_lines(&output);
    assert!(lines[0].ends_with("10.0.0.9") && lines[1] == "[1] b 10.0.0.9", "{lines:?}");
    let notes = fs::read_to_string(folder.at("arguments")).expect("notes");
    assert_eq!(notes.lines().count(), 1, "{notes}");
    assert!(notes.starts_with("b "), "{notes}");
}

#[test]
fn the_token_is_on_no_command_line_and_the_same_everywhere() {
    let folder = Folder::new("token");
    let rsh = shell(&folder);
    let run = "echo $PONTOON_TOKEN $MASTER_PORT; sleep 1000; :";
    let job = Running::start(&["-n", "2", "--hosts", "a,b", "--rsh", &rsh, "--", "sh", "-c", run]);
    let lines = job.next(2);
    let rest = |line: &str| line.split_once(' ').expect("a prefix").1.to_owned();
    assert_eq!(rest(&lines[0]), rest(&lines[1]));
    let token = rest(&lines[0]).split(' ').next().expect("a token").to_owned();
    assert_eq!(token.len(), 64);
    let mut seen = 0;
    for process in fs::read_dir("/proc").expect("processes").flatten() {
        let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
        seen += 1;
        assert!(!String::from_utf8_lossy(&line).contains(&token), "{process:?}");
    }
    assert!(seen > 4, "it looked at {seen} processes");
    let arguments = fs::read_to_string(folder.at("arguments")).expect("notes");
    assert_eq!(arguments.lines().count(), 2);
    assert!(!arguments.contains(&token));
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
}

#[test]
fn a_command_that_one_host_lacks_ends_the_others() {
    let folder = Folder::new("lacks");
    folder.script("only-on-a", "echo $$; exec sleep 1000");
    let at = shown(&folder.0);
    let script = format!("[ $1 = b ] || PATH={at}:$PATH; shift; exec env PATH=$PATH \"$@\"");
    let rsh = format!("{} {{host}}", shown(&folder.script("rsh", &script)));
    let options = ["-n", "2", "--hosts", "a,b", "--rsh", &rsh, "--", "only-on-a"];
    let output = launch(&options);
    assert_eq!(output.status.code(), Some(2));
    let wanted =
        "error: cannot start only-on-a: No such file or directory (os error 2) on host b\n";
    assert_eq!(text(&output.stderr), wanted);
    if let Some(line) = text(&output.stdout).strip_prefix("[0] ") {
        assert!(!lives(line.trim().parse().expect("a number")));
    }
}

#[test]
fn a_host_without_the_folder_is_named() {
    let folder = Folder::new("folder");
    let place = folder.at("place");
    fs::create_dir(&place).expect("made");
    // It is there when the launcher asks where it is.
    let script = format!("rmdir {}; shift; exec \"$@\"", shown(&place));
    let rsh = format!("{} {{host}}", shown(&folder.script("rsh", &script)));
    let mut run = command(&["-n", "1", "--hosts", "b", "--rsh", &rsh, "--", "true"]);
    let output = finish(run.current_dir(&place).spawn().expect("started"));
    assert_eq!(output.status.code(), Some(2));
    let wanted = format!("error: cannot enter the folder {}: No such file or", place.display());
    assert!(text(&output.stderr).starts_with(&wanted), "{}", text(&output.stderr));
}

#[test]
fn a_host_that_is_not_reached_is_named_and_nothing_runs() {
    let folder = Folder::new("unreached");
    let log = folder.at("ran");
    let touch = ["--", "touch", shown(&log)];
    for (on_b, part) in [
        (
            "echo no route to b >&2; exit 255",
            "host b was not reached: no route to b (exit status: 255)",
        ),
        ("exit 0", "host b was not reached: exit status: 0"),
        ("exec sleep 1000", "no answer within 1s from host b; nothing was started"),
        (
            "yes | head -c 100000; exec sleep 1000",
            "host b was not reached: 65536 bytes came and no",
        ),
        (
            r"printf '\0pontoon launch\n\0\0\0\0\0\046\0\0\0{\042Hello\042:{\042version\042:\0420\042,\042port\042:17777}}'; exec sleep 1000",
            "host b was not reached: it runs pontoon 0, this is 0.",
        ),
    ] {
        let script = format!("if [ $1 = b ]; then {on_b}; fi; shift; exec \"$@\"");
        let rsh = format!("{} {{host}}", shown(&folder.script("rsh", &script)));
        let within = if on_b == "exec sleep 1000" { "1s" } else { "60s" };
        let options = ["-n", "2", "--hosts", "a,b", "--rsh", &rsh, "--start-within", within];
        let output = launch(&[&options[..], &touch].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with(&format!("error: {part}")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!log.exists(), "{on_b}");
    }
}

#[test]
fn a_silent_host_is_lost_and_its_ranks_are_gone() {
    let folder = Folder::new("silent");
    let rsh = shell(&folder);
    let run = "echo $$ $PPID; exec sleep 1000";
    let options = ["-n", "2", "--hosts", "a,b", "--rsh", &rsh, "--silence", "5s"];
    let job = Running::start(&[&options[..], &["--", "sh", "-c", run]].concat());
    let all = pids(&job.next(2));
    // The agent of host b, which is still there and says nothing.
    kill_process(Pid::from_raw(all[3] as i32).expect("a number"), Signal::STOP).expect("sent");
    let line = job.complaint("is lost");
    assert_eq!(line, "pontoon launch: host b is lost: it has been silent for 5s");
    let line = job.complaint("rank 1");
    assert!(line.contains("on host b) was lost with its host after "), "{line}");
    assert_eq!(job.code(), Some(1));
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}

#[test]
fn a_silent_launcher_is_not_waited_for() {
    let folder = Folder::new("stopped");
    let rsh = shell(&folder);
    let run = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
    let options = ["-n", "1", "--hosts", "a", "--rsh", &rsh, "--silence", "5s", "--grace", "300ms"];
    let job = Running::start(&[&options[..], &["--", "sh", "-c", run]].concat());
    let all = pids(&job.next(1));
    job.signal(Signal::STOP);
    until("the rank is gone", || !lives(all[0]));
    job.signal(Signal::CONT);
    assert_eq!(job.code(), Some(137));
}

/// Its agent still has its grace, for nobody else knows what the rank has started.
#[test]
fn a_host_that_talks_nonsense_is_lost_and_nothing_is_left_there() {
    let folder = Folder::new("nonsense");
    let go = folder.at("go");
    let nonsense = "(until [ -e GO ]; do sleep 0.01; done; printf 'no frame at all, none') &";
    let nonsense = nonsense.replace("GO", shown(&go));
    let rsh = folder.script("rsh", &format!("{nonsense}\nshift; exec \"$@\""));
    let rsh = format!("{} {{host}}", shown(&rsh));
    let run = "trap '' TERM; sleep 1000 & echo $$ $!; wait";
    let options = ["-n", "1", "--hosts", "a", "--rsh", &rsh, "--grace", "500ms"];
    let job = Running::start(&[&options[..], &["--", "sh", "-c", run]].concat());
    let all = pids(&job.next(1));
    fs::write(go, "").expect("written");
    let line = job.complaint("is lost");
    assert!(line.starts_with("pontoon launch: host a is lost: "), "{line}");
    assert_eq!(job.code(), Some(1));
    assert!(!all.iter().any(|&pid| lives(pid)), "the launcher has ended, and they live");
}

/// Longer than the silence that is borne, and nothing to say all that time.
#[test]
fn a_quiet_job_is_not_lost() {
    let folder = Folder::new("quiet");
    let rsh = shell(&folder);
    let go = folder.at("go");
    let run = format!("echo began; until [ -e {} ]; do sleep 0.01; done; echo ended", shown(&go));
    let options = ["-n", "1", "--hosts", "a", "--rsh", &rsh, "--silence", "5s"];
    let job = Running::start(&[&options[..], &["--", "sh", "-c", &run]].concat());
    assert_eq!(job.next(1), ["[0] began"]);
    thread::sleep(Duration::from_secs(8));
    fs::write(go, "").expect("written");
    assert_eq!(job.next(1), ["[0] ended"]);
    assert_eq!(job.code(), Some(0));
}
