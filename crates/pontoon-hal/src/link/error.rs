//! How an operation on a link fails.

use core::{fmt, ops::Range};

use pontoon_signal::{ClaimError, Ending, Nanos, Rank, Seq, WaitError};

use super::Operation;

/// Why an operation on a link failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The link was not connected to that rank.
    NoSuchPeer {
        /// The rank.
        peer: Rank,
        /// The link's name.
        link: &'static str,
    },
    /// The peer is gone, and what was under way to it is lost.
    PeerDead {
        /// The peer.
        peer: Rank,
    },
    /// The way to the peer failed for good.
    Failed {
        /// The peer.
        peer: Rank,
        /// The link's name.
        link: &'static str,
        /// The call of the transport that failed.
        call: &'static str,
        /// The transport's own code.
        code: i32,
    },
    /// The bound was used up. What is under way goes on, and its buffers stay with the link.
    TimedOut {
        /// The peer.
        peer: Rank,
        /// What was waited for.
        operation: Operation,
        /// For how long.
        waited: Nanos,
        /// How many operations on the peer are done.
        done: Seq,
        /// How many were posted.
        posted: Seq,
    },
    /// The range is not within the region.
    OutOfRange {
        /// Whose region.
        rank: Rank,
        /// The bytes asked for.
        asked: Range<usize>,
        /// The region's size in bytes.
        bytes: usize,
    },
    /// Atomic operations are for words whose offset is a multiple of 8.
    Misaligned {
        /// The offset asked for.
        offset: usize,
    },
    /// An inline write of more bytes than the link takes over at once.
    TooLong {
        /// How many were given.
        bytes: usize,
        /// The most there may be.
        most: usize,
    },
    /// A region or a signal of another link, or of another peer than the rest.
    Foreign(&'static str),
    /// The key opens nothing.
    Key {
        /// The peer that should know it.
        peer: Rank,
        /// What is wrong with it.
        why: KeyFault,
    },
    /// As many operations as the link allows are under way to the peer.
    Full {
        /// The peer.
        peer: Rank,
        /// How many that are.
        depth: u32,
    },
    /// The peer's table has no such slot, or it is another's.
    Slot {
        /// The peer.
        peer: Rank,
        /// Why.
        why: ClaimError,
    },
    /// The transport refused to register memory.
    Register {
        /// The link's name.
        link: &'static str,
        /// How many bytes.
        bytes: usize,
        /// The call that failed.
        call: &'static str,
        /// The transport's own code.
        code: i32,
        /// How many bytes this process may lock, where that may be why; `None` where there is no limit.
        lockable: Option<u64>,
        /// What to do about it.
        remedy: &'static str,
    },
}

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFault {
    /// It is no key of such a link.
    Form,
    /// It was made before its owner was started again.
    Stale,
    /// Its owner has no such region, or no more.
    Unknown,
}

impl LinkError {
    /// The peer it is about, if it is one's.
    pub fn peer(&self) -> Option<Rank> {
        match self {
            Self::NoSuchPeer { peer, .. }
            | Self::PeerDead { peer }
            | Self::Failed { peer, .. }
            | Self::TimedOut { peer, .. }
            | Self::Key { peer, .. }
            | Self::Full { peer, .. }
            | Self::Slot { peer, .. } => Some(*peer),
            Self::OutOfRange { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Full { .. })
    }

    /// The failure of an operation on a peer that ended so.
    pub fn ended(peer: Rank, link: &'static str, ending: Ending) -> Self {
        match ending {
            Ending::LinkFailed { code } => Self::Failed { peer, link, call: "link", code },
            _ => Self::PeerDead { peer },
        }
    }

    /// The failure of a wait for the link's own counter.
    pub fn of_wait(
        error: &WaitError,
        peer: Rank,
        link: &'static str,
        operation: Operation,
        posted: Seq,
    ) -> Self {
        match error {
            WaitError::TimedOut { at, waited, .. } => {
                Self::TimedOut { peer, operation, waited: *waited, done: at.found, posted }
            }
            WaitError::LinkFailed { code, .. } => {
                Self::Failed { peer, link, call: "wait", code: *code }
            }
            _ => Self::PeerDead { peer },
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "it is not a key of this link",
            Self::Stale => "it is from before that rank was started again: ask for its new one",
            Self::Unknown => "that rank has no such region, or has it no more",
        })
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPeer { peer, link } => {
                write!(f, "the {link} link is not connected to rank {peer}")
            }
            Self::PeerDead { peer } => write!(f, "rank {peer} is dead"),
            Self::Failed { peer, link, call, code } => {
                write!(f, "the {link} link to rank {peer} failed in {call} (code {code})")
            }
            Self::TimedOut { peer, operation, waited, done, posted } => write!(
                f,
                "waited {waited} for the {operation} to rank {peer}; {done} of {posted} operations \
                 are done"
            ),
            Self::OutOfRange { rank, asked, bytes } => write!(
                f,
                "bytes {}..{} are not within a region of {bytes} bytes of rank {rank}",
                asked.start, asked.end
            ),
            Self::Misaligned { offset } => {
                write!(f, "an atomic operation needs a multiple of 8 for an offset, not {offset}")
            }
            Self::TooLong { bytes, most } => {
                write!(
                    f,
                    "{bytes} bytes are too many to write inline: {most} at most; register them"
                )
            }
            Self::Foreign(what) => write!(f, "{what} of another link or peer"),
            Self::Key { peer, why } => write!(f, "the key for a region of rank {peer}: {why}"),
            Self::Full { peer, depth } => write!(
                f,
                "{depth} operations are under way to rank {peer}, as many as there may be: wait for \
                 its completions"
            ),
            Self::Slot { peer, why } => write!(f, "in the signal table of rank {peer}: {why}"),
            Self::Register { link, bytes, call, code, lockable, remedy } => {
                write!(
                    f,
                    "the {link} link cannot register {bytes} bytes: {call} failed (code {code})"
                )?;
                if let Some(most) = lockable {
                    write!(f, "; RLIMIT_MEMLOCK is {most} bytes")?;
                }
                write!(f, "; {remedy}")
            }
        }
    }
}

impl core::error::Error for LinkError {}
