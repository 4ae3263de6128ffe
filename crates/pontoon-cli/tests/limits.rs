//! What a host may refuse to a job: files, memory, room in its folders, ports, a stack. Each ends the
//! attempt at once, with one line that names the limit and what to do.

mod common;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use pontoon::{hal::conformance::part, ucx::Library};

use common::{Ended, Place, Process, pontoon};

const SHORT: [&str; 4] = ["--devices", "1", "--epochs", "1"];
const LONG: &str = "60s";
/// Far from that, and from what a slow machine takes.
const AT_ONCE: Duration = Duration::from_secs(40);

/// `command` under a limit of the shell's, such as `-n 20`.
fn limited(limit: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit {limit} && exec \"$@\"")).arg("sh");
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn train(arguments: &[&str]) -> Command {
    pontoon(&[&["train"][..], &SHORT, arguments].concat())
}

/// Runs it; it ends long before a wait for others would.
fn end_of(mut command: Command) -> Ended {
    let start = Instant::now();
    let ended = Process::start(&mut command).end("one under a limit");
    assert!(start.elapsed() < AT_ONCE, "{:?}: {ended:?}", start.elapsed());
    assert!(!ended.err.contains("panicked"), "{ended:?}");
    ended
}

/// Rank `rank` of `world`, by itself, that waits so long for the others.
fn rank(place: &Place, (rank, world): (u32, u32), bound: &str) -> Command {
    let mut command = common::rank_command(&[&SHORT[..], &["--join-bound", bound]].concat());
    command.envs(place.variables(rank, world));
    command
}

#[test]
fn a_launcher_without_files_names_the_limit() {
    for files in [5, 8, 12] {
        let ended = end_of(limited(&format!("-n {files}"), &train(&["--procs", "2"])));
        let part = format!("; the process may have {files} files open: raise `ulimit -n`");
        assert!(ended.refusal().ends_with(&part), "{ended:?}");
    }
}

/// From where the launcher can start ranks up to where they work, they fail in many places.
#[test]
fn ranks_without_files_end_at_once_with_the_limit() {
    let mut transports = vec!["shm"];
    if part::needed("ucx", Library::open()).is_some() {
        transports.push("ucx");
    }
    for transport in transports {
        for files in 17..24 {
            let command = train(&["--procs", "2", "--transport", transport]);
            let ended = end_of(limited(&format!("-n {files}"), &command));
            let what = format!("{transport}, {files} files: {ended:?}");
            assert!(ended.status.success() || ended.err.contains("raise `ulimit -n`"), "{what}");
            for mystery in ["uncategorized", "is not a file", "does not end", "is rank 0 started"] {
                assert!(!ended.err.contains(mystery), "{what}");
            }
        }
    }
}

/// How much is too little for what depends on the build: from where nothing starts at all, up to where
/// some failed for it, or all runs.
#[test]
fn a_want_of_address_space_is_named() {
    let is_named = |kib: &u32| {
        let command = limited(&format!("-v {kib}"), &train(&["--procs", "2"]));
        let ended = Process::start(&mut { command }).end("one without address space");
        let part = format!("raise `ulimit -v`, which is {kib} KiB");
        ended.err.contains(&part) && ended.status.code() == Some(2)
    };
    assert!((16_000..60_000).step_by(2_000).any(|kib| is_named(&kib)), "no run failed for it");
}

/// A measurement takes more of it than a job does, in two processes.
#[test]
fn a_want_of_address_space_is_none_of_the_measurement() {
    let mut named = 0;
    for kib in (40_000..100_000).step_by(10_000) {
        let command = limited(&format!("-v {kib}"), &pontoon(&["bench", "smc", "--quick"]));
        let ended = Process::start(&mut { command }).end("one without address space");
        // Where a process has not even enough to say so, the system ends it.
        if ended.status.code().is_none() || ended.err.contains("signal: ") {
            continue;
        }
        assert_ne!(ended.status.code(), Some(1), "{kib} KiB: {ended:?}");
        let part = format!("raise `ulimit -v`, which is {kib} KiB");
        named += u32::from(ended.err.contains(&part) && ended.status.code() == Some(2));
    }
    assert!(named > 0, "no run failed for it");
}

#[test]
fn a_stack_that_is_too_small_is_refused_before_it_overflows() {
    for command in [pontoon(&["doctor"]), train(&["--procs", "2"]), train(&[])] {
        let ended = end_of(limited("-s 64", &command));
        let wanted = "error: the stack may have 64 KiB, and ";
        assert!(ended.refusal().starts_with(wanted), "{ended:?}");
        assert!(ended.refusal().contains("raise `ulimit -s`"), "{ended:?}");
    }
    // What is taken is enough.
    assert_eq!(end_of(limited("-s 512", &train(&[]))).status.code(), Some(0));
    assert_eq!(end_of(limited("-s 512", &train(&["--procs", "2"]))).status.code(), Some(0));
}

