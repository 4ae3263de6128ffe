//! Batches that wait for a signal that nobody has submitted.
//!
//! A device is given a batch only when all it waits for has been given to a device: so no queue is
//! ever blocked by something that is not under way. Until then the batch is parked, and everything
//! its lane is given afterwards behind it.
//!
//! What is under way waits only for what was under way before, so a circle of waits has a parked
//! batch in it. The graph of who waits for whom therefore has the parked batches only: while there
//! are none, the check for a deadlock is one comparison.

mod held;
mod settle;
mod signals;
mod tell;

use std::{
    collections::{HashMap, VecDeque},
    fmt, mem,
    panic::Location,
    sync::{Arc, OnceLock},
};

use pontoon_hal::{Command, Device, Queue, fault_reason};
use pontoon_signal::Slot;

use settle::{split, unsettle};

use super::{
    Abandoned, CollectiveId, EventId, Foreign, Refusal, Room, SemaphoreId, Session, plan::Resolved,
};
use crate::{
    Axis, Completer, Fence,
    acyclic::{Acyclic, Node},
    batch::{Barrier, Step, StepOf, WaitFor},
    fence::Late,
};

pub use held::{Held, Reason};

/// The parked batches.
pub(in crate::session) struct Parked<D: Device> {
    parcels: HashMap<Node, Parcel<D>>,
    graph: Acyclic,
    collectives: Vec<Collective>,
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
}

/// A counter that batches wait for and signal. Its values are given out at submit, each to one
/// position of one lane; devices never see it.
#[derive(Debug)]
pub(in crate::session) struct Semaphore {
    label: Arc<str>,
    /// Values and the positions that signal them, growing.
    reached: Vec<(u64, Axis, u64)>,
    /// Values that parked batches will signal, growing.
    promised: VecDeque<(u64, Node)>,
    /// Values that parked batches wait for and nobody has promised.
    wanted: Vec<(u64, Node)>,
    /// The highest value reached or promised.
    last: u64,
    closed: bool,
    /// The highest value that somebody promised who was given up.
    broken: Option<(u64, Arc<Abandoned>)>,
}

struct Collective {
    label: Arc<str>,
    members: u32,
    node: Option<Node>,
    /// The streams of the members that have come, and were not given up.
    came: Vec<(usize, Node)>,
    /// Those of the members that are still parked.
    parcels: Vec<Node>,
    /// What its members come after, once all of them have come.
    before: Option<Vec<(Axis, u64)>>,
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
        Self { parcels, graph, collectives: Vec::new() }
    }
}

impl<D: Device> Parked<D> {
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }
}

