//! Failing what will never run, and what waits for it.

use std::sync::Arc;

use pontoon_hal::{Device, fault_reason};

use super::{Abandoned, Node, Refusal, Session, mem};

impl<D: Device> Session<'_, D> {
    /// Gives up one of the parked batches that wait for what failed since this was asked last;
    /// whether there was one.
    pub(super) fn fail_hopeless(&mut self) -> bool {
        if let Some((node, path)) = self.parked.stuck.pop() {
            let deadlock = self.tell(&path);
            self.give_up(node, Refusal::Deadlock(deadlock));
            return true;
        }
        if !mem::take(&mut self.parked.is_suspect) {
            return false;
        }
        let hopeful = |lane: &usize| !self.will_recover(*lane);
        let lanes = (0..self.lanes.len()).filter(hopeful);
        let mut parked = lanes.flat_map(|lane| &self.lanes[lane].parked);
        let hopeless = parked.find_map(|&node| Some((node, self.failed_waits(node)?)));
        match hopeless {
            Some((node, why)) => self.give_up(node, why),
            None => return false,
        }
        true
    }

    /// A parked batch will never run: neither will what its lane was given after it. The lane takes
    /// nothing more, whoever gives it, until it is reopened; what it was given before goes on.
    pub(in crate::session) fn give_up(&mut self, node: Node, why: Refusal) {
        let Some(parcel) = self.parked.parcels.get(&node) else { return };
        let (lane, stream) = (parcel.lane, parcel.stream);
        self.dump_refusal(&why);
        let stream = Arc::clone(&self.streams[stream].label);
        let abandoned = Arc::new(Abandoned { stream, why });
        let this = &mut self.lanes[lane];
        this.given_up.get_or_insert_with(|| Arc::clone(&abandoned));
        let at = this.parked.iter().position(|&other| other == node).unwrap_or(0);
        for node in this.parked.split_off(at) {
            let Some(parcel) = self.parked.parcels.remove(&node) else { continue };
            for semaphore in &mut self.semaphores {
                semaphore.break_promise(node, &abandoned);
            }
            let collective = parcel.collective.and_then(|id| self.parked.collectives.get_mut(&id));
            if let Some(collective) = collective {
                collective.broken.get_or_insert_with(|| Arc::clone(&abandoned));
            }
            self.forget(node, parcel.entry, parcel.collective);
            self.traced_parked("given up", lane, parcel.label);
            let _ = parcel.late.why.set(Arc::clone(&abandoned));
            parcel.completer.complete(Err(fault_reason::ABANDONED));
        }
        self.parked.is_suspect = true;
    }

    /// Nothing parked will ever run: its session ends.
    pub(in crate::session) fn end_parked(&mut self) {
        for (_, parcel) in self.parked.parcels.drain() {
            let stream = Arc::clone(&self.streams[parcel.stream].label);
            let _ = parcel.late.why.set(Arc::new(Abandoned { stream, why: Refusal::SessionEnded }));
            parcel.completer.complete(Err(fault_reason::ABANDONED));
        }
    }
}
