//! Giving devices what can go on.

use std::mem;

use pontoon_hal::{Device, Queue};

use super::{Axis, Node, Parcel, Refusal, Resolved, Room, Session};
use crate::{
    batch::{Step, StepOf},
    fence::Late,
};

/// What became of the batch at the head of a lane.
enum Turn {
    Stays,
    Went,
    /// That one never will.
    Fails(Node, Refusal),
}

impl<D: Device> Session<'_, D> {
    /// Gives devices every parked batch that can go on, and gives up those that never will.
    pub(in crate::session) fn pump(&mut self) {
        let site = self.site;
        loop {
            let moved = self.pump_once();
            self.sync_now();
            if !moved {
                break;
            }
        }
        self.site = site;
    }

    /// Whether something went or was given up.
    fn pump_once(&mut self) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        if self.fail_hopeless() {
            return true;
        }
        for lane in 0..self.lanes.len() {
            let Some(&head) = self.lanes[lane].parked.front() else { continue };
            if self.will_recover(lane) {
                continue;
            }
            if let Some(fault) = self.lanes[lane].queue.fault() {
                self.give_up(head, Refusal::Faulted(fault));
                return true;
            }
            match self.try_release(lane, head) {
                Turn::Stays => {}
                Turn::Went => return true,
                Turn::Fails(node, why) => {
                    self.give_up(node, why);
                    return true;
                }
            }
        }
        false
    }

    /// Gives its device the batch at the head of a lane, with the rest of its collective.
    fn try_release(&mut self, lane: usize, head: Node) -> Turn {
        if let Some(collective) = self.collective_of(head) {
            if collective.is_complete() {
                let members: Vec<_> = collective.came.iter().map(|&(_, node)| node).collect();
                return self.try_together(&members);
            }
            return match self.failed_waits(head) {
                Some(why) => Turn::Fails(head, why),
                None => Turn::Stays,
            };
        }
        if let Some(turn) = self.not_yet(lane, head) {
            return turn;
        }
        match self.release(head, &[]) {
            Ok(()) => Turn::Went,
            // It is at the head as before, and has its turn when there is room.
            Err(Refusal::Full { .. }) => Turn::Stays,
            Err(why) => Turn::Fails(head, why),
        }
    }

    /// Gives devices all members of a collective, or none.
    fn try_together(&mut self, members: &[Node]) -> Turn {
        let lane_of = |node: &Node| Some(self.parked.parcels.get(node)?.lane);
        let lanes: Vec<_> = members.iter().filter_map(lane_of).collect();
        for (&lane, &member) in lanes.iter().zip(members) {
            if let Some(turn) = self.not_yet(lane, member) {
                return turn;
            }
        }
        // Each comes after what the lanes of the others were given before.
        let axes = lanes.iter().map(|&lane| Self::axis(lane));
        let together: Vec<_> = axes.map(|axis| (axis, self.tracker.events(axis))).collect();
        for (at, &member) in members.iter().enumerate() {
            match self.would_go(member, &members[..at], &together) {
                Ok(()) => {}
                Err(Refusal::Full { .. }) => return Turn::Stays,
                Err(why) => return Turn::Fails(member, why),
            }
        }
        for &member in members {
            if let Err(why) = self.release(member, &together) {
                return Turn::Fails(member, why);
            }
        }
        Turn::Went
    }

    /// Whether the lane of a parked batch would take it, after those that start with it.
    fn would_go(
        &mut self,
        node: Node,
        earlier: &[Node],
        together: &[(Axis, u64)],
    ) -> Result<(), Refusal> {
        let Some(parcel) = self.parked.parcels.get(&node) else { return Ok(()) };
        // Edges that are added to find a missing one may be between them.
        let mut more = if earlier.is_empty() { 0 } else { self.aids.added.len() };
        for other in earlier.iter().filter_map(|node| self.parked.parcels.get(node)) {
            let (this, other) = ((parcel.lane, &*parcel.steps), (other.lane, &*other.steps));
            more += self.waits_beside(this, other)?;
        }
        let Some(parcel) = self.parked.parcels.get_mut(&node) else { return Ok(()) };
        let (lane, steps) = (parcel.lane, mem::take(&mut parcel.steps));
        let would = self.would_take(lane, &steps, together, more);
        if let Some(parcel) = self.parked.parcels.get_mut(&node) {
            parcel.steps = steps;
        }
        would
    }

    /// What keeps a parked batch, if something does.
    fn not_yet(&self, lane: usize, node: Node) -> Option<Turn> {
        let this = &self.lanes[lane];
        // One that failed gives up its own.
        if this.parked.front() != Some(&node) || this.is_dead() {
            return Some(Turn::Stays);
        }
        match self.failed_waits(node) {
            Some(why) => Some(Turn::Fails(node, why)),
            None => (!self.is_ready(node)).then_some(Turn::Stays),
        }
    }

    /// Why a wait of a parked batch will never be met.
    pub(super) fn failed_waits(&self, node: Node) -> Option<Refusal> {
        if let Some(why) = self.collective_of(node).and_then(|it| it.broken.as_ref()) {
            return Some(Refusal::Abandoned(why.clone()));
        }
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
        self.use_again(steps);
        let Some(parcel) = self.parked.parcels.remove(&node) else { return Ok(()) };
        let Parcel { late, completer, label, entry, collective, .. } = parcel;
        let axis = Self::axis(lane);
        let point = self.lanes[lane].point(self.id, axis, self.tracker.events(axis));
        // Set before the gate opens.
        let _ = late.real.set(point);
        completer.complete(Ok(()));
        self.traced_parked("released", lane, label);
        // What it promised is reached.
        for semaphore in &mut self.semaphores {
            semaphore.unpromise(node);
            semaphore.wanted.retain(|&(_, waiter)| waiter != node);
        }
        if let Some(id) = collective {
            self.leave(id, node, true);
        }
        self.parked.graph.remove(entry);
        self.parked.graph.remove(node);
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
            // It goes with the others of its collective, or not at all.
            let others = self.collective_of(node).map_or(&[][..], |it| &it.came);
            let others = others.iter().map(|&(_, node)| node);
            for before in self.parked.graph.before(node).chain(others) {
                if !found.contains(&before) {
                    found.push(before);
                }
            }
        }
        None
    }
}
