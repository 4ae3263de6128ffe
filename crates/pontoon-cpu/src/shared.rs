//! What a device's threads share: its queues, the line that tells of changes, its end.

use std::{
    mem, slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use pontoon_hal::{Engine, OpenQueueError};
use pontoon_signal::{Load, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape, Waiter};

use crate::{
    lane::Lane,
    meter::Meter,
    queue::{CpuQueue, Number},
    spans::SpanLog,
};

/// Queues that a device can have open: each idle unit sleeps on all of them at once.
pub(crate) const QUEUES: u32 = 64;
/// The line by which the units learn of changes; queues have the others.
const CHANGES: u32 = 0;

/// What the device's threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rank: Rank,
    pub(crate) changes: Slot,
    load: Load,
    pub(crate) spans: Option<Arc<SpanLog>>,
    state: Mutex<State>,
    pub(crate) meter: Mutex<Meter>,
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
pub(crate) enum End {
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

    /// A new queue, whose signal starts at `start`.
    pub(crate) fn open_queue(
        &self,
        engine: Engine,
        label: &str,
        start: Seq,
        depth: u32,
    ) -> Result<CpuQueue, OpenQueueError> {
        let mut state = lock(&self.state);
        if state.end != End::Open {
            return Err(OpenQueueError::DeviceLost);
        }
        let free = state.numbers.iter().position(|holder| holder.strong_count() == 0);
        let Some(free) = free else {
            return Err(OpenQueueError::TooMany { queues: QUEUES });
        };
        let number = Number::default();
        state.numbers[free] = number.downgrade();
        let signal = new_signal(self.rank, CHANGES + 1 + free as u32, start);
        let queue = CpuQueue::new(self, engine, label, signal, number, depth);
        state.lanes.push(Arc::clone(queue.lane()));
        state.lanes_changed();
        Ok(queue)
    }

    /// The signal of each queue, and where it is when all that was submitted is complete.
    pub(crate) fn submitted(&self) -> Vec<(Slot, Seq)> {
        let state = lock(&self.state);
        let failed = state.failed.iter().filter_map(Weak::upgrade);
        let all = state.lanes.iter().cloned().chain(failed);
        all.map(|lane| (lane.completions.clone(), lane.submitted())).collect()
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
    pub(crate) fn end_with(&self, end: End) {
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
    pub(crate) fn lose_queues(&self) {
        let mut state = lock(&self.state);
        let lanes = mem::take(&mut state.lanes);
        for lane in &lanes {
            lane.lose();
        }
        state.set_aside(&lanes);
        // What kernels captured is dropped with `lanes`, and may own what locks the state.
        drop(state);
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
