//! Streams over several lanes: what a wait, a barrier and a record mean for all of them.
//!
//! Batches take the lanes in turn, and each lane is in order by itself. So a wait of one batch has to
//! be made by the other lanes too: it is *owed* to each of them, and their next batch begins with
//! it. All that a lane is owed comes from the batches between two of its own, which bounds it. A
//! record stands for a position of its own lane and *beside* that for one of each other lane.
//!
//! Both are put into a batch as waits when it is submitted, and taken out again if it is refused: so
//! what is parked, kept or given to a device needs to know nothing of lanes.

use pontoon_hal::Device;

use super::{EventId, Session, StreamId, plan::Resolved};
use crate::{
    Fence,
    batch::{Barrier, Step, StepOf, WaitFor},
};

/// What a batch was given to begin with, and what it leaves to the other lanes.
pub(super) struct Brought<D: Device> {
    queue: usize,
    /// How many of its first steps were owed to its lane.
    owed: usize,
    /// What it was, if more than that was changed.
    was: Option<Vec<StepOf<D>>>,
    /// What later batches of the other lanes wait for.
    lasting: Vec<WaitFor>,
    /// Which of its own records it waits for, among them.
    own_records: Vec<usize>,
    /// One of its barriers names its own queue.
    bars_itself: bool,
}

