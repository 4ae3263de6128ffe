//! What is asked of the store, and what it answers.

use std::sync::Arc;

use pontoon_signal::Rank;

use super::{Malformed, Reader, Writer};
use crate::{
    env::WORLD_MAX,
    membership::{Ending, How},
};

/// The longest card.
pub(crate) const CARD_MAX: usize = 64 << 10;
/// The longest key, and the longest name of a gathering.
pub(crate) const KEY_MAX: usize = 256;
/// The longest value.
pub(crate) const VALUE_MAX: usize = 1 << 20;
/// The most bytes that all parts of a gathering have together.
pub(crate) const GATHERED_MAX: usize = 8 << 20;
/// How many of those absent are named; the others are counted.
pub(crate) const ABSENT_SHOWN: usize = 64;

/// A number that ties an answer to its question; chosen by who asks.
pub(crate) type Request = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Set {
        key: Box<[u8]>,
        value: Box<[u8]>,
    },
    /// Answered when the key is set.
    Get {
        key: Box<[u8]>,
    },
    Add {
        key: Box<[u8]>,
        delta: i64,
    },
    /// Answered when all of `ranks` have asked the same.
    Gather {
        name: Box<[u8]>,
        ranks: Box<[Rank]>,
        part: Box<[u8]>,
    },
    /// Takes back the question of the same number, if it is open still.
    Forget,
}

impl Question {
    pub(super) fn write(&self, to: &mut Writer) {
        match self {
            Self::Set { key, value } => to.u8(0).bytes(key).bytes(value),
            Self::Get { key } => to.u8(1).bytes(key),
            Self::Add { key, delta } => to.u8(2).bytes(key).u64(*delta as u64),
            Self::Gather { name, ranks, part } => {
                to.u8(3).bytes(name).list(ranks, |to, rank| {
                    to.u32(rank.0);
                });
                to.bytes(part)
            }
            Self::Forget => to.u8(4),
        };
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Self::Set { key: key(from)?, value: from.bytes(VALUE_MAX)?.into() },
            1 => Self::Get { key: key(from)? },
            2 => Self::Add { key: key(from)?, delta: from.u64()? as i64 },
            3 => Self::Gather {
                name: key(from)?,
                ranks: read_ranks(from)?.into(),
                part: from.bytes(VALUE_MAX)?.into(),
            },
            4 => Self::Forget,
            kind => return Err(Malformed::Kind(kind)),
        })
    }
}

fn key(from: &mut Reader<'_>) -> Result<Box<[u8]>, Malformed> {
    Ok(from.bytes(KEY_MAX)?.into())
}

pub(super) fn read_ranks(from: &mut Reader<'_>) -> Result<Vec<Rank>, Malformed> {
    from.list(WORLD_MAX as usize, |from| from.u32().map(Rank))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Value(Box<[u8]>),
    Sum(i64),
    Parts(Parts),
    /// A rank that was to take part does so no more.
    Ended {
        rank: Rank,
        ending: Ending,
    },
    /// What the key holds is no number.
    NoNumber,
    /// The store, or the gathering, would hold more than it may.
    Full,
    /// Too many questions of this rank are open.
    TooMany,
    /// Who asks is not among the ranks it named, or is there already, or they do not exist.
    NoGroup,
    /// The question was taken back, and counts for nothing.
    Forgotten,
}

const PARTS: u8 = 3;

/// The parts of a gathering, as they are sent: all who took part are sent the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts(Arc<[u8]>);

impl Parts {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut to = Writer::default();
        to.list(parts, |to, part| {
            to.bytes(part);
        });
        Self(to.bare().into())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let parts = from.list(WORLD_MAX as usize, |from| from.bytes(VALUE_MAX))?;
        Ok(Self::of(&parts))
    }

    /// Each by itself.
    pub(crate) fn to_vec(&self) -> Vec<Vec<u8>> {
        let mut from = Reader::new(&self.0);
        let parts = from.list(WORLD_MAX as usize, |from| from.bytes(VALUE_MAX).map(Vec::from));
        // They were encoded here.
        parts.unwrap_or_default()
    }

    /// The frame that tells them, in two: what `request` alone has, and what all have.
    pub(crate) fn frame(&self, request: Request) -> [Arc<[u8]>; 2] {
        let mut to = Writer::frame();
        to.u8(super::message::TELL).u64(request).u8(PARTS);
        [to.finish_before(self.0.len()).into(), Arc::clone(&self.0)]
    }
}

impl Answer {
    pub(super) fn write(&self, to: &mut Writer) {
        match self {
            Self::Done => to.u8(0),
            Self::Value(value) => to.u8(1).bytes(value),
            Self::Sum(sum) => to.u8(2).u64(*sum as u64),
            Self::Parts(parts) => to.u8(PARTS).raw(&parts.0),
            Self::Ended { rank, ending } => to.u8(4).u32(rank.0).u8(ending_code(*ending)),
            Self::NoNumber => to.u8(5),
            Self::Full => to.u8(6),
            Self::TooMany => to.u8(7),
            Self::NoGroup => to.u8(8),
            Self::Forgotten => to.u8(9),
        };
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Self::Done,
            1 => Self::Value(from.bytes(VALUE_MAX)?.into()),
            2 => Self::Sum(from.u64()? as i64),
            PARTS => Self::Parts(Parts::read(from)?),
            4 => Self::Ended { rank: Rank(from.u32()?), ending: read_ending(from)? },
            5 => Self::NoNumber,
            6 => Self::Full,
            7 => Self::TooMany,
            8 => Self::NoGroup,
            9 => Self::Forgotten,
            kind => return Err(Malformed::Kind(kind)),
        })
    }
}

pub(super) const fn ending_code(ending: Ending) -> u8 {
    match ending {
        Ending::Left => 1,
        Ending::Dead(How::Exited) => 2,
        Ending::Dead(How::ConnectionClosed) => 3,
        Ending::Dead(How::HeartbeatLost) => 4,
        Ending::Dead(How::Replaced) => 5,
    }
}

pub(super) fn read_ending(from: &mut Reader<'_>) -> Result<Ending, Malformed> {
    Ok(match from.u8()? {
        1 => Ending::Left,
        2 => Ending::Dead(How::Exited),
        3 => Ending::Dead(How::ConnectionClosed),
        4 => Ending::Dead(How::HeartbeatLost),
        5 => Ending::Dead(How::Replaced),
        kind => return Err(Malformed::Kind(kind)),
    })
}
