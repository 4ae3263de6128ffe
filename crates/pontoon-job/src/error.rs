//! How joining fails, and what is asked of the store.

use std::{fmt, net::SocketAddr};

use pontoon_signal::{Nanos, Rank, SystemError};
use rustix::io::Errno;

use crate::{
    Master, Process, TokenError,
    membership::{Ending, How},
};

/// Why a process is not in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// The card is longer than a card may be.
    CardTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most there may be.
        max: usize,
    },
    /// The pace is none: a heartbeat takes time, and a loss more than one.
    Pace {
        /// Between heartbeats.
        beat: Nanos,
        /// Of silence until a rank is dead.
        lost_after: Nanos,
    },
    /// The name of rank 0's machine leads to no address.
    NoAddress {
        /// The name.
        master: Master,
        /// Why, in the system's words; `None` if the answer did not come within the bound.
        why: Option<Box<str>>,
    },
    /// Something else listens where rank 0 should.
    PortInUse {
        /// Where.
        address: SocketAddr,
    },
    /// Rank 0 cannot listen there.
    CannotListen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: SystemError,
    },
    /// A limit of this process or machine keeps it from calling rank 0.
    CannotCall {
        /// Who called.
        rank: Rank,
        /// Where.
        master: Master,
        /// The limit.
        error: SystemError,
    },
    /// Rank 0 did not answer within the bound.
    NoMaster {
        /// Who called.
        rank: Rank,
        /// Where.
        master: Master,
        /// How often.
        tries: u32,
        /// For how long.
        waited: Nanos,
        /// How the last call ended; `None` if there was no answer.
        last: Option<SystemError>,
    },
    /// What listens there is no job of pontoon.
    NotPontoon {
        /// Where.
        address: SocketAddr,
    },
    /// Rank 0 runs another version.
    Version {
        /// The version of this process.
        ours: u16,
        /// The version of rank 0.
        theirs: u16,
    },
    /// Rank 0 has another token.
    Token {
        /// Who called.
        rank: Rank,
        /// Where.
        address: SocketAddr,
    },
    /// What answers there does not know the token.
    Impostor {
        /// Where.
        address: SocketAddr,
    },
    /// Rank 0 is of another job.
    Job {
        /// The name here.
        ours: Box<str>,
        /// The name there.
        theirs: Box<str>,
    },
    /// The ranks disagree on how many there are.
    World {
        /// Who disagrees with rank 0.
        rank: Rank,
        /// How many it says there are.
        theirs: u32,
        /// How many rank 0 says there are.
        rank_0: u32,
    },
    /// Another process is that rank.
    Taken {
        /// The rank.
        rank: Rank,
        /// This process.
        ours: Process,
        /// The other.
        by: Process,
        /// Which start of the rank the other is.
        epoch: u32,
    },
    /// The rank was in the job and is gone; it can come back in a later epoch only.
    Stale {
        /// The rank.
        rank: Rank,
        /// The epoch of this process.
        ours: u32,
        /// The last epoch that was there.
        last: u32,
    },
    /// The job takes back no rank that is gone.
    Closed {
        /// The rank.
        rank: Rank,
    },
    /// Not all ranks came.
    Absent {
        /// Those that did not, or the first of them.
        ranks: Vec<Rank>,
        /// How many did not.
        count: u32,
        /// How many there should be.
        world: u32,
        /// How long they were waited for.
        waited: Nanos,
    },
    /// A rank cannot be in the job, so that it does not begin.
    Unable {
        /// The rank.
        rank: Rank,
        /// Why, as it says.
        why: Box<str>,
    },
    /// The job began just when this rank's bound was used up, and goes on without it.
    TooLate {
        /// How long this rank waited.
        waited: Nanos,
    },
    /// The connection to rank 0 ended while the job gathered.
    Lost {
        /// How.
        how: How,
    },
    /// There are no random bytes.
    Random(TokenError),
    /// The operating system refused something.
    System(SystemError),
}