/// A folder that goes with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, mode: u32) -> Self {
        let path = std::env::temp_dir().join(format!("pontoon-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name space in which `mount` makes of /dev/shm what it likes; then the program runs there.
fn with_shm(mount: &str, command: &Command) -> Command {
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c"]).arg(format!("{mount} && exec \"$@\"")).arg("sh");
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_what_to_do() {
    let tried = Command::new("unshare").args(["-m", "true"]).output();
    let Some(()) = part::needed(
        "namespaces",
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        },
    ) else {
        return;
    };
    let open = Scratch::new("open", 0o777);
    let full = "mount -t tmpfs -o size=4k,mode=1777 none /dev/shm; dd if=/dev/zero of=/dev/shm/full \
                2>/dev/null; true";
    for (mount, part) in [
        (full, "free some room there, or set XDG_RUNTIME_DIR to a folder of yours"),
        ("mount -t tmpfs -o ro none /dev/shm", "it can only be read: set XDG_RUNTIME_DIR"),
        (
            "mount -t tmpfs none /dev/shm; mkdir -m 700 /dev/shm/pontoon-$(id -u); \
             chown 65534 /dev/shm/pontoon-$(id -u)",
            "is of user 65534 with mode 0700, and must be this user's",
        ),
    ] {
        for (folder, passed_over) in [
            (None, None),
            (Some("/nowhere"), Some("/nowhere, was passed over: No such file")),
            (Some("/etc/passwd"), Some("/etc/passwd, was passed over: it is no folder")),
            (open.0.to_str(), Some("others may write to it (mode 0777")),
        ] {
            let place = Place::new();
            let mut command = with_shm(mount, &rank(&place, (0, 2), LONG));
            command.envs(place.variables(0, 2)).env_remove("XDG_RUNTIME_DIR");
            folder.map(|folder| command.env("XDG_RUNTIME_DIR", folder));
            let other = Process::start(&mut rank(&place, (1, 2), LONG));
            let ended = end_of(command);
            let refusal = ended.refusal();
            assert!(refusal.contains("/dev/shm/pontoon-") && refusal.contains(part), "{refusal}");
            match passed_over {
                Some(why) => assert!(refusal.contains(why), "{refusal}"),
                None => assert!(!refusal.contains("passed over"), "{refusal}"),
            }
            // It leaves word for the other, which is told the same.
            let told = other.end_by(Instant::now() + AT_ONCE, "one that is told");
            let why = refusal.strip_prefix("rank 0: error: ").expect("rank 0's");
            let wanted = format!("rank 1: error: rank 0 cannot be in the job: {why}");
            assert_eq!(told.refusal(), wanted);
        }
    }
}

/// By default the system ends who writes beyond it, without a word.
#[test]
fn a_file_that_may_not_be_as_long_is_an_error_of_the_write() {
    let folder = Scratch::new("long", 0o700);
    let file = folder.0.join("trace.json");
    let given = ["train", "--epochs", "1", "--trace", file.to_str().expect("text")];
    let ended = end_of(limited("-f 1", &pontoon(&given)));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.error().contains("File too large"), "{ended:?}");
    assert!(ended.error().ends_with("raise `ulimit -f`"), "{ended:?}");
    let ended = end_of(limited("-f 1", &train(&["--procs", "2"])));
    assert!(ended.status.code().is_some_and(|code| code < 3), "{ended:?}");
    assert!(ended.err.contains("File too large"), "{ended:?}");
}

#[test]
fn output_that_cannot_be_written_is_said_to_be() {
    for (arguments, what) in [
        (&["doctor"][..], "error: cannot write the report: No space left"),
        (&["doctor", "--json"], "error: cannot write the report: No space left"),
        (&["bench", "signal", "--quick"], "error: cannot write the figures: No space left"),
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
        let output = pontoon(arguments).stdout(full).output().expect("it starts");
        let said = String::from_utf8(output.stderr).expect("text");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(what), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}

#[test]
fn an_address_of_another_host_is_warned_of_once() {
    let place = Place { host: "192.0.2.7".to_owned(), ..Place::new() };
    let ended = end_of(rank(&place, (0, 2), "1s"));
    let warning = "rank 0: warning: MASTER_ADDR is 192.0.2.7, which is no address of this host";
    assert_eq!(ended.err.matches(warning).count(), 1, "{ended:?}");
}

#[test]
fn two_that_say_they_are_one_rank_are_told_of_in_words() {
    let place = Place::new();
    let start = |number, bound| Process::start(&mut rank(&place, (number, 3), bound));
    // A third rank does not come, so the job is still open when the second rank 1 does.
    let (zero, ones) = (start(0, "8s"), [start(1, LONG), start(1, LONG)]);
    let zero = zero.end("rank 0");
    let refused = zero.err.lines().find(|line| line.contains("warning: refused a rank: "));
    let refused = refused.unwrap_or_else(|| panic!("{zero:?}"));
    assert!(refused.contains("that it is rank 1, and pid "), "{refused}");
    assert!(!refused.contains(['{', '}']) && !refused.contains("HostId"), "{refused}");
    drop(ones);
}
