//! What `fuzz/` does with a stranger's bytes. Built for it and for tests alone.

use crate::{
    Token, hub,
    wire::{
        FRAME_MAX, FrameReader, Malformed, Message, Refused, STRANGER_FRAME_MAX, VERSION, samples,
    },
};

/// Bytes as a connection's, as a token's text and as what becomes of a job. Whether any of them was
/// a message.
///
/// # Panics
///
/// If something is done with them that may not be.
pub fn judge(bytes: &[u8]) -> bool {
    if let Ok(token) = Token::parse(bytes) {
        assert_eq!(Token::parse(token.reveal().as_bytes()), Ok(token));
    }
    hub::fuzz::play(bytes);
    let known = frames(bytes, FRAME_MAX);
    frames(bytes, STRANGER_FRAME_MAX) || known
}

/// What to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let messages = samples::all();
    let mut seeds: Vec<_> = messages.iter().map(Message::frame).collect();
    seeds.push(seeds.concat());
    seeds.push(vec![b'7'; 2 * Token::BYTES]);
    seeds.extend(hub::fuzz::scripts());
    seeds
}

/// Whatever a stream is cut into, its frames are the same, and one that is a message is the same
/// bytes again.
fn frames(stream: &[u8], max: usize) -> bool {
    let whole = split(stream, max, stream.len().max(1));
    assert_eq!(whole, split(stream, max, 3), "another cut");
    let mut known = false;
    for frame in &whole.0 {
        let Ok(message) = Message::decode(frame) else { continue };
        known = true;
        let again = message.frame();
        let other = match &message {
            Message::Foreign { .. } => true,
            Message::Refused(Refused { version, .. }) => *version != VERSION,
            _ => false,
        };
        // Of another version's message, no more is kept than that it is one.
        if other {
            assert_eq!(Message::decode(&again[4..]), Ok(message));
        } else {
            assert_eq!(again[4..], frame[..], "{message:?}");
        }
    }
    known
}

fn split(stream: &[u8], max: usize, piece: usize) -> (Vec<Vec<u8>>, Option<Malformed>) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for bytes in stream.chunks(piece) {
        reader.push(bytes);
        loop {
            match reader.next(max) {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(malformed) => return (frames, Some(malformed)),
            }
        }
    }
    (frames, None)
}

#[cfg(test)]
mod tests {
    use super::{judge, seeds};

    #[test]
    fn what_fuzzing_begins_with_does_no_harm() {
        let known = seeds().iter().filter(|seed| judge(seed)).count();
        assert!(known >= 40, "{known} seeds are messages");
    }
}
