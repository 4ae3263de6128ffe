//! Why a setup or an operation failed.

use std::{fmt, ops::Range, sync::Arc};

use pontoon_signal::{Nanos, SystemError};

use crate::{Asked, EnvelopeError, Status};

/// Why a context, a worker, a region or an endpoint could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// UCX refused.
    Refused {
        /// The call.
        call: &'static str,
        /// What it answered.
        status: Status,
    },
    /// None of the transports and devices asked for is there.
    NoTransport {
        /// What was asked for.
        asked: Asked,
        /// What UCX answered.
        status: Status,
    },
    /// No transport leads to the peer.
    Unreachable {
        /// The call.
        call: &'static str,
        /// What was asked for.
        asked: Asked,
        /// What UCX answered.
        status: Status,
    },
    /// This process may open too few files for UCX, which would end it for the want of one.
    Files {
        /// How many it may still open.
        free: u64,
        /// How many UCX may need.
        needed: u64,
    },
    /// UCX refused, and a limit of this process is as good as met.
    Limit {
        /// The call.
        call: &'static str,
        /// What UCX answered.
        status: Status,
        /// The limit.
        error: SystemError,
    },
    /// UCX does not know a setting, or not this value of it.
    Setting {
        /// Its name, without `UCX_`.
        name: String,
        /// The value.
        value: String,
        /// What UCX answered.
        status: Status,
    },
    /// A region of no bytes.
    Empty,
    /// The bytes are no address or key.
    Envelope(EnvelopeError),
    /// The operating system refused.
    System(SystemError),
    /// It was asked for from within a [`Handler`](crate::Handler), which UCX calls.
    FromHandler,
}

impl From<EnvelopeError> for SetupError {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

impl From<SystemError> for SetupError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { call, status } => write!(f, "{call}: {status}"),
            Self::NoTransport { asked, status } => write!(
                f,
                "UCX has no transport of {asked}: {status}; {}choose of those that `ucx_info -d` \
                 lists",
                if asked.is_of_variables() { "unset the variables, or " } else { "" }
            ),
            Self::Unreachable { call, asked, status } => write!(
                f,
                "{call}: {status}: no transport of {asked} leads to the peer; let both sides have \
                 one in common, by UCX_TLS and UCX_NET_DEVICES (`ucx_info -d` lists those of a host)"
            ),
            Self::Files { free, needed } => write!(
                f,
                "UCX may need {needed} files, and this process may open {free} more: raise `ulimit -n`"
            ),
            Self::Limit { call, status, error } => write!(f, "{call}: {status}; {error}"),
            Self::Setting { name, value, status } => {
                write!(f, "UCX does not take {value:?} for {name}: {status}")
            }
            Self::Empty => f.write_str("a region needs at least one byte"),
            Self::Envelope(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
            Self::FromHandler => f.write_str(FROM_HANDLER),
        }
    }
}

impl core::error::Error for SetupError {}

const FROM_HANDLER: &str = "a handler of messages called UCX, which was calling it: note what is to be done, and do it \
     once the handler has returned";

/// Why an operation did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// It was not done within its bound. It may still take effect; its memory is in quarantine
    /// until the endpoint is closed.
    TimedOut {
        /// Which operation.
        what: &'static str,
        /// With whom.
        peer: Arc<str>,
        /// How long it was waited for.
        waited: Nanos,
        /// How many operations of this endpoint are in quarantine by now.
        quarantined: u64,
    },
    /// The peer is dead, or the link to it failed for good.
    PeerFailed {
        /// Which operation.
        what: &'static str,
        /// With whom.
        peer: Arc<str>,
        /// How UCX noticed.
        status: Status,
    },
    /// UCX refused it; the endpoint is as usable as before.
    Refused {
        /// Which operation.
        what: &'static str,
        /// With whom.
        peer: Arc<str>,
        /// What UCX answered.
        status: Status,
    },
    /// The bytes are not within the region.
    OutOfRange(OutOfRange),
    /// It was asked for from within a [`Handler`](crate::Handler), which UCX calls.
    FromHandler,
}

/// Bytes that are not within a region, or a word that is not aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The bytes asked for.
    pub asked: Range<usize>,
    /// The size of the region.
    pub bytes: usize,
}

impl OutOfRange {
    /// Whether `[offset, offset + len)` is within `bytes`.
    pub(crate) fn check(offset: usize, len: usize, bytes: usize) -> Result<(), Self> {
        match offset.checked_add(len) {
            Some(end) if end <= bytes => Ok(()),
            _ => Err(Self { asked: offset..offset.saturating_add(len), bytes }),
        }
    }
}

impl From<OutOfRange> for OperationError {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.asked;
        if end <= self.bytes && start <= end {
            return write!(f, "the word at byte {start} is not aligned to 8 bytes");
        }
        write!(f, "bytes {start}..{end} are not within the region of {} bytes", self.bytes)
    }
}

impl core::error::Error for OutOfRange {}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { what, peer, waited, quarantined } => write!(
                f,
                "{what} with {peer} was not done after {waited}; its memory is kept until the \
                 endpoint is closed, as that of {quarantined} operations is"
            ),
            Self::PeerFailed { what, peer, status } => {
                write!(f, "{what}: {peer} is dead or out of reach: {status}")
            }
            Self::Refused { what, peer, status } => write!(f, "{what} with {peer}: {status}"),
            Self::OutOfRange(error) => error.fmt(f),
            Self::FromHandler => f.write_str(FROM_HANDLER),
        }
    }
}

impl core::error::Error for OperationError {}
