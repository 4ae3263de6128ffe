//! A device: units that run kernels, an engine that copies, memory, queues.

use core::fmt;

use pontoon_signal::{Bound, Nanos, Rank, SystemError, WaitError};

use crate::{Capabilities, Memory, Queue, RegionId};

/// A device.
///
/// - D1: queues are independent: one held back by a wait does not hold back another, as long as a
///   unit is free.
/// - D2: every queue makes progress while a unit of its engine is free, however many queues there
///   are.
/// - D3: `synchronize` returns when everything submitted before it, on every queue of the device,
///   is complete. It exists for code that is being ported and to be compared with; signals do
///   better.
/// - D4: a lost device ends the signals of all its queues with `PeerDead` and its rank.
/// - D5: dropping the device ends it as if lost, after the commands that run have ended.
/// - D6: a device that meters its time reports at any moment how long it was busy and how long it
///   stood still for a wait, up to that moment. It is never both at once, neither ever falls, and
///   an idle device is neither.
pub trait Device: Send + Sync {
    /// Its regions.
    type Memory: Memory;
    /// A kernel in its own language.
    type Kernel: Clone + Send;
    /// Its queues.
    type Queue: Queue<Memory = Self::Memory, Kernel = Self::Kernel>;

    /// Its number among the devices of the job: the producer of its queues' signals.
    fn rank(&self) -> Rank;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Allocates a region of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`AllocateError`].
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, AllocateError>;

    /// Opens a queue on `engine`. The label names it in faults.
    ///
    /// # Errors
    ///
    /// [`OpenQueueError`].
    fn open_queue(&self, engine: Engine, label: &str) -> Result<Self::Queue, OpenQueueError>;

    /// Waits until all queues of the device have completed what was submitted so far.
    ///
    /// # Errors
    ///
    /// The first queue that failed, or a time-out naming the queue's signal.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    fn synchronize(&self, bound: Bound) -> Result<(), WaitError>;

    /// D6: what it did with its time since it was opened; `None` if it does not meter that.
    fn report(&self) -> Option<DeviceReport> {
        None
    }
}

/// What a device did with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// At least one command was running.
    pub busy: Nanos,
    /// None was, and a wait held back at least one queue.
    pub stalled: Nanos,
}

impl DeviceReport {
    /// A report of these times.
    pub const fn new(busy: Nanos, stalled: Nanos) -> Self {
        Self { busy, stalled }
    }
}

/// What runs a queue's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The compute units: kernels, and copies too.
    Compute,
    /// The copy engine: copies only.
    Copy,
}

/// Why a region could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocateError {
    /// A region of no bytes.
    Empty,
    /// There is less memory than that, and touching it would have had a process killed.
    TooLarge {
        /// How many bytes were asked for.
        bytes: usize,
        /// How many could be had at that moment.
        available: u64,
    },
    /// The operating system refused.
    System {
        /// How many bytes were asked for.
        bytes: usize,
        /// The call that failed.
        call: &'static str,
        /// Its errno.
        code: i32,
    },
    /// The bytes are a region's already, or some of them are.
    Taken {
        /// The region.
        by: RegionId,
    },
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a region needs at least one byte"),
            Self::TooLarge { bytes, available } => write!(
                f,
                "a region of {bytes} bytes was asked for and {available} bytes of memory are \
                 available: ask for less, or free memory"
            ),
            Self::System { bytes, call, code } => {
                let error = SystemError { call, code: *code };
                write!(f, "no memory for a region of {bytes} bytes: {error}")
            }
            Self::Taken { by } => write!(
                f,
                "some of the bytes are of {by} already: use that one, or drop all its handles first"
            ),
        }
    }
}

impl core::error::Error for AllocateError {}

/// Why a queue could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenQueueError {
    /// All queues that the device has are open.
    TooMany {
        /// How many it has.
        queues: u32,
    },
    /// The device has no such engine.
    NoSuchEngine(Engine),
    /// The device is gone.
    DeviceLost,
}

impl fmt::Display for OpenQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { queues } => write!(f, "all {queues} queues of the device are open"),
            Self::NoSuchEngine(engine) => write!(f, "the device has no {engine:?} engine"),
            Self::DeviceLost => f.write_str("the device is lost"),
        }
    }
}

impl core::error::Error for OpenQueueError {}

#[cfg(test)]
mod tests {
    use super::AllocateError;

    #[test]
    fn a_refused_region_says_what_to_do() {
        let text = AllocateError::System { bytes: 7, call: "memfd_create", code: 24 }.to_string();
        for part in ["7 bytes", "memfd_create", "os error 24", "ulimit -n"] {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
        let text = AllocateError::TooLarge { bytes: 1 << 46, available: 12_345 }.to_string();
        assert!(text.contains("70368744177664") && text.contains("12345"), "{text}");
    }
}
