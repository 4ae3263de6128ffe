//! How a wait ends when it does not reach its target.

use core::fmt;

use crate::{Ending, Nanos, Producer, Rank, Reason, Seq, SlotId};

/// A line as a failed wait found it: who should have published, and how far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot that was waited on.
    pub slot: SlotId,
    /// Where its counter was, read once more after the wait had ended.
    pub found: Seq,
    /// Where the wait wanted it.
    pub wanted: Seq,
    /// Who publishes there; `None` if nobody has claimed it.
    pub producer: Option<Producer>,
    /// How many publishes there were, over all generations of the producer.
    pub publishes: u64,
    /// How long before the wait ended the last publish was; `None` if there was none, or if its
    /// time was not noted, as that of a [`Lease`](crate::Lease) is not.
    pub last_published: Option<Nanos>,
}

/// How a wait ends when it does not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The bound was used up. The line is as usable as before: waiting again is fine.
    TimedOut {
        /// The line.
        at: Found,
        /// How long the wait lasted.
        waited: Nanos,
        /// How often it polled.
        polls: u64,
    },
    /// Somebody ended the line on purpose.
    Aborted {
        /// The line.
        at: Found,
        /// The code given.
        reason: Reason,
        /// Who ended it.
        by: Rank,
    },
    /// The producer is gone and will never publish again.
    PeerDead {
        /// The line.
        at: Found,
        /// The rank of the dead.
        rank: Rank,
    },
    /// The link to the producer failed for good.
    LinkFailed {
        /// The line.
        at: Found,
        /// The link's own code.
        code: i32,
    },
}

impl WaitError {
    pub(crate) fn ended(at: Found, ending: Ending) -> Self {
        match ending {
            Ending::Aborted { reason, by } => Self::Aborted { at, reason, by },
            Ending::PeerDead { rank } => Self::PeerDead { at, rank },
            Ending::LinkFailed { code } => Self::LinkFailed { at, code },
        }
    }

    /// The line that was waited on, as the wait left it.
    pub fn at(&self) -> &Found {
        match self {
            Self::TimedOut { at, .. }
            | Self::Aborted { at, .. }
            | Self::PeerDead { at, .. }
            | Self::LinkFailed { at, .. } => at,
        }
    }

    /// How the line ended; `None` for a time-out.
    pub fn ending(&self) -> Option<Ending> {
        match *self {
            Self::Aborted { reason, by, .. } => Some(Ending::Aborted { reason, by }),
            Self::PeerDead { rank, .. } => Some(Ending::PeerDead { rank }),
            Self::LinkFailed { code, .. } => Some(Ending::LinkFailed { code }),
            _ => None,
        }
    }

    /// Whether waiting again could help: only after a time-out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

impl Found {
    pub(crate) fn is_reached(&self) -> bool {
        self.found.is_at_or_past(self.wanted)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to reach {}; it is at {}, ", self.slot, self.wanted, self.found)?;
        match (self.last_published, self.producer) {
            (Some(ago), Some(producer)) => {
                write!(f, "last published {ago} ago by pid {}", producer.pid)
            }
            (None, Some(producer)) if self.publishes == 0 => {
                write!(f, "never published by pid {}", producer.pid)
            }
            (None, Some(producer)) => {
                let (times, pid) = (self.publishes, producer.pid);
                let s = if times == 1 { "" } else { "s" };
                write!(f, "published {times} time{s} by pid {pid}, which notes no time")
            }
            (_, None) => f.write_str("and nobody has claimed it"),
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { at, waited, .. } => write!(f, "waited {waited} for {at}"),
            Self::Aborted { at, reason: Reason::DROPPED, .. } => {
                write!(f, "what should complete it was dropped; waited for {at}")
            }
            Self::Aborted { at, reason, by } => {
                write!(f, "rank {by} aborted (reason {}) the wait for {at}", reason.get())
            }
            Self::PeerDead { at, rank } => {
                write!(f, "producer {rank} is dead; waited for {at}")
            }
            Self::LinkFailed { at, code } => {
                write!(f, "the link failed (code {code}); waited for {at}")
            }
        }
    }
}

impl core::error::Error for WaitError {}
