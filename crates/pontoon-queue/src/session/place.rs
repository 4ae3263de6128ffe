//! Giving a batch to its device.

use std::mem;

use pontoon_hal::{Command, CommandOf, Device, Queue, SubmitError};
use pontoon_signal::Slot;

use super::{
    Cause, Edges, Note, Plan, Refusal, Room, Session,
    plan::{Edge, Resolved, touches_of},
};
use crate::{
    Axis, Clock, Fence, Patience,
    batch::{Barrier, Step, StepOf, WaitFor},
    patience::Deadline,
};

impl<D: Device> Session<'_, D> {
    /// Gives `steps` to a lane, with the waits they need. On success they are used up.
    pub(super) fn place(
        &mut self,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        extra: &[(Axis, u64)],
        room: Room,
    ) -> Result<Fence, Refusal> {
        // Of what is parked some may have gone already; it fails with the queue, as they do.
        if !matches!(room, Room::Parked) {
            self.lanes[lane].takes()?;
        }
        // Taken out while it is filled, and put back for the next batch.
        let (mut plan, mut clock) = (mem::take(&mut self.plan), mem::take(&mut self.clock));
        let placed = self
            .plan(lane, steps, extra, &mut plan, &mut clock)
            .and_then(|()| self.make_room(lane, steps, &plan, room));
        if placed.is_ok() {
            self.emit(lane, steps, &mut plan, &mut clock);
        }
        (self.plan, self.clock) = (plan, clock);
        placed?;
        let axis = Self::axis(lane);
        let events = self.tracker.events(axis);
        self.lanes[lane].spend(events);
        self.lanes[lane].origins.push(events, self.site);
        let fence = self.fence_of(lane);
        self.traced("created", lane, events);
        self.sync_later(lane);
        if !matches!(room, Room::Parked) {
            self.sync_now();
        }
        if !self.parked.is_empty() {
            self.pump();
        }
        Ok(fence)
    }

    /// Whether a lane would take `steps` now, with at most `more` waits than are needed now.
    pub(super) fn would_take(
        &mut self,
        lane: usize,
        steps: &[StepOf<D>],
        extra: &[(Axis, u64)],
        more: usize,
    ) -> Result<(), Refusal> {
        let (mut plan, mut clock) = (mem::take(&mut self.plan), mem::take(&mut self.clock));
        // What is redundant is counted when it is given.
        let (counts, noted) = (self.counts, mem::take(&mut self.profiler.redundant));
        let planned = self.plan(lane, steps, extra, &mut plan, &mut clock);
        (self.counts, self.profiler.redundant) = (counts, noted);
        let needed = plan.edges.len() + plan.outside + plan.works + more;
        (self.plan, self.clock) = (plan, clock);
        planned?;
        let full = self.full_at(lane, needed)?;
        self.room_by(lane, full, self.lanes[lane].queue.depth(), Room::Parked)
    }

    /// How many events of a lane have to be over before it has room for `needed` more.
    fn full_at(&self, lane: usize, needed: usize) -> Result<u64, Refusal> {
        let (this, events) = (&self.lanes[lane], self.tracker.events(Self::axis(lane)));
        let depth = this.queue.depth();
        if needed > depth as usize {
            let queue = this.label.clone();
            return Err(Refusal::TooLong { queue, commands: needed, depth });
        }
        // What is under way then: at most as many commands as the queue holds.
        Ok((events + needed as u64).saturating_sub(u64::from(depth)))
    }

    /// Sees to it that the lane takes all of a batch.
    fn make_room(
        &mut self,
        lane: usize,
        steps: &[StepOf<D>],
        plan: &Plan,
        room: Room,
    ) -> Result<(), Refusal> {
        let spare = u32::from(self.unblocks(steps));
        let axis = Self::axis(lane);
        let full = self.full_at(lane, plan.edges.len() + plan.outside + plan.works)?;
        let (knows, this) = (self.tracker.host_knows(axis), &mut self.lanes[lane]);
        let depth = this.queue.depth();
        let credit = match (room, this.credit(spare)) {
            (Room::Parked, _) => 0,
            (_, Ok(credit)) => credit.unwrap_or(0),
            (_, Err(holds)) => return Err(self.no_credit(lane, holds, room)),
        };
        let until = full.max(credit);
        let holds = if credit >= full { this.credits.unwrap_or(depth) } else { depth };
        self.room_by(lane, until, holds, room)?;
        // The queue's depth alone orders that much before what is submitted now, in every run. It is
        // learnt now and then, so that no record of it has to be kept; where edges are checked as
        // seldom as memory allows, since nobody means to order anything by a depth.
        let patience = if self.edges == Edges::Check { RECORDS } else { u64::from(depth / 2) };
        if full > knows + patience
            && self.lanes[lane].is_over(full) == Ok(true)
            && self.end_of(axis, full) == full
        {
            self.tracker.host_learns(axis, full);
        }
        Ok(())
    }

    /// Waits, if it may, until the first `until` events of a lane that `holds` so many are over.
    pub(super) fn room_by(
        &mut self,
        lane: usize,
        until: u64,
        holds: u32,
        room: Room,
    ) -> Result<(), Refusal> {
        let this = &self.lanes[lane];
        if this.completed() >= until {
            return Ok(());
        }
        let Room::Wait(patience) = room else {
            let (device, queue) = (this.device.rank(), this.label.clone());
            return Err(Refusal::Full { device, queue, holds });
        };
        let by = *self.room_by.get_or_insert_with(|| Deadline::of(patience));
        self.wait_for_room(Self::axis(lane), until, by.left())
    }

    fn wait_for_room(&mut self, axis: Axis, until: u64, patience: Patience) -> Result<(), Refusal> {
        let reached = self.reach_for(Cause::Room, axis, until, patience);
        reached.map_err(|error| match error.fault.clone() {
            Some(fault) => Refusal::Faulted(fault),
            None => Refusal::NoRoom(error),
        })
    }

    /// Gives the planned waits and the commands to the device. There is room for all of them, and
    /// they are well-formed: from here on the batch is submitted, whatever becomes of it.
    fn emit(
        &mut self,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        plan: &mut Plan,
        clock: &mut Clock,
    ) {
        let axis = Self::axis(lane);
        let last_work = steps.iter().rposition(|step| matches!(step, Step::Work(_)));
        let mut edges = mem::take(&mut plan.edges);
        // Most batches wait before all else. Then nobody can have a position between two of its
        // waits, and all that it has to know is what the plan ended with.
        let waits = steps.iter().take_while(|step| matches!(step, Step::Wait(_))).count();
        let joined = edges.last().is_none_or(|edge| edge.step <= waits)
            && plan.version == self.tracker.host_version();
        let news =
            if joined { self.tracker.has_news(axis) } else { self.tracker.start(axis, clock) };
        let mut emit = Emit { lane, axis, news, joined };
        let mut next = edges.iter().peekable();
        // By reference: a step is as large as its largest kind, and most are none of that.
        for (at, step) in steps.iter_mut().enumerate() {
            while let Some(edge) = next.next_if(|edge| edge.step <= at) {
                let work_follows = last_work.is_some_and(|last| last >= at);
                let more = joined && next.peek().is_some();
                self.emit_wait(&mut emit, edge, work_follows, more, clock);
            }
            self.emit_step(&mut emit, step, plan, clock);
        }
        // A batch without steps comes after a global barrier too.
        while let Some(edge) = next.next() {
            let more = joined && next.peek().is_some();
            self.emit_wait(&mut emit, edge, false, more, clock);
        }
        steps.clear();
        edges.clear();
        plan.edges = edges;
    }

    fn emit_step(&mut self, emit: &mut Emit, step: &mut StepOf<D>, plan: &mut Plan, clock: &Clock) {
        let Emit { lane, axis, .. } = *emit;
        match *step {
            Step::Work(_) => {
                // What is put there goes with the steps: nothing is given back any more.
                if let Step::Work(command) = mem::replace(step, Step::Barrier(Barrier::Device)) {
                    self.emit_work(emit, command, plan, clock);
                }
            }
            Step::Wait(ref wait @ WaitFor::Fence(ref fence)) if plan.outside > 0 => {
                let outside = matches!(self.resolve(wait), Ok(Resolved::Outside));
                if let Some(point) = fence.point().filter(|_| outside) {
                    let (slot, target) = (Slot::clone(&point.slot), point.target);
                    let wait = Command::Wait { label: "wait", slot, target, bound: self.bound };
                    self.hand_over(lane, wait);
                    self.tracker.pass(axis);
                    self.lanes[lane].notes.push(Note::Outside);
                    self.counts.waits += 1;
                }
            }
            Step::Wait(_) | Step::Collective(_) => {}
            Step::Barrier(Barrier::Streams(ref streams)) => {
                if self.names_queue_of(streams, lane) {
                    self.barred = self.tracker.events(axis);
                }
            }
            Step::Barrier(Barrier::Device) => {
                let device = self.lanes[lane].device_at;
                self.devices[device].barrier = Some((axis, self.tracker.events(axis)));
            }
            Step::Signal(semaphore, to) => {
                self.signalled(semaphore, to, axis, self.tracker.events(axis));
            }
            Step::Record(event) => {
                let fence = self.fence_of(lane);
                self.recorded(event, fence, lane);
            }
        }
    }

    fn emit_work(
        &mut self,
        emit: &mut Emit,
        command: CommandOf<D::Queue>,
        plan: &mut Plan,
        clock: &Clock,
    ) {
        let Emit { lane, axis, news, .. } = *emit;
        let label = command.label();
        let tracked = self.edges != Edges::Trust;
        if tracked {
            touches_of(&command, &mut plan.touches);
        }
        self.hand_over(lane, command);
        if news {
            self.tracker.learn(axis, clock);
            emit.news = false;
        }
        self.lanes[lane].notes.push(Note::Work(label));
        self.counts.commands += 1;
        if self.is_observed() {
            self.observe_work(lane, label, self.tracker.events(axis) + 1);
        }
        if !tracked {
            self.tracker.pass(axis);
            return;
        }
        let did =
            self.tracker.commit(axis, plan.touches.iter().map(|(touch, size)| (touch, *size)));
        self.counts.maintained(&did);
    }

    fn emit_wait(
        &mut self,
        emit: &mut Emit,
        edge: &Edge,
        work_follows: bool,
        more: bool,
        clock: &mut Clock,
    ) {
        let Emit { lane, axis, joined, .. } = *emit;
        self.counts.edges += 1;
        self.counts.execution_only += u64::from(edge.execution_only);
        if !joined {
            self.tracker.join(clock, edge.axis, edge.count);
        }
        self.profiler.redundant.waits(lane, edge.axis, edge.count);
        emit.news = true;
        self.traced_edge(lane, edge.axis, edge.count);
        if self.aids.observer.is_some() {
            self.observe_wait(lane, edge.axis, edge.count);
        }
        let Some(at) = Self::lane_of(edge.axis) else { return };
        let other = &self.lanes[at];
        // The host has acquired it then, and the queue's own counter hands that on with the next
        // command. Without one there would be no event that knows it. Where edges are checked every
        // run has the same events, or what is refused would depend on what happens to be over.
        let may_elide = work_follows && self.edges != Edges::Check;
        if may_elide && other.is_over(edge.count) == Ok(true) {
            self.counts.complete += 1;
            self.ordered(lane, at, edge.count);
            return;
        }
        let (slot, target) = (other.queue.completions().clone(), other.target(edge.count));
        let label = edge.purpose.label();
        let wait = Command::Wait { label, slot, target, bound: self.bound };
        self.hand_over(lane, wait);
        if !more {
            self.tracker.learn(axis, clock);
            emit.news = false;
        }
        self.tracker.pass(axis);
        self.lanes[lane].notes.push(Note::Wait(edge.axis, edge.count));
        self.counts.waits += 1;
    }

    /// Gives one command to a lane that has room for it.
    ///
    /// # Panics
    ///
    /// The device breaks its contract: the queue is no deeper than it says, or refuses a command that
    /// is well-formed.
    fn hand_over(&mut self, lane: usize, command: CommandOf<D::Queue>) {
        let label = command.label();
        let submitting = self.submitting();
        let this = &mut self.lanes[lane];
        match this.queue.submit(command) {
            Ok(position) => self.submitted(lane, position, submitting),
            // It failed since it was asked. Some of the batch may be queued, so it counts as
            // submitted, and its fence fails.
            Err(SubmitError::Faulted(_)) => {}
            Err(refused) => panic!(
                "device {} queue {} has to take {label}, and does not: {refused}",
                this.device.rank(),
                this.label
            ),
        }
    }
}

/// Events of a lane that the host has not waited for and that are remembered where edges are checked.
const RECORDS: u64 = 1 << 10;

/// A batch on its way to a lane.
#[derive(Clone, Copy)]
struct Emit {
    lane: usize,
    axis: Axis,
    /// The clock has more than the tracker knows the lane to know.
    news: bool,
    /// The clock has all that the edges bring, and it is learnt with the last of them.
    joined: bool,
}
