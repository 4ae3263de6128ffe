//! What a batch has to come after.

use std::sync::Arc;

use pontoon_hal::{Access, Command, Device, Engine, Memory, Mode, Purpose};

use super::{Edges, MissingEdge, Note, Refusal, Session, Site, Unrecorded};
use crate::{
    Axis, Clock, Fence,
    batch::{Barrier, Malformed, Step, StepOf, WaitFor, accesses, beyond},
    check::HazardKind,
    tracker::{Need, Touch, Tracker, reduce},
};

/// What a batch has to be given besides its commands, and storage to find out.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In the order of the steps.
    pub(super) edges: Vec<Edge>,
    /// Waits for signals that are no session's.
    pub(super) outside: usize,
    pub(super) works: usize,
    /// What the host knew, by its version.
    pub(super) version: u64,
    pub(super) needs: Vec<Need>,
    pub(super) reduced: Vec<(Axis, u64)>,
    /// Each with the size of its region.
    pub(super) touches: Vec<(Touch, u64)>,
}

/// A wait that a batch needs before one of its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) step: usize,
    pub(super) axis: Axis,
    pub(super) count: u64,
    pub(super) execution_only: bool,
    pub(super) purpose: Purpose,
}

/// What a wait waits for, as far as the session knows.
pub(super) enum Resolved {
    Nothing,
    At(Axis, u64),
    /// A signal that is no session's.
    Outside,
    /// Something that nobody has submitted.
    Open,
}

