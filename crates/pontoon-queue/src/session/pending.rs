//! Who waits for whom.

use std::{fmt, sync::Arc};

use pontoon_hal::{Device, Fault, Queue};
use pontoon_signal::Rank;

use super::{Held, Lane, Note, Reason, Session};
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

impl Chain {
    /// Adds what the last link waits for; whether that is to be waited for. A queue that got there since the wait
    /// for it was looked at is no cause: it ends the chain, and is in it only where it was asked about itself.
    fn add(&mut self, link: Link) -> bool {
        let is_there = link.completed >= link.wanted;
        if !is_there || self.links.is_empty() {
            let completed = link.completed.min(link.wanted);
            self.links.push(Link { completed, ..link });
        }
        !is_there
    }
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
        write!(f, "device {device} queue {queue} at {completed} of {wanted}, {next}")
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(label) => write!(f, "in {label}"),
            Self::Wait => f.write_str("waiting"),
            Self::Outside => f.write_str("waiting for a signal from outside"),
            Self::Failed(fault) => write!(f, "failed: {}", fault.cause),
            Self::Nothing => f.write_str("idle"),
        }
    }
}

/// All that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The session.
    pub session: u32,
    /// Every queue; one with several lanes is listed once a lane.
    pub queues: Vec<Standing>,
    /// What is parked, and why.
    pub parked: Vec<Held>,
}

/// How far a queue is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The device.
    pub device: Rank,
    /// The queue.
    pub queue: Arc<str>,
    /// How many commands it was given, waits included.
    pub submitted: u64,
    /// How many of them are over.
    pub completed: u64,
    /// What is next in it.
    pub next: Next,
    /// Who it waits for, if that is next.
    pub waits_for: Option<Awaited>,
}

/// A position of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The queue, among [`Pending::queues`].
    pub queue: usize,
    /// How many of its commands have to be over.
    pub position: u64,
}

impl Standing {
    /// Whether something of what it was given is not over.
    pub fn is_busy(&self) -> bool {
        self.completed < self.submitted
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        if lines.is_empty() {
            return writeln!(f, "nothing is pending");
        }
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Pending {
    /// A line for each queue that has something to do and each parked batch.
    pub(super) fn lines(&self) -> Vec<String> {
        let busy = self.queues.iter().filter(|queue| queue.is_busy()).map(|queue| {
            let Standing { device, queue, submitted, completed, next, waits_for } = queue;
            let line =
                format!("device {device} queue {queue} at {completed} of {submitted}, {next}");
            match waits_for.and_then(|on| Some((self.queues.get(on.queue)?, on.position))) {
                Some((on, position)) => format!(
                    "{line} for device {} queue {} to reach {position}; it is at {}",
                    on.device, on.queue, on.completed
                ),
                None => line,
            }
        });
        let parked = self.parked.iter().map(|Held { label, stream, reasons, .. }| {
            let reasons: Vec<_> = reasons.iter().map(|reason| self.in_words(reason)).collect();
            format!("parked: {label} (stream {stream}) {}", reasons.join(" and "))
        });
        busy.chain(parked).collect()
    }

    /// Why a batch is parked.
    pub(super) fn in_words(&self, reason: &Reason) -> String {
        let name = |at: usize| match self.parked.get(at) {
            Some(held) => format!("{} (stream {})", held.label, held.stream),
            None => "a batch".to_string(),
        };
        match reason {
            Reason::Semaphore { semaphore, wanted, reached, promised_by } => {
                let by = promised_by
                    .map_or("nobody has submitted a signal yet".to_string(), |by| {
                        format!("{} will signal", name(by))
                    });
                format!(
                    "waits for semaphore {semaphore} to reach {wanted}; it is at {reached}, and {by}"
                )
            }
            Reason::Turn { semaphore, after } => {
                format!("signals semaphore {semaphore} after {}", name(*after))
            }
            Reason::Collective { collective, present, members } => format!(
                "waits for collective {collective}, which has {present} of {members} members"
            ),
            Reason::Fence { of } => format!("waits for {}", name(*of)),
            Reason::Behind { other } => format!("is behind {}", name(*other)),
            Reason::Room => "waits for room in its queue".to_string(),
        }
    }
}

impl<D: Device> Session<'_, D> {
    /// All that is under way, and who waits for whom.
    pub fn pending(&self) -> Pending {
        let queues = (0..self.lanes.len()).map(|at| {
            let lane = &self.lanes[at];
            let submitted = self.tracker.events(Self::axis(at));
            let completed = lane.completed();
            let (next, on) = lane.next(completed, submitted);
            let on = on.and_then(|(axis, position)| Some((Self::lane_of(axis)?, position)));
            Standing {
                device: lane.device.rank(),
                queue: Arc::clone(&lane.label),
                submitted,
                completed,
                next,
                waits_for: on.map(|(queue, position)| Awaited { queue, position }),
            }
        });
        Pending { session: self.id, queues: queues.collect(), parked: self.held() }
    }

    /// From the first `count` events of an axis to what they wait for in the end.
    pub(super) fn chain(&self, axis: Axis, count: u64) -> Chain {
        let mut chain = Chain { links: Vec::new() };
        let mut at = Some((axis, count));
        let mut seen = Vec::new();
        while let Some((axis, wanted)) = at.take() {
            let Some(lane) = Self::lane_of(axis).filter(|_| !seen.contains(&axis)) else { break };
            seen.push(axis);
            let lane = &self.lanes[lane];
            let completed = lane.completed();
            let (next, on) = lane.next(completed, wanted);
            at = on;
            let (device, queue) = (lane.device.rank(), Arc::clone(&lane.label));
            if !chain.add(Link { device, queue, completed, wanted, next }) {
                break;
            }
        }
        chain
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

impl<D: Device> Lane<'_, D> {
    /// What is next after the first `completed` events, of which `wanted` have to be over, and what
    /// that waits for.
    fn next(&self, completed: u64, wanted: u64) -> (Next, Option<(Axis, u64)>) {
        if completed >= wanted {
            return (Next::Nothing, None);
        }
        match (self.queue.fault(), self.notes.get(completed)) {
            (Some(fault), _) => (Next::Failed(fault), None),
            (None, Some(Note::Work(label))) => (Next::Work(label), None),
            (None, Some(Note::Wait(axis, count))) => (Next::Wait, Some((axis, count))),
            (None, Some(Note::Outside)) => (Next::Outside, None),
            (None, None) => (Next::Nothing, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_there_is_no_cause() {
        let link = |device, completed, next| Link {
            device: Rank(device),
            queue: "q".into(),
            completed,
            wanted: 723,
            next,
        };
        let mut chain = Chain { links: Vec::new() };
        assert!(chain.add(link(0, 721, Next::Wait)));
        assert!(!chain.add(link(1, 725, Next::Nothing)));
        assert_eq!(chain.to_string(), "device 0 queue q at 721 of 723, waiting");
        assert!(chain.add(link(1, 722, Next::Work("train"))));
        assert!(chain.to_string().ends_with(" <- device 1 queue q at 722 of 723, in train"));
        let mut own = Chain { links: Vec::new() };
        assert!(!own.add(link(0, 725, Next::Nothing)));
        assert_eq!(own.to_string(), "device 0 queue q at 723 of 723, idle");
    }
}
