//! Why a session did not take something.

use std::{fmt, ops::Range, sync::Arc};

use pontoon_hal::{AllocateError, Device, Fault, RegionId};
use pontoon_signal::Rank;

use super::Foreign;
use crate::{
    Batch, CreateError, Deadlock, FenceError,
    batch::{Malformed, Sealed},
    check::HazardKind,
};

/// Why a batch was not submitted. Nothing of it was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It could never run.
    Malformed(Malformed),
    /// Two accesses to the same bytes are not ordered.
    Missing(MissingEdge),
    /// It would wait for itself.
    Deadlock(Deadlock),
    /// The queue has been full for as long as the session's patience.
    NoRoom(FenceError),
    /// The queue is full, or its credits are used up, and the caller would not wait.
    Full {
        /// The device.
        device: Rank,
        /// The queue.
        queue: Arc<str>,
        /// How many batches or commands it holds.
        holds: u32,
    },
    /// It has more commands and waits than the queue holds.
    TooLong {
        /// The queue.
        queue: Arc<str>,
        /// How many it has.
        commands: usize,
        /// How many the queue holds.
        depth: u32,
    },
    /// The queue failed earlier.
    Faulted(Fault),
    /// What the stream was given before was refused when its turn came, and so is all after it.
    Abandoned(Arc<Abandoned>),
    /// It waits for a position of a queue that nothing was submitted to reach yet.
    NotSubmitted {
        /// The queue.
        queue: Arc<str>,
        /// The position, among the commands and waits of this session.
        position: u64,
        /// How many it was given so far.
        submitted: u64,
    },
    /// It waits for an event that was never recorded.
    NeverRecorded {
        /// The event.
        event: Arc<str>,
    },
    /// A semaphore would not grow beyond what it was signalled, or what was submitted to signal it.
    NotGrowing {
        /// The semaphore.
        semaphore: Arc<str>,
        /// Where it is, or where it was promised to get.
        at: u64,
        /// Where the signal would have moved it.
        to: u64,
    },
    /// The host would signal a semaphore that a parked batch is to signal first.
    Promised {
        /// The semaphore.
        semaphore: Arc<str>,
        /// The parked batch.
        by: String,
        /// What it is to signal.
        promised: u64,
        /// Where the signal would have moved it.
        to: u64,
    },
    /// It waits for a value that the semaphore will never have: nobody signals it any more.
    Closed {
        /// The semaphore.
        semaphore: Arc<str>,
        /// Where it got.
        at: u64,
        /// The value waited for.
        wanted: u64,
    },
    /// A handle of another session.
    Foreign(Foreign),
    /// Bytes of a region that was freed.
    Freed {
        /// The command.
        label: &'static str,
        /// The region.
        region: RegionId,
    },
    /// Bytes that a peer has, until its signal brings them back.
    Lent {
        /// The command.
        label: &'static str,
        /// The region.
        region: RegionId,
        /// What the peer has of it, in bytes.
        range: Range<usize>,
        /// The channel over which it was lent.
        to: Arc<str>,
    },
    /// Nothing is lent over the channel that could come back.
    NothingLent {
        /// The command.
        label: &'static str,
        /// The channel.
        channel: Arc<str>,
    },
    /// Bytes that a parked batch is to use were to be lent to a peer.
    Wanted {
        /// The command that would have lent them.
        label: &'static str,
        /// The region.
        region: RegionId,
        /// What was to be lent of it, in bytes.
        range: Range<usize>,
        /// The parked batch.
        by: String,
    },
    /// A region that a parked batch names was to be freed.
    Named {
        /// The region.
        region: RegionId,
        /// The parked batch.
        by: String,
    },
    /// There is no fence left for a parked batch.
    NoFence(CreateError),
    /// It waits for what failed, on a queue that was opened again since.
    Failed(FenceError),
    /// There is no memory to keep what a failure would have to give back.
    NoSnapshot(AllocateError),
    /// The session ended while the batch was parked.
    SessionEnded,
    /// The collective has all its members already, or one of this stream.
    NotAMember {
        /// How many members it has.
        members: u32,
    },
}

/// What was parked and could not be submitted when its turn came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// The stream.
    pub stream: Arc<str>,
    /// Why.
    pub why: Refusal,
}

/// Two accesses to the same bytes that nothing orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingEdge {
    /// What kind of hazard it is.
    pub kind: HazardKind,
    /// The region.
    pub region: RegionId,
    /// The bytes, from the region's start.
    pub range: Range<u64>,
    /// The access that was submitted first.
    pub earlier: Site,
    /// The one that was refused.
    pub later: Site,
    /// How many further edges it lacks.
    pub more: usize,
}

