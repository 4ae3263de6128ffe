//! Signals that the launcher hands on.

use rustix::process::Signal;

use super::{Running, lives, pids, stands, until};

#[test]
fn signals_reach_every_rank() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let run = format!(
            "trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.01; done"
        );
        let job = Running::start(&["-n", "3", "--", "sh", "-c", &run]);
        assert_eq!(job.next(3), ["[0] ready", "[1] ready", "[2] ready"]);
        job.signal(signal);
        assert_eq!(job.next(3), [0, 1, 2].map(|rank| format!("[{rank}] got {name}")));
        assert_eq!(job.code(), Some(0), "{name}");
    }
}

/// A child of the rank has it too: `sleep` ends, and the shell goes on.
#[test]
fn signals_reach_the_children_of_ranks() {
    let run = "trap 'echo shell' USR1; sleep 1000 & sh -c 'trap \"echo child; exit\" USR1; \
               echo ready; while :; do sleep 0.01; done' & wait $!; wait $!; kill $(jobs -p); exit 0";
    let job = Running::start(&["-n", "1", "--", "sh", "-c", run]);
    assert_eq!(job.next(1), ["[0] ready"]);
    job.signal(Signal::USR1);
    assert_eq!(job.next(2), ["[0] child", "[0] shell"]);
    assert_eq!(job.code(), Some(0));
}

#[test]
fn the_second_interrupt_kills() {
    let run = "trap '' INT TERM; sleep 1000 & echo $$ $!; wait; wait";
    let job = Running::start(&["-n", "3", "--grace", "60s", "--", "sh", "-c", run]);
    let all = pids(&job.next(3));
    job.signal(Signal::INT);
    let line = job.complaint("SIGINT");
    assert_eq!(line, "pontoon launch: SIGINT went to 3 ranks; once more kills them");
    assert!(all.iter().all(|&pid| lives(pid)), "the first is the ranks' to handle");
    job.signal(Signal::INT);
    assert_eq!(job.code(), Some(130));
    until("all are gone", || !all.iter().any(|&pid| lives(pid)));
}

#[test]
fn who_asks_for_the_end_gets_it_after_the_grace() {
    let stubborn = "trap '' INT TERM HUP; sleep 1000 & echo $$ $!; wait; wait";
    for (signal, name, status) in [(Signal::TERM, "SIGTERM", 143), (Signal::HUP, "SIGHUP", 129)] {
        let job = Running::start(&["-n", "2", "--grace", "600ms", "--", "sh", "-c", stubborn]);
        let all = pids(&job.next(2));
        job.signal(signal);
        let line = job.complaint("killing");
        let wanted = format!("killing the ranks that did not end 600ms after {name}: 0, 1");
        assert_eq!(line, format!("pontoon launch: {wanted}"));
        assert_eq!(job.code(), Some(status));
        until("all are gone", || !all.iter().any(|&pid| lives(pid)));
    }
}

/// Nobody is blamed for it.
#[test]
fn what_all_were_handed_is_told_of_and_no_rank_of_its_end() {
    let cases = [
        (Signal::TERM, "SIGTERM", "they have 7s to end", 143),
        (Signal::HUP, "SIGHUP", "they have 7s to end", 129),
        (Signal::INT, "SIGINT", "once more kills them", 130),
    ];
    for (signal, name, then, status) in cases {
        let run = "echo ready; exec sleep 1000";
        let options = ["-n", "3", "--last-words", "9s", "--grace", "7s", "--", "sh", "-c", run];
        let job = Running::start(&options);
        assert_eq!(job.next(3), ["[0] ready", "[1] ready", "[2] ready"]);
        job.signal(signal);
        assert_eq!(job.complaint(""), format!("pontoon launch: {name} went to 3 ranks; {then}"));
        let (code, rest) = job.end();
        assert_eq!((code, rest), (Some(status), Vec::new()), "{name}");
    }
}

/// It takes no signal but one.
#[test]
fn a_stopped_rank_ends_after_the_grace_as_well() {
    let job = Running::start(&[
        "-n",
        "1",
        "--grace",
        "600ms",
        "--",
        "sh",
        "-c",
        "echo $$; kill -STOP $$",
    ]);
    let all = pids(&job.next(1));
    until("it stands", || stands(all[0]));
    job.signal(Signal::TERM);
    job.complaint("killing the rank that did not end 600ms after SIGTERM: 0");
    assert_eq!(job.code(), Some(143));
    until("it is gone", || !lives(all[0]));
}

/// As long as the grace allows, which is theirs however often they are asked.
#[test]
fn ranks_that_take_their_time_to_end_have_it() {
    let run = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let job = Running::start(&["-n", "1", "--grace", "60s", "--", "sh", "-c", run]);
    assert_eq!(job.next(1), ["[0] ready"]);
    job.signal(Signal::TERM);
    assert_eq!(job.next(1), ["[0] saved"]);
    assert_eq!(job.code(), Some(0));
}

#[test]
fn what_the_parent_ignores_stays_ignored() {
    let run = "trap '' HUP; exec \"$0\" launch -n 1 -- sh -c '
               echo ready; until [ -e \"$GO\" ]; do sleep 0.01; done; echo still here'";
    let folder = super::Folder::new("ignored");
    let go = folder.at("go");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", run, env!("CARGO_BIN_EXE_pontoon")]).env("GO", &go);
    let job = Running::of(shell);
    assert_eq!(job.next(1), ["[0] ready"]);
    job.signal(Signal::HUP);
    std::fs::write(go, "").expect("written");
    assert_eq!(job.next(1), ["[0] still here"]);
    assert_eq!(job.code(), Some(0));
}
