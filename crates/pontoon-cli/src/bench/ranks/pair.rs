//! The two ranks, as the program that measures has them.

use std::{
    env,
    io::{self, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    What,
    rank::{ABSENT, COMMAND, DONE, READY},
};
use crate::bench::{
    BenchError,
    pin::{CpuPair, usable},
};

/// The longest that a line of steps may take. Each wait within has a bound of its own.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two ranks, of which the first says what they find. They do not outlive this value.
pub(crate) struct Pair {
    child: Child,
    steps: ChildStdin,
    figures: ChildStdout,
    /// What was read and is no whole line yet.
    read: Vec<u8>,
}

impl Pair {
    /// Starts both to wait for steps, over shared memory or, with these variables, over UCX. The
    /// inner error says what is missing here.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    pub(crate) fn start(
        what: What,
        cpus: CpuPair,
        ucx: Option<&[(&str, &str)]>,
    ) -> Result<Result<Self, String>, BenchError> {
        let spares: Vec<_> =
            usable()?.into_iter().filter(|&cpu| cpu != cpus.near && cpu != cpus.far).collect();
        Self::of(COMMAND, cpus, |command| {
            command.args(["--what", what.word()]);
            for spare in spares {
                command.args(["--spare", &spare.to_string()]);
            }
            if let Some(variables) = ucx {
                command.arg("--ucx").envs(variables.iter().copied());
            }
        })
    }

    /// Starts both by the hidden command `name`, to which `add` adds what is its own; it takes
    /// [`PairArgs`](super::rank::PairArgs) and begins with a line that says whether both are there.
    /// The inner error says what is missing here.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    pub(crate) fn of(
        name: &str,
        cpus: CpuPair,
        add: impl FnOnce(&mut Command),
    ) -> Result<Result<Self, String>, BenchError> {
        let mut command = Command::new(env::current_exe().map_err(BenchError::Peer)?);
        command.arg(name).args(["--cpu", &cpus.near.to_string()]);
        command.args(["--far", &cpus.far.to_string()]);
        command.args(["--parent", &std::process::id().to_string()]);
        add(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::Peer)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let unpiped = || BenchError::Peer(io::ErrorKind::BrokenPipe.into());
        let (steps, figures) = pipes.ok_or_else(unpiped)?;
        let mut pair = Self { child, steps, figures, read: Vec::new() };
        let said = pair.line()?;
        match said.strip_prefix(ABSENT) {
            Some(why) => Ok(Err(why.to_owned())),
            None if said == READY => Ok(Ok(pair)),
            None => Err(BenchError::PeerSaid(said.into())),
        }
    }

    /// Has both do `steps`, which are words of the measurement's own. What rank 0 measured, one value a step.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    ///
    /// # Blocks
    ///
    /// Two minutes at most.
    pub(crate) fn run<const N: usize>(&mut self, steps: [u64; N]) -> Result<[f64; N], BenchError> {
        let mut line: Vec<String> = steps.iter().map(u64::to_string).collect();
        line.push("\n".to_owned());
        if let Err(error) = self.steps.write_all(line.join(" ").as_bytes()) {
            return Err(self.failure(BenchError::Peer(error)));
        }
        let said = self.line()?;
        let figures: Option<Vec<f64>> =
            said.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let figures = figures.and_then(|figures| figures.try_into().ok());
        figures.ok_or(BenchError::PeerSaid(said.into()))
    }

    /// All lines that rank 0 says until it says [`DONE`].
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    ///
    /// # Blocks
    ///
    /// Two minutes a line at most.
    pub(crate) fn until_done(&mut self) -> Result<String, BenchError> {
        let mut all = String::new();
        loop {
            match self.line()? {
                line if line == DONE => return Ok(all),
                line => all += &(line + "\n"),
            }
        }
    }

    /// The next line that rank 0 says.
    fn line(&mut self) -> Result<String, BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.figures, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err(BenchError::PeerSilent { waited: PATIENCE }),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(BenchError::Peer(errno.into())),
                Ok(_) => {}
            }
            let mut some = [0; 4096];
            match self.figures.read(&mut some) {
                Ok(0) => {
                    let ended = BenchError::Peer(io::ErrorKind::UnexpectedEof.into());
                    return Err(self.failure(ended));
                }
                Ok(count) => self.read.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::Peer(error)),
            }
        }
    }

    /// That rank 0 ended with a failure of its own, which it has told, or `error`. It closed its end
    /// of a pipe, so it is about to end.
    fn failure(&mut self, error: BenchError) -> BenchError {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) if !status.success() => return BenchError::PeerFailed(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                _ => break,
            }
        }
        error
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Rank 1 goes with it. Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
