//! The device: its threads, its queues, its end.

use std::{
    fmt,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_hal::{AllocateError, Capabilities, Device, Engine, OpenQueueError, RegionId};
use pontoon_signal::{
    Bound, Host, Load, Nanos, Os, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape,
    WaitError,
};

use crate::{
    kernel::Kernel,
    memory::Region,
    queue::{CpuQueue, Lane, lock},
    unit,
    wait_log::WaitLog,
};

/// The size of a CPU device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSpec {
    /// Threads that run kernels.
    pub units: u32,
    /// Commands that a queue holds.
    pub depth: u32,
    /// Where the signals of its queues start. Tests start near 2^64.
    pub start: Seq,
}

impl Default for CpuSpec {
    /// Two units, queues of 128 commands.
    fn default() -> Self {
        Self { units: 2, depth: 128, start: Seq::new(0) }
    }
}

/// Queues that a device can have open: each idle unit sleeps on all of them at once.
const QUEUES: u32 = 64;
/// The line by which the units learn of changes; queues have the others.
const CHANGES: u32 = 0;

/// A CPU device.
#[derive(Debug)]
pub struct CpuDevice {
    shared: Arc<Shared>,
    spec: CpuSpec,
    capabilities: Capabilities,
    threads: Vec<JoinHandle<()>>,
}

/// What the device's threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rank: Rank,
    pub(crate) changes: Slot,
    table: SignalTable,
    state: Mutex<State>,
    meter: Mutex<Meter>,
    waits: Mutex<WaitLog>,
}

#[derive(Debug)]
struct State {
    /// Grown at each change of what follows.
    changes: Publisher,
    lanes: Vec<Arc<Lane>>,
    regions: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Closing,
    Lost,
}

