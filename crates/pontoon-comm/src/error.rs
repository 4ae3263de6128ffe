//! How communication fails.

use core::{fmt, ops::Range, time::Duration};

use pontoon_hal::link::LinkError;
use pontoon_signal::{Ending, Nanos, Rank, Seq, SystemError, WaitError};

use crate::ring::{PushError, RingError};

/// Why there is no [`Comm`](crate::Comm) or no [`Port`](crate::Port).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommError {
    /// A setting is out of its range.
    Setting {
        /// Which.
        name: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// There is no memory or no signal for a ring.
    Ring(RingError),
    /// There is no thread for the proxy: the operating system's code.
    Thread(Option<i32>),
    /// The link refused.
    Link(LinkError),
    /// The members of a team do not leave exactly one place empty, which is the own one.
    Places {
        /// How many are empty.
        empty: usize,
        /// How many there are.
        size: usize,
    },
    /// There are as many ports to that peer as tasks can name.
    TooMany {
        /// The peer.
        peer: Rank,
    },
    /// A trigger with nothing to do.
    Nothing,
    /// The proxy is gone.
    Over,
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, value, wanted } => {
                write!(f, "the setting {name} is {value}, and has to be {wanted}")
            }
            Self::Ring(error) => error.fmt(f),
            Self::Thread(Some(code)) => {
                let error = SystemError { call: "clone", code: *code };
                write!(f, "no thread for the proxy: {error}")
            }
            Self::Thread(None) => f.write_str("no thread for the proxy"),
            Self::Link(error) => error.fmt(f),
            Self::Places { empty, size } => write!(
                f,
                "of the {size} places of a team {empty} are empty: leave one empty, which is the own"
            ),
            Self::TooMany { peer } => {
                write!(f, "each ring to rank {peer} has 65536 ports already: drop some")
            }
            Self::Nothing => f.write_str("nothing was prepared for the trigger to fire"),
            Self::Over => f.write_str("the proxy is gone: the Comm was dropped, or it failed"),
        }
    }
}

impl core::error::Error for CommError {}

impl From<LinkError> for CommError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<RingError> for CommError {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

/// Why a kernel's call failed, or what it asked for did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The bytes are not in the memory that the port sends from.
    NotRegistered {
        /// How many bytes were given.
        bytes: usize,
    },
    /// The range is not within the peer's region.
    OutOfRange {
        /// The peer.
        peer: Rank,
        /// The bytes asked for.
        asked: Range<usize>,
        /// The region's size in bytes.
        bytes: usize,
    },
    /// A word has to be at an address that is a multiple of eight.
    Misaligned {
        /// The offset asked for.
        offset: usize,
    },
    /// The port was opened without a signal.
    NoSignal,
    /// A signal that grows by nothing tells nobody anything.
    Zero,
    /// A batch has 32 calls at most.
    BatchFull,
    /// Another thread was in the middle of a call on the same signal all the while.
    Busy {
        /// The peer.
        peer: Rank,
    },
    /// The link cannot do that on the way to this peer.
    Impossible {
        /// The peer.
        peer: Rank,
        /// What.
        what: &'static str,
    },
    /// The ring had no room within the patience of the port, or takes no more tasks.
    Push {
        /// The peer.
        peer: Rank,
        /// Why.
        why: PushError,
        /// How long room was waited for.
        waited: Duration,
    },
    /// The link refused, or the peer is gone.
    Link(LinkError),
    /// The bound was used up before the task was done. It may yet be.
    TimedOut {
        /// The peer.
        peer: Rank,
        /// How far the ring's tasks are done.
        done: Seq,
        /// Where they have to be.
        wanted: Seq,
        /// How long was waited.
        waited: Duration,
    },
    /// The proxy stands still: nothing that was asked of it gets on.
    Stalled {
        /// The peer.
        peer: Rank,
        /// For how long.
        silent: Duration,
        /// How far the ring's tasks are done.
        done: Seq,
        /// Where they have to be.
        wanted: Seq,
    },
    /// What another member of a team has to do did not come.
    Member {
        /// Who.
        peer: Rank,
        /// Whether it was data that was waited for, or the word that its bytes are free.
        for_data: bool,
        /// How the wait ended.
        error: WaitError,
    },
    /// A call of the team failed before, and what its members have may be anything since.
    Broken,
    /// What is sent does not go in such pieces: they are empty, or their elements do not fit.
    Pieces {
        /// Bytes of a piece, or of all.
        piece: usize,
        /// Bytes of an element; 1 where nothing is summed.
        element: usize,
    },
    /// What lands of others would overwrite what is summed.
    Overlap {
        /// What is summed.
        summed: Range<usize>,
        /// Where what others have lands.
        landing: Range<usize>,
    },
    /// The team has no such other member.
    NoMember {
        /// The place asked for.
        place: usize,
        /// How many members there are.
        size: usize,
    },
    /// The ring's tasks will never be done.
    Ended {
        /// The peer.
        peer: Rank,
        /// Why.
        ending: Ending,
        /// How far they are.
        done: Seq,
        /// Where they have to be.
        wanted: Seq,
    },
}

/// Codes of the endings that a proxy gives its rings.
pub(crate) mod reason {
    use pontoon_signal::Reason;

