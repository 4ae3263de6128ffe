//! The device: its threads, its queues, its end.

use std::{
    fmt, mem, slice,
    sync::{Arc, Mutex, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_hal::{
    AllocateError, Capabilities, Device, DeviceReport, Engine, OpenQueueError, RegionId,
};
use pontoon_signal::{
    Bound, Host, Load, Nanos, Os, Publisher, Rank, Seq, SignalTable, Slot, SlotId, SystemError,
    TableShape, WaitError, Waiter,
};

use crate::{
    kernel::Kernel,
    memory::Region,
    queue::{CpuQueue, Lane, Number, lock},
    spans::{SpanLog, Spans},
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
    /// How its units poll. A processor has an atomic load; tests do as devices that have none.
    pub atomic_load: Load,
    /// Commands that are kept for [`take_spans`](CpuDevice::take_spans). With none, a command costs
    /// one comparison more; each that is kept takes some 90 bytes, from the start.
    pub trace: u32,
}

impl Default for CpuSpec {
    /// Two units, queues of 128 commands.
    fn default() -> Self {
        Self { units: 2, depth: 128, start: Seq::new(0), atomic_load: Load::Native, trace: 0 }
    }
}

/// The most units that a device may have. More threads than that wait for cores, not for work.
const UNITS_MAX: u32 = 1024;
/// The deepest queue. Its ring is allocated when it is opened.
const DEPTH_MAX: u32 = 1 << 16;

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
    load: Load,
    pub(crate) spans: Option<Arc<SpanLog>>,
    state: Mutex<State>,
    meter: Mutex<Meter>,
}

#[derive(Debug)]
struct State {
    /// Grown when a sleeping unit has to look again.
    changes: Publisher,
    /// Queues on which something may run.
    lanes: Vec<Arc<Lane>>,
    /// Which list `lanes` is.
    generation: u64,
    /// Queues that failed and whose handles are there: `synchronize` says so.
    failed: Vec<Weak<Lane>>,
    /// Who has which queue number, from 1 on.
    numbers: Vec<Weak<()>>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Nothing new starts; what runs completes.
    Closing,
    /// Nothing completes.
    Lost,
}

/// What became of a device's queues since a unit last asked.
pub(crate) enum RollCall {
    Same,
    Changed(u64, Vec<Arc<Lane>>),
    /// The device ends, and so does the unit.
    Over,
}

/// Regions of all devices, so that their ids are unique in the process.
static REGIONS: Mutex<u64> = Mutex::new(0);

/// What the device did with its time.
#[derive(Debug, Default)]
struct Meter {
    running: u32,
    held: u32,
    /// Up to when the times below are counted.
    counted: Nanos,
    /// At least one command was running.
    busy: Nanos,
    /// None was, and a wait held back at least one queue.
    stalled: Nanos,
    waits: WaitLog,
}

impl Meter {
    fn count_to(&mut self, now: Nanos) {
        let passed = now.since(self.counted);
        self.counted = self.counted.max(now);
        if self.running > 0 {
            self.busy = self.busy.saturating_add(passed);
        } else if self.held > 0 {
            self.stalled = self.stalled.saturating_add(passed);
        }
    }

    fn let_go(&mut self, now: Nanos, held: bool) {
        if held {
            self.count_to(now);
            self.held = self.held.saturating_sub(1);
        }
    }
}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenDeviceError {
    /// A device needs a unit and room for a command.
    Zero(&'static str),
    /// A device cannot have as much of it.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        asked: u32,
        /// The most there may be.
        most: u32,
    },
    /// The system gave no thread, for this errno if it told.
    Thread(Option<i32>),
    /// The system gave no memory.
    Memory(AllocateError),
}

impl fmt::Display for OpenDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(what) => write!(f, "a CPU device needs at least one {what}"),
            Self::TooMany { what, asked, most } => {
                write!(f, "a CPU device has at most {most} {what}, not {asked}")
            }
            Self::Thread(Some(code)) => {
                let error = SystemError { call: "clone", code: *code };
                write!(f, "no thread for a CPU device: {error}")
            }
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
    pub fn open(rank: Rank, spec: CpuSpec) -> Result<Self, OpenDeviceError> {
        if spec.units == 0 {
            return Err(OpenDeviceError::Zero("unit"));
        }
        if spec.depth == 0 {
            return Err(OpenDeviceError::Zero("command of depth"));
        }
        for (what, asked, most) in
            [("units", spec.units, UNITS_MAX), ("commands of depth", spec.depth, DEPTH_MAX)]
        {
            if asked > most {
                return Err(OpenDeviceError::TooMany { what, asked, most });
            }
        }
        let mut shared = Shared::new(rank, spec.start, spec.atomic_load);
        shared.spans = (spec.trace > 0).then(|| Arc::new(SpanLog::new(spec.trace as usize)));
        let shared = Arc::new(shared);
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
        self.shared.lose_queues();
    }

    /// How long at least one command was running since the device was opened.
    pub fn busy(&self) -> Duration {
        self.metered().0.as_duration()
    }

    /// How long the device stood still for a wait since it was opened: a wait held back at least
    /// one of its queues, and no command was running.
    pub fn stalled(&self) -> Duration {
        self.metered().1.as_duration()
    }

    /// The commands that were over since the device was opened or since the last call, if it was
    /// opened to keep any.
    pub fn take_spans(&self) -> Spans {
        self.shared.spans.as_deref().map_or_else(Spans::default, SpanLog::take)
    }

    fn metered(&self) -> (Nanos, Nanos) {
        let mut meter = lock(&self.shared.meter);
        meter.count_to(Os.now());
        (meter.busy, meter.stalled)
    }

    /// What its waits cost since the device was opened or since the last call.
    pub fn take_wait_log(&self) -> WaitLog {
        mem::take(&mut lock(&self.shared.meter).waits)
    }
}

