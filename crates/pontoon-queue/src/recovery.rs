//! What became of a batch that failed, and what it failed for in the end.

use std::{
    fmt,
    ops::Range,
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pontoon_hal::{Fault, OpenQueueError, RegionId};

use crate::{Fence, FenceError, Foreign, Refusal};

/// What a session did about a batch that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// It submitted the batch again as often as it may, and it failed every time.
    Retried {
        /// How often it was submitted again.
        times: u32,
    },
    /// It would have submitted the batch again, and could not.
    NotRetried {
        /// How often it was submitted again before.
        times: u32,
        /// Why not once more.
        why: Obstacle,
    },
    /// The bytes hold what they held before the batch.
    RolledBack(Vec<(RegionId, Range<usize>)>),
    /// Nothing of the batch ran, so the bytes hold what they held before it.
    Untouched(Vec<(RegionId, Range<usize>)>),
    /// The bytes were not given back what they held before the batch.
    NotRolledBack {
        /// Which bytes.
        ranges: Vec<(RegionId, Range<usize>)>,
        /// Why not.
        why: Obstacle,
    },
    /// The session was dropped before it was known how the batch ends. What a device was given goes
    /// on.
    SessionEnded,
}

/// Why a session could not recover.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The lane could not be opened again.
    Reopen(ReopenError),
    /// What it submitted was refused.
    Refused(Refusal),
    /// What it submitted failed.
    Failed(FenceError),
    /// What the batch waited for was taken back with the queue that would have done it.
    TakenBack,
}

/// Why a stream was not opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "made only when something failed")]
pub enum ReopenError {
    /// A handle of another session.
    Foreign(Foreign),
    /// The device gives no queue.
    Open(OpenQueueError),
    /// Something that the stream was given, or that it was to come after, is still under way: try
    /// again.
    Wait(FenceError),
}

/// What a failure goes back to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Root {
    /// A command of another queue failed.
    Fault(Fault),
    /// A fence of [`Session::completer`](crate::Session::completer) that was dropped or failed.
    Completer {
        /// What it was for.
        label: &'static str,
        /// Where it was made.
        location: &'static Location<'static>,
    },
}

/// What all attempts of one batch share: how the last one stands.
#[derive(Debug, Default)]
pub(crate) struct Again {
    state: Mutex<Attempts>,
}

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Of the last attempt, if there was more than one.
    pub(crate) latest: Option<Fence>,
    pub(crate) retries: u32,
    /// Set when no attempt follows.
    pub(crate) failure: Option<FenceError>,
}

impl Again {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retried { times: 1 } => f.write_str("it was submitted again once"),
            Self::Retried { times } => write!(f, "it was submitted again {times} times"),
            Self::NotRetried { times: 1, why } => {
                write!(f, "it was not submitted again after 1 time: {why}")
            }
            Self::NotRetried { times, why } => {
                write!(f, "it was not submitted again after {times} times: {why}")
            }
            Self::RolledBack(ranges) => {
                write!(f, "{} hold again what they held before it", Ranges(ranges))
            }
            Self::Untouched(ranges) => {
                write!(f, "nothing of it ran, {} are as they were", Ranges(ranges))
            }
            Self::NotRolledBack { ranges, why } => {
                write!(f, "{} were not given back what they held: {why}", Ranges(ranges))
            }
            Self::SessionEnded => {
                f.write_str("its session ended before it did; what a device was given goes on")
            }
        }
    }
}

struct Ranges<'r>(&'r [(RegionId, Range<usize>)]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no bytes");
        }
        for (at, (region, range)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}bytes {}..{} of {region}", range.start, range.end)?;
        }
        Ok(())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reopen(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::TakenBack => f.write_str(
                "a signal that it waited for was taken back with the queue that failed to make it",
            ),
        }
    }
}

impl fmt::Display for ReopenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Wait(error) => write!(f, "what has to be over first is not: {error}"),
        }
    }
}

impl std::error::Error for ReopenError {}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Completer { label, location } => {
                write!(f, "fence \"{label}\" made at {location} was not completed")
            }
        }
    }
}

impl From<Foreign> for ReopenError {
    fn from(foreign: Foreign) -> Self {
        Self::Foreign(foreign)
    }
}

impl Fence {
    /// The last attempt of what it stands for, and how many there were before.
    pub(crate) fn latest(&self) -> Option<(Self, u32)> {
        let attempts = self.again()?.lock();
        Some((attempts.latest.clone()?, attempts.retries))
    }

    /// What all attempts of its batch share, if it may have several.
    pub(crate) fn shared(&self) -> Option<Arc<Again>> {
        self.again().map(Arc::clone)
    }
}
