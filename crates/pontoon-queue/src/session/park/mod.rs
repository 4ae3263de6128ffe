//! Batches that wait for a signal that nobody has submitted.
//!
//! A device is given a batch only when all it waits for has been given to a device: so no queue is
//! ever blocked by something that is not under way. Until then the batch is parked, and everything
//! its lane is given afterwards behind it.
//!
//! What is under way waits only for what was under way before, so a circle of waits has a parked
//! batch in it. The graph of who waits for whom therefore has the parked batches only: while there
//! are none, the check for a deadlock is one comparison.

//!
//! - `settle.rs` makes of a batch what it means now, and cuts it into parts;
//! - `enter.rs` puts a part into the graph, and takes it out again;
//! - `release.rs` gives devices what can go on, and `give_up.rs` fails what never will;
//! - `semaphore.rs` and `collective.rs` have what is waited for;
//! - `held.rs` and `tell.rs` say who waits for whom.

mod collective;
mod enter;
mod give_up;
mod held;
mod release;
mod semaphore;
mod settle;
mod signals;
mod tell;

use std::{collections::HashMap, fmt, mem, panic::Location, sync::Arc};

use pontoon_hal::{Command, Device, Queue};

use collective::Collective;
use settle::{Settled, parts_of, split, unsettle};

use super::{
    Abandoned, CollectiveId, EventId, Foreign, Refusal, Room, SemaphoreId, Session, plan::Resolved,
};
use crate::{
    Axis, Completer, Fence,
    acyclic::{Acyclic, Node},
    batch::{Barrier, Malformed, Step, StepOf},
    fence::Late,
};

pub use held::{Held, Reason};
pub(in crate::session) use semaphore::Semaphore;

/// The parked batches.
pub(in crate::session) struct Parked<D: Device> {
    parcels: HashMap<Node, Parcel<D>>,
    graph: Acyclic,
    /// Those that somebody may still join, by the number in their handle.
    collectives: HashMap<u64, Collective>,
    collectives_made: u64,
    /// Something failed that parked batches may wait for.
    is_suspect: bool,
    /// Who waits for itself since a promise was broken, each with the circle.
    stuck: Vec<(Node, Vec<Node>)>,
    /// Storage that is used again.
    settled: Vec<Settled>,
}

/// A batch, or a part of one up to its next wait after a signal.
struct Parcel<D: Device> {
    stream: usize,
    lane: usize,
    steps: Vec<StepOf<D>>,
    late: Arc<Late>,
    completer: Completer,
    label: &'static str,
    site: &'static Location<'static>,
    /// The node that waits for what it waits for: its own, or, of a member of a collective, one that
    /// the collective's node waits for, which its own waits for.
    entry: Node,
    /// The collective that it starts with.
    collective: Option<u64>,
}

