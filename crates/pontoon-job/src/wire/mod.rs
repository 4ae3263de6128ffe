//! What processes of a job say to each other. `docs/design/job.md` has it drawn.
//!
//! A frame is a length of 32 bits and that many bytes; the first is the message's kind. For every
//! version there will be, `Hello` and `Refused` begin with the magic and the sender's version, so
//! that two versions can at least tell each other so.

mod codec;
mod frame;
mod hello;
mod message;
mod talk;

#[cfg(any(test, pontoon_fuzz))]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub(crate) use codec::{Malformed, Reader, Writer};
pub(crate) use frame::{FRAME_MAX, FrameReader, STRANGER_FRAME_MAX};
pub(crate) use hello::{Hello, Reason, Refused};
pub(crate) use message::{Failure, Message, Pace};
pub(crate) use talk::{
    ABSENT_SHOWN, Answer, CARD_MAX, GATHERED_MAX, KEY_MAX, Parts, Question, Request, VALUE_MAX,
};

/// What every connection begins with.
pub(crate) const MAGIC: [u8; 8] = *b"pontoonJ";
/// The version of the messages.
pub(crate) const VERSION: u16 = 1;
