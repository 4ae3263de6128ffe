//! What a batch means when it is submitted, since its turn comes later.

use std::{mem, ops::Range, sync::Arc};

use pontoon_hal::{Access, Command, Device, Engine, Memory, RegionId, overlap};

use super::{EventId, Malformed, Node, Refusal, Session};
use crate::{
    Fence,
    batch::{Barrier, Step, StepOf, WaitFor, accesses, beyond},
    session::Edges,
};

impl<D: Device> Session<'_, D> {
    /// Puts in what `steps` mean now, for it may mean something else when their turn comes: an event
    /// what it was recorded for, a barrier what is parked before it.
    pub(in crate::session) fn settle_steps(
        &mut self,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
    ) -> Result<Vec<Settled>, Refusal> {
        steps.iter().try_for_each(|step| self.may_park(lane, step))?;
        let mut settled = mem::take(&mut self.parked.settled);
        let mut at = 0;
        if let Some(fence) = self.held_barrier(lane) {
            steps.insert(0, Step::Wait(WaitFor::Fence(fence)));
            settled.push(Settled::Inserted(0));
        }
        while at < steps.len() {
            match &steps[at] {
                &Step::Wait(WaitFor::Event(event)) => {
                    let recorded = self.events[event.index as usize].recorded.clone();
                    let stands_for = recorded.map_or(WaitFor::Nothing, WaitFor::Fence);
                    steps[at] = Step::Wait(stands_for);
                    settled.push(Settled::Event(at, event));
                }
                Step::Barrier(barrier) => {
                    for fence in self.parked_before(lane, barrier) {
                        steps.insert(at, Step::Wait(WaitFor::Fence(fence)));
                        settled.push(Settled::Inserted(at));
                        at += 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Ok(settled)
    }

    /// Refuses what would be refused when its turn comes, whatever comes first.
    fn may_park(&self, lane: usize, step: &StepOf<D>) -> Result<(), Refusal> {
        match step {
            Step::Work(command) => {
                if self.lanes[lane].engine == Engine::Copy
                    && matches!(command, Command::Launch { .. })
                {
                    let why = "the copy engine runs no kernels";
                    return Err(Malformed::new(command.label(), why).into());
                }
                if let Some(beyond) = beyond(command) {
                    return Err(beyond.into());
                }
                let mut regions = accesses(command).map(|access| access.memory.id());
                if let Some(region) = regions.find(|&region| self.tracker.is_freed(region)) {
                    return Err(Refusal::Freed { label: command.label(), region });
                }
            }
            Step::Wait(wait) => {
                self.resolve(wait)?;
            }
            Step::Record(event) => drop(event.in_session(self.id)?),
            Step::Barrier(Barrier::Streams(streams)) => {
                streams.iter().try_for_each(|stream| stream.in_session(self.id).map(drop))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses to free what a parked batch names, which could not be refused any more.
    pub(in crate::session) fn may_free(&self, region: RegionId) -> Result<(), Refusal> {
        if self.parked.is_empty() || self.edges == Edges::Trust {
            return Ok(());
        }
        match self.parked_naming(|access| access.memory.id() == region).next() {
            Some(node) => Err(Refusal::Named { region, by: self.name(node) }),
            None => Ok(()),
        }
    }

    /// A parked batch that uses bytes and is not given to its device before what `lane` is given
    /// now.
    pub(in crate::session) fn parked_user(
        &self,
        region: RegionId,
        range: &Range<usize>,
        lane: Option<usize>,
    ) -> Option<String> {
        if self.parked.is_empty() {
            return None;
        }
        let uses = |access: &Access<D::Memory>| {
            access.memory.id() == region && overlap(&access.range, range)
        };
        let tail = lane.and_then(|lane| self.lanes[lane].parked.back());
        let mut earlier: Vec<_> = tail.copied().into_iter().collect();
        let mut next = 0;
        while let Some(&node) = earlier.get(next) {
            next += 1;
            for before in self.parked.graph.before(node) {
                if !earlier.contains(&before) {
                    earlier.push(before);
                }
            }
        }
        let node = self.parked_naming(uses).find(|node| !earlier.contains(node))?;
        Some(self.name(node))
    }

    /// The parked batches with such an access.
    fn parked_naming(
        &self,
        is_such: impl Fn(&Access<D::Memory>) -> bool,
    ) -> impl Iterator<Item = Node> {
        let names = move |step: &StepOf<D>| match step {
            Step::Work(command) => accesses(command).any(&is_such),
            _ => false,
        };
        let parked = self.lanes.iter().flat_map(|lane| &lane.parked).copied();
        parked.filter(move |node| {
            self.parked.parcels.get(node).is_some_and(|parcel| parcel.steps.iter().any(&names))
        })
    }

    /// The global barrier that a lane has to come after, if it is still parked on another.
    fn held_barrier(&self, lane: usize) -> Option<Fence> {
        let (held, fence) = self.devices[self.lanes[lane].device_at].held.as_ref()?;
        let late = fence.gate()?;
        let is_parked = late.real.get().is_none() && late.why.get().is_none();
        (is_parked && *held != lane).then(|| fence.clone())
    }

    /// What is parked on the other lanes that a barrier names.
    fn parked_before(&self, lane: usize, barrier: &Barrier) -> Vec<Fence> {
        let of_barrier = |other: usize| match barrier {
            Barrier::Device => self.lanes[other].device_at == self.lanes[lane].device_at,
            Barrier::Streams(streams) => streams.iter().any(|stream| {
                let queue = self.streams[stream.index as usize].queue;
                self.queues[queue].lanes.contains(&other)
            }),
        };
        let lanes = (0..self.lanes.len()).filter(|&other| other != lane && of_barrier(other));
        let parked = lanes.filter_map(|other| {
            let (lane, late) = (&self.lanes[other], self.last_parked(other)?);
            Some(Fence::late(late, lane.device.rank(), Arc::clone(&lane.label)))
        });
        parked.collect()
    }
}

/// A step that was put in or changed until a batch's turn comes.
pub(in crate::session) enum Settled {
    Inserted(usize),
    Event(usize, EventId),
}

/// Makes `steps` what the caller gave.
pub(super) fn unsettle<C>(settled: &mut Vec<Settled>, steps: &mut Vec<Step<C>>) {
    while let Some(done) = settled.pop() {
        match done {
            Settled::Inserted(at) if at < steps.len() => drop(steps.remove(at)),
            Settled::Event(at, event) if at < steps.len() => {
                steps[at] = Step::Wait(WaitFor::Event(event));
            }
            _ => {}
        }
    }
}

/// The parts of a batch: it is cut where it waits after it did something that others may wait for.
/// What is before the wait goes without it. A signal waits too, for the signals that were promised
/// before it.
///
/// What an event stands for ends with its part.
pub(super) fn parts_of<C>(steps: &[Step<C>]) -> impl Iterator<Item = &[Step<C>]> {
    let (mut shown, mut recorded) = (false, false);
    steps.chunk_by(move |before, step| {
        recorded |= matches!(before, Step::Record(_));
        shown |= matches!(before, Step::Signal(..) | Step::Record(_) | Step::Collective(_));
        let waits = matches!(step, Step::Wait(_) | Step::Collective(_) | Step::Signal(..));
        let starts_one = matches!(step, Step::Collective(_));
        let is_record = matches!(step, Step::Record(_));
        let ends = waits && shown || starts_one || recorded && !is_record;
        if ends {
            (shown, recorded) = (false, false);
        }
        !ends
    })
}

/// Cuts a batch into its parts.
pub(super) fn split<C>(steps: &mut Vec<Step<C>>) -> Vec<Vec<Step<C>>> {
    let lengths: Vec<_> = parts_of(steps).map(<[_]>::len).collect();
    let mut all = steps.drain(..);
    let parts: Vec<_> = lengths.into_iter().map(|len| all.by_ref().take(len).collect()).collect();
    if parts.is_empty() { vec![Vec::new()] } else { parts }
}
