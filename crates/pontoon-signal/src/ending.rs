//! Why a line will never grow again: the abort word.

use core::fmt;

use crate::Rank;

/// Why a line ended. The first ending written to a line stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Somebody gave up on purpose.
    Aborted {
        /// The caller's own code, 24 bits.
        reason: Reason,
        /// Who gave up.
        by: Rank,
    },
    /// The producer is gone: dropped, killed, or lost with its machine.
    PeerDead {
        /// The producer's rank.
        rank: Rank,
    },
    /// The link to the producer failed for good.
    LinkFailed {
        /// The link's own error code.
        code: i32,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted { reason, by } => {
                write!(f, "rank {by} gave up with reason {}", reason.get())
            }
            Self::PeerDead { rank } => write!(f, "rank {rank} is dead"),
            Self::LinkFailed { code } => write!(f, "its link failed with code {code}"),
        }
    }
}

/// A caller's code for an abort, at most [`Reason::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(u32);

impl Reason {
    /// The greatest code that fits the abort word (24 bits).
    pub const MAX: u32 = (1 << 24) - 1;

    /// Why a line of a pool ended whose [`Lease`](crate::Lease) was dropped: code 2^24 - 2.
    pub const DROPPED: Self = Self(Self::MAX - 1);

    /// The reason `code`, or `None` if it needs more than 24 bits.
    pub const fn new(code: u32) -> Option<Self> {
        if code <= Self::MAX { Some(Self(code)) } else { None }
    }

    /// The reason with a code that surely fits.
    pub const fn small(code: u16) -> Self {
        Self(code as u32)
    }

    /// The code.
    pub const fn get(self) -> u32 {
        self.0
    }
}

const ABORTED: u64 = 1;
const PEER_DEAD: u64 = 2;
const LINK_FAILED: u64 = 3;

impl Ending {
    /// The abort word: kind in bits 56..64, reason in 32..56, rank or code in 0..32.
    pub(crate) const fn encode(self) -> u64 {
        let (kind, reason, low) = match self {
            Self::Aborted { reason, by } => (ABORTED, reason.0, by.0),
            Self::PeerDead { rank } => (PEER_DEAD, 0, rank.0),
            Self::LinkFailed { code } => (LINK_FAILED, 0, code as u32),
        };
        kind << 56 | (reason as u64) << 32 | low as u64
    }

    /// What an abort word says; `None` while it is zero. A kind this version does not know reads
    /// as an abort with the greatest reason: the word is never mistaken for "not ended".
    pub(crate) const fn decode(word: u64) -> Option<Self> {
        let low = word as u32;
        match word >> 56 {
            0 if word == 0 => None,
            PEER_DEAD => Some(Self::PeerDead { rank: Rank(low) }),
            LINK_FAILED => Some(Self::LinkFailed { code: low as i32 }),
            ABORTED => {
                let reason = Reason((word >> 32) as u32 & Reason::MAX);
                Some(Self::Aborted { reason, by: Rank(low) })
            }
            _ => Some(Self::Aborted { reason: Reason(Reason::MAX), by: Rank(low) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Reason};
    use crate::Rank;

    #[test]
    fn every_ending_survives_the_word() {
        let reason = Reason::new(Reason::MAX).unwrap();
        for ending in [
            Ending::Aborted { reason, by: Rank(u32::MAX) },
            Ending::Aborted { reason: Reason::new(0).unwrap(), by: Rank(0) },
            Ending::PeerDead { rank: Rank(0) },
            Ending::LinkFailed { code: -5 },
            Ending::LinkFailed { code: 0 },
        ] {
            assert_ne!(ending.encode(), 0);
            assert_eq!(Ending::decode(ending.encode()), Some(ending));
        }
        assert_eq!(Ending::decode(0), None);
    }

    #[test]
    fn an_unknown_word_still_ends_the_line() {
        assert!(Ending::decode(1).is_some());
        assert!(Ending::decode(99 << 56).is_some());
    }

    #[test]
    fn a_reason_too_wide_is_refused() {
        assert_eq!(Reason::new(Reason::MAX + 1), None);
    }
}
