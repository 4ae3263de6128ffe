//! What ranks find when they start, and what is refused before they do.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use super::{Folder, launch, shown, sorted_lines, text};

const VARIABLES: &str = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR \
                         $MASTER_PORT $PONTOON_JOB $PONTOON_TOKEN";

#[test]
fn ranks_know_who_and_where_they_are() {
    let mut tokens = BTreeSet::new();
    let mut jobs = BTreeSet::new();
    for _ in 0..2 {
        let output = launch(&["-n", "4", "--", "sh", "-c", VARIABLES]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = sorted_lines(&output);
        assert_eq!(lines.len(), 4);
        for (rank, line) in lines.iter().enumerate() {
            let words: Vec<_> = line.split(' ').collect();
            let [prefix, own, world, local, locals, address, port, job, token] = words[..] else {
                panic!("{line}")
            };
            assert_eq!(prefix, format!("[{rank}]"));
            let rank = rank.to_string();
            assert_eq!([own, world, local, locals, address], [&rank, "4", &rank, "4", "127.0.0.1"]);
            assert!(port.parse::<u16>().expect("a port") > 0);
            assert!(token.len() == 64 && token.chars().all(|c| c.is_ascii_hexdigit()), "{token}");
            tokens.insert(token.to_owned());
            jobs.insert(job.to_owned());
        }
    }
    assert_eq!((tokens.len(), jobs.len()), (2, 2), "one a job, and new each time");
}

#[test]
fn options_reach_the_environment() {
    let options = ["-n", "1", "--port", "4711", "--job", "mine", "-x", "A=b c", "-x", "HERE"];
    let print = "echo \"$MASTER_PORT $PONTOON_JOB $A $HERE\"; pwd; ulimit -n; read line || echo end
         echo $PONTOON_PORT $PONTOON_EPOCH $TORCHELASTIC_USE_AGENT_STORE";
    let folder = Folder::new("environment");
    // Fewer files than it might have: the launcher takes more for itself.
    let mut run = Command::new("sh");
    run.args(["-c", "ulimit -S -n 256; exec \"$0\" launch \"$@\"", env!("CARGO_BIN_EXE_pontoon")]);
    run.args(options).args(["--", "sh", "-c", print]);
    run.env("HERE", "there").env("PONTOON_JOB", "outer").current_dir(&folder.0);
    // As inside another job, whose ranks these are not.
    run.envs([("PONTOON_PORT", "9"), ("PONTOON_EPOCH", "3")]);
    run.env("TORCHELASTIC_USE_AGENT_STORE", "True");
    let output = run.stdin(Stdio::null()).output().expect("ran");
    let place = shown(&folder.0);
    let wanted = format!("[0] 4711 mine b c there\n[0] {place}\n[0] 256\n[0] end\n[0] 4711\n");
    assert_eq!(text(&output.stdout), wanted, "{}", text(&output.stderr));
}

#[test]
fn sixty_four_ranks_start_and_end() {
    let output = launch(&["-n", "64", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut wanted: Vec<_> = (0..64).map(|rank| format!("[{rank}] {rank} of 64")).collect();
    wanted.sort_unstable();
    assert_eq!(sorted_lines(&output), wanted);
}

#[test]
fn what_makes_no_sense_is_one_line_and_status_2() {
    let folder = Folder::new("refused");
    let file = folder.at("file");
    std::fs::write(&file, "").expect("written");
    let below = file.join("below");
    for (arguments, part) in [
        (&["-n", "2"][..], "COMMAND"),
        (&["--", "true"], "--ranks"),
        (&["-n", "0", "--", "true"], "0 is not in 1..=4096"),
        (&["-n", "4097", "--", "true"], "4097 is not in 1..=4096"),
        (&["-n", "-1", "--", "true"], "-1"),
        (&["-n", "2", "--hosts", "", "--", "true"], "\"\" is no host"),
        (&["-n", "2", "--hosts", "a,-oX", "--", "true"], "\"-oX\" is no host"),
        (&["-n", "2", "--hosts", "a,a", "--", "true"], "host a is named twice"),
        (&["-n", "1", "--hosts", "a,b", "--", "true"], "2 hosts have nothing to do with 1 rank:"),
        (&["-n", "1", "--", ""], "COMMAND: it is empty"),
        (&["-n", "1", "--", "", "true"], "COMMAND: it is empty"),
        (
            &["-n", "1", "--silence", "1ms", "--", "true"],
            "'--silence <TIME>': expected at least 10ms",
        ),
        (&["-n", "1", "--hosts", "a", "--rsh", "ssh", "--", "true"], "where {host} goes"),
        (&["-n", "1", "--hosts", "a", "--rsh", "/no/shell {host}", "--", "true"], "/no/shell"),
        (&["-n", "1", "--hosts", "a", "--program", "a b", "--", "true"], "as one word"),
        (&["-n", "2", "--hosts", "localhost,b", "--", "true"], "cannot reach it by localhost"),
        (&["-n", "2", "--hosts", "a=::1,b", "--", "true"], "cannot reach it by ::1"),
        (&["-n", "1", "--tolerate", "1", "--", "true"], "--keep-going"),
        (&["-n", "1", "-x", "SURELY_NOT_SET", "--", "true"], "is not set here"),
        (
            &["-n", "2", "-x", "RANK=7", "--", "true"],
            "-x: the launcher sets RANK itself: leave it out",
        ),
        (&["-n", "2", "-x", "MASTER_PORT=7", "--", "true"], "the launcher sets MASTER_PORT itself"),
        (&["-n", "1", "--output", "/dev/full", "--", "true"], "--output: /dev/full is no folder"),
        (
            &["-n", "1", "--output", "/dev/full/a", "--", "true"],
            "--output: cannot write /dev/full/a",
        ),
        (&["-n", "1", "--job", "a/b", "--", "true"], "is no name"),
        (&["-n", "1", "--output", shown(&below), "--", "true"], "--output: cannot write"),
        (&["-n", "1", "--", "/no/command"], "cannot start /no/command: No such file"),
        (&["-n", "64", "--", "surely-no-command"], "cannot start surely-no-command: No such file"),
        (&["-n", "1", "--", shown(&file)], "Permission denied"),
    ] {
        let output = launch(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(part), "{arguments:?}: {error}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn a_help_that_cannot_be_written_is_an_error_unless_nobody_wants_it() {
    for arguments in [&["--help"][..], &["launch", "--help"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("opened");
        let mut run = Command::new(env!("CARGO_BIN_EXE_pontoon"));
        let output = run.args(arguments).stdin(Stdio::null()).stdout(full).output().expect("ran");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: cannot write the help: No space"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let (reader, closed) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run.stdout(closed).output().expect("ran");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn help_says_what_it_is_for() {
    let output = launch(&["--help"]);
    assert!(output.status.success());
    let parts =
        ["MASTER_PORT", "second SIGINT", "--keep-going", "{host}", "first rank that failed"];
    for part in parts.into_iter().chain(["--grace after SIGTERM or SIGHUP", "left are stopped"]) {
        let help = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(part), "{part}: {help}");
    }
}
