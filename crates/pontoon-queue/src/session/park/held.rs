//! Why each parked batch is, for whoever asks.

use std::sync::Arc;

use pontoon_hal::Device;

use super::{Parcel, Resolved, Session};
use crate::{
    acyclic::Node,
    batch::{Step, WaitFor},
};

/// A batch that no device has been given yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its first command.
    pub label: &'static str,
    /// Its stream.
    pub stream: Arc<str>,
    /// Its queue, among [`Pending::queues`](crate::Pending::queues).
    pub queue: usize,
    /// What it waits for: all of it.
    pub reasons: Vec<Reason>,
}

/// What a parked batch waits for. Other parked batches are numbered as in
/// [`Pending::parked`](crate::Pending::parked).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A semaphore has to get further.
    Semaphore {
        /// The semaphore.
        semaphore: Arc<str>,
        /// The value waited for.
        wanted: u64,
        /// The value that devices or the host have been given the signal of.
        reached: u64,
        /// The parked batch that will signal it; without one, only the host could.
        promised_by: Option<usize>,
    },
    /// Its own signal of a semaphore comes after that of another parked batch.
    Turn {
        /// The semaphore.
        semaphore: Arc<str>,
        /// The other batch.
        after: usize,
    },
    /// A collective lacks members.
    Collective {
        /// The collective.
        collective: Arc<str>,
        /// How many have come.
        present: usize,
        /// How many there are.
        members: u32,
    },
    /// A parked batch, by its fence.
    Fence {
        /// The other batch.
        of: usize,
    },
    /// It is behind another in its queue.
    Behind {
        /// The other batch.
        other: usize,
    },
    /// The queue is full, or others of its collective are not ready.
    Room,
}

impl<D: Device> Session<'_, D> {
    /// The parked batches, those of one queue in order.
    pub(in crate::session) fn held(&self) -> Vec<Held> {
        let lanes = self.lanes.iter().enumerate();
        let nodes = lanes.flat_map(|(at, lane)| lane.parked.iter().map(move |&node| (at, node)));
        let nodes: Vec<_> = nodes.collect();
        let number = |node: Node| nodes.iter().position(|&(_, other)| other == node);
        let held = nodes.iter().filter_map(|&(lane, node)| {
            let parcel = self.parked.parcels.get(&node)?;
            let stream = Arc::clone(&self.streams[parcel.stream].label);
            let reasons = self.reasons(node, parcel, number);
            Some(Held { label: parcel.label, stream, queue: lane, reasons })
        });
        held.collect()
    }

    fn reasons(
        &self,
        node: Node,
        parcel: &Parcel<D>,
        number: impl Fn(Node) -> Option<usize>,
    ) -> Vec<Reason> {
        let waits = parcel.steps.iter().filter_map(|step| match step {
            Step::Wait(wait) => self.reason_of_wait(wait, &number),
            Step::Signal(id, _) => {
                let it = &self.semaphores[id.index as usize];
                let &(_, first) = it.promised.front().filter(|(_, first)| *first != node)?;
                let semaphore = Arc::clone(&it.label);
                Some(Reason::Turn { semaphore, after: number(first)? })
            }
            _ => None,
        });
        let mut reasons: Vec<_> = waits.collect();
        if let Some(collective) = self.collective_of(node).filter(|it| !it.is_complete()) {
            let (present, members) = (collective.came.len(), collective.members);
            let collective = Arc::clone(&collective.label);
            reasons.push(Reason::Collective { collective, present, members });
        }
        let queue = &self.lanes[parcel.lane].parked;
        let before = queue.iter().take_while(|&&other| other != node).last();
        if let Some(other) = before.and_then(|&before| number(before)) {
            reasons.push(Reason::Behind { other });
        }
        if reasons.is_empty() {
            reasons.push(Reason::Room);
        }
        reasons
    }

    fn reason_of_wait(
        &self,
        wait: &WaitFor,
        number: impl Fn(Node) -> Option<usize>,
    ) -> Option<Reason> {
        if !matches!(self.resolve(wait), Ok(Resolved::Open)) {
            return None;
        }
        match wait {
            &WaitFor::Semaphore(id, wanted) => {
                let it = &self.semaphores[id.index as usize];
                let reached = it.value();
                let promised_by = it.promiser(wanted).and_then(&number);
                let semaphore = Arc::clone(&it.label);
                Some(Reason::Semaphore { semaphore, wanted, reached, promised_by })
            }
            WaitFor::Fence(fence) => Some(Reason::Fence { of: number(fence.gate()?.node)? }),
            WaitFor::Event(_) | WaitFor::Nothing => None,
        }
    }
}
