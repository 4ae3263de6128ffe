//! A queue: a ring of commands that completes by a signal. What runs it is its lane.

use std::sync::{Arc, Weak};

use pontoon_hal::{Command, Engine, FaultCell, Queue, QueueReport, SubmitError};
use pontoon_signal::{BufferWriter, Publisher, Seq, Slot};

use crate::{kernel::Kernel, lane::Lane, memory::Region, shared::Shared};

pub(crate) type CpuCommand = Command<Region, Kernel>;

/// A queue of a [`CpuDevice`](crate::CpuDevice).
#[derive(Debug)]
pub struct CpuQueue {
    ring: BufferWriter<Option<CpuCommand>>,
    depth: u32,
    /// Where the completions were seen. They are looked at only when the queue might be full: the
    /// units write them.
    completed: Seq,
    lane: Arc<Lane>,
    _number: Number,
}

/// The number of a queue among its device's. Free again when the handle is dropped and nothing
/// will run any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number(Arc<()>);

impl Number {
    pub(crate) fn downgrade(&self) -> Weak<()> {
        Arc::downgrade(&self.0)
    }
}

impl CpuQueue {
    pub(crate) fn new(
        shared: &Shared,
        engine: Engine,
        label: &str,
        signal: (Publisher, Slot),
        number: Number,
        depth: u32,
    ) -> Self {
        // Both counters start where the completions are, so that position n of the one is
        // position n of the other.
        let ring = (0..depth).map(|_| None);
        let start = signal.0.value();
        let (ring, reader) = pontoon_signal::DoubleBuffer::starting_at(start, ring);
        let lane = Lane::new(shared, engine, label, signal, number.clone(), reader);
        let lane = Arc::new(lane);
        Self { ring: ring.undated(), depth, completed: start, lane, _number: number }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    fn is_full(&mut self) -> bool {
        let full_at = self.completed + self.depth;
        if self.ring.published() != full_at {
            return false;
        }
        self.completed = self.lane.completions.value();
        self.completed + self.depth == full_at
    }
}

impl Queue for CpuQueue {
    type Memory = Region;
    type Kernel = Kernel;

    fn submit(&mut self, command: CpuCommand) -> Result<Seq, SubmitError<CpuCommand>> {
        if let Some(fault) = self.lane.faults().get() {
            return Err(SubmitError::Faulted(fault.clone()));
        }
        check(&command, self.lane.engine).map_err(SubmitError::Malformed)?;
        // A command that runs has left its place in the ring and is under way all the same.
        if self.is_full() {
            return Err(SubmitError::Full(command));
        }
        match self.ring.try_fill() {
            Ok(Some(mut place)) => {
                *place = Some(command);
                place.publish();
                Ok(self.ring.published())
            }
            Ok(None) => Err(SubmitError::Full(command)),
            // The lane has the reading end, so it is there; what it would mean is this.
            Err(_) => Err(SubmitError::Full(command)),
        }
    }

    fn completions(&self) -> &Slot {
        &self.lane.completions
    }

    fn submitted(&self) -> Seq {
        self.ring.published()
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn faults(&self) -> &FaultCell {
        self.lane.faults()
    }

    fn report(&self) -> QueueReport {
        self.lane.report()
    }
}

/// Why a command could never run.
fn check(command: &CpuCommand, engine: Engine) -> Result<(), &'static str> {
    match command {
        Command::Launch { accesses, .. } => {
            if engine == Engine::Copy {
                return Err("the copy engine runs no kernels");
            }
            if !accesses.iter().all(|access| access.is_within_region()) {
                return Err("an access is not within its region");
            }
            let mut pairs = accesses.iter().enumerate();
            if pairs.any(|(i, a)| accesses[i + 1..].iter().any(|b| a.conflicts_with(b))) {
                return Err("two of its accesses overlap and one writes");
            }
            Ok(())
        }
        Command::Copy { from, to, .. } => {
            if !(from.is_within_region() && to.is_within_region()) {
                return Err("an access is not within its region");
            }
            if from.range.len() != to.range.len() {
                return Err("source and destination differ in length");
            }
            if from.mode != pontoon_hal::Mode::Read || to.mode != pontoon_hal::Mode::Write {
                return Err("a copy reads its source and writes its destination");
            }
            if from.conflicts_with(to) {
                return Err("source and destination overlap");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
