//! What synchronisation costs, an iteration and in all.
//!
//! Nothing is timed but waits, which take time anyway: the host's where it waits, those of devices
//! by the devices. The rest is counters that a session has; an iteration is the difference of two
//! copies. Nothing is allocated once each queue was seen.

mod figures;
mod redundant;

use pontoon_hal::{Device, DeviceReport, Purpose, Queue, QueueReport, Times};
use pontoon_signal::{Host, Nanos, Os};

pub use figures::{Figures, HIGH_SHARE, Pair, Where};
pub use redundant::{Implied, RedundantEdge};

use super::{Counts, Session, timeline::TimelineLog};
use crate::{Axis, FenceError, Patience};
use redundant::Redundant;

/// Why somebody waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The host, for a fence: [`Session::wait`] and [`Session::drain`].
    Host,
    /// The host, before it used bytes.
    Access,
    /// The host, for room in a queue.
    Room,
    /// A queue, for what another queue's command left.
    Dependency,
    /// A queue, at a barrier over some streams or a collective.
    Barrier,
    /// A queue, at a barrier over its device.
    FullSync,
}

impl Cause {
    /// Each once, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Host, Self::Access, Self::Room, Self::Dependency, Self::Barrier, Self::FullSync];

    /// Its name, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Access => "access",
            Self::Room => "room",
            Self::Dependency => "dependency",
            Self::Barrier => "barrier",
            Self::FullSync => "full sync",
        }
    }

    /// Why a device waits.
    pub const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Dependency => Self::Dependency,
            Purpose::Barrier => Self::Barrier,
            Purpose::FullSync => Self::FullSync,
        }
    }
}

/// What an iteration cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// Which one, from 0.
    pub number: u64,
    /// What it cost.
    pub figures: Figures,
}

/// What synchronisation cost since the first iteration began, or since the session was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Iterations that have ended.
    pub iterations: u64,
    /// What it cost, all together.
    pub figures: Figures,
    /// Waits that were given and that others imply, each once.
    pub redundant: Vec<RedundantEdge>,
    /// How many redundant waits are of none of these, since the list was full.
    pub untold: u64,
}

/// What a session keeps for its profile.
pub(super) struct Profiler {
    /// Why the host waits, while it does.
    cause: Cause,
    host: [Times; Cause::ALL.len()],
    /// How long the host waited for each lane.
    host_held: Vec<Nanos>,
    iterations: u64,
    /// Where the profile begins.
    base: Snapshot,
    /// Where the iteration began.
    began: Snapshot,
    now: Snapshot,
    pub(super) redundant: Redundant,
    pub(super) timeline: Option<TimelineLog>,
}

/// All that counts up, at a moment.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    at: Nanos,
    counts: Counts,
    fences: u64,
    host: [Times; Cause::ALL.len()],
    host_held: Vec<Nanos>,
    lanes: Vec<QueueReport>,
    devices: Vec<Option<DeviceReport>>,
}

impl Default for Profiler {
    fn default() -> Self {
        Self {
            cause: Cause::Host,
            host: Default::default(),
            host_held: Vec::new(),
            iterations: 0,
            base: Snapshot { at: Os.now(), ..Snapshot::default() },
            began: Snapshot { at: Os.now(), ..Snapshot::default() },
            now: Snapshot::default(),
            redundant: Redundant::default(),
            timeline: None,
        }
    }
}

impl Profiler {
    /// A device that the session did not have before; what it did until now is not of the session.
    pub(super) fn device(&mut self, report: Option<DeviceReport>) {
        self.base.devices.push(report);
        self.began.devices.push(report);
    }

    /// The host waited for a lane.
    fn waited(&mut self, lane: usize, time: Nanos) {
        self.host[self.cause as usize].record(time);
        if self.host_held.len() <= lane {
            self.host_held.resize(lane + 1, Nanos(0));
        }
        self.host_held[lane] = self.host_held[lane].saturating_add(time);
    }
}

impl<D: Device> Session<'_, D> {
    /// Begins an iteration, and the profile if it is the first one. Only needed where something is
    /// to be left out: an iteration begins where the one before ended.
    pub fn begin_iteration(&mut self) {
        let mut now = std::mem::take(&mut self.profiler.now);
        self.snapshot(&mut now);
        if self.profiler.iterations == 0 {
            self.profiler.base.clone_from(&now);
            self.profiler.redundant.clear();
        }
        self.profiler.now = std::mem::replace(&mut self.profiler.began, now);
    }

    /// Ends an iteration, says what it cost, and begins the next one. Work that is under way counts
    /// where it is waited for.
    pub fn end_iteration(&mut self) -> Iteration {
        let mut now = std::mem::take(&mut self.profiler.now);
        self.snapshot(&mut now);
        let figures = self.figures(&self.profiler.began, &now);
        self.profiler.now = std::mem::replace(&mut self.profiler.began, now);
        let number = self.profiler.iterations;
        self.profiler.iterations += 1;
        Iteration { number, figures }
    }

    /// What synchronisation cost so far.
    pub fn profile(&self) -> Profile {
        let mut now = Snapshot::default();
        self.snapshot(&mut now);
        let (redundant, untold) = self.redundant_edges();
        let iterations = self.profiler.iterations;
        Profile { iterations, figures: self.figures(&self.profiler.base, &now), redundant, untold }
    }

    fn snapshot(&self, into: &mut Snapshot) {
        into.at = Os.now();
        into.counts = self.counts;
        into.fences = self.pool.report().created;
        into.host = self.profiler.host;
        into.host_held.clone_from(&self.profiler.host_held);
        into.lanes.clear();
        into.lanes.extend(self.lanes.iter().map(|lane| lane.queue.report()));
        into.devices.clear();
        into.devices.extend(self.devices.iter().map(|device| device.device.report()));
    }

    /// As [`reach`](Self::reach), for another cause than a wait that the user asked for.
    pub(super) fn reach_for(
        &mut self,
        cause: Cause,
        axis: Axis,
        count: u64,
        patience: Patience,
    ) -> Result<(), FenceError> {
        self.profiler.cause = cause;
        let reached = self.reach(axis, count, patience);
        self.profiler.cause = Cause::Host;
        reached
    }

    /// Counts a wait of the host, from `started` until now, for the first `count` events of a lane.
    pub(super) fn waited(&mut self, lane: usize, count: u64, started: Nanos) -> Nanos {
        let waited = Os.now().since(started);
        self.counts.host_waits += 1;
        self.counts.host_waited = self.counts.host_waited.saturating_add(waited);
        self.profiler.waited(lane, waited);
        if let Some(timeline) = &mut self.profiler.timeline {
            let lane = &self.lanes[lane];
            let (queue, target) = (lane.queue.completions().id(), lane.target(count));
            timeline.waited(self.profiler.cause, queue, target, started, waited);
        }
        waited
    }
}
