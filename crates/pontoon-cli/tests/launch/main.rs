//! `pontoon launch` as a user runs it: real processes, here and over hosts.

mod ending;
mod hosts;
#[path = "../common/hosts.rs"]
mod hosts_up;
mod namespaces;
mod output;
mod signals;
mod start;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Far beyond what any of these runs takes: it catches a hang, not a slow machine.
const WATCHDOG: Duration = Duration::from_secs(120);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.arg("launch").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a launch to its end.
fn launch(arguments: &[&str]) -> Output {
    finish(command(arguments).spawn().expect("started"))
}

fn finish(child: Child) -> Output {
    let (pid, name) = (Pid::from_child(&child), format!("{child:?}"));
    let (done, ended) = channel();
    // Its output is read all the while, or it would wait for that.
    thread::spawn(move || done.send(child.wait_with_output()));
    match ended.recv_timeout(WATCHDOG) {
        Ok(output) => output.expect("waited for"),
        Err(_) => {
            let _ = kill_process(pid, Signal::KILL);
            panic!("hangs: {name}");
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The lines of standard output, in an order of their own: ranks are not ordered.
fn sorted_lines(output: &Output) -> Vec<&str> {
    let mut lines: Vec<_> = text(&output.stdout).lines().collect();
    lines.sort_unstable();
    lines
}

/// Waits until `what` holds.
fn until(name: &str, mut what: impl FnMut() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < WATCHDOG, "never: {name}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and no zombie.
fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| !"ZX".contains(state))
}

/// Whether a process is stopped.
fn stands(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// A process's state, as a letter.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// A launch that goes on, whose lines are told as they come.
struct Running {
    child: Option<Child>,
    pid: Pid,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        Self::of(command(arguments))
    }

    fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let out = lines(child.stdout.take().expect("piped"));
        let err = lines(child.stderr.take().expect("piped"));
        Self { pid: Pid::from_child(&child), child: Some(child), out, err }
    }

    /// The next `count` lines of standard output, sorted.
    fn next(&self, count: usize) -> Vec<String> {
        let mut lines: Vec<_> =
            (0..count).map(|_| self.out.recv_timeout(WATCHDOG).expect("a line")).collect();
        lines.sort_unstable();
        lines
    }

    /// Waits for a line of standard error that has `part`.
    fn complaint(&self, part: &str) -> String {
        loop {
            let line = self.err.recv_timeout(WATCHDOG);
            let line = line.unwrap_or_else(|error| panic!("{part}: {error}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("sent");
    }

    fn code(mut self) -> Option<i32> {
        let child = self.child.take().expect("once");
        finish(child).status.code()
    }

    /// Waits for its end: its status, and the lines of standard error that are left.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let child = self.child.take().expect("once");
        let code = finish(child).status.code();
        let next = || self.err.recv_timeout(WATCHDOG).ok();
        (code, std::iter::from_fn(next).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// All numbers of some lines `[rank] pid pid ...`.
fn pids(lines: &[String]) -> Vec<u32> {
    let words = lines.iter().flat_map(|line| line.split_whitespace().skip(1));
    words.map(|word| word.parse().expect("a number")).collect()
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("pontoon-launch-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a script that can be run.
    fn script(&self, name: &str, lines: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.at(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made a program");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("text")
}
