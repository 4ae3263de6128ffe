//! One rank on its host: a process group that ends as a whole.
//!
//! The agent starts this program again as `launch-rank`, which asks the kernel to die with its
//! parent and then becomes the command. Between fork and exec that would take `unsafe`.
//!
//! - R1: a group is signalled only while its leader is not reaped, so that its number is its own.

use std::{
    collections::HashSet,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{
        Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getppid, getrlimit,
        kill_process_group, set_parent_process_death_signal, setrlimit, waitid,
    },
    stdio::dup2_stdin,
};

use super::{
    is_of_a_job,
    poll::{Got, never_block, read},
    wire::{How, Plan, Stream},
};

/// The hidden command that becomes a rank.
pub(crate) const COMMAND: &str = "launch-rank";
/// How long what was sent SIGKILL may take to go: a process in the kernel's hands may take longer,
/// and nothing can be done about it.
const KILLED_GOES: Duration = Duration::from_secs(5);

/// Arguments of the hidden command. Its standard input takes the error if the command cannot start.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RankArgs {
    /// Who started it; it ends with that process
    #[arg(long)]
    parent: i32,
    /// How many files it may open
    #[arg(long)]
    files: Option<u64>,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the rank's command. Returns only if that failed; then the parent was told.
pub(crate) fn become_rank(args: &RankArgs) {
    let Ok(told) = fcntl_dupfd_cloexec(io::stdin(), 3) else { return };
    let error = exec(args);
    let code = error.raw_os_error().unwrap_or(0);
    // If nobody listens, nobody is left to be told.
    let _ = File::from(told).write_all(&code.to_le_bytes());
}

fn exec(args: &RankArgs) -> io::Error {
    let prepare = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().is_none_or(|parent| parent.as_raw_pid() != args.parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        dup2_stdin(File::open("/dev/null")?)?;
        if args.files.is_some() {
            let maximum = getrlimit(Resource::Nofile).maximum;
            setrlimit(Resource::Nofile, Rlimit { current: args.files, maximum })?;
        }
        Ok(())
    };
    let Some((program, arguments)) = args.command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    match prepare() {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

/// What became of the start of a rank's command.
#[derive(Debug)]
pub(super) enum Start {
    Pending,
    Runs,
    Failed(io::Error),
}

/// Where a rank is between its start and its end.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Runs,
    /// Its process ended and is not reaped; others of its group may live.
    Leaving {
        next: Instant,
        killed: bool,
    },
    Gone,
}

/// A rank that was started.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    child: Child,
    pid: Pid,
    started: Instant,
    start: Option<File>,
    pub(super) streams: [Option<File>; 2],
    phase: Phase,
}

impl Rank {
    /// Starts the rank that is number `local` of its host.
    ///
    /// # Errors
    ///
    /// There is no process, or no pipe, to be had.
    pub(super) fn start(plan: &Plan, local: usize, files: Option<u64>) -> io::Result<Self> {
        let rank = plan.ranks[local];
        let mut command = Command::new(env::current_exe()?);
        command.arg(COMMAND).arg("--parent").arg(std::process::id().to_string());
        if let Some(files) = files {
            command.arg("--files").arg(files.to_string());
        }
        for (name, _) in env::vars_os().filter(|(name, _)| is_of_a_job(name)) {
            command.env_remove(name);
        }
        let own = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        command.arg("--").args(plan.command.iter().map(own));
        command.envs(plan.variables.iter().map(|(name, value)| (own(name), own(value))));
        for (name, value) in
            [("RANK", rank as usize), ("LOCAL_RANK", local), ("LOCAL_WORLD_SIZE", plan.ranks.len())]
        {
            command.env(name, value.to_string());
        }
        let (start, told) = io::pipe()?;
        command.stdin(told).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let started = Instant::now();
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let streams = [
            child.stdout.take().map(|stream| File::from(OwnedFd::from(stream))),
            child.stderr.take().map(|stream| File::from(OwnedFd::from(stream))),
        ];
        let start = Some(File::from(OwnedFd::from(start)));
        let this = Self { rank, child, pid, started, start, streams, phase: Phase::Runs };
        for file in this.streams.iter().chain([&this.start]).flatten() {
            never_block(file)?;
        }
        Ok(this)
    }