/// A circle of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Each waits for the next, and the last for the first; or, where only the host could go on,
    /// each waits for the next and the last for the host.
    pub path: Vec<String>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock: ")?;
        for (at, link) in self.path.iter().enumerate() {
            let arrow = if at == 0 { "" } else { ", " };
            write!(f, "{arrow}{link}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

impl<D: Device> Default for Parked<D> {
    fn default() -> Self {
        let (parcels, graph) = (HashMap::new(), Acyclic::new());
        Self {
            parcels,
            graph,
            collectives: HashMap::new(),
            collectives_made: 0,
            is_suspect: false,
            stuck: Vec::new(),
            settled: Vec::new(),
        }
    }
}

impl<D: Device> Parked<D> {
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }
}

impl<D: Device> Session<'_, D> {
    /// Whether something of `steps` waits for what nobody has submitted.
    pub(in crate::session) fn is_held(&self, steps: &[StepOf<D>]) -> bool {
        steps.iter().any(|step| match step {
            Step::Wait(wait) => matches!(self.resolve(wait), Ok(Resolved::Open)),
            Step::Collective(_) => true,
            _ => false,
        })
    }

    /// Parks a batch, and gives its lane what can go on. On success `steps` are used up.
    pub(in crate::session) fn park(
        &mut self,
        stream: usize,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        self.lanes[lane].takes()?;
        let mut settled = self.settle_steps(lane, steps)?;
        let parked = self.park_settled(stream, lane, steps, room);
        if parked.is_err() {
            unsettle(&mut settled, steps);
        }
        settled.clear();
        self.parked.settled = settled;
        parked
    }

    fn park_settled(
        &mut self,
        stream: usize,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        self.promises_grow(steps)?;
        let held = !self.lanes[lane].parked.is_empty() || self.is_held(steps);
        let held = held || self.promised_before(steps);
        if !held {
            // It waits for nothing that is parked, so it is in no circle.
            return self.place(lane, steps, &[], room);
        }
        self.may_fit(lane, steps)?;
        self.spend_credit(lane, self.unblocks(steps), room)?;
        // What went on meanwhile may have failed.
        self.lanes[lane].takes()?;
        let parts = split(steps);
        let mut parked = Vec::with_capacity(parts.len());
        for part in &parts {
            match self.enter(stream, lane, part) {
                Ok(node) => parked.push(node),
                Err(refusal) => {
                    parked.iter().rev().for_each(|&node| self.take_back(node));
                    steps.extend(parts.into_iter().flatten());
                    return Err(refusal);
                }
            }
        }
        self.counts.parked += 1;
        let (device, label) = (self.lanes[lane].device.rank(), self.streams[stream].label.clone());
        let (mut late, mut recorded) = (None, Vec::new());
        for (node, mut part) in parked.iter().zip(parts) {
            let Some(parcel) = self.parked.parcels.get_mut(node) else { continue };
            // An event stands for it from now on, not from when it is given to its device.
            let fence = Fence::late(Arc::clone(&parcel.late), device, Arc::clone(&label));
            if part.iter().any(|step| matches!(step, Step::Barrier(Barrier::Device))) {
                let device = self.lanes[lane].device_at;
                self.devices[device].held = Some((lane, fence.clone()));
            }
            part.retain(|step| match step {
                Step::Record(event) => {
                    recorded.push((*event, fence.clone()));
                    false
                }
                Step::Signal(id, _) => {
                    self.semaphores[id.index as usize].renew();
                    true
                }
                _ => true,
            });
            parcel.steps = part;
            late = Some(Arc::clone(&parcel.late));
            let label = parcel.label;
            self.traced_parked("parked", lane, label);
        }
        for (event, fence) in recorded {
            self.recorded(event, fence, lane);
        }
        self.pump();
        match late {
            Some(late) => Ok(Fence::late(late, device, label)),
            None => Ok(self.fence_of(lane)),
        }
    }

    /// Refuses what has more commands between two of its waits than the queue holds.
    fn may_fit(&self, lane: usize, steps: &[StepOf<D>]) -> Result<(), Refusal> {
        let depth = self.lanes[lane].queue.depth();
        let works =
            |part: &[StepOf<D>]| part.iter().filter(|step| matches!(step, Step::Work(_))).count();
        let commands = parts_of(steps).map(works).max().unwrap_or(0);
        if commands > depth as usize {
            let queue = Arc::clone(&self.lanes[lane].label);
            return Err(Refusal::TooLong { queue, commands, depth });
        }
        Ok(())
    }

    /// Sees to it that one more batch may be under way on a lane.
    fn spend_credit(&mut self, lane: usize, unblocks: bool, room: Room) -> Result<(), Refusal> {
        loop {
            let holds = match self.lanes[lane].credit(u32::from(unblocks)) {
                Ok(None) => return Ok(()),
                Ok(Some(until)) => {
                    let holds = self.lanes[lane].credits.unwrap_or(u32::MAX);
                    return self.room_by(lane, until, holds, room);
                }
                Err(holds) => holds,
            };
            // What is parked may only wait for room, which comes by itself.
            let (Room::Wait(_), Some(late)) = (room, self.last_parked(lane)) else {
                return Err(self.no_credit(lane, holds, room));
            };
            let Some(full) = self.waits_for_room(&late) else {
                return Err(self.no_credit(lane, holds, room));
            };
            self.room_by(full, self.lanes[full].completed() + 1, holds, room)?;
            self.pump();
        }
    }

    /// The last batch that is parked on a lane.
    pub(in crate::session) fn last_parked(&self, lane: usize) -> Option<Arc<Late>> {
        let last = self.lanes[lane].parked.back()?;
        Some(Arc::clone(&self.parked.parcels.get(last)?.late))
    }
}
