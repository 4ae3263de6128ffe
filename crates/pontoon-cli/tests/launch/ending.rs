//! How jobs end by themselves: the status, and that nobody is left.

use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, Running, launch, lives, pids, shown, stands, text, until};

/// Prints the numbers of the rank and of a child of its own, which both ignore SIGTERM.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo $$ $!; wait; wait";

#[test]
fn the_first_failure_is_told_and_the_rest_are_gone() {
    let folder = Folder::new("first");
    let go = folder.at("go");
    let run = format!(
        "if [ $RANK = 2 ]; then until [ -e {} ]; do sleep 0.01; done; exit 7; fi; {STUBBORN}",
        shown(&go)
    );
    let job = Running::start(&["-n", "4", "--grace", "300ms", "--", "sh", "-c", &run]);
    let all = pids(&job.next(3));
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|&pid| lives(pid)));
    std::fs::write(go, "").expect("written");
    let line = job.complaint("rank 2");
    assert!(line.starts_with("pontoon launch: rank 2 (pid "), "{line}");
    assert!(line.contains(") failed with status 7 after "), "{line}");
    assert!(line.ends_with(" s; ending the 3 others"), "{line}");
    assert_eq!(job.code(), Some(7));
    assert_eq!(all.iter().filter(|&&pid| lives(pid)).count(), 0);
}

#[test]
fn ranks_that_can_be_asked_are_asked_first() {
    let run = "if [ $RANK = 0 ]; then read line < $FIFO; exit 3; fi
               trap 'echo asked; exit 0' TERM; echo ready > $FIFO; while :; do sleep 0.01; done";
    let folder = Folder::new("asked");
    let fifo = format!("FIFO={}", shown(&folder.at("fifo")));
    let made = std::process::Command::new("mkfifo").arg(folder.at("fifo")).status();
    assert!(made.expect("ran").success());
    let output = launch(&["-n", "2", "--grace", "60s", "-x", &fifo, "--", "sh", "-c", run]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "[1] asked\n");
}

#[test]
fn what_a_rank_leaves_behind_goes_with_it() {
    let run = "sleep 1000 & echo $!; (trap '' TERM; sleep 1000 & wait; wait) & echo $!";
    let job = Running::start(&["-n", "2", "--grace", "300ms", "--", "sh", "-c", run]);
    let all = pids(&job.next(4));
    assert_eq!(job.code(), Some(0));
    assert_eq!(all.iter().filter(|&&pid| lives(pid)).count(), 0);
}

/// As a rank that was killed leaves them, who takes nothing away itself.
#[test]
fn the_folders_of_dead_ranks_go_with_the_job() {
    let base = Folder::new("swept");
    let left = base.at("pontoon/job-x-0-1");
    let run = "umask 077; mkdir -p $FOLDER; printf 'pontoon owner 1\\npid 4194303\\nstarted 9\\n' \
               > $FOLDER/rank-0.owner; ls $FOLDER; kill -9 $$";
    let mut command = super::command(&["-n", "1", "--", "sh", "-c", run]);
    command.env("XDG_RUNTIME_DIR", base.at("")).env("FOLDER", &left);
    let job = Running::of(command);
    assert_eq!(job.next(1), ["[0] rank-0.owner"]);
    assert_eq!(job.code(), Some(137));
    assert!(!left.exists(), "it is left");
    assert!(base.at("pontoon").exists());
}

