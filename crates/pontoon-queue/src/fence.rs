//! A position of a stream's completions.

use std::{fmt, sync::Arc};

use pontoon_hal::{Fault, FaultCell};
use pontoon_signal::{Bound, Rank, Seq, Slot, WaitError};

/// A position of a stream's completions: reached when everything submitted to the stream by then
/// is complete. It never falls back, and it is a handle: clones are the same position.
#[derive(Clone, Debug)]
pub struct Fence {
    pub(crate) slot: Slot,
    pub(crate) target: Seq,
    pub(crate) device: Rank,
    pub(crate) stream: Arc<str>,
    /// Where the stream's queue says why it stopped; `None` for a bare signal.
    pub(crate) faults: Option<FaultCell>,
}

impl Fence {
    /// A fence over any signal: reached when `slot` is at or past `target`. `name` stands for the
    /// stream in errors.
    pub fn on(slot: Slot, target: Seq, name: &str) -> Self {
        let device = slot.id().producer;
        Self { slot, target, device, stream: Arc::from(name), faults: None }
    }

    /// The fence `completions` later on the same signal.
    pub fn later(&self, completions: u32) -> Self {
        Self { target: self.target + completions, ..self.clone() }
    }

    /// Waits on the host. What the commands before the fence wrote is then readable here.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: a time-out, after which waiting again is fine, or how the stream failed.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn wait(&self, bound: Bound) -> Result<(), FenceError> {
        let waiter = self.slot.uncounted_waiter();
        let observed = waiter.wait_ge_bounded(self.target, bound);
        observed.map_err(|error| self.failed(error))?.acq_fence();
        Ok(())
    }

    /// Whether it is reached; if so, what the commands before it wrote is readable here.
    ///
    /// # Errors
    ///
    /// [`FenceError`] if the stream failed short of it.
    pub fn is_complete(&self) -> Result<bool, FenceError> {
        let waiter = self.slot.uncounted_waiter();
        let observed = waiter.try_wait(self.target).map_err(|error| self.failed(error))?;
        Ok(observed.map(|observed| observed.acq_fence()).is_some())
    }

    /// The device whose stream it is of.
    pub fn device(&self) -> Rank {
        self.device
    }

    /// The label of the stream it is of.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The completion that reaches it.
    pub fn target(&self) -> Seq {
        self.target
    }

    fn failed(&self, error: WaitError) -> FenceError {
        // A time-out is the waiter's; all else is the stream's, which knows why.
        let fault = self.faults.as_ref().filter(|_| !error.is_timeout());
        let fault = fault.and_then(FaultCell::get).cloned();
        FenceError { device: self.device, stream: Arc::clone(&self.stream), error, fault }
    }
}

/// A fence that was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceError {
    /// The device whose stream the fence is of.
    pub device: Rank,
    /// The stream.
    pub stream: Arc<str>,
    /// What the wait saw: a time-out, or how the stream's signal ended.
    pub error: WaitError,
    /// Why the stream stopped, if it did: the command and the cause.
    pub fault: Option<Fault>,
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, stream, error, fault } = self;
        match fault {
            Some(fault) => fault.fmt(f),
            None => write!(f, "fence of device {device} stream {stream}: {error}"),
        }
    }
}

impl std::error::Error for FenceError {}