/// How long at least one command was running.
#[derive(Debug, Default)]
struct Meter {
    running: u32,
    since: Nanos,
    busy: Nanos,
}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenDeviceError {
    /// A device needs a unit and room for a command.
    Zero(&'static str),
    /// The system gave no thread.
    Thread(Option<i32>),
    /// The system gave no memory.
    Memory(AllocateError),
}

impl fmt::Display for OpenDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(what) => write!(f, "a CPU device needs at least one {what}"),
            Self::Thread(Some(code)) => write!(f, "no thread for a CPU device (code {code})"),
            Self::Thread(None) => f.write_str("no thread for a CPU device"),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenDeviceError {}

impl CpuDevice {
    /// Opens a device with rank `rank`: starts its threads and measures what a first touch costs.
    ///
    /// # Errors
    ///
    /// See [`OpenDeviceError`].
    #[expect(clippy::missing_panics_doc, reason = "a table just made has its slots free")]
    pub fn open(rank: Rank, spec: CpuSpec) -> Result<Self, OpenDeviceError> {
        if spec.units == 0 {
            return Err(OpenDeviceError::Zero("unit"));
        }
        if spec.depth == 0 {
            return Err(OpenDeviceError::Zero("command of depth"));
        }
        let shape = TableShape::new(1, 1 + QUEUES).first_rank(rank).starting_at(spec.start);
        let table = SignalTable::in_process(shape);
        let changes = SlotId { producer: rank, slot: CHANGES };
        let claimed = "a new table has this slot free";
        let state = State {
            changes: table.publisher(changes).expect(claimed),
            lanes: Vec::new(),
            regions: 0,
            end: End::Open,
        };
        let changes = table.slot(changes).expect(claimed);
        let (state, meter, waits) = (Mutex::new(state), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { rank, changes, table, state, meter, waits });
        let capabilities = capabilities(spec).map_err(OpenDeviceError::Memory)?;
        let mut device = Self { shared, spec, capabilities, threads: Vec::new() };
        for index in 0..spec.units {
            device.start(Engine::Compute, index)?;
        }
        device.start(Engine::Copy, 0)?;
        Ok(device)
    }

    fn start(&mut self, engine: Engine, index: u32) -> Result<(), OpenDeviceError> {
        let shared = Arc::clone(&self.shared);
        let kind = if engine == Engine::Copy { "copy" } else { "unit" };
        let thread = thread::Builder::new()
            .name(format!("dev{}-{kind}{index}", self.shared.rank))
            .spawn(move || unit::run(&shared, engine, index as usize))
            .map_err(|error| OpenDeviceError::Thread(error.raw_os_error()))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Loses the device on purpose, as if it had died: nothing more completes, and the signals of
    /// all its queues end with `PeerDead`. For tests and drills.
    pub fn kill(&self) {
        self.shared.end_with(End::Lost);
    }

    /// How long at least one command was running since the device was opened.
    pub fn busy(&self) -> Duration {
        let meter = lock(&self.shared.meter);
        let running = if meter.running > 0 { Os.now().since(meter.since) } else { Nanos(0) };
        meter.busy.saturating_add(running).as_duration()
    }

    /// What its waits cost since the device was opened or since the last call.
    pub fn take_wait_log(&self) -> WaitLog {
        std::mem::take(&mut *lock(&self.shared.waits))
    }
}

fn capabilities(spec: CpuSpec) -> Result<Capabilities, AllocateError> {
    let page_bytes = rustix::param::page_size();
    let mut capabilities = Capabilities::least(page_bytes);
    capabilities.system_scope_atomics = true;
    capabilities.peer_access = true;
    capabilities.atomic_load = Load::Native;
    capabilities.unified_addresses = true;
    capabilities.compute_units = spec.units;
    capabilities.copy_engines = 1;
    capabilities.queues = QUEUES;
    capabilities.first_touch = Region::first_touch_cost(64 * page_bytes)?;
    Ok(capabilities)
}

impl Device for CpuDevice {
    type Memory = Region;
    type Kernel = Kernel;
    type Queue = CpuQueue;

    fn rank(&self) -> Rank {
        self.shared.rank
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn allocate(&self, bytes: usize) -> Result<Region, AllocateError> {
        let mut state = lock(&self.shared.state);
        state.regions += 1;
        // The device's number in the high half keeps ids unique in the process.
        let id = RegionId(u64::from(self.shared.rank.0) << 32 | state.regions);
        drop(state);
        Region::allocate(id, self.shared.rank, bytes)
    }

    fn open_queue(&self, engine: Engine, label: &str) -> Result<CpuQueue, OpenQueueError> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        if state.end != End::Open {
            return Err(OpenQueueError::DeviceLost);
        }
        let free = (CHANGES + 1..=QUEUES).find_map(|slot| {
            let slot = SlotId { producer: shared.rank, slot };
            Some((shared.table.publisher(slot).ok()?, shared.table.slot(slot).ok()?))
        });
        let Some((done, completions)) = free else {
            return Err(OpenQueueError::TooMany { queues: QUEUES });
        };
        let depth = self.spec.depth;
        let queue = CpuQueue::new(shared.rank, engine, label, done, completions, depth);
        state.lanes.push(Arc::clone(queue.lane()));
        state.changes.pub_release(1);
        Ok(queue)
    }

    fn synchronize(&self, bound: Bound) -> Result<(), WaitError> {
        let lanes = lock(&self.shared.state).lanes.clone();
        let started = Os.now();
        for lane in lanes {
            let target = lane.submitted();
            let left = bound.less(Os.now().since(started));
            lane.completions.uncounted_waiter().wait_ge_bounded(target, left)?.acq_fence();
        }
        Ok(())
    }
}

impl Shared {
    /// The queues of `engine`.
    pub(crate) fn lanes(&self, engine: Engine) -> Vec<Arc<Lane>> {
        let state = lock(&self.state);
        state.lanes.iter().filter(|lane| lane.engine == engine).cloned().collect()
    }

    /// Forgets a queue on which nothing will run again.
    pub(crate) fn close(&self, lane: &Arc<Lane>) {
        let mut state = lock(&self.state);
        let before = state.lanes.len();
        state.lanes.retain(|other| !Arc::ptr_eq(other, lane));
        if state.lanes.len() != before {
            state.changes.pub_release(1);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).end != End::Open
    }

    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.state).end == End::Lost
    }

    fn end_with(&self, end: End) {
        let mut state = lock(&self.state);
        if state.end == End::Open {
            state.end = end;
        }
        for lane in &state.lanes {
            lane.lose();
        }
        state.changes.pub_release(1);
    }

    /// A command starts to run.
    pub(crate) fn begin(&self) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        if meter.running == 0 {
            meter.since = now;
        }
        meter.running += 1;
        now
    }

    /// It has ended; for how long it ran.
    pub(crate) fn end(&self, started: Nanos) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        meter.running -= 1;
        if meter.running == 0 {
            meter.busy = meter.busy.saturating_add(now.since(meter.since));
        }
        now.since(started)
    }

    pub(crate) fn log_wait(&self, held: Nanos, delivery: Option<Nanos>) {
        lock(&self.waits).record(held, delivery);
    }

    pub(crate) fn log_timeout(&self) {
        lock(&self.waits).record_timeout();
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.shared.end_with(End::Closing);
        for thread in self.threads.drain(..) {
            // A unit that panicked has said so on stderr; there is nobody to tell here.
            let _ = thread.join();
        }
    }
}
