//! The device: its size, its threads, its end.

use std::{
    fmt,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_hal::{
    AllocateError, Capabilities, Device, DeviceReport, Engine, OpenQueueError, RegionId,
};
use pontoon_signal::{Block, Bound, Host, Load, Os, Rank, Seq, SystemError, WaitError};

use crate::{
    kernel::Kernel,
    memory::Region,
    queue::CpuQueue,
    shared::{End, QUEUES, Shared, lock},
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

/// A CPU device.
#[derive(Debug)]
pub struct CpuDevice {
    shared: Arc<Shared>,
    spec: CpuSpec,
    capabilities: Capabilities,
    threads: Vec<JoinHandle<()>>,
}

/// Regions of all devices, so that their ids are unique in the process.
static REGIONS: Mutex<u64> = Mutex::new(0);

fn next_region() -> RegionId {
    let mut regions = lock(&REGIONS);
    *regions += 1;
    RegionId(*regions)
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
    /// More devices than a process is meant to have.
    TooManyDevices {
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
            Self::TooManyDevices { asked, most } => {
                write!(f, "a runtime has at most {most} CPU devices, not {asked}")
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

    /// A region over `block`, as it is: memory that links reach too, such as part of a segment. Of
    /// what others do there the device knows nothing; commands wait for the signals that say so.
    ///
    /// No bytes are of two regions at a time: they are this one's until its last handle is dropped.
    /// The same memory mapped twice is not recognised.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Empty`]; [`AllocateError::Taken`] if some of the bytes are another region's.
    pub fn region_over(&self, block: Block) -> Result<Region, AllocateError> {
        let bytes = block.bytes();
        if bytes == 0 {
            return Err(AllocateError::Empty);
        }
        Region::over(next_region(), self.shared.rank, block, bytes)
    }

    /// A region that stands for `bytes` bytes of another rank: commands that send there declare that
    /// they write it, and so come after whatever gave it free. Nothing is in it.
    ///
    /// # Errors
    ///
    /// [`AllocateError`].
    pub fn stand_in(&self, bytes: usize) -> Result<Region, AllocateError> {
        Region::stand_in(next_region(), self.shared.rank, bytes)
    }

    /// How long at least one command was running since the device was opened.
    pub fn busy(&self) -> Duration {
        self.shared.metered().0.as_duration()
    }

    /// How long the device stood still for a wait since it was opened: a wait held back at least
    /// one of its queues, and no command was running.
    pub fn stalled(&self) -> Duration {
        self.shared.metered().1.as_duration()
    }

    /// The commands that were over since the device was opened or since the last call, if it was
    /// opened to keep any.
    pub fn take_spans(&self) -> Spans {
        self.shared.spans.as_deref().map_or_else(Spans::default, SpanLog::take)
    }

    /// What its waits cost since the device was opened or since the last call.
    pub fn take_wait_log(&self) -> WaitLog {
        self.shared.take_wait_log()
    }
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
        Region::allocate(next_region(), self.shared.rank, bytes)
    }

    fn open_queue(&self, engine: Engine, label: &str) -> Result<CpuQueue, OpenQueueError> {
        self.shared.open_queue(engine, label, self.spec.start, self.spec.depth)
    }

    fn synchronize(&self, bound: Bound) -> Result<(), WaitError> {
        let started = Os.now();
        // All targets first: what is submitted during the waits is not waited for.
        let lanes = self.shared.submitted();
        // The host polls here, by its own load.
        for (completions, target) in lanes {
            let left = bound.less(Os.now().since(started));
            completions.uncounted_waiter().wait_ge_bounded(target, left)?.acq_fence();
        }
        Ok(())
    }

    fn report(&self) -> Option<DeviceReport> {
        let (busy, stalled) = self.shared.metered();
        Some(DeviceReport::new(busy, stalled))
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
    use pontoon_hal::{AllocateError, Device, Memory};
    use pontoon_signal::{Block, Rank};

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
    fn no_bytes_are_of_two_regions_at_a_time() {
        let devices = [0, 1].map(|rank| CpuDevice::open(Rank(rank), CpuSpec::default()).unwrap());
        let block = Block::private("block", 4096).unwrap();
        let part = |range| block.part(range).unwrap();
        let first = devices[0].region_over(part(0..2048)).unwrap();
        let taken = AllocateError::Taken { by: first.id() };
        for (device, range) in [(0, 0..2048), (1, 0..4096), (1, 2047..2049)] {
            let refused = devices[device].region_over(part(range.clone())).unwrap_err();
            assert_eq!(refused, taken, "{range:?}");
        }
        let second = devices[1].region_over(part(2048..4096)).unwrap();
        let handle = first.clone();
        drop(first);
        assert!(devices[1].region_over(part(0..1)).is_err(), "a handle is left");
        drop((handle, second));
        devices[1].region_over(block).unwrap();
        // What the device allocated itself can be reached by its block, too.
        let own = devices[0].allocate(100).unwrap();
        let refused = devices[0].region_over(own.block().clone()).unwrap_err();
        assert_eq!(refused, AllocateError::Taken { by: own.id() });
    }

    #[test]
    fn a_thread_that_was_refused_says_what_to_do() {
        let text = OpenDeviceError::Thread(Some(11)).to_string();
        for part in ["no thread", "os error 11", "ulimit -u"] {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    }
}
