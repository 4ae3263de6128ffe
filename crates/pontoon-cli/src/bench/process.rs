//! The other process of a measurement: this program again, under a hidden command.

use std::{
    env,
    io::stdin,
    os::fd::AsFd,
    process::{Child, Command, ExitStatus, Stdio},
};

use pontoon::signal::{Nanos, SignalTable};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::doctor::topology::pair as topology;

use super::{
    BenchError,
    pin::pin_to,
    pingpong::Side,
    ranks::{What, rank},
    signal,
};

/// The hidden command by which the program starts itself as the other process.
pub(crate) const COMMAND: &str = "bench-peer";

/// What the other process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Subcommand)]
pub(crate) enum Task {
    /// Answers the plan of `bench signal`
    Signal { trips: u32 },
    /// Answers the measurements of `tune`
    Tune { pace_ns: u64 },
    /// Is rank 1 of two
    Rank {
        #[arg(long, value_enum)]
        what: What,
        #[arg(long)]
        ucx: bool,
    },
    /// Is rank 1 of `doctor --topology`
    Topology {
        #[arg(long)]
        ucx: bool,
    },
}

/// Arguments of the hidden command. The signal table is its standard input.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PeerArgs {
    #[arg(long)]
    cpu: usize,
    /// Who started it; it ends with that process
    #[arg(long)]
    parent: i32,
    #[command(subcommand)]
    task: Task,
}

/// The other process, which does not outlive this value.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
}

impl Peer {
    /// Starts it on `cpu` with row 1 of `table`, which must be a shared one.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub(crate) fn start(table: &SignalTable, cpu: usize, task: Task) -> Result<Self, BenchError> {
        let unshared = || BenchError::Peer(std::io::ErrorKind::Unsupported.into());
        let file = table.file().ok_or_else(unshared)?.try_clone_to_owned();
        let mut command = Command::new(env::current_exe().map_err(BenchError::Peer)?);
        command.arg(COMMAND).arg("--cpu").arg(cpu.to_string());
        command.arg("--parent").arg(std::process::id().to_string());
        match task {
            Task::Signal { trips } => command.arg("signal").arg(trips.to_string()),
            Task::Tune { pace_ns } => command.arg("tune").arg(pace_ns.to_string()),
            Task::Rank { what, ucx } => {
                command.args(["rank", "--what", what.word()]).args(ucx.then_some("--ucx"))
            }
            Task::Topology { ucx } => command.arg("topology").args(ucx.then_some("--ucx")),
        };
        command.stdin(Stdio::from(file.map_err(BenchError::Peer)?)).stdout(Stdio::null());
        Ok(Self { child: command.spawn().map_err(BenchError::Peer)? })
    }

    /// What the measurement gave, or that the other process failed first.
    ///
    /// # Errors
    ///
    /// That of the measurement, unless the other process ended with a failure of its own.
    pub(crate) fn finish<T>(mut self, measured: Result<T, BenchError>) -> Result<T, BenchError> {
        match measured {
            Ok(measured) => Ok(measured),
            Err(error) => match self.child.try_wait() {
                Ok(Some(status)) if !ExitStatus::success(&status) => {
                    Err(BenchError::PeerFailed(status))
                }
                _ => Err(error),
            },
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Killed, not waited for: by now it has nothing left to do, and it may spin on a CPU that
        // the next measurement needs. Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the other process.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn peer(args: &PeerArgs) -> Result<(), BenchError> {
    begin(args.parent, args.cpu)?;
    let file = stdin().as_fd().try_clone_to_owned().map_err(BenchError::Peer)?;
    let table = SignalTable::open(file)?;
    match args.task {
        Task::Rank { what, ucx } => return rank::second(&table, what, ucx, args.cpu),
        Task::Topology { ucx } => return topology::second(&table, ucx),
        Task::Signal { .. } | Task::Tune { .. } => {}
    }
    let mut side = Side::claim(&table, 1)?;
    match args.task {
        Task::Signal { trips } => signal::echo(&mut side, trips)?,
        Task::Tune { pace_ns } => crate::tune::measure::echo(&mut side, Nanos(pace_ns))?,
        Task::Rank { .. } | Task::Topology { .. } => {}
    }
    side.leave();
    Ok(())
}

/// Begins a process of a measurement: it ends with `parent`, and keeps to `cpu`.
///
/// # Errors
///
/// See [`BenchError`].
pub(super) fn begin(parent: i32, cpu: usize) -> Result<(), BenchError> {
    // The bare ping-pong looks at no deadline: the kernel ends it when its parent dies.
    let refused =
        |errno: rustix::io::Errno| BenchError::System { call: "prctl", error: errno.into() };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(refused)?;
    if getppid().is_none_or(|found| found.as_raw_pid() != parent) {
        return Err(BenchError::Orphaned { parent });
    }
    pin_to(cpu)
}