/// Signal `slot` of device `rank`, in a table of its own: who still waits for an earlier queue with
/// that number sees that one's ending, and never this one's completions.
pub(crate) fn new_signal(rank: Rank, slot: u32, start: Seq) -> (Publisher, Slot) {
    let shape = TableShape::new(1, slot + 1).first_rank(rank).starting_at(start);
    let (table, slot) = (SignalTable::in_process(shape), SlotId { producer: rank, slot });
    let claimed = "a new table has its slots free";
    (table.publisher(slot).expect(claimed), table.slot(slot).expect(claimed))
}

fn capabilities(spec: CpuSpec) -> Result<Capabilities, AllocateError> {
    let page_bytes = rustix::param::page_size();
    let mut capabilities = Capabilities::least(page_bytes);
    capabilities.system_scope_atomics = true;
    capabilities.peer_access = true;
    capabilities.atomic_load = spec.atomic_load;
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
        let mut regions = lock(&REGIONS);
        *regions += 1;
        let id = RegionId(*regions);
        drop(regions);
        Region::allocate(id, self.shared.rank, bytes)
    }

    fn open_queue(&self, engine: Engine, label: &str) -> Result<CpuQueue, OpenQueueError> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        if state.end != End::Open {
            return Err(OpenQueueError::DeviceLost);
        }
        let free = state.numbers.iter().position(|holder| holder.strong_count() == 0);
        let Some(free) = free else {
            return Err(OpenQueueError::TooMany { queues: QUEUES });
        };
        let number = Number::default();
        state.numbers[free] = number.downgrade();
        let signal = new_signal(shared.rank, CHANGES + 1 + free as u32, self.spec.start);
        let queue = CpuQueue::new(shared, engine, label, signal, number, self.spec.depth);
        state.lanes.push(Arc::clone(queue.lane()));
        state.lanes_changed();
        Ok(queue)
    }

    fn synchronize(&self, bound: Bound) -> Result<(), WaitError> {
        let started = Os.now();
        // All targets first: what is submitted during the waits is not waited for.
        let lanes: Vec<_> = {
            let state = lock(&self.shared.state);
            let failed = state.failed.iter().filter_map(Weak::upgrade);
            let all = state.lanes.iter().cloned().chain(failed);
            all.map(|lane| (lane.completions.clone(), lane.submitted())).collect()
        };
        // The host polls here, by its own load.
        for (completions, target) in lanes {
            let left = bound.less(Os.now().since(started));
            completions.uncounted_waiter().wait_ge_bounded(target, left)?.acq_fence();
        }
        Ok(())
    }

    fn report(&self) -> Option<DeviceReport> {
        let (busy, stalled) = self.metered();
        Some(DeviceReport::new(busy, stalled))
    }
}

impl State {
    fn lanes_changed(&mut self) {
        self.generation += 1;
        self.changes.pub_release(1);
    }

    /// Keeps in mind queues on which nothing will run.
    fn set_aside(&mut self, lanes: &[Arc<Lane>]) {
        self.failed.retain(|lane| lane.strong_count() > 0);
        self.failed.extend(lanes.iter().filter(|lane| lane.has_failed()).map(Arc::downgrade));
    }
}