    /// The process's number on its host.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is readable when it is known whether the command runs; `None` once it is.
    pub(super) fn starting(&self) -> Option<&File> {
        self.start.as_ref()
    }

    /// Whether the command runs.
    pub(super) fn started(&mut self) -> Start {
        let Some(file) = &mut self.start else { return Start::Pending };
        let mut code = [0; 4];
        let start = match read(file, &mut code) {
            Got::NothingYet => return Start::Pending,
            Got::Bytes(_) => Start::Failed(io::Error::from_raw_os_error(i32::from_le_bytes(code))),
            Got::End => Start::Runs,
        };
        self.start = None;
        start
    }

    /// Sends a signal to each process of the rank. Those that are gone need none.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.is_gone() {
            let _ = kill_process_group(self.pid, signal); // R1
        }
    }

    /// Whether its process ended since the last look: how, and after how long.
    pub(super) fn ended(&mut self, grace: Duration) -> Option<(How, Duration)> {
        if !matches!(self.phase, Phase::Runs) {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten()?;
        let how = match (status.exit_status(), status.terminating_signal()) {
            (_, Some(signal)) => How::Signal(signal),
            (status, None) => How::Status(status.unwrap_or(1)),
        };
        self.signal(Signal::TERM);
        self.phase = Phase::Leaving { next: Instant::now() + grace, killed: false };
        Some((how, self.started.elapsed()))
    }

    /// Whether its process was stopped, or continued, since the last look: which of them was last.
    pub(super) fn stopped(&mut self) -> Option<bool> {
        if !matches!(self.phase, Phase::Runs) {
            return None;
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten()?;
        (status.stopped() || status.continued()).then(|| status.stopped())
    }

    /// Whether its process has ended and others of its group may live.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    /// Whether nothing of it is left.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// Ends what its process left behind: SIGTERM was sent, SIGKILL follows after the grace, or
    /// `at_once`. Returns whether the last of it went now.
    pub(super) fn leave(&mut self, living: &HashSet<i32>, at_once: bool) -> bool {
        let Phase::Leaving { next, killed } = self.phase else { return false };
        let lives = living.contains(&self.pid.as_raw_pid());
        let is_late = Instant::now() >= next;
        if lives && !killed && (is_late || at_once) {
            self.signal(Signal::KILL);
            self.phase = Phase::Leaving { next: Instant::now() + KILLED_GOES, killed: true };
        } else if !lives || killed && is_late {
            // It has ended, so this returns at once.
            let _ = self.child.wait();
            self.phase = Phase::Gone;
            return true;
        }
        false
    }

    /// What of `stream` is there, into `buffer`.
    pub(super) fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> Option<usize> {
        let open = &mut self.streams[stream.index()];
        match read(open.as_mut()?, buffer) {
            Got::Bytes(bytes) => Some(bytes),
            Got::NothingYet => None,
            Got::End => {
                *open = None;
                None
            }
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if !self.is_gone() {
            let _ = self.child.wait();
        }
    }
}

/// The process groups that have a living member. What cannot be read has ended meanwhile.
pub(super) fn living_groups() -> HashSet<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return HashSet::new() };
    let is_number = |name: &OsString| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    processes
        .filter_map(|entry| entry.ok().filter(|entry| is_number(&entry.file_name())))
        .filter_map(|entry| living_group(&fs::read(entry.path().join("stat")).ok()?))
        .collect()
}

/// The group in a `/proc/PID/stat`, unless the process is a zombie. The name before may hold
/// anything, so fields are counted from its last bracket.
fn living_group(stat: &[u8]) -> Option<i32> {
    let fields = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_behind_any_name_and_a_zombie_has_none() {
        assert_eq!(living_group(b"7 (sh) S 1 42 7 0 -1"), Some(42));
        assert_eq!(living_group(b"7 (a) Z) \xff) R 1 42 7 0 -1"), Some(42));
        assert_eq!(living_group(b"7 (sh) Z 1 42 7 0 -1"), None);
        assert_eq!(living_group(b"7 (sh"), None);
        let own = rustix::process::getpgrp().as_raw_pid();
        assert!(living_groups().contains(&own));
    }
}
