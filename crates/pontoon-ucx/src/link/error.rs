//! Why a link was not set up, or not connected.

use std::fmt;

use pontoon_signal::{ClaimError, Rank, SegmentError, SystemError};

use crate::{EnvelopeError, OpenError, SetupError};

/// Why a link was not set up, or not connected to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkSetupError {
    /// There is no UCX here.
    Library(OpenError),
    /// UCX refused.
    Setup(SetupError),
    /// The segment could not be laid out.
    Segment(SegmentError),
    /// The system refused.
    System(SystemError),
    /// The card is another rank's.
    Rank {
        /// The rank asked for.
        asked: Rank,
        /// Whose card it is.
        found: Rank,
    },
    /// No card was made for that peer, or it was used already: the peer could not answer.
    NoCard {
        /// The peer.
        peer: Rank,
    },
    /// The link has that peer already: one that was started again is reconnected.
    Connected {
        /// The peer.
        peer: Rank,
    },
    /// The card is not of a later start than the one that is connected.
    Epoch {
        /// The peer.
        peer: Rank,
        /// The start that is connected.
        connected: u32,
        /// The start that the card is of.
        offered: u32,
    },
    /// The completions of the peer could not be laid out.
    Completions(ClaimError),
}

macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {$(
        impl From<$error> for LinkSetupError {
            fn from(error: $error) -> Self {
                Self::$variant(error.into())
            }
        }
    )*};
}

from! {
    OpenError => Library,
    SetupError => Setup,
    EnvelopeError => Setup,
    SegmentError => Segment,
    SystemError => System,
    ClaimError => Completions,
}

impl fmt::Display for LinkSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Segment(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
            Self::Rank { asked, found } => {
                write!(f, "the card is of rank {found}, not of rank {asked}")
            }
            Self::NoCard { peer } => write!(
                f,
                "no card was made for rank {peer}, or it is connected by that: make it one, so that \
                 it can answer"
            ),
            Self::Connected { peer } => {
                write!(f, "rank {peer} is connected; after a restart of it, reconnect")
            }
            Self::Epoch { peer, connected, offered } => write!(
                f,
                "rank {peer} is connected as of its start {connected}, and the card is of start \
                 {offered}: ask for its new one"
            ),
            Self::Completions(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LinkSetupError {}
