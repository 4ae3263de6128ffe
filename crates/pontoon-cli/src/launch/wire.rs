//! What the launcher and the agent on a host say to each other, over the agent's standard input
//! and output.
//!
//! ```text
//! agent to launcher    GREETING, then frames: Hello, Started, output, Stopped, Continued, Ended,
//!                      Alive, Bye
//! launcher to agent    frames: Plan, Signal, End, Kill, Alive
//!
//! frame   | 0 tag u8 | 1 rank u32 | 5 length u32 | 9 payload ... |      little-endian
//! tag     0 a message as JSON, 1 bytes of a rank's standard output, 2 of its standard error
//! ```
//!
//! - W1: what comes before the greeting is not the agent's: a remote shell may print a banner.
//! - W2: a frame that is longer than [`LONGEST`], or of no known tag, is refused before it is stored.

use std::{error, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// How the agent begins. Nobody prints a zero byte by chance.
pub(super) const GREETING: &[u8] = b"\0pontoon launch\n";
/// The longest payload: a plan with a large environment fits, a length out of garbage does not.
pub(super) const LONGEST: usize = 16 << 20;
/// How much a remote shell may print before the greeting.
const BANNER_MAX: usize = 64 << 10;
const HEADER: usize = 9;

/// Which of a rank's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

impl Stream {
    pub(super) const BOTH: [Self; 2] = [Self::Out, Self::Err];

    /// 0 or 1.
    pub(super) fn index(self) -> usize {
        usize::from(self == Self::Err)
    }
}

/// What the agent says, besides output.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Said {
    /// It runs, and `port` was free on its host.
    Hello { version: String, port: u16 },
    /// A rank runs its command.
    Started { rank: u32, pid: u32 },
    /// A rank's process was stopped: it does nothing until it is continued.
    Stopped { rank: u32 },
    /// It was continued.
    Continued { rank: u32 },
    /// A rank's process ended.
    Ended { rank: u32, how: How, after_ns: u64 },
    /// Nothing can run here, and why.
    Refused { why: String },
    /// It is still there.
    Alive,
    /// Every process of the job is gone from this host.
    Bye,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    Status(i32),
    Signal(i32),
}

/// What the launcher asks of an agent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    Plan(Plan),
    /// Sends a signal to every process of every rank.
    Signal(i32),
    /// SIGTERM, and SIGKILL after the plan's grace.
    End,
    /// SIGKILL.
    Kill,
    /// The launcher is still there.
    Alive,
}

/// What an agent shall start. Names, values and arguments are bytes: they need not be text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) folder: Vec<u8>,
    pub(super) command: Vec<Vec<u8>>,
    pub(super) variables: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) ranks: Vec<u32>,
    pub(super) grace_ns: u64,
    /// How long this agent may be silent before it counts as lost.
    pub(super) silence_ns: u64,
    /// Whether a launcher that is silent for as long counts as gone. Not where the end of the stream
    /// says so without fail: one that a terminal stopped may go on.
    pub(super) is_remote: bool,
}

/// A frame as it came.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Message(Vec<u8>),
    Output { rank: u32, stream: Stream, bytes: Vec<u8> },
}

/// Bytes that no peer of this version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    NoGreeting,
    Tag(u8),
    TooLong(usize),
    Message,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGreeting => write!(f, "{BANNER_MAX} bytes came and no greeting of pontoon"),
            Self::Tag(tag) => write!(f, "a frame has the unknown tag {tag}"),
            Self::TooLong(bytes) => write!(f, "a frame has {bytes} bytes, more than {LONGEST}"),
            Self::Message => f.write_str("a message cannot be read"),
        }
    }
}

impl error::Error for WireError {}

/// The frame of a message.
pub(super) fn message(message: &impl Serialize) -> Vec<u8> {
    // These types hold no map with keys that are not text, which is what JSON could refuse.
    let payload = serde_json::to_vec(message).unwrap_or_default();
    frame(0, 0, &payload)
}

/// The frame of a rank's output.
pub(super) fn output(rank: u32, stream: Stream, bytes: &[u8]) -> Vec<u8> {
    frame(1 + stream.index() as u8, rank, bytes)
}

fn frame(tag: u8, rank: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.push(tag);
    frame.extend_from_slice(&rank.to_le_bytes());
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Reads a message.
///
/// # Errors
///
/// It is not one of `T`.
pub(super) fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(payload).map_err(|_| WireError::Message)
}