    /// The proxy's thread ended.
    pub(crate) const PROXY: Reason = Reason::small(0x201);
    /// The link refused a task.
    pub(crate) const TASK: Reason = Reason::small(0x202);
    /// The `Comm` was dropped.
    pub(crate) const CLOSED: Reason = Reason::small(0x203);
    /// A kernel gave up on what it had asked for.
    pub(crate) const ABANDONED: Reason = Reason::small(0x204);
    /// The last handle of a trigger was dropped.
    pub(crate) const DISARMED: Reason = Reason::small(0x205);

    /// Whether it says that a task was at fault, or who waited for it.
    pub(crate) fn is_a_tasks(reason: Reason) -> bool {
        matches!(reason, TASK | ABANDONED)
    }

    pub(crate) fn meaning(reason: Reason) -> Option<&'static str> {
        match reason {
            PROXY => Some("the proxy's thread is gone"),
            TASK => Some("the link refused a task before it"),
            CLOSED => Some("the Comm was dropped"),
            ABANDONED => Some("a kernel gave up on what it had asked for"),
            DISARMED => Some("the trigger was dropped"),
            _ => None,
        }
    }
}

impl SendError {
    /// Whether it is the peer, or the way there, that is gone.
    pub fn is_peer_lost(&self) -> bool {
        match self {
            Self::Link(error) => {
                matches!(error, LinkError::PeerDead { .. } | LinkError::Failed { .. })
            }
            Self::Ended { ending, .. } => !matches!(ending, Ending::Aborted { .. }),
            Self::Member { error, .. } => {
                matches!(error, WaitError::PeerDead { .. } | WaitError::LinkFailed { .. })
            }
            Self::Push { why: PushError::Ended(Some(ending)), .. } => {
                !matches!(ending, Ending::Aborted { .. })
            }
            _ => false,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegistered { bytes } => write!(
                f,
                "{bytes} bytes are not in the memory that this port sends from: open a port over it"
            ),
            Self::OutOfRange { peer, asked, bytes } => write!(
                f,
                "bytes {}..{} are not within the region of {bytes} bytes of rank {peer}",
                asked.start, asked.end
            ),
            Self::Misaligned { offset } => {
                write!(f, "no word is at offset {offset}: words lie at addresses that are multiples of 8")
            }
            Self::NoSignal => f.write_str(
                "this port was opened without a signal: open it with one, which Link::attach_signal gives",
            ),
            Self::Zero => f.write_str("a signal that grows by 0 tells nobody: it grows by 1 at least"),
            Self::BatchFull => f.write_str("a batch has 32 calls at most: send it, and begin another"),
            Self::Busy { peer } => write!(
                f,
                "another thread kept the signal at rank {peer}: give each kernel a port of its own"
            ),
            Self::Impossible { peer, what } => write!(f, "the link to rank {peer} has no {what}"),
            Self::Push { peer, why, waited } => match why {
                PushError::Full { .. } => {
                    write!(f, "after {} the ring to rank {peer} still had no room: {why}", Nanos::from(*waited))
                }
                PushError::Ended(Some(Ending::Aborted { reason, .. })) => {
                    let why = reason::meaning(*reason).unwrap_or("somebody gave up");
                    write!(f, "the ring to rank {peer} takes no more tasks: {why}")
                }
                _ => write!(f, "the ring to rank {peer} takes no task: {why}"),
            },
            Self::Link(error) => error.fmt(f),
            Self::Member { peer, for_data, error } => {
                crate::team::waited_for(f, *peer, *for_data, error)
            }
            Self::Broken => f.write_str(
                "a call of this team failed before, so its members are no longer in step: form another",
            ),
            Self::Pieces { piece: 0, element } => {
                write!(f, "pieces of 0 bytes never get there: take a multiple of {element} above 0")
            }
            Self::Pieces { piece, element } => {
                write!(f, "{piece} bytes are no whole number of elements of {element} bytes")
            }
            Self::Overlap { summed, landing } => write!(
                f,
                "what lands at {}..{} would overwrite what is summed at {}..{}: keep them apart",
                landing.start, landing.end, summed.start, summed.end
            ),
            Self::NoMember { place, size } => {
                write!(f, "place {place} is none of the others of a team of {size}")
            }
            Self::TimedOut { peer, done, wanted, waited } => write!(
                f,
                "waited {} for the proxy to send to rank {peer}: its tasks are done to {done} of {wanted}",
                Nanos::from(*waited)
            ),
            Self::Stalled { peer, silent, done, wanted } => write!(
                f,
                "the proxy has stood still for {}: tasks to rank {peer} are done to {done} of {wanted}",
                Nanos::from(*silent)
            ),
            Self::Ended { peer, ending, done, wanted } => {
                write!(f, "tasks to rank {peer} ended at {done} of {wanted}: ")?;
                match ending {
                    Ending::Aborted { reason, .. } => match reason::meaning(*reason) {
                        Some(meaning) => f.write_str(meaning),
                        None => ending.fmt(f),
                    },
                    _ => ending.fmt(f),
                }
            }
        }
    }
}

impl core::error::Error for SendError {}

impl From<LinkError> for SendError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}