impl Shared {
    pub(crate) fn new(rank: Rank, start: Seq, load: Load) -> Self {
        let (publisher, changes) = new_signal(rank, CHANGES, start);
        let state = State {
            changes: publisher,
            lanes: Vec::new(),
            generation: 0,
            failed: Vec::new(),
            numbers: (0..QUEUES).map(|_| Weak::new()).collect(),
            end: End::Open,
        };
        let (state, meter) = (Mutex::new(state), Mutex::default());
        Self { rank, changes, load, spans: None, state, meter }
    }

    /// How the device polls `slot` (C3). Nothing of it that runs on a unit polls in another way.
    pub(crate) fn waiter(&self, slot: &Slot) -> Waiter {
        slot.uncounted_waiter().reading_by(self.load)
    }

    /// How the device polls (C3).
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// The queues of `engine`, if they are not those of `generation`.
    pub(crate) fn roll_call(&self, engine: Engine, generation: u64) -> RollCall {
        let state = lock(&self.state);
        if state.end != End::Open {
            return RollCall::Over;
        }
        if state.generation == generation {
            return RollCall::Same;
        }
        let lanes = state.lanes.iter().filter(|lane| lane.engine == engine).cloned();
        RollCall::Changed(state.generation, lanes.collect())
    }

    /// Makes sleeping units look at all queues again.
    pub(crate) fn wake_units(&self) {
        lock(&self.state).changes.pub_release(1);
    }

    /// Forgets a queue on which nothing will run again.
    pub(crate) fn close(&self, lane: &Arc<Lane>) {
        let mut state = lock(&self.state);
        let before = state.lanes.len();
        state.lanes.retain(|other| !Arc::ptr_eq(other, lane));
        if state.lanes.len() != before {
            state.set_aside(slice::from_ref(lane));
            state.lanes_changed();
        }
    }

    /// Stops the units: each ends when the command that it runs has ended.
    fn end_with(&self, end: End) {
        let mut state = lock(&self.state);
        if state.end == End::Open {
            state.end = end;
        }
        for lane in &state.lanes {
            lane.stop();
        }
        state.changes.pub_release(1);
    }

    /// Loses every queue. Their commands are dropped with their handles, or here.
    fn lose_queues(&self) {
        let mut state = lock(&self.state);
        let lanes = mem::take(&mut state.lanes);
        for lane in &lanes {
            lane.lose();
        }
        state.set_aside(&lanes);
        // What kernels captured is dropped with `lanes`, and may own what locks the state.
        drop(state);
    }

    /// A command starts to run.
    pub(crate) fn begin(&self) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.running += 1;
        now
    }

    /// It has ended; for how long it ran.
    pub(crate) fn end(&self, started: Nanos) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.running -= 1;
        now.since(started)
    }

    /// A wait begins to hold back a queue.
    pub(crate) fn hold(&self, now: Nanos) {
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.held += 1;
    }

    /// A wait was reached; `held` says that it did hold back its queue, for as long as `passed`.
    pub(crate) fn reached(&self, now: Nanos, held: bool, passed: Nanos, delivery: Option<Nanos>) {
        let mut meter = lock(&self.meter);
        meter.let_go(now, held);
        meter.waits.record(passed, delivery);
    }

    /// A wait failed.
    pub(crate) fn failed(&self, now: Nanos, held: bool, timeout: bool) {
        let mut meter = lock(&self.meter);
        meter.let_go(now, held);
        if timeout {
            meter.waits.record_timeout();
        }
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.shared.end_with(End::Closing);
        for thread in self.threads.drain(..) {
            // A kernel may own its device, which then is dropped by the unit that drops the
            // kernel. That unit ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        self.shared.lose_queues();
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuDevice, CpuSpec, DEPTH_MAX, OpenDeviceError, UNITS_MAX};
    use pontoon_signal::Rank;

    fn refused(units: u32, depth: u32) -> String {
        let spec = CpuSpec { units, depth, ..CpuSpec::default() };
        CpuDevice::open(Rank(0), spec).unwrap_err().to_string()
    }

    #[test]
    fn sizes_beyond_the_limits_are_refused_with_a_sentence() {
        assert_eq!(refused(UNITS_MAX + 1, 1), "a CPU device has at most 1024 units, not 1025");
        assert_eq!(
            refused(1, u32::MAX),
            "a CPU device has at most 65536 commands of depth, not 4294967295"
        );
        assert_eq!(refused(0, 1), "a CPU device needs at least one unit");
        let deepest = CpuSpec { units: 1, depth: DEPTH_MAX, ..CpuSpec::default() };
        assert!(CpuDevice::open(Rank(0), deepest).is_ok());
    }

    #[test]
    fn a_thread_that_was_refused_says_what_to_do() {
        let text = OpenDeviceError::Thread(Some(11)).to_string();
        for part in ["no thread", "os error 11", "ulimit -u"] {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    }
}