impl From<SystemError> for JoinError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CardTooLong { bytes, max } => {
                write!(f, "the card has {bytes} bytes; a card has at most {max}")
            }
            Self::Pace { beat, lost_after } => write!(
                f,
                "a heartbeat every {beat} and a loss after {lost_after}: the first must be at \
                 least 1.0 ms, and the second twice the first"
            ),
            Self::NoAddress { master, why: Some(why) } => write!(
                f,
                "{:?}, where rank 0 should be, has no address: {why}; check MASTER_ADDR",
                master.host
            ),
            Self::NoAddress { master, why: None } => write!(
                f,
                "the address of {:?}, where rank 0 should be, was not found in time; check \
                 MASTER_ADDR and the name service",
                master.host
            ),
            Self::PortInUse { address } => write!(
                f,
                "rank 0 cannot listen on {address}: the port is in use; choose another by \
                 MASTER_PORT in all ranks, or end what uses it (`ss -ltnp 'sport = :{}'` names it)",
                address.port()
            ),
            Self::CannotListen { address, error } => {
                write!(f, "rank 0 cannot listen on {address}: {error}")?;
                if error.code != Errno::ACCESS.raw_os_error() {
                    return Ok(());
                }
                f.write_str(
                    "; the system keeps low ports (net.ipv4.ip_unprivileged_port_start) for root: \
                     choose one from 1024 on by MASTER_PORT in all ranks, or by the launcher's --port",
                )
            }
            Self::CannotCall { rank, master, error } => {
                write!(f, "rank {rank} cannot call rank 0 at {master}: {error}")
            }
            Self::NoMaster { rank, master, tries, waited, last } => {
                match rank.0 {
                    0 => write!(f, "rank 0 called its own address {master} ")?,
                    _ => write!(f, "rank {rank} called rank 0 at {master} ")?,
                }
                match tries {
                    1 => write!(f, "once in {waited}: ")?,
                    _ => write!(f, "{tries} times in {waited}: ")?,
                }
                match last {
                    Some(error) => write!(f, "{error}")?,
                    None => f.write_str("no answer")?,
                }
                match rank.0 {
                    0 => f.write_str("; does a firewall keep this host from itself?"),
                    _ => f.write_str("; is rank 0 started, and does a firewall let it be reached?"),
                }
            }
            Self::NotPontoon { address } => write!(
                f,
                "what listens on {address} is no pontoon job: choose another port by MASTER_PORT \
                 in all ranks"
            ),
            Self::Version { ours, theirs } => write!(
                f,
                "this process speaks version {ours} of the job's messages and rank 0 version \
                 {theirs}: build all ranks from the same pontoon"
            ),
            Self::Token { rank, address } => write!(
                f,
                "rank {rank} has another token than rank 0 at {address}: give all ranks the same \
                 PONTOON_TOKEN or PONTOON_TOKEN_FILE"
            ),
            Self::Impostor { address } => write!(
                f,
                "what answers on {address} could not prove that it knows the job's token: it is \
                 not rank 0"
            ),
            Self::Job { ours, theirs } => write!(
                f,
                "this process is of job {ours:?} and rank 0 of job {theirs:?}: check PONTOON_JOB \
                 and MASTER_PORT"
            ),
            Self::World { rank, theirs, rank_0 } => write!(
                f,
                "WORLD_SIZE is {theirs} in rank {rank} and {rank_0} in rank 0: give all ranks the \
                 same"
            ),
            Self::Taken { rank, ours, by, epoch } => write!(
                f,
                "{ours} says that it is rank {rank}, and {by} is that rank already, in epoch \
                 {epoch}: give each process its own RANK"
            ),
            Self::Stale { rank, ours, last } => write!(
                f,
                "rank {rank} is gone since epoch {last} and this process is epoch {ours}: it can \
                 come back with a PONTOON_EPOCH above {last}"
            ),
            Self::Closed { rank } => {
                write!(f, "rank {rank} cannot come back: the job takes nobody back")
            }
            Self::Absent { ranks, count, world, waited } => {
                write!(f, "waited {waited} for {count} of {world} ranks: absent ")?;
                write!(f, "{}", if *count == 1 { "is rank " } else { "are ranks " })?;
                for (index, rank) in ranks.iter().enumerate() {
                    write!(f, "{}{rank}", if index == 0 { "" } else { ", " })?;
                }
                match *count as usize - ranks.len().min(*count as usize) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Unable { rank, why } => write!(f, "rank {rank} cannot be in the job: {why}"),
            Self::TooLate { waited } => write!(
                f,
                "the job began when this process had waited {waited}, all that its bound allows, \
                 and had left: give it a longer bound"
            ),
            Self::Lost { how } => write!(f, "rank 0 is dead before the job began: {how}"),
            Self::Random(error) => error.fmt(f),
            Self::System(error) => write!(f, "this process cannot be in its job: {error}"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Why a question to the store has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The bound was used up. To ask again is fine.
    TimedOut {
        /// What was waited for.
        what: What,
        /// How long.
        waited: Nanos,
    },
    /// A rank that was to take part is gone.
    Ended {
        /// The rank.
        rank: Rank,
        /// How.
        ending: Ending,
    },
    /// Rank 0, which has the store, is gone.
    StoreEnded {
        /// How.
        ending: Ending,
    },
    /// The others took this process for dead, and go on without it.
    Excluded {
        /// Why they did.
        how: How,
    },
    /// This process left the job.
    Left,
    /// A key or a value, a name or a part is longer than it may be.
    TooLong {
        /// How many bytes it has.
        bytes: usize,
        /// The most there may be.
        max: usize,
    },
    /// What the key holds is no number.
    NoNumber,
    /// The store holds as much as it may.
    Full,
    /// This process has asked too much that is not answered yet.
    TooMany,
    /// The ranks named do not exist, or do not include this one, or this one waits there already.
    NoGroup,
    /// Rank 0 answered what was not asked.
    Garbled,
}

/// What a question waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A key to be set.
    Key(Box<[u8]>),
    /// All ranks to come to the gathering of that name.
    Gathering(Box<[u8]>),
    /// The store's answer to something that does not wait.
    Answer,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key \"{}\" to be set", key.escape_ascii()),
            Self::Gathering(name) => {
                write!(f, "all ranks to come to gathering \"{}\"", name.escape_ascii())
            }
            Self::Answer => f.write_str("the answer of rank 0"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { what, waited } => write!(f, "waited {waited} for {what}"),
            Self::Ended { rank, ending } => write!(f, "rank {rank} {ending}"),
            Self::StoreEnded { ending } => {
                write!(f, "rank 0, which keeps the job's store, {ending}")
            }
            Self::Excluded { how } => write!(
                f,
                "the job goes on without this process, which it took for dead: {how}; it was \
                 stopped or cut off for too long"
            ),
            Self::Left => f.write_str("this process has left the job, and may ask nothing more"),
            Self::TooLong { bytes, max } => {
                write!(f, "{bytes} bytes are more than the {max} allowed")
            }
            Self::NoNumber => f.write_str("what the key holds is no number"),
            Self::Full => f.write_str("the job's store holds as much as it may"),
            Self::TooMany => f.write_str("too many questions of this process are not answered yet"),
            Self::NoGroup => f.write_str(
                "the ranks of a gathering must exist, ascend and include the caller, once",
            ),
            Self::Garbled => f.write_str("rank 0 answered what was not asked"),
        }
    }
}

impl std::error::Error for StoreError {}