/// A command, by where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Its label.
    pub label: &'static str,
    /// The stream's queue; `None` for the host.
    pub queue: Option<Arc<str>>,
    /// The device; `None` for the host.
    pub device: Option<Rank>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.queue, self.device) {
            (Some(queue), Some(device)) => {
                write!(f, "{} (device {device} queue {queue})", self.label)
            }
            _ => write!(f, "{} (host)", self.label),
        }
    }
}

impl fmt::Display for MissingEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, region, range, earlier, later, more } = self;
        let (does, did) = match kind {
            HazardKind::ReadAfterWrite => ("read", "written"),
            HazardKind::WriteAfterRead => ("write", "read"),
            _ => ("write", "written"),
        };
        write!(
            f,
            "missing dependency {earlier} -> {later}: {} would {does} bytes {}..{} of {region}, \
             which {} may not have {did} yet; make it wait for the fence of {}",
            later.label, range.start, range.end, earlier.label, earlier.label
        )?;
        match more {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl std::error::Error for MissingEdge {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => why.fmt(f),
            Self::Missing(edge) => edge.fmt(f),
            Self::Deadlock(deadlock) => deadlock.fmt(f),
            Self::NoRoom(error) => write!(f, "no room in the queue: {error}"),
            Self::Full { device, queue, holds } => write!(
                f,
                "device {device} queue {queue} holds {holds} and has no room: try again when some \
                 of it is complete, or submit with patience"
            ),
            Self::TooLong { queue, commands, depth } => write!(
                f,
                "a batch of {commands} commands and waits does not fit queue {queue}, which holds \
                 {depth}: split it"
            ),
            Self::Faulted(fault) => {
                write!(f, "{fault}; nothing runs there any more, until Session::reopen")
            }
            Self::Abandoned(abandoned) => {
                write!(f, "stream {} was given up: {}", abandoned.stream, abandoned.why)
            }
            Self::NotSubmitted { queue, position, submitted } => write!(
                f,
                "it waits for position {position} of queue {queue}, which was given {submitted} so \
                 far: submit what is waited for first"
            ),
            Self::NeverRecorded { event } => write!(
                f,
                "event {event} was never recorded: record it before it is waited for, or let such \
                 waits pass as CUDA does"
            ),
            Self::NotGrowing { semaphore, at, to } => {
                write!(f, "semaphore {semaphore} is signalled {at} already, it cannot go to {to}")
            }
            Self::Promised { semaphore, by, promised, to } => write!(
                f,
                "semaphore {semaphore} cannot go to {to} yet: {by} is parked and is to signal \
                 {promised} first"
            ),
            Self::Closed { semaphore, at, wanted } => write!(
                f,
                "semaphore {semaphore} got to {at} and will never get to {wanted}: all who would \
                 signal it are gone"
            ),
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::Freed { label, region } => {
                write!(f, "{label} uses {region}, which was freed before")
            }
            Self::Lent { label, region, range, to } => write!(
                f,
                "{label} would use bytes of {region} while {to} has {}..{} of it: let them arrive \
                 first",
                range.start, range.end
            ),
            Self::NothingLent { label, channel } => write!(
                f,
                "{label}: nothing is lent to {channel} that could come back; lend it first"
            ),
            Self::Wanted { label, region, range, by } => write!(
                f,
                "{label} cannot lend {}..{} of {region}: {by} is parked and uses bytes of it; let \
                 it run first",
                range.start, range.end
            ),
            Self::Named { region, by } => {
                write!(f, "{region} cannot be freed: {by} is parked and uses it; let it run first")
            }
            Self::NoFence(full) => full.fmt(f),
            Self::Failed(error) => write!(f, "it waits for what failed: {error}"),
            Self::NoSnapshot(error) => write!(f, "nothing can be kept to roll it back: {error}"),
            Self::SessionEnded => f.write_str(
                "its session ended before it was given to a device: keep the session until what it \
                 parked has gone",
            ),
            Self::NotAMember { members } => {
                write!(f, "the collective has all of its {members} members already, or this one")
            }
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Foreign> for Refusal {
    fn from(foreign: Foreign) -> Self {
        Self::Foreign(foreign)
    }
}

/// A batch that was not submitted, and why.
pub struct Refused<D: Device> {
    /// The batch, as it was.
    pub batch: Batch<D, Sealed>,
    /// Why.
    pub why: Refusal,
}

impl<D: Device> fmt::Debug for Refused<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} refused: {:?}", self.batch, self.why)
    }
}

impl<D: Device> fmt::Display for Refused<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<D: Device> std::error::Error for Refused<D> {}
