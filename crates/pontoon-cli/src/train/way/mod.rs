//! The ways to keep the job's stages in order: by signals, by a lock, by stopping devices.

mod device;
mod inject;
mod lock;
pub(super) mod ranks;
mod signals;

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use pontoon::{
    Bound, Buffer, Counts, Edges, Rank,
    cpu::Region,
    hal::Fault,
    queue::{EdgeName, Iteration, Profile, Timeline},
};

use rustix::process::Signal;

pub(crate) use inject::Inject;
pub(crate) use lock::Turn;
pub(super) use signals::edges_of;

use super::{
    error::TrainError,
    job::{Job, Lane},
    model,
    plan::{Plan, Step},
    progress::Progress,
};

/// How the stages are kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Streams wait for each other's fences, on the devices; the host runs ahead.
    Signals,
    /// A host thread a device, and a lock held while a stage reads or writes.
    Lock,
    /// The host stops every device between stages.
    Device,
}

/// What a way is given to run.
pub(super) struct Run<'r> {
    pub(super) job: &'r Job,
    pub(super) plan: &'r Plan,
    /// Who sees to it that no fence is missing, where streams wait for fences.
    pub(super) edges: Edges,
    pub(super) bound: Duration,
    pub(super) inject: Option<Inject>,
    /// Edges that are added to those given.
    pub(super) added: Vec<EdgeName>,
    /// Whether the edges that are made are wanted.
    pub(super) observe: bool,
    pub(super) progress: &'r Progress,
    /// How many moments of the host to keep, where there is a session.
    pub(super) moments: usize,
    /// Where to, however the run ends.
    pub(super) keep: &'r Mutex<Timeline>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Ran {
    /// The loss of each shard of the last epoch, in order.
    pub(super) losses: Vec<f32>,
    /// Of how many samples these are, where some were left out.
    pub(super) seen: usize,
    pub(super) waits: Waits,
    /// What the session did, if there was one.
    pub(super) counts: Option<Counts>,
    /// The edges that were made, if they were wanted.
    pub(super) observed: Vec<EdgeName>,
    /// What synchronisation cost, if there was a session.
    pub(super) profile: Option<Profile>,
    /// The step that took longest.
    pub(super) slowest: Option<Iteration>,
}

/// The host's waits, or the devices' where those wait.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    pub(super) count: u64,
    pub(super) mean: Duration,
    pub(super) p99: Duration,
    /// Waits that used up their bound, or the host's patience, and then went on or failed.
    pub(super) timeouts: u64,
    /// How long devices stood still for them, summed over the devices.
    pub(super) stalled: Duration,
    /// From a publish until the stream held back by it went on: median and p99.
    pub(super) delivery: Option<(Duration, Duration)>,
}

impl Default for Waits {
    fn default() -> Self {
        HostWaits::default().figures()
    }
}

/// Runs the job.
pub(super) fn run(way: Way, run: &Run<'_>) -> Result<Ran, TrainError> {
    match way {
        Way::Signals => signals::run(run),
        Way::Lock => lock::run(run),
        Way::Device => device::run(run),
    }
}

