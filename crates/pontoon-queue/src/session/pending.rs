//! Who waits for whom.

use std::{fmt, sync::Arc};

use pontoon_hal::{Device, Fault, Queue};
use pontoon_signal::Rank;

use super::{Note, Session};
use crate::Axis;

/// From something that is waited for to what it waits for in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Each waits for the next; the last is the root.
    pub links: Vec<Link>,
}

/// A queue in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The device.
    pub device: Rank,
    /// The queue.
    pub queue: Arc<str>,
    /// How many of its commands are over, waits included.
    pub completed: u64,
    /// How many have to be.
    pub wanted: u64,
    /// What is next in it.
    pub next: Next,
}

/// What a queue has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// A command, which is running or about to.
    Work(&'static str),
    /// A wait for another queue.
    Wait,
    /// A wait for a signal that is no session's.
    Outside,
    /// Nothing: it failed.
    Failed(Fault),
    /// Nothing: it has done all that it was given.
    Nothing,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, link) in self.links.iter().enumerate() {
            write!(f, "{}{link}", if at == 0 { "" } else { " <- " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queue, completed, wanted, next } = self;
        write!(f, "device {device} queue {queue} at {completed} of {wanted}, ")?;
        match next {
            Next::Work(label) => write!(f, "in {label}"),
            Next::Wait => f.write_str("waiting"),
            Next::Outside => f.write_str("waiting for a signal from outside"),
            Next::Failed(fault) => write!(f, "failed: {}", fault.cause),
            Next::Nothing => f.write_str("idle"),
        }
    }
}

/// All that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The queues that have something to do, each with what it waits for.
    pub chains: Vec<Chain>,
    /// What is parked, and why.
    pub parked: Vec<String>,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.chains.is_empty() && self.parked.is_empty() {
            return writeln!(f, "nothing is pending");
        }
        self.chains.iter().try_for_each(|chain| writeln!(f, "{chain}"))?;
        self.parked.iter().try_for_each(|parked| writeln!(f, "parked: {parked}"))
    }
}

impl<D: Device> Session<'_, D> {
    /// All that is under way, and who waits for whom.
    pub fn pending(&self) -> Pending {
        let lanes = 0..self.lanes.len();
        let busy = lanes.filter_map(|lane| {
            let axis = Self::axis(lane);
            let events = self.tracker.events(axis);
            (self.lanes[lane].completed() < events).then(|| self.chain(axis, events))
        });
        Pending { chains: busy.collect(), parked: self.parked_words() }
    }

    /// From the first `count` events of an axis to what they wait for in the end.
    pub(super) fn chain(&self, axis: Axis, count: u64) -> Chain {
        let mut links = Vec::new();
        let mut at = Some((axis, count));
        let mut seen = Vec::new();
        while let Some((axis, wanted)) = at.take() {
            let Some(lane) = Self::lane_of(axis).filter(|_| !seen.contains(&axis)) else { break };
            seen.push(axis);
            let lane = &self.lanes[lane];
            let completed = lane.completed();
            let next = match (lane.queue.fault(), lane.notes.get(completed)) {
                _ if completed >= wanted => Next::Nothing,
                (Some(fault), _) => Next::Failed(fault),
                (None, Some(Note::Work(label))) => Next::Work(label),
                (None, Some(Note::Wait(axis, count))) => {
                    at = Some((axis, count));
                    Next::Wait
                }
                (None, Some(Note::Outside)) => Next::Outside,
                (None, None) => Next::Nothing,
            };
            let (device, queue) = (lane.device.rank(), Arc::clone(&lane.label));
            links.push(Link { device, queue, completed, wanted, next });
        }
        Chain { links }
    }

    /// The end of the chain, and how far that is.
    pub(super) fn root_of(&self, axis: Axis, count: u64) -> (Axis, u64) {
        let (mut axis, mut wanted) = (axis, count);
        // No chain is longer than there are lanes.
        for _ in 0..self.lanes.len() {
            let Some(lane) = Self::lane_of(axis).map(|lane| &self.lanes[lane]) else { break };
            let completed = lane.completed();
            match lane.notes.get(completed) {
                Some(Note::Wait(other, count)) if completed < wanted => {
                    (axis, wanted) = (other, count);
                }
                _ => return (axis, completed),
            }
        }
        (axis, wanted)
    }
}