/// Makes frames of a stream of bytes, however it was cut.
#[derive(Debug)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    at: usize,
    /// How much has come and is no greeting; `None` once there was one.
    banner: Option<usize>,
}

impl Decoder {
    /// One that wants the greeting first (W1).
    pub(super) fn greeted() -> Self {
        Self { bytes: Vec::new(), at: 0, banner: Some(0) }
    }

    /// One that begins with a frame.
    pub(super) fn plain() -> Self {
        Self { bytes: Vec::new(), at: 0, banner: None }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    ///
    /// # Errors
    ///
    /// The bytes are no frame; nothing after them can be.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, WireError> {
        if let Some(banner) = self.banner {
            let rest = &self.bytes[self.at..];
            let begins = rest.windows(GREETING.len()).position(|at| at == GREETING);
            // What may yet be a greeting's beginning stays.
            let passed = begins.unwrap_or((rest.len() + 1).saturating_sub(GREETING.len()));
            if banner + passed > BANNER_MAX {
                return Err(WireError::NoGreeting);
            }
            self.at += passed;
            if begins.is_none() {
                self.banner = Some(banner + passed);
                return Ok(None);
            }
            self.at += GREETING.len();
            self.banner = None;
        }
        let rest = &self.bytes[self.at..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [tag, r0, r1, r2, r3, l0, l1, l2, l3] = *header;
        let stream = match tag {
            0 => None,
            1 => Some(Stream::Out),
            2 => Some(Stream::Err),
            tag => return Err(WireError::Tag(tag)),
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > LONGEST {
            return Err(WireError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let (rank, bytes) = (u32::from_le_bytes([r0, r1, r2, r3]), payload.to_vec());
        let frame = match stream {
            None => Frame::Message(bytes),
            Some(stream) => Frame::Output { rank, stream, bytes },
        };
        self.at += HEADER + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_survive_any_cut_and_a_banner() {
        let said = || Said::Ended { rank: 3, how: How::Signal(9), after_ns: 5 };
        let mut bytes = b"Welcome to b!\n".to_vec();
        bytes.extend_from_slice(GREETING);
        bytes.extend(message(&said()));
        bytes.extend(output(7, Stream::Err, b"\0\xff\n"));
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::greeted();
            let mut frames = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next().expect("frames") {
                    frames.push(frame);
                }
            }
            let [Frame::Message(first), second] = frames.as_slice() else { panic!("{frames:?}") };
            assert_eq!(read::<Said>(first), Ok(said()));
            let bytes = b"\0\xff\n".to_vec();
            assert_eq!(*second, Frame::Output { rank: 7, stream: Stream::Err, bytes });
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_stored() {
        let refused = |bytes: &[u8]| {
            let mut decoder = Decoder::plain();
            decoder.feed(bytes);
            decoder.next()
        };
        assert_eq!(refused(&frame(9, 0, b"")), Err(WireError::Tag(9)));
        assert_eq!(
            refused(&[0, 0, 0, 0, 0, 255, 255, 255, 255]),
            Err(WireError::TooLong(u32::MAX as usize))
        );
        let mut decoder = Decoder::greeted();
        decoder.feed(&vec![b'x'; BANNER_MAX + GREETING.len()]);
        assert_eq!(decoder.next(), Err(WireError::NoGreeting));
        // Nothing of it has come but the header.
        assert_eq!(refused(&[9, 0, 0, 0, 0, 0, 0, 255, 0]), Err(WireError::Tag(9)));
        assert_eq!(read::<Order>(b"{\"Plan\": 4}"), Err(WireError::Message));
    }

    #[test]
    fn how_long_a_banner_may_be_does_not_depend_on_how_it_comes() {
        for (banner, greets) in [(BANNER_MAX, true), (BANNER_MAX + 1, false)] {
            let bytes = [&vec![b'x'; banner], GREETING, &message(&Said::Bye)].concat();
            for cut in [1000, GREETING.len(), bytes.len()] {
                let mut decoder = Decoder::greeted();
                let found = bytes.chunks(cut).find_map(|piece| {
                    decoder.feed(piece);
                    decoder.next().transpose()
                });
                assert_eq!(found.is_some_and(|frame| frame.is_ok()), greets, "{banner} by {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_or_a_wait_for_more(bytes: Vec<u8>) {
            let mut decoder = Decoder::plain();
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = decoder.next() {
                if let Frame::Message(payload) = frame {
                    let _ = read::<Order>(&payload);
                }
            }
        }
    }
}