impl Run<'_> {
    fn bound(&self) -> Bound {
        Bound::within(self.bound)
    }

    /// How long the slow producer takes over a slow gradient: long enough to be noticed, short
    /// enough to be survived.
    pub(super) fn slowness(&self) -> Duration {
        self.bound / 4
    }

    /// How long the host waits before it says for whom.
    fn patience(&self) -> Duration {
        (self.bound / 8).max(Duration::from_millis(1))
    }

    /// Waits for up to `limit`; says and counts in `late` for whom, each time that the host loses
    /// patience. `blame` may turn such an error into one that says more.
    fn patiently(
        &self,
        limit: Duration,
        late: &mut u64,
        mut wait: impl FnMut(Bound) -> Result<(), TrainError>,
        blame: impl Fn(TrainError) -> TrainError,
    ) -> Result<(), TrainError> {
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed()).max(Duration::from_nanos(1));
            let Err(error) = wait(Bound::within(self.patience().min(left))) else { return Ok(()) };
            if !error.is_timeout() {
                return Err(error);
            }
            let so_far = started.elapsed();
            let error = blame(error).after(so_far);
            if so_far >= limit {
                return Err(error);
            }
            *late += 1;
            self.progress.slow(&error);
        }
    }

    fn lanes(&self) -> Result<Vec<Lane>, TrainError> {
        self.job.lanes(self.plan, self.slowness())
    }

    fn is_last(&self, lane: &Lane) -> bool {
        lane.index + 1 == self.job.shared.among.all
    }

    /// Whether `lane` is to be slow in `step`: three times in a run.
    fn is_slow(&self, lane: &Lane, step: &Step) -> bool {
        let quarter = (self.plan.steps() / 4).max(1);
        let is_due =
            step.index.is_multiple_of(quarter) && (1..=3).contains(&(step.index / quarter));
        self.inject == Some(Inject::SlowProducer) && self.is_last(lane) && is_due
    }

    /// Which rank this is, of those that the devices are spread over.
    fn rank(&self) -> Rank {
        let among = self.job.shared.among;
        Rank((among.first / among.here as usize) as u32)
    }

    /// Loses the last device when its time has come; among several ranks, the last of them.
    fn kill_if_due(&self, step: &Step) {
        let signal = match self.inject {
            Some(Inject::KillProducer) => Signal::KILL,
            Some(Inject::StopProducer) => Signal::STOP,
            _ => return,
        };
        let among = self.job.shared.among;
        let is_last = among.first + among.here as usize == among.all;
        if !is_last || step.index != self.plan.steps() / 2 {
            return;
        }
        if among.here as usize == among.all {
            if let Some(device) = self.job.runtime.devices().last() {
                device.kill();
            }
        } else {
            // As the kernel's own out-of-memory killer does it: nothing is cleaned up.
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
    }

    fn finish_step(
        &self,
        step: &Step,
        losses: &mut Vec<f32>,
        read: impl FnOnce(&Buffer<Region, f32>, usize, &mut [f32]) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let of_step = self.job.shared.losses(step, read)?;
        self.progress.step(step, model::mean_loss(&of_step, step.samples().len()));
        if step.is_first {
            losses.clear();
        }
        losses.extend(of_step);
        Ok(())
    }
}

/// A host read that no session sees.
fn read_untracked(
    buffer: &Buffer<Region, f32>,
    at: usize,
    into: &mut [f32],
) -> Result<(), TrainError> {
    Ok(buffer.host_read(at, into)?)
}

/// The fault that the others followed from: one that is not a wait for another's failure.
fn root_fault(faults: impl Iterator<Item = Fault>) -> Option<Fault> {
    use pontoon::{hal::Cause, signal::WaitError};
    let mut faults: Vec<_> = faults.collect();
    let rank = |fault: &Fault| match &fault.cause {
        Cause::Hazard(_) | Cause::Panicked(_) => 0,
        // Whoever waited for the dead device itself says more than who waited for them, and both
        // more than the dead device's own streams.
        Cause::Wait(WaitError::PeerDead { at, rank }) if at.slot.producer == *rank => 1,
        Cause::Wait(error) if error.is_timeout() => 2,
        Cause::Wait(_) => 3,
        _ => 4,
    };
    // A device of this process may end for a rank of the same number, which says more itself.
    let is_own = |fault: &Fault| matches!(&fault.cause, Cause::Wait(error) if ranks::is_own(error));
    faults.sort_by_key(|fault| (rank(fault), is_own(fault)));
    faults.into_iter().next()
}

/// Times what the host waits for.
struct HostWaits {
    times: Histogram<u64>,
    total: Duration,
    timeouts: u64,
}

impl Default for HostWaits {
    fn default() -> Self {
        let times = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds");
        Self { times, total: Duration::ZERO, timeouts: 0 }
    }
}

impl HostWaits {
    fn timed<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let outcome = wait();
        let took = started.elapsed();
        self.total += took;
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.times.saturating_record(ns.max(1));
        outcome
    }

    fn merge(&mut self, other: &Self) {
        // The bounds are the same, so nothing can fail to fit.
        let _ = self.times.add(&other.times);
        self.total += other.total;
        self.timeouts += other.timeouts;
    }

    fn figures(&self) -> Waits {
        Waits {
            count: self.times.len(),
            mean: Duration::from_nanos(self.times.mean() as u64),
            p99: Duration::from_nanos(self.times.value_at_quantile(0.99)),
            timeouts: self.timeouts,
            stalled: self.total,
            delivery: None,
        }
    }
}