impl<D: Device> Session<'_, D> {
    /// Makes a semaphore at value 0.
    pub fn semaphore(&mut self, label: &str) -> SemaphoreId {
        self.semaphores.push(Semaphore {
            label: Arc::from(label),
            reached: Vec::new(),
            promised: VecDeque::new(),
            wanted: Vec::new(),
            last: 0,
            closed: false,
            broken: None,
        });
        SemaphoreId::new(self.id, self.semaphores.len() - 1)
    }

    /// Moves a semaphore to `value` from the host.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotGrowing`], [`Refusal::Foreign`].
    pub fn signal(&mut self, semaphore: SemaphoreId, value: u64) -> Result<(), Refusal> {
        self.may_signal(semaphore, value, &[])?;
        // What parked batches promised is less, and has to come first.
        let at = &self.semaphores[semaphore.index as usize];
        if let Some(&(promised, _)) = at.promised.back() {
            let semaphore = Arc::clone(&at.label);
            return Err(Refusal::NotGrowing { semaphore, at: promised, to: value });
        }
        let events = self.tracker.events(crate::tracker::HOST);
        self.signalled(semaphore, value, crate::tracker::HOST, events);
        self.pump();
        Ok(())
    }

    /// Says that nobody will signal the semaphore any more. What waits for more than it got to fails
    /// at once.
    ///
    /// # Errors
    ///
    /// [`Foreign`].
    pub fn close(&mut self, semaphore: SemaphoreId) -> Result<(), Foreign> {
        let at = semaphore.in_session(self.id)?;
        self.semaphores[at].closed = true;
        self.pump();
        Ok(())
    }

    /// Makes a collective of `members` batches, one each of different streams, which start together.
    pub fn collective(&mut self, label: &str, members: u32) -> CollectiveId {
        let label = Arc::from(label);
        let (came, parcels) = (Vec::new(), Vec::new());
        let collective = Collective { label, members, node: None, came, parcels, before: None };
        self.parked.collectives.push(collective);
        CollectiveId::new(self.id, self.parked.collectives.len() - 1)
    }

    /// Whether something of `steps` waits for what nobody has submitted.
    pub(in crate::session) fn is_held(&self, steps: &[StepOf<D>]) -> bool {
        steps.iter().any(|step| match step {
            Step::Wait(wait) => matches!(self.resolve(wait), Ok(Resolved::Open)),
            Step::Collective(_) => true,
            _ => false,
        })
    }

    /// Whether a parked batch waits for a signal of `steps`.
    pub(in crate::session) fn unblocks(&self, steps: &[StepOf<D>]) -> bool {
        !self.parked.is_empty()
            && steps.iter().any(|step| match step {
                Step::Signal(semaphore, to) => {
                    let semaphore = self.semaphores.get(semaphore.index as usize);
                    semaphore.is_some_and(|it| it.wanted.iter().any(|&(value, _)| value <= *to))
                }
                _ => false,
            })
    }

    /// Refuses a signal that would not make a semaphore grow, if it comes after `before`.
    pub(in crate::session) fn may_signal(
        &self,
        semaphore: SemaphoreId,
        to: u64,
        before: &[StepOf<D>],
    ) -> Result<(), Refusal> {
        let it = &self.semaphores[semaphore.in_session(self.id)?];
        let own = before.iter().rev().find_map(|step| match step {
            Step::Signal(other, value) if *other == semaphore => Some(*value),
            _ => None,
        });
        let at = own.unwrap_or_else(|| it.reached.last().map_or(0, |&(value, ..)| value));
        if to <= at {
            return Err(Refusal::NotGrowing { semaphore: Arc::clone(&it.label), at, to });
        }
        Ok(())
    }

    pub(in crate::session) fn signalled(
        &mut self,
        semaphore: SemaphoreId,
        to: u64,
        axis: Axis,
        count: u64,
    ) {
        let it = &mut self.semaphores[semaphore.index as usize];
        // Of what the host knows only the highest value matters.
        let tracker = &self.tracker;
        let known = it.reached.iter().take_while(|&&(_, axis, count)| {
            axis == crate::tracker::HOST || tracker.host_knows(axis) >= count
        });
        let known = known.count().saturating_sub(1);
        it.reached.drain(..known);
        it.reached.push((to, axis, count));
        it.last = it.last.max(to);
        // What later signals are for.
        it.wanted.retain(|&(value, _)| value > to);
    }

    pub(in crate::session) fn resolve_semaphore(
        &self,
        semaphore: SemaphoreId,
        value: u64,
    ) -> Result<Resolved, Refusal> {
        let it = &self.semaphores[semaphore.in_session(self.id)?];
        if value == 0 {
            return Ok(Resolved::Nothing);
        }
        let at = it.reached.partition_point(|&(reached, ..)| reached < value);
        let broken = it.broken.as_ref().filter(|&&(broken, _)| value <= broken);
        match it.reached.get(at) {
            Some(&(_, axis, _)) if axis == crate::tracker::HOST => Ok(Resolved::Nothing),
            Some(&(_, _, 0)) => Ok(Resolved::Nothing),
            Some(&(_, axis, count)) => Ok(Resolved::At(axis, count)),
            None if let Some((_, why)) = broken => Err(Refusal::Abandoned(Arc::clone(why))),
            None if it.closed && it.promised.back().is_none_or(|&(last, _)| last < value) => {
                let at = it.reached.last().map_or(0, |&(value, ..)| value);
                Err(Refusal::Closed { semaphore: Arc::clone(&it.label), at, wanted: value })
            }
            None => Ok(Resolved::Open),
        }
    }

    /// Parks a batch, and gives its lane what can go on. On success `steps` are used up.
    pub(in crate::session) fn park(
        &mut self,
        stream: usize,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        let settled = self.settle_steps(lane, steps)?;
        let parked = self.park_settled(stream, lane, steps, room);
        if parked.is_err() {
            unsettle(settled, steps);
        }
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
        self.spend_credit(lane, self.unblocks(steps), room)?;
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

    /// The signals of a semaphore take effect in the order in which they were submitted.
    fn promises_grow(&self, steps: &[StepOf<D>]) -> Result<(), Refusal> {
        let mut own = Vec::<(SemaphoreId, u64)>::new();
        for step in steps {
            let &Step::Signal(id, to) = step else { continue };
            let it = &self.semaphores[id.in_session(self.id)?];
            let before = own.iter().filter(|(other, _)| *other == id).map(|&(_, to)| to);
            let last = before.max().unwrap_or(0).max(it.last);
            if to <= last {
                return Err(Refusal::NotGrowing { semaphore: Arc::clone(&it.label), at: last, to });
            }
            own.push((id, to));
        }
        Ok(())
    }

    /// Whether a parked batch is to signal one of these semaphores first.
    fn promised_before(&self, steps: &[StepOf<D>]) -> bool {
        steps.iter().any(|step| match step {
            Step::Signal(id, _) => !self.semaphores[id.index as usize].promised.is_empty(),
            _ => false,
        })
    }

    /// Puts a part of a batch into the graph, or says which circle it would close.
    fn enter(&mut self, stream: usize, lane: usize, steps: &[StepOf<D>]) -> Result<Node, Refusal> {
        let collective = match steps.first() {
            Some(Step::Collective(id)) => Some(id.in_session(self.id)?),
            _ => None,
        };
        let node = self.parked.graph.add();
        let mut entry = node;
        if let Some(at) = collective {
            let Parked { graph, collectives, .. } = &mut self.parked;
            let collective = &mut collectives[at];
            if collective.came.len() >= collective.members as usize
                || collective.came.iter().any(|&(member, _)| member == stream)
            {
                let members = collective.members;
                graph.remove(node);
                return Err(Refusal::NotAMember { members });
            }
            entry = graph.add();
            collective.node.get_or_insert_with(|| graph.add());
            collective.parcels.push(node);
            collective.came.push((stream, node));
        }
        let (completer, gate) = match self.pool.create("parked batch") {
            Ok((completer, gate)) => (completer, gate.into_point()),
            Err(full) => {
                self.forget(node, entry);
                return Err(Refusal::NoFence(full));
            }
        };
        let (real, why) = (OnceLock::new(), OnceLock::new());
        let late = Arc::new(Late { session: self.id, node, gate, real, why });
        let label = label_of(steps);
        let steps_of = Vec::new();
        let site = self.site;
        let parcel = Parcel { stream, lane, steps: steps_of, late, completer, label, site, entry };
        self.parked.parcels.insert(node, parcel);
        self.lanes[lane].parked.push_back(node);
        let mut circle = self.connect(node, entry, lane, steps);
        if let Some(together) = collective.and_then(|at| self.parked.collectives[at].node) {
            let graph = &mut self.parked.graph;
            let mut order = |(before, after)| graph.order(before, after).map_err(|it| it.path);
            circle = circle.and_then(|()| {
                [(entry, together), (together, node)].into_iter().try_for_each(&mut order)
            });
        }
        let Err(path) = circle else { return Ok(node) };
        let deadlock = self.tell(&path);
        self.take_back(node);
        Err(Refusal::Deadlock(deadlock))
    }

    /// Adds who waits for whom; the error is a circle.
    fn connect(
        &mut self,
        node: Node,
        entry: Node,
        lane: usize,
        steps: &[StepOf<D>],
    ) -> Result<(), Vec<Node>> {
        let graph = &mut self.parked.graph;
        let before = self.lanes[lane].parked.iter().rev().nth(1).copied();
        let mut order = |before, after| graph.order(before, after).map_err(|cycle| cycle.path);
        if let Some(before) = before {
            order(before, entry)?;
        }
        for step in steps {
            match step {
                Step::Wait(WaitFor::Fence(fence)) => {
                    if let (None, Some(late)) = (fence.point(), fence.gate()) {
                        order(late.node, entry)?;
                    }
                }
                Step::Wait(WaitFor::Semaphore(id, value)) => {
                    let it = &mut self.semaphores[id.index as usize];
                    if it.reached.last().is_some_and(|&(reached, ..)| reached >= *value) {
                        continue;
                    }
                    match it.promised.iter().find(|(promised, _)| promised >= value) {
                        Some(&(_, promiser)) => order(promiser, entry)?,
                        None => it.wanted.push((*value, node)),
                    }
                }
                Step::Signal(id, to) => {
                    let it = &mut self.semaphores[id.index as usize];
                    if let Some(&(_, earlier)) = it.promised.back()
                        && earlier != node
                    {
                        order(earlier, entry)?;
                    }
                    it.promised.push_back((*to, node));
                    it.last = it.last.max(*to);
                    let (now, still) =
                        it.wanted.iter().partition::<Vec<_>, _>(|(value, _)| value <= to);
                    it.wanted = still;
                    for (value, waiter) in now {
                        let at = self.parked.parcels.get(&waiter).map_or(waiter, |it| it.entry);
                        if let Err(path) = order(node, at) {
                            it.wanted.push((value, waiter));
                            return Err(path);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a parked batch back that was just entered.
    fn take_back(&mut self, node: Node) {
        let Some(parcel) = self.parked.parcels.remove(&node) else { return };
        self.lanes[parcel.lane].parked.retain(|&other| other != node);
        self.forget(node, parcel.entry);
        parcel.completer.complete(Err(fault_reason::ABANDONED));
    }

    /// Takes a parcel's nodes out of everything. Those who wait for its signals want them again.
    fn forget(&mut self, node: Node, entry: Node) {
        for collective in &mut self.parked.collectives {
            collective.came.retain(|&(_, member)| member != node);
            collective.parcels.retain(|&member| member != node);
            if collective.parcels.is_empty()
                && let Some(node) = collective.node.take()
            {
                self.parked.graph.remove(node);
            }
        }
        self.parked.graph.remove(entry);
        self.parked.graph.remove(node);
        let mut orphaned = false;
        for semaphore in &mut self.semaphores {
            semaphore.wanted.retain(|&(_, waiter)| waiter != node);
            let before = semaphore.promised.len();
            semaphore.promised.retain(|&(_, promiser)| promiser != node);
            if semaphore.promised.len() != before {
                let reached = semaphore.reached.last().map_or(0, |&(value, ..)| value);
                let promised = semaphore.promised.back().map_or(0, |&(value, _)| value);
                semaphore.last = reached.max(promised);
                orphaned = true;
            }
        }
        if orphaned {
            self.want_again();
        }
    }

    /// Finds anew who waits for a value that nobody promises.
    pub(in crate::session) fn want_again(&mut self) {
        for (&node, parcel) in &self.parked.parcels {
            for step in &parcel.steps {
                let Step::Wait(WaitFor::Semaphore(id, value)) = step else { continue };
                let it = &mut self.semaphores[id.index as usize];
                let met = it.reached.last().is_some_and(|&(reached, ..)| reached >= *value)
                    || it.promised.iter().any(|(promised, _)| promised >= value)
                    || it.wanted.contains(&(*value, node));
                if !met {
                    it.wanted.push((*value, node));
                }
            }
        }
    }

    /// Gives devices every parked batch that can go on.
    pub(in crate::session) fn pump(&mut self) {
        loop {
            let heads: Vec<_> =
                self.lanes.iter().filter_map(|lane| lane.parked.front().copied()).collect();
            let outcome = heads.into_iter().find_map(|head| self.try_release(head));
            self.sync_now();
            let Some((node, refusal)) = outcome else { return };
            if let Some(refusal) = refusal {
                self.give_up(node, refusal);
            }
        }
    }

    /// Gives its device the batch at the head of a lane, with the rest of its collective. `None` if
    /// it has to wait; otherwise a batch that went, and why it did not if it failed.
    fn try_release(&mut self, head: Node) -> Option<(Node, Option<Refusal>)> {
        let collective = self.collective_of(head);
        let mut together = Vec::new();
        let group = match collective.map(|at| &self.parked.collectives[at]) {
            None => vec![head],
            Some(Collective { before: Some(before), .. }) => {
                together.clone_from(before);
                vec![head]
            }
            Some(collective) if collective.came.len() < collective.members as usize => {
                return self.failed_waits(head).map(|why| (head, Some(why)));
            }
            Some(collective) => collective.parcels.clone(),
        };
        for &member in &group {
            let parcel = self.parked.parcels.get(&member)?;
            if self.will_recover(parcel.lane) {
                return None;
            }
            if self.lanes[parcel.lane].parked.front() != Some(&member) {
                return None;
            }
            if let Some(why) = self.failed_waits(member) {
                return Some((member, Some(why)));
            }
            if !self.is_ready(member) {
                return None;
            }
        }
        if let Some(at) = collective.filter(|_| group.len() > 1) {
            // Each comes after what the lanes of the others were given before.
            let lanes = group.iter().filter_map(|node| Some(self.parked.parcels.get(node)?.lane));
            together = lanes
                .map(|lane| (Self::axis(lane), self.tracker.events(Self::axis(lane))))
                .collect();
            self.parked.collectives[at].before = Some(together.clone());
        }
        let mut went = None;
        for &member in &group {
            match self.release(member, &together) {
                Ok(()) => went = Some((member, None)),
                // It is at the head as before, and has its turn when there is room.
                Err(Refusal::Full { .. }) => {}
                Err(why) => return Some((member, Some(why))),
            }
        }
        went
    }

    fn collective_of(&self, node: Node) -> Option<usize> {
        let mut all = self.parked.collectives.iter();
        all.position(|collective| collective.parcels.contains(&node))
    }

    /// Why a wait of a parked batch will never be met.
    fn failed_waits(&self, node: Node) -> Option<Refusal> {
        let parcel = self.parked.parcels.get(&node)?;
        parcel.steps.iter().find_map(|step| match step {
            Step::Wait(wait) => self.resolve(wait).err(),
            _ => None,
        })
    }

    fn is_ready(&self, node: Node) -> bool {
        let Some(parcel) = self.parked.parcels.get(&node) else { return false };
        parcel.steps.iter().all(|step| match step {
            Step::Wait(wait) => !matches!(self.resolve(wait), Ok(Resolved::Open)),
            Step::Signal(id, _) => {
                // Its own signals are the next ones of their semaphores.
                let it = &self.semaphores[id.index as usize];
                it.promised.front().is_none_or(|&(_, first)| first == node)
            }
            _ => true,
        })
    }

    /// Gives a parked batch to its lane.
    fn release(&mut self, node: Node, together: &[(Axis, u64)]) -> Result<(), Refusal> {
        let Some(parcel) = self.parked.parcels.get_mut(&node) else { return Ok(()) };
        let (lane, mut steps) = (parcel.lane, mem::take(&mut parcel.steps));
        self.site = parcel.site;
        // Out of the lane's way while it is placed: what pumps meanwhile must not take it again.
        self.lanes[lane].parked.pop_front();
        let placed = self.place_parked(lane, &mut steps, together);
        if let Err(refusal) = placed {
            self.lanes[lane].parked.push_front(node);
            if let Some(parcel) = self.parked.parcels.get_mut(&node) {
                parcel.steps = steps;
            }
            return Err(refusal);
        }
        let Some(parcel) = self.parked.parcels.remove(&node) else { return Ok(()) };
        let axis = Self::axis(lane);
        let point = self.lanes[lane].point(self.id, axis, self.tracker.events(axis));
        // Set before the gate opens.
        let _ = parcel.late.real.set(point);
        parcel.completer.complete(Ok(()));
        self.traced_parked("released", lane, parcel.label);
        self.unpromise(node, parcel.entry);
        Ok(())
    }

    /// Gives a lane steps that have their credit, and lets nothing else go on.
    pub(in crate::session) fn place_parked(
        &mut self,
        lane: usize,
        steps: &mut Vec<StepOf<D>>,
        together: &[(Axis, u64)],
    ) -> Result<(), Refusal> {
        // `place` pumps when it is done, and this is what pumps: so not here.
        let (parked, barred) = (mem::take(&mut self.parked), self.barred);
        let placed = self.place(lane, steps, together, Room::Parked);
        // It is of the batch that is being submitted, which may have let this one go.
        self.barred = barred;
        self.parked = parked;
        placed.map(drop)
    }

    /// A parked batch has gone: what it promised is reached.
    fn unpromise(&mut self, node: Node, entry: Node) {
        for semaphore in &mut self.semaphores {
            semaphore.promised.retain(|&(_, promiser)| promiser != node);
            semaphore.wanted.retain(|&(_, waiter)| waiter != node);
        }
        for collective in &mut self.parked.collectives {
            collective.parcels.retain(|&member| member != node);
            if collective.parcels.is_empty()
                && let Some(node) = collective.node.take()
            {
                self.parked.graph.remove(node);
            }
        }
        self.parked.graph.remove(entry);
        self.parked.graph.remove(node);
    }

    /// A parked batch will never run: neither will what its lane was given after it.
    pub(in crate::session) fn give_up(&mut self, node: Node, why: Refusal) {
        let Some(parcel) = self.parked.parcels.get(&node) else { return };
        let (lane, stream) = (parcel.lane, parcel.stream);
        self.dump_refusal(&why);
        let stream = Arc::clone(&self.streams[stream].label);
        let abandoned = Arc::new(Abandoned { stream, why });
        let nodes = mem::take(&mut self.lanes[lane].parked);
        let mut ended = None;
        for node in nodes {
            let Some(parcel) = self.parked.parcels.remove(&node) else { continue };
            self.streams[parcel.stream].abandoned.get_or_insert_with(|| Arc::clone(&abandoned));
            for semaphore in &mut self.semaphores {
                let mut promised = semaphore.promised.iter().filter(|promised| promised.1 == node);
                if let Some(&(value, _)) = promised.next_back() {
                    semaphore.broken = Some((value, Arc::clone(&abandoned)));
                }
            }
            self.forget(node, parcel.entry);
            self.traced_parked("given up", lane, parcel.label);
            let _ = parcel.late.why.set(Arc::clone(&abandoned));
            parcel.completer.complete(Err(fault_reason::ABANDONED));
            ended.get_or_insert(parcel.late);
        }
        // The queue fails in its turn too, after what it was given before.
        if let Some(late) = ended {
            let (slot, target) = (Slot::clone(&late.gate.slot), late.gate.target);
            let wait = Command::Wait { label: "wait", slot, target, bound: self.bound };
            let _ = self.lanes[lane].queue.submit(wait);
        }
    }

    /// Takes back the signals that a lane was to make after its first `completed` events: who waits
    /// for them waits for them to be submitted again.
    pub(in crate::session) fn take_back_signals(&mut self, lane: usize, completed: u64) {
        for semaphore in &mut self.semaphores {
            let before = semaphore.reached.len();
            semaphore
                .reached
                .retain(|&(_, at, count)| at != Self::axis(lane) || count <= completed);
            if semaphore.reached.len() != before {
                let reached = semaphore.reached.last().map_or(0, |&(value, ..)| value);
                let promised = semaphore.promised.back().map_or(0, |&(value, _)| value);
                semaphore.last = reached.max(promised);
            }
        }
        self.want_again();
    }

    /// Whether a signal would be refused because the semaphore has got there by others.
    pub(in crate::session) fn is_signalled(&self, semaphore: SemaphoreId, value: u64) -> bool {
        let it = self.semaphores.get(semaphore.index as usize);
        it.is_some_and(|it| it.reached.last().is_some_and(|&(reached, ..)| reached >= value))
    }

    /// Nothing parked will ever run: its session ends.
    pub(in crate::session) fn end_parked(&mut self) {
        for (_, parcel) in self.parked.parcels.drain() {
            let stream = Arc::clone(&self.streams[parcel.stream].label);
            let _ = parcel.late.why.set(Arc::new(Abandoned { stream, why: Refusal::SessionEnded }));
            parcel.completer.complete(Err(fault_reason::ABANDONED));
        }
    }

    /// A lane whose room a parked batch, or one that it waits for, needs and nothing else.
    pub(in crate::session) fn waits_for_room(&self, late: &Late) -> Option<usize> {
        let (mut found, mut next) = (vec![late.node], 0);
        while let Some(&node) = found.get(next) {
            next += 1;
            if let Some(parcel) = self.parked.parcels.get(&node) {
                let lane = &self.lanes[parcel.lane];
                let is_head = lane.parked.front() == Some(&node);
                let full = lane.completed() < self.tracker.events(Self::axis(parcel.lane));
                if is_head && full && self.is_ready(node) && self.has_come(node) {
                    return Some(parcel.lane);
                }
            }
            for before in self.parked.graph.before(node) {
                if !found.contains(&before) {
                    found.push(before);
                }
            }
        }
        None
    }

    /// Whether all members of its collective have come, if it is in one.
    fn has_come(&self, node: Node) -> bool {
        self.collective_of(node).is_none_or(|at| {
            let collective = &self.parked.collectives[at];
            collective.before.is_some() || collective.came.len() == collective.members as usize
        })
    }

    /// The last batch that is parked on a lane.
    pub(in crate::session) fn last_parked(&self, lane: usize) -> Option<Arc<Late>> {
        let last = self.lanes[lane].parked.back()?;
        Some(Arc::clone(&self.parked.parcels.get(last)?.late))
    }
}

/// What a batch goes by.
fn label_of<M, K>(steps: &[Step<Command<M, K>>]) -> &'static str {
    let work = steps.iter().find_map(|step| match step {
        Step::Work(command) => Some(command.label()),
        _ => None,
    });
    work.unwrap_or("a batch without commands")
}
