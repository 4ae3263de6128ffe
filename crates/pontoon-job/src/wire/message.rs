//! The messages.

use std::time::Duration;

use pontoon_signal::{Nanos, Rank};

use super::{
    ABSENT_SHOWN, Answer, CARD_MAX, Hello, Malformed, Question, Reader, Refused, Request, Writer,
    hello::{read_process, write_process},
    talk::{ending_code, read_ending},
};
use crate::{
    Member,
    membership::Ending,
    token::{Nonce, Tag},
};

/// How often each side says that it lives, and after how long a silence it is taken for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) beat: Nanos,
    pub(crate) lost_after: Nanos,
}

impl Pace {
    pub(crate) fn new(beat: Duration, lost_after: Duration) -> Self {
        Self { beat: beat.into(), lost_after: lost_after.into() }
    }
}

/// Why the job does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The bound passed without these: some of them, and how many in all.
    Absent { ranks: Vec<Rank>, count: u32, waited: Nanos },
    /// Two ranks disagree on how many there are; rank 0's is the second.
    World { rank: Rank, theirs: u32, ours: u32 },
    /// That rank cannot be in the job, and why. From the rank itself, or from rank 0 to all.
    Unable { rank: Rank, why: Box<str> },
}

impl Failure {
    /// That `rank` cannot be in the job for the reason `why`, of which the beginning is told.
    pub(crate) fn unable(rank: Rank, why: &str) -> Self {
        let end = (0..=why.len().min(WHY_MAX)).rev().find(|&end| why.is_char_boundary(end));
        Self::Unable { rank, why: why[..end.unwrap_or(0)].into() }
    }
}

/// All there is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    /// A call of another version.
    Foreign {
        version: u16,
    },
    Refused(Refused),
    Challenge(Nonce),
    /// The caller knows the token.
    Proof(Tag),
    /// The store knows it too.
    Welcome {
        proof: Tag,
        pace: Pace,
    },
    Card(Box<[u8]>),
    /// A rank is here, with its card.
    Member {
        member: Member,
        card: Box<[u8]>,
    },
    /// All members were told, and the job begins.
    Start,
    /// The job has not begun; who is missing.
    Waiting {
        ranks: Vec<Rank>,
        count: u32,
    },
    Failed(Failure),
    Beat,
    Leave,
    /// A rank is here no more. To the rank itself: it is taken for that.
    Ended {
        rank: Rank,
        epoch: u32,
        ending: Ending,
    },
    /// The sender saw the process of that rank end.
    SawExit {
        rank: Rank,
        epoch: u32,
    },
    /// The sender has not heard of rank 0 for too long, takes it for dead, and goes.
    Abandon,
    Ask {
        request: Request,
        question: Question,
    },
    Tell {
        request: Request,
        answer: Answer,
    },
}

/// The longest reason of a rank that cannot be in the job, in bytes.
const WHY_MAX: usize = 1024;

pub(super) const TELL: u8 = 16;