#[test]
fn a_signal_is_a_status_too() {
    for (signal, status) in [("KILL", 137), ("SEGV", 139), ("TERM", 143)] {
        let output = launch(&["-n", "1", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.code(), Some(status));
        let error = text(&output.stderr);
        assert!(error.contains(&format!("was ended by SIG{signal} after")), "{error}");
        assert!(error.ends_with("no other rank was left\n"), "{error}");
    }
}

#[test]
fn survivors_go_on_when_they_may() {
    let folder = Folder::new("survivors");
    let dead = folder.at("dead");
    // The survivors end after the death of rank 1 was told, for which they wait.
    let run = format!(
        "if [ $RANK = 1 ]; then kill -9 $$; fi
         until [ -e {} ]; do sleep 0.01; done; echo survived",
        shown(&dead)
    );
    for (tolerate, status) in [("0", 137), ("1", 0)] {
        let _ = std::fs::remove_file(&dead);
        let options = ["-n", "3", "--keep-going", "--tolerate", tolerate, "--", "sh", "-c", &run];
        let job = Running::start(&options);
        let line = job.complaint("rank 1");
        assert!(
            line.contains("was ended by SIGKILL") && line.ends_with("2 others go on"),
            "{line}"
        );
        std::fs::write(&dead, "").expect("written");
        assert_eq!(job.next(2), ["[0] survived", "[2] survived"]);
        assert_eq!(job.code(), Some(status), "{tolerate}");
    }
}

#[test]
fn nobody_survives_a_launcher_that_is_killed() {
    let job = Running::start(&["-n", "3", "--grace", "300ms", "--", "sh", "-c", STUBBORN]);
    let all = pids(&job.next(3));
    assert!(all.len() == 6 && all.iter().all(|&pid| lives(pid)));
    job.signal(Signal::KILL);
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}

#[test]
fn an_agent_that_is_killed_is_named_and_its_ranks_are_gone() {
    let job = Running::start(&["-n", "2", "--", "sh", "-c", "echo $$ $PPID; exec sleep 1000"]);
    let all = pids(&job.next(2));
    assert_eq!(all[1], all[3], "one agent");
    let agent = Pid::from_raw(all[1] as i32).expect("a number");
    kill_process(agent, Signal::KILL).expect("sent");
    let line = job.complaint("is lost");
    assert!(line.contains("host localhost is lost: signal: 9 (SIGKILL)"), "{line}");
    assert_eq!(job.code(), Some(1));
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}

/// Nobody but the launcher can see that nothing goes on.
#[test]
fn a_job_of_which_only_what_is_stopped_is_left_ends() {
    let folder = Folder::new("stopped-rank");
    let go = folder.at("go");
    let run = format!(
        "if [ $RANK = 0 ]; then echo $$; kill -STOP $$; fi; until [ -e {} ]; do sleep 0.01; done; exit 3",
        shown(&go)
    );
    for (order, tail) in [
        ("stopped before", "the other is stopped and has 500ms to go on"),
        ("stopped after", "rank 0 is stopped and alone left; unless it goes on, the job is ended"),
    ] {
        let _ = std::fs::remove_file(&go);
        // In the second round it is stopped once the other one has failed.
        let late = order == "stopped after";
        let run = if late { run.replace("kill -STOP $$", "exec sleep 1000") } else { run.clone() };
        let grace = [
            "-n",
            "2",
            "--keep-going",
            "--tolerate",
            "1",
            "--last-words",
            "500ms",
            "--grace",
            "300ms",
        ];
        let job = Running::start(&[&grace[..], &["--", "sh", "-c", &run]].concat());
        let all = pids(&job.next(1));
        if !late {
            until("it is stopped", || stands(all[0]));
        }
        std::fs::write(&go, "").expect("written");
        if late {
            job.complaint("rank 1");
            kill_process(Pid::from_raw(all[0] as i32).expect("a number"), Signal::STOP)
                .expect("sent");
        }
        job.complaint(tail);
        job.complaint("ending the rank that does not end: 0");
        assert_eq!(job.code(), Some(3), "{order}: no job is done that was stopped for good");
        until("it is gone", || !lives(all[0]));
    }
}

#[test]
fn an_agent_of_this_host_that_is_stopped_is_lost() {
    let options = ["-n", "1", "--silence", "5s", "--grace", "300ms"];
    let run = "echo $$ $PPID; exec sleep 1000";
    let job = Running::start(&[&options[..], &["--", "sh", "-c", run]].concat());
    let all = pids(&job.next(1));
    kill_process(Pid::from_raw(all[1] as i32).expect("a number"), Signal::STOP).expect("sent");
    let line = job.complaint("is lost");
    assert_eq!(line, "pontoon launch: host localhost is lost: it has been silent for 5s");
    assert_eq!(job.code(), Some(1));
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}

/// As a terminal does it: what it started goes on, and waits with what it has to say.
#[test]
fn a_launcher_that_is_stopped_is_no_loss_to_its_own_host() {
    let folder = Folder::new("stopped-launcher");
    let go = folder.at("go");
    let run = format!("echo began; until [ -e {} ]; do sleep 0.01; done; echo ended", shown(&go));
    let job = Running::start(&["-n", "1", "--silence", "1s", "--", "sh", "-c", &run]);
    assert_eq!(job.next(1), ["[0] began"]);
    job.signal(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_secs(3));
    job.signal(Signal::CONT);
    std::thread::sleep(std::time::Duration::from_secs(3));
    std::fs::write(go, "").expect("written");
    assert_eq!(job.next(1), ["[0] ended"]);
    assert_eq!(job.code(), Some(0));
}

/// It hears no order, and the launcher's own patience is what is left.
#[test]
fn an_agent_that_is_stopped_is_not_waited_for() {
    let job = Running::start(&[
        "-n",
        "1",
        "--grace",
        "300ms",
        "--",
        "sh",
        "-c",
        "echo $$ $PPID; exec sleep 1000",
    ]);
    let all = pids(&job.next(1));
    let agent = Pid::from_raw(all[1] as i32).expect("a number");
    kill_process(agent, Signal::STOP).expect("sent");
    job.signal(Signal::INT);
    job.complaint("SIGINT went to 1 rank; once more kills it");
    job.signal(Signal::INT);
    let line = job.complaint("is lost");
    assert!(line.ends_with("it did not end its ranks, and some may be left there"), "{line}");
    assert_eq!(job.code(), Some(130));
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}
