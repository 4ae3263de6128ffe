//! Submitting to one queue, in order.

use std::{fmt, sync::Arc};

use pontoon_hal::{
    Access, Accesses, Arguments, Command, CommandOf, Device, Engine, Fault, OpenQueueError, Queue,
    QueueReport, SubmitError,
};
use pontoon_signal::{Bound, Rank, Seq, Slot};

use crate::{
    Fence, FenceError,
    fence::{Point, Signal},
};

/// Submits commands to one queue of a device; they run in order.
pub struct Stream<D: Device> {
    queue: D::Queue,
    device: Rank,
    label: Arc<str>,
    /// The queue's, for fences.
    signal: Signal,
    patience: Bound,
}

impl<D: Device> Stream<D> {
    /// Opens a queue of `device` on `engine`. The label names the stream in errors.
    ///
    /// # Errors
    ///
    /// [`OpenQueueError`].
    pub fn open(device: &D, engine: Engine, label: &str) -> Result<Self, OpenQueueError> {
        let queue = device.open_queue(engine, label)?;
        let (device, label) = (device.rank(), Arc::from(label));
        let signal = Signal::of(&queue, &label);
        Ok(Self { queue, device, label, signal, patience: Bound::default() })
    }

    /// The same stream, waiting at most `patience` for room where the queue is full.
    pub fn with_patience(self, patience: Bound) -> Self {
        Self { patience, ..self }
    }

    /// Submits a kernel over `accesses`, numbered in this order, with scalar `arguments`.
    ///
    /// # Errors
    ///
    /// See [`StreamError`]; nothing was submitted.
    ///
    /// # Blocks
    ///
    /// Only while the queue is full, at most as long as the stream's patience.
    pub fn launch(
        &mut self,
        label: &'static str,
        kernel: &D::Kernel,
        accesses: impl IntoIterator<Item = Access<D::Memory>>,
        arguments: impl IntoIterator<Item = u64>,
    ) -> Result<Fence, StreamError> {
        let mut declared = Accesses::new();
        for access in accesses {
            let pushed = declared.try_push(access);
            pushed.map_err(|_| self.malformed("it declares too many accesses"))?;
        }
        let mut scalars = Arguments::new();
        for argument in arguments {
            let pushed = scalars.try_push(argument);
            pushed.map_err(|_| self.malformed("it has too many arguments"))?;
        }
        let kernel = kernel.clone();
        self.submit(Command::Launch { label, kernel, accesses: declared, arguments: scalars })
    }

    /// Submits a copy of `from` (read) to `to` (written), of the same length in bytes.
    ///
    /// # Errors
    ///
    /// See [`StreamError`]; nothing was submitted.
    ///
    /// # Blocks
    ///
    /// As [`launch`](Self::launch).
    pub fn copy(
        &mut self,
        label: &'static str,
        from: Access<D::Memory>,
        to: Access<D::Memory>,
    ) -> Result<Fence, StreamError> {
        self.submit(Command::Copy { label, from, to })
    }

    /// Holds back what is submitted from now on until `fence` is reached. A fence of this stream
    /// is reached by its order and costs nothing.
    ///
    /// If what it waits for does not move for as long as `bound`, counted from when the stream gets
    /// there, or is not done after [`WAIT_CAP`](pontoon_hal::WAIT_CAP) times that, the stream fails.
    ///
    /// # Errors
    ///
    /// See [`StreamError`]; nothing was submitted.
    ///
    /// # Blocks
    ///
    /// As [`launch`](Self::launch).
    pub fn wait(&mut self, fence: &Fence, bound: Bound) -> Result<(), StreamError> {
        let late = "its batch is parked: no device has been given it";
        let Some(point) = fence.point() else { return Err(self.malformed(late)) };
        if point.slot.is(self.queue.completions()) {
            let is_submitted = self.queue.submitted().is_at_or_past(point.target);
            let ahead = "it would wait for a later command of its own stream";
            return if is_submitted { Ok(()) } else { Err(self.malformed(ahead)) };
        }
        let (slot, target) = (Slot::clone(&point.slot), point.target);
        self.submit(Command::Wait { label: "wait", slot, target, bound })?;
        Ok(())
    }

    /// The fence of everything submitted so far.
    pub fn fence(&self) -> Fence {
        self.fence_at(self.queue.submitted())
    }

    /// Why the stream failed, if it did.
    pub fn fault(&self) -> Option<Fault> {
        self.queue.fault()
    }

    /// What the stream did so far.
    pub fn report(&self) -> QueueReport {
        self.queue.report()
    }

    /// The stream's label.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn fence_at(&self, target: Seq) -> Fence {
        let point = Point { slot: self.signal.clone(), target, place: None };
        Fence::of_queue(point, self.device)
    }

    fn submit(&mut self, command: CommandOf<D::Queue>) -> Result<Fence, StreamError> {
        let mut command = command;
        loop {
            match self.queue.submit(command) {
                Ok(position) => return Ok(self.fence_at(position)),
                Err(SubmitError::Full(refused)) => command = refused,
                Err(SubmitError::Faulted(fault)) => return Err(StreamError::Faulted(fault)),
                Err(SubmitError::Malformed(why)) => return Err(self.malformed(why)),
                Err(_) => return Err(self.malformed("the queue refused it")),
            }
            self.wait_for_room()?;
        }
    }

    /// A full queue holds `depth` commands that have not begun: one more completion makes room.
    fn wait_for_room(&self) -> Result<(), StreamError> {
        let oldest = self.queue.submitted().get().wrapping_sub(u64::from(self.queue.depth()));
        let room = self.fence_at(Seq::new(oldest) + 1).wait(self.patience);
        room.map_err(|error| match self.queue.fault() {
            Some(fault) => StreamError::Faulted(fault),
            None => StreamError::NoRoom(error),
        })
    }

    fn malformed(&self, why: &'static str) -> StreamError {
        StreamError::Malformed { device: self.device, stream: Arc::clone(&self.label), why }
    }
}

impl<D: Device> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {} of device {}", self.label, self.device)
    }
}

/// Why a command was not submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The queue was full and stayed so for as long as the stream's patience.
    NoRoom(FenceError),
    /// The stream failed earlier.
    Faulted(Fault),
    /// The command could never run.
    Malformed {
        /// The device.
        device: Rank,
        /// The stream.
        stream: Arc<str>,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(error) => write!(f, "no room in the queue: {error}"),
            Self::Faulted(fault) => fault.fmt(f),
            Self::Malformed { device, stream, why } => {
                write!(f, "device {device} stream {stream}: the command cannot be submitted: {why}")
            }
        }
    }
}

impl std::error::Error for StreamError {}
