//! A device that does nothing: its queues count positions, and complete them when told to.

use std::sync::{Arc, Mutex, PoisonError};

use pontoon::{
    hal::{
        AllocateError, Capabilities, CommandOf, Device, Engine, FaultCell, HostAccessError, Memory,
        OpenQueueError, Queue, QueueReport, RegionId, SubmitError,
    },
    signal::{
        Bound, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape, WaitError,
        shim::{AtomicU64, Ordering::Relaxed},
    },
};

use super::DEPTH;

/// A device whose queues take commands and drop them.
#[derive(Debug)]
pub(in crate::bench) struct NullDevice {
    rank: Rank,
    queues: Mutex<Vec<Arc<Counted>>>,
    regions: Mutex<u64>,
}

/// What a queue was given, and its counter.
#[derive(Debug)]
struct Counted {
    submitted: AtomicU64,
    done: Mutex<Publisher>,
}

impl NullDevice {
    pub(in crate::bench) fn new(rank: Rank) -> Self {
        let (queues, regions) = (Mutex::default(), Mutex::default());
        Self { rank, queues, regions }
    }

    /// Completes all that its queues were given.
    pub(in crate::bench) fn complete(&self) {
        for queue in &*lock(&self.queues) {
            let submitted = Seq::new(queue.submitted.load(Relaxed));
            // Not behind: only this call moves the counter, and submissions only grow.
            let _ = lock(&queue.done).pub_release_set(submitted);
        }
    }

    /// How many commands its queues were given in all.
    pub(in crate::bench) fn submitted(&self) -> u64 {
        lock(&self.queues).iter().map(|queue| queue.submitted.load(Relaxed)).sum()
    }
}

impl Device for NullDevice {
    type Memory = NullMemory;
    type Kernel = ();
    type Queue = NullQueue;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::least(4096)
    }

    fn allocate(&self, bytes: usize) -> Result<NullMemory, AllocateError> {
        let mut regions = lock(&self.regions);
        *regions += 1;
        // Ids are unique in the process, or there would be dependencies that nobody meant.
        let id = RegionId(u64::from(self.rank.0) << 32 | *regions);
        Ok(NullMemory { id, bytes, device: self.rank })
    }

    fn open_queue(&self, _: Engine, _: &str) -> Result<NullQueue, OpenQueueError> {
        let mut queues = lock(&self.queues);
        let slot = SlotId { producer: self.rank, slot: 0 };
        let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(self.rank));
        let free = "a new table has its slot free";
        let done = Mutex::new(table.publisher(slot).expect(free));
        let counted = Arc::new(Counted { submitted: AtomicU64::new(0), done });
        queues.push(Arc::clone(&counted));
        let (completions, faults) = (table.slot(slot).expect(free), FaultCell::default());
        Ok(NullQueue { counted, completions, faults, submitted: 0 })
    }

    fn synchronize(&self, _: Bound) -> Result<(), WaitError> {
        self.complete();
        Ok(())
    }
}

/// A queue of a [`NullDevice`].
#[derive(Debug)]
pub(in crate::bench) struct NullQueue {
    counted: Arc<Counted>,
    completions: Slot,
    faults: FaultCell,
    submitted: u64,
}

impl Queue for NullQueue {
    type Memory = NullMemory;
    type Kernel = ();

    fn submit(&mut self, _: CommandOf<Self>) -> Result<Seq, SubmitError<CommandOf<Self>>> {
        self.submitted += 1;
        self.counted.submitted.store(self.submitted, Relaxed);
        Ok(Seq::new(self.submitted))
    }

    fn completions(&self) -> &Slot {
        &self.completions
    }

    fn submitted(&self) -> Seq {
        Seq::new(self.submitted)
    }

    fn depth(&self) -> u32 {
        DEPTH
    }

    fn faults(&self) -> &FaultCell {
        &self.faults
    }

    fn report(&self) -> QueueReport {
        QueueReport::default()
    }
}

/// A name and a size without bytes: to clone it costs nothing.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct NullMemory {
    id: RegionId,
    bytes: usize,
    device: Rank,
}

impl Memory for NullMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn id(&self) -> RegionId {
        self.id
    }

    fn device(&self) -> Rank {
        self.device
    }

    fn host_read(&self, _: usize, into: &mut [u8]) -> Result<(), HostAccessError> {
        into.fill(0);
        Ok(())
    }

    fn host_write(&self, _: usize, _: &[u8]) -> Result<(), HostAccessError> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