impl<D: Device> Session<'_, D> {
    /// Puts into a batch what it means and does not say; `None` if that is nothing.
    pub(super) fn bring(
        &mut self,
        stream: StreamId,
        steps: &mut Vec<StepOf<D>>,
    ) -> Option<Brought<D>> {
        let queue = self.streams[stream.in_session(self.id).ok()?].queue;
        let is_wide = self.queues[queue].lanes.len() > 1;
        let is_changed = (0..steps.len()).any(|at| self.means_more(steps, at));
        if !is_wide && !is_changed {
            return None;
        }
        let was = is_changed.then(|| steps.clone());
        let mut brought = Brought {
            queue,
            owed: 0,
            was,
            lasting: Vec::new(),
            own_records: Vec::new(),
            bars_itself: false,
        };
        if is_changed {
            self.spell_out(queue, steps, &mut brought.own_records);
        }
        if is_wide {
            self.records.clear();
            self.find_lasting(steps, &mut brought);
            let this = &self.queues[queue];
            let owed = &this.owed[this.turn];
            brought.owed = owed.len();
            steps.splice(0..0, owed.iter().cloned().map(Step::Wait));
        }
        self.brought = brought.owed;
        Some(brought)
    }

    /// Whether a step waits for an event that the batch recorded before, or that stands for several
    /// positions.
    fn means_more(&self, steps: &[StepOf<D>], at: usize) -> bool {
        let Step::Wait(WaitFor::Event(event)) = steps[at] else { return false };
        let Ok(known) = event.in_session(self.id) else { return false };
        !self.events[known].beside.is_empty() || records(&steps[..at], event)
    }

    /// Puts in what waits for events mean. One that the batch recorded before is implied on its own
    /// lane.
    fn spell_out(&self, queue: usize, steps: &mut Vec<StepOf<D>>, own: &mut Vec<usize>) {
        let this = &self.queues[queue];
        let lane = this.lanes[this.turn];
        let mut at = 0;
        while at < steps.len() {
            if !self.means_more(steps, at) {
                at += 1;
                continue;
            }
            let Step::Wait(WaitFor::Event(event)) = steps[at] else { return };
            let (others, from) = if records(&steps[..at], event) {
                let records = steps[..at].iter().filter_map(|step| match step {
                    Step::Record(event) => Some(*event),
                    _ => None,
                });
                let last = records.enumerate().filter(|&(_, other)| other == event).last();
                own.extend(last.map(|(number, _)| number));
                (self.positions_beside(lane), at)
            } else {
                (self.events[event.index as usize].beside.clone(), at + 1)
            };
            let waits = others.into_iter().map(|fence| Step::Wait(WaitFor::Fence(fence)));
            let before = steps.len();
            steps.splice(from..at + 1, waits);
            at = from + (steps.len() + (at + 1 - from) - before);
        }
    }

    /// Finds what the waits and barriers of a batch are for, whatever lane it has.
    fn find_lasting(&self, steps: &[StepOf<D>], brought: &mut Brought<D>) {
        let this = &self.queues[brought.queue];
        let own = this.lanes[this.turn];
        for step in steps {
            match step {
                Step::Wait(WaitFor::Event(event)) => {
                    let event = event.in_session(self.id).ok().map(|at| &self.events[at]);
                    let recorded = event.and_then(|event| event.recorded.clone());
                    brought.lasting.extend(recorded.map(WaitFor::Fence));
                }
                Step::Wait(wait) => brought.lasting.push(wait.clone()),
                Step::Barrier(Barrier::Streams(streams)) => {
                    let queues = streams.iter().filter_map(|id| id.in_session(self.id).ok());
                    for queue in queues.map(|at| self.streams[at].queue) {
                        brought.bars_itself |= queue == brought.queue;
                        let lanes = self.queues[queue].lanes.iter().filter(|&&lane| lane != own);
                        let before = lanes.filter_map(|&lane| self.position(lane));
                        brought.lasting.extend(before.map(WaitFor::Fence));
                    }
                }
                _ => {}
            }
        }
    }

    /// A batch was given away: the other lanes owe what it waited for.
    pub(super) fn was_given(&mut self, brought: Brought<D>, fence: &Fence) {
        self.brought = 0;
        let Brought { queue, mut lasting, own_records, bars_itself, .. } = brought;
        let this = &self.queues[queue];
        let count = this.lanes.len();
        // It has had its turn.
        let own = (this.turn + count - 1) % count;
        let own_records = own_records.into_iter().filter_map(|at| self.records.get(at));
        lasting.splice(0..0, own_records.cloned().map(WaitFor::Fence));
        if bars_itself {
            let (lane, axis) = (this.lanes[own], Self::axis(this.lanes[own]));
            // What precedes the barrier in its batch. Of one that is parked no position is known yet
            // but its end.
            let bar = match fence.gate() {
                None => self.lanes[lane].fence(self.id, axis, self.barred),
                Some(_) => fence.clone(),
            };
            // First: it implies the others.
            lasting.insert(0, WaitFor::Fence(bar));
        }
        lasting.retain(|wait| match self.resolve(wait) {
            Ok(Resolved::Nothing) => false,
            Ok(Resolved::At(axis, count)) => self.tracker.host_knows(axis) < count,
            _ => true,
        });
        for (at, owed) in self.queues[queue].owed.iter_mut().enumerate() {
            if at == own {
                owed.clear();
            } else {
                owed.extend(lasting.iter().cloned());
            }
        }
    }

    /// A batch was refused: it is again what it was.
    pub(super) fn was_refused(&mut self, brought: Brought<D>, steps: &mut Vec<StepOf<D>>) {
        self.brought = 0;
        match brought.was {
            Some(was) => *steps = was,
            None => drop(steps.drain(..brought.owed.min(steps.len()))),
        }
    }

    /// Whether one of `streams` is over the queue that a lane is of.
    pub(super) fn names_queue_of(&self, streams: &[StreamId], lane: usize) -> bool {
        let own = self.queue_of[lane];
        streams.iter().any(|stream| self.streams[stream.index as usize].queue == own)
    }

    /// The lanes of a queue no longer owe what failed or never will be.
    pub(super) fn forgive_owed(&mut self, queue: usize) {
        let mut owed = std::mem::take(&mut self.queues[queue].owed);
        owed.iter_mut().for_each(|owed| owed.retain(|wait| self.resolve(wait).is_ok()));
        self.queues[queue].owed = owed;
    }

    /// Makes an event stand for a position of a lane and for all that the others of its queue have
    /// been given.
    pub(super) fn recorded(&mut self, event: EventId, fence: Fence, lane: usize) {
        let at = event.index as usize;
        let is_wide = self.queues[self.queue_of[lane]].lanes.len() > 1;
        // A batch that is submitted again records what it did the first time.
        if !self.recovering {
            self.events[at].beside.clear();
            if is_wide {
                self.events[at].beside = self.positions_beside(lane);
                self.records.push(fence.clone());
            }
        }
        self.events[at].recorded = Some(fence);
    }

    /// What the other lanes of a lane's queue have been given so far.
    fn positions_beside(&self, lane: usize) -> Vec<Fence> {
        let lanes = self.queues[self.queue_of[lane]].lanes.iter().filter(|&&other| other != lane);
        lanes.filter_map(|&other| self.position(other)).collect()
    }

    /// What a lane has been given so far; `None` if the host knows it to be over.
    fn position(&self, lane: usize) -> Option<Fence> {
        if let Some(late) = self.last_parked(lane) {
            let this = &self.lanes[lane];
            return Some(Fence::late(late, this.device.rank(), this.label.clone()));
        }
        let axis = Self::axis(lane);
        (self.tracker.host_knows(axis) < self.tracker.events(axis)).then(|| self.fence_of(lane))
    }
}

fn records<C>(steps: &[Step<C>], event: EventId) -> bool {
    steps.iter().any(|step| matches!(step, Step::Record(other) if *other == event))
}