impl Message {
    /// Its frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut to = Writer::frame();
        match self {
            Self::Hello(hello) => hello.write(to.u8(1)),
            Self::Refused(refused) => refused.write(to.u8(2)),
            // Only a decoder makes one.
            Self::Foreign { version } => {
                to.u8(1).raw(&super::MAGIC).u16(*version);
            }
            Self::Challenge(nonce) => {
                to.u8(3).raw(nonce);
            }
            Self::Proof(tag) => {
                to.u8(4).raw(tag);
            }
            Self::Welcome { proof, pace } => {
                to.u8(5).raw(proof).u64(pace.beat.0).u64(pace.lost_after.0);
            }
            Self::Card(card) => {
                to.u8(6).bytes(card);
            }
            Self::Member { member, card } => {
                to.u8(7).u32(member.rank.0).u32(member.epoch);
                write_process(&mut to, &member.process);
                to.bytes(card);
            }
            Self::Start => {
                to.u8(8);
            }
            Self::Waiting { ranks, count } => {
                write_ranks(to.u8(9), ranks, *count);
            }
            Self::Failed(Failure::Absent { ranks, count, waited }) => {
                write_ranks(to.u8(10).u8(0), ranks, *count);
                to.u64(waited.0);
            }
            Self::Failed(Failure::World { rank, theirs, ours }) => {
                to.u8(10).u8(1).u32(rank.0).u32(*theirs).u32(*ours);
            }
            Self::Failed(Failure::Unable { rank, why }) => {
                to.u8(10).u8(2).u32(rank.0).bytes(why.as_bytes());
            }
            Self::Beat => {
                to.u8(11);
            }
            Self::Leave => {
                to.u8(12);
            }
            Self::Ended { rank, epoch, ending } => {
                to.u8(13).u32(rank.0).u32(*epoch).u8(ending_code(*ending));
            }
            Self::SawExit { rank, epoch } => {
                to.u8(14).u32(rank.0).u32(*epoch);
            }
            Self::Abandon => {
                to.u8(17);
            }
            Self::Ask { request, question } => question.write(to.u8(15).u64(*request)),
            Self::Tell { request, answer } => answer.write(to.u8(TELL).u64(*request)),
        }
        to.finish()
    }

    /// The message that a frame holds.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(frame);
        let message = Self::read(&mut from)?;
        from.end()?;
        Ok(message)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            1 => match Hello::read(from)? {
                Ok(hello) => Self::Hello(hello),
                Err(foreign) => {
                    let _ = from.rest();
                    Self::Foreign { version: foreign.version }
                }
            },
            2 => Self::Refused(Refused::read(from)?),
            3 => Self::Challenge(from.array()?),
            4 => Self::Proof(from.array()?),
            5 => Self::Welcome {
                proof: from.array()?,
                pace: Pace { beat: Nanos(from.u64()?), lost_after: Nanos(from.u64()?) },
            },
            6 => Self::Card(from.bytes(CARD_MAX)?.into()),
            7 => {
                let (rank, epoch) = (Rank(from.u32()?), from.u32()?);
                let member = Member { rank, epoch, process: read_process(from)? };
                Self::Member { member, card: from.bytes(CARD_MAX)?.into() }
            }
            8 => Self::Start,
            9 => {
                let (ranks, count) = read_some(from)?;
                Self::Waiting { ranks, count }
            }
            10 => Self::Failed(match from.u8()? {
                0 => {
                    let (ranks, count) = read_some(from)?;
                    Failure::Absent { ranks, count, waited: Nanos(from.u64()?) }
                }
                1 => Failure::World {
                    rank: Rank(from.u32()?),
                    theirs: from.u32()?,
                    ours: from.u32()?,
                },
                2 => Failure::Unable { rank: Rank(from.u32()?), why: from.text(WHY_MAX)? },
                kind => return Err(Malformed::Kind(kind)),
            }),
            11 => Self::Beat,
            12 => Self::Leave,
            13 => Self::Ended {
                rank: Rank(from.u32()?),
                epoch: from.u32()?,
                ending: read_ending(from)?,
            },
            14 => Self::SawExit { rank: Rank(from.u32()?), epoch: from.u32()? },
            15 => Self::Ask { request: from.u64()?, question: Question::read(from)? },
            17 => Self::Abandon,
            TELL => Self::Tell { request: from.u64()?, answer: Answer::read(from)? },
            kind => return Err(Malformed::Kind(kind)),
        })
    }
}

fn write_ranks(to: &mut Writer, ranks: &[Rank], count: u32) {
    let shown = &ranks[..ranks.len().min(ABSENT_SHOWN)];
    to.list(shown, |to, rank| {
        to.u32(rank.0);
    });
    to.u32(count);
}

fn read_some(from: &mut Reader<'_>) -> Result<(Vec<Rank>, u32), Malformed> {
    Ok((from.list(ABSENT_SHOWN, |from| from.u32().map(Rank))?, from.u32()?))
}
