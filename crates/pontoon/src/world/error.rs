//! Why a process is not in its job, or cannot do there what it was asked.

use std::fmt;

use pontoon_comm::CommError;
use pontoon_hal::link::LinkError;
use pontoon_job::{Ending, EnvError, JoinError, StoreError};
use pontoon_shm::{ConnectError, FolderError, HandoverError, PassedOver};
use pontoon_signal::{ClaimError, HeapFull, Rank, SegmentError, WaitError};
use pontoon_ucx::LinkSetupError;

/// Why a process is not in its job, or cannot do there what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorldError {
    /// The launcher's variables are wrong.
    Env(EnvError),
    /// The ranks did not come together.
    Join(JoinError),
    /// The store did not answer, or a rank ended meanwhile.
    Store(StoreError),
    /// There is no memory to share, or a peer's cannot be used.
    Segment(SegmentError),
    /// There is no folder for the job's sockets.
    Folder {
        /// Why.
        error: FolderError,
        /// That another was to be used, and why it was not.
        passed_over: Option<PassedOver>,
    },
    /// A segment was not handed over.
    Handover {
        /// Whose.
        peer: Rank,
        /// Why.
        why: HandoverError,
    },
    /// A peer of this host could not be connected.
    Connect(ConnectError),
    /// A peer is on another host, and nothing here leads there.
    NoWay {
        /// The peer.
        peer: Rank,
        /// Its host.
        host: Box<str>,
        /// What is missing, and how to get it.
        why: String,
    },
    /// A peer that UCX leads to could not be connected.
    NotConnected {
        /// The peer.
        peer: Rank,
        /// Its host.
        host: Box<str>,
        /// Why.
        why: LinkSetupError,
    },
    /// What a peer shares under that name is no memory for windows.
    NotExported {
        /// The peer.
        peer: Rank,
        /// The name.
        name: Box<str>,
    },
    /// A rank cannot have so many counters at each other.
    TooManySlots {
        /// What was asked for.
        asked: u32,
        /// The most there can be.
        most: u32,
    },
    /// This rank's heap has no room for what is to be exported: open the world with a larger one.
    Heap(HeapFull),
    /// A pool does not take a home.
    Home(pontoon_smc::OpenError),
    /// Only shared memory was to be used, and a peer is on another host.
    OtherHost {
        /// The peer.
        peer: Rank,
        /// Its host.
        host: Box<str>,
    },
    /// The ranks were given different options.
    Unlike {
        /// The first that has another than rank 0.
        rank: Rank,
        /// Which option.
        option: &'static str,
        /// Its value there.
        there: Box<str>,
        /// Its value at rank 0.
        of_rank_0: Box<str>,
    },
    /// A rank is gone that was still needed.
    Gone {
        /// The rank.
        rank: Rank,
        /// How it ended.
        ending: Ending,
        /// What failed by it, if that is known.
        error: Option<Box<WorldError>>,
    },
    /// A link failed.
    Link(LinkError),
    /// There is no way for kernels to send.
    Comm(CommError),
    /// A wait for a peer's signal failed.
    Wait(WaitError),
    /// There is no such counter, or it is taken.
    Slot(ClaimError),
    /// The job has no such other rank.
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// How many ranks the job has.
        size: u32,
    },
    /// A table of who reaches whom would be too large.
    TooManyRanks {
        /// How many ranks the job has.
        size: u32,
        /// The most there may be.
        most: u32,
    },
    /// A link cannot open that memory to others.
    NotShareable {
        /// The name it was to be shared under.
        name: Box<str>,
        /// The link.
        link: &'static str,
    },
}

impl WorldError {
    /// Whether whoever started the job asked for something impossible, rather than it failing.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Env(_) | Self::Join(_) | Self::TooManyRanks { .. } => true,
            Self::TooManySlots { .. } => true,
            Self::NoWay { .. } | Self::NotConnected { .. } | Self::OtherHost { .. } => true,
            Self::Unlike { .. } => true,
            Self::Segment(error) => !matches!(error, SegmentError::Malformed { .. }),
            Self::Folder { error, .. } => !matches!(error, FolderError::Busy { .. }),
            error => error.is_of_this_process(),
        }
    }

    /// Whether it is a limit of this process, or of the host, and nothing that a peer did.
    fn is_of_this_process(&self) -> bool {
        match self {
            Self::Handover { why, .. } => why.is_of_setup(),
            Self::Connect(ConnectError::System(error))
            | Self::Segment(SegmentError::System(error)) => error.is_limit(),
            _ => false,
        }
    }

    /// Whether it is what a rank meets that needs one who is dead.
    pub(super) fn may_follow_from_a_death(&self) -> bool {
        !self.is_of_this_process()
            && matches!(
                self,
                Self::Store(_)
                    | Self::Segment(_)
                    | Self::Handover { .. }
                    | Self::Connect(_)
                    | Self::NotConnected { .. }
                    | Self::Link(_)
                    | Self::Comm(_)
                    | Self::Wait(_)
                    | Self::Slot(_)
            )
    }
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(error) => error.fmt(f),
            Self::Join(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Segment(error) => error.fmt(f),
            Self::Folder { error, passed_over } => {
                error.fmt(f)?;
                passed_over.as_ref().map_or(Ok(()), |passed_over| write!(f, " ({passed_over})"))
            }
            Self::Handover { peer, why } => {
                write!(f, "the segment of rank {peer} was not handed over: {why}")
            }
            Self::Connect(error) => error.fmt(f),
            Self::NoWay { peer, host, why } => {
                write!(f, "rank {peer} is on host {host}, which is reached by UCX: {why}")
            }
            Self::NotConnected { peer, host, why } => {
                write!(f, "rank {peer} on host {host} could not be connected by UCX: {why}")
            }
            Self::OtherHost { peer, host } => write!(
                f,
                "rank {peer} is on host {host}, where shared memory does not reach: use UCX"
            ),
            Self::Unlike { rank, option, there, of_rank_0 } => write!(
                f,
                "rank {rank} has {option} {there} and rank 0 {option} {of_rank_0}: give all ranks the \
                 same"
            ),
            Self::Gone { rank, ending, error } => {
                write!(f, "rank {rank} {ending}")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, "; {error}"))
            }
            Self::Link(error) => error.fmt(f),
            Self::Comm(error) => error.fmt(f),
            Self::Wait(error) => error.fmt(f),
            Self::Slot(error) => error.fmt(f),
            Self::NoSuchRank { rank, size } => {
                write!(f, "rank {rank} is none of the others of a job of {size}")
            }
            Self::TooManyRanks { size, most } => write!(
                f,
                "a topology is of at most {most} ranks, and the job has {size}: ask for one in a \
                 smaller job"
            ),
            Self::NotExported { peer, name } => write!(
                f,
                "what rank {} shares as {name} is no memory for windows: it has to export it",
                peer.0
            ),
            Self::TooManySlots { asked, most } => {
                write!(f, "{asked} counters of each rank at each other; there are {most} at most")
            }
            Self::Heap(error) => write!(f, "{error}; open the world with a larger heap"),
            Self::Home(error) => error.fmt(f),
            Self::NotShareable { name, link } => write!(
                f,
                "{name} is not part of this rank's segment, and the {link} link opens nothing else \
                 to others: allocate it there"
            ),
        }
    }
}

impl std::error::Error for WorldError {}

macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {$(
        impl From<$error> for WorldError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from! {
    EnvError => Env,
    JoinError => Join,
    StoreError => Store,
    SegmentError => Segment,
    ConnectError => Connect,
    LinkError => Link,
    CommError => Comm,
    WaitError => Wait,
    ClaimError => Slot,
}