impl<D: Device> Session<'_, D> {
    /// Puts into `plan` what `steps` need if `lane` is given them now. `extra` comes before the
    /// first step. Changes nothing else but `clock`, which in the end is what is known when the last
    /// of the edges is met.
    pub(super) fn plan(
        &mut self,
        lane: usize,
        steps: &[StepOf<D>],
        extra: &[(Axis, u64)],
        plan: &mut Plan,
        clock: &mut Clock,
    ) -> Result<(), Refusal> {
        let own = Self::axis(lane);
        let brought = std::mem::take(&mut self.brought);
        plan.edges.clear();
        (plan.outside, plan.works) = (0, 0);
        self.tracker.start(own, clock);
        plan.version = self.tracker.host_version();
        let barrier = self.devices[self.lanes[lane].device_at].barrier;
        for &(axis, count) in extra {
            self.plan_edge(plan, clock, 0, (axis, count), Purpose::Barrier);
        }
        if let Some(event) = barrier {
            self.plan_edge(plan, clock, 0, event, Purpose::FullSync);
        }
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Work(command) => {
                    plan.works += 1;
                    if !self.aids.added.is_empty() {
                        self.plan_added(lane, at, command.label(), plan, clock);
                    }
                    self.plan_work(lane, at, command, plan, clock)?;
                }
                Step::Wait(wait) => match self.resolve(wait)? {
                    Resolved::At(axis, count) => {
                        let event = (axis, count);
                        let is_planned =
                            self.plan_edge(plan, clock, at, event, Purpose::Dependency);
                        // Nobody gave those that the session put in.
                        if !is_planned && at >= brought {
                            self.counts.redundant += 1;
                            self.note_redundant(lane, plan, axis, count);
                        }
                    }
                    Resolved::Outside => plan.outside += 1,
                    Resolved::Nothing | Resolved::Open => {}
                },
                Step::Barrier(barrier) => self.plan_barrier(lane, at, barrier, plan, clock)?,
                Step::Signal(semaphore, to) => self.may_signal(*semaphore, *to, &steps[..at])?,
                Step::Record(event) => drop(event.in_session(self.id)?),
                Step::Collective(_) => {}
            }
        }
        Ok(())
    }

    /// Plans a wait unless it is implied; whether it did.
    pub(super) fn plan_edge(
        &self,
        plan: &mut Plan,
        clock: &mut Clock,
        step: usize,
        (axis, count): (Axis, u64),
        purpose: Purpose,
    ) -> bool {
        if Tracker::covers(clock, axis, count) {
            return false;
        }
        plan.edges.push(Edge { step, axis, count, execution_only: false, purpose });
        self.tracker.join(clock, axis, count);
        true
    }

    fn plan_work(
        &mut self,
        lane: usize,
        step: usize,
        command: &pontoon_hal::CommandOf<D::Queue>,
        plan: &mut Plan,
        clock: &mut Clock,
    ) -> Result<(), Refusal> {
        if self.lanes[lane].engine == Engine::Copy && matches!(command, Command::Launch { .. }) {
            let (label, why) = (command.label(), "the copy engine runs no kernels");
            return Err(Refusal::Malformed(Malformed::new(label, why)));
        }
        if let Some(beyond) = beyond(command) {
            return Err(Refusal::Malformed(beyond));
        }
        if self.edges == Edges::Trust {
            return Ok(());
        }
        plan.needs.clear();
        for access in accesses(command) {
            let touch = touch(access);
            if self.tracker.is_freed(touch.region) {
                return Err(Refusal::Freed { label: command.label(), region: touch.region });
            }
            self.tracker.needs(clock, &touch, &mut plan.needs);
        }
        if plan.needs.is_empty() {
            return Ok(());
        }
        if self.recovering {
            // What the batch had to come after is known by what it waited for the last time.
            let holds = |axis| !self.is_dead(axis) || self.runs_again_first(axis);
            plan.needs.retain(|need| holds(need.epoch.axis));
        }
        self.bring_to_ends(&mut plan.needs);
        reduce(&self.tracker, &plan.needs, &mut plan.reduced);
        if self.edges == Edges::Check && !self.recovering {
            let later = self.site(Self::axis(lane), Some(command.label()));
            return Err(Refusal::Missing(self.missing(plan, later)));
        }
        for &(axis, count) in &plan.reduced {
            let mut causes = plan.needs.iter().filter(|need| need.epoch.axis == axis);
            let execution_only = causes.all(Need::is_execution_only);
            let purpose = Purpose::Dependency;
            plan.edges.push(Edge { step, axis, count, execution_only, purpose });
            self.tracker.join(clock, axis, count);
        }
        Ok(())
    }

    fn plan_barrier(
        &self,
        lane: usize,
        step: usize,
        barrier: &Barrier,
        plan: &mut Plan,
        clock: &mut Clock,
    ) -> Result<(), Refusal> {
        let purpose = match barrier {
            Barrier::Streams(_) => Purpose::Barrier,
            Barrier::Device => Purpose::FullSync,
        };
        let mut wait_for = |other: usize| {
            let axis = Self::axis(other);
            let event = (axis, self.tracker.events(axis));
            self.plan_edge(plan, clock, step, event, purpose);
        };
        match barrier {
            Barrier::Streams(streams) => {
                for stream in streams {
                    let stream = &self.streams[stream.in_session(self.id)?];
                    self.queues[stream.queue].lanes.iter().copied().for_each(&mut wait_for);
                }
            }
            Barrier::Device => {
                let device = self.lanes[lane].device_at;
                let lanes = 0..self.lanes.len();
                lanes.filter(|&other| self.lanes[other].device_at == device).for_each(wait_for);
            }
        }
        Ok(())
    }

    /// What a wait waits for.
    pub(super) fn resolve(&self, wait: &WaitFor) -> Result<Resolved, Refusal> {
        match wait {
            WaitFor::Nothing => Ok(Resolved::Nothing),
            WaitFor::Fence(fence) => self.resolve_fence(fence),
            WaitFor::Semaphore(semaphore, value) => self.resolve_semaphore(*semaphore, *value),
            WaitFor::Event(event) => {
                let event = &self.events[event.in_session(self.id)?];
                match (&event.recorded, self.unrecorded) {
                    (Some(fence), _) => self.resolve_fence(fence),
                    (None, Unrecorded::Pass) => Ok(Resolved::Nothing),
                    (None, Unrecorded::Refuse) => {
                        Err(Refusal::NeverRecorded { event: Arc::clone(&event.label) })
                    }
                }
            }
        }
    }

    fn resolve_fence(&self, fence: &Fence) -> Result<Resolved, Refusal> {
        if let Some((latest, _)) = fence.latest() {
            return self.resolve_fence(&latest);
        }
        let point = fence.point();
        match (point.map(|point| point.place), fence.gate()) {
            (Some(Some(place)), _) if place.session == self.id => match place.count {
                0 => Ok(Resolved::Nothing),
                _ if point.is_some_and(|point| self.is_former(point)) => {
                    let ended = fence.is_complete().map_err(|error| self.rooted(fence, error));
                    ended.map_err(Refusal::Failed).map(|_| Resolved::Nothing)
                }
                count => {
                    self.is_submitted(place.axis, count)?;
                    Ok(Resolved::At(place.axis, count))
                }
            },
            (Some(_), _) => Ok(Resolved::Outside),
            (None, Some(late)) => {
                late.of(self.id)?;
                match late.why.get() {
                    Some(why) => Err(Refusal::Abandoned(Arc::clone(why))),
                    None => Ok(Resolved::Open),
                }
            }
            (None, None) => Ok(Resolved::Nothing),
        }
    }

    /// Refuses a position that nobody has submitted anything to reach.
    pub(super) fn is_submitted(&self, axis: Axis, count: u64) -> Result<(), Refusal> {
        let submitted = self.tracker.events(axis);
        match Self::lane_of(axis) {
            Some(lane) if count > submitted => {
                let queue = Arc::clone(&self.lanes[lane].label);
                Err(Refusal::NotSubmitted { queue, position: count, submitted })
            }
            _ => Ok(()),
        }
    }

    /// What is told of a command that lacks edges: the first of the fewest that would do.
    pub(super) fn missing(&self, plan: &Plan, later: Site) -> MissingEdge {
        let of_edge =
            |need: &&Need| plan.reduced.first() == Some(&(need.epoch.axis, need.epoch.count()));
        let need = plan.needs.iter().find(of_edge).unwrap_or(&plan.needs[0]);
        let kind = match (need.earlier, need.later) {
            (Mode::Write, Mode::Read) => HazardKind::ReadAfterWrite,
            (Mode::Write, Mode::Write) => HazardKind::WriteAfterWrite,
            (Mode::Read, _) => HazardKind::WriteAfterRead,
        };
        let earlier = match self.note(need.epoch.axis, need.epoch.at) {
            Some(Note::Work(label)) => Some(label),
            _ => None,
        };
        let earlier = self.site(need.epoch.axis, earlier);
        let (region, range) = (need.region, need.range.clone());
        MissingEdge { kind, region, range, earlier, later, more: plan.reduced.len() - 1 }
    }

    pub(super) fn note(&self, axis: Axis, at: u64) -> Option<Note> {
        match Self::lane_of(axis) {
            Some(lane) => self.lanes[lane].notes.get(at),
            None => self.notes.get(at),
        }
    }

    pub(super) fn site(&self, axis: Axis, label: Option<&'static str>) -> Site {
        let label = label.unwrap_or("an earlier command");
        match Self::lane_of(axis).map(|lane| &self.lanes[lane]) {
            Some(lane) => Site {
                label,
                queue: Some(Arc::clone(&lane.label)),
                device: Some(lane.device.rank()),
            },
            None => Site { label, queue: None, device: None },
        }
    }
}

pub(super) fn touch<M: Memory>(access: &Access<M>) -> Touch {
    let range = access.range.start as u64..access.range.end as u64;
    Touch { region: access.memory.id(), range, mode: access.mode }
}

/// Puts into `touches` what `command` touches, each with the size of its region.
pub(super) fn touches_of<M: Memory, K>(command: &Command<M, K>, touches: &mut Vec<(Touch, u64)>) {
    touches.clear();
    let all = accesses(command).map(|access| (touch(access), access.memory.bytes() as u64));
    touches.extend(all);
}
