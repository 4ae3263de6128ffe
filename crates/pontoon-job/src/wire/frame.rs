//! Frames out of a stream of bytes: a length of 32 bits, then that many bytes.

use super::Malformed;

/// The longest frame before the sender has proved that it knows the token.
pub(crate) const STRANGER_FRAME_MAX: usize = 1024;
/// The longest frame after that.
pub(crate) const FRAME_MAX: usize = 16 << 20;

/// Puts frames together from the pieces that arrive.
///
/// Invariant W1: it holds at most what has arrived: a length that was announced allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    bytes: Vec<u8>,
    /// Where the first byte stands that no frame given out has.
    at: usize,
}

impl FrameReader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, without its length, of at most `max` bytes.
    pub(crate) fn next(&mut self, max: usize) -> Result<Option<&[u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        let Some((length, body)) = rest.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        // A message has a kind at least.
        if length == 0 {
            return Err(Malformed::Short);
        }
        if length > max {
            return Err(Malformed::TooLong);
        }
        if body.len() < length {
            return Ok(None);
        }
        let from = self.at + 4;
        self.at = from + length;
        Ok(Some(&self.bytes[from..self.at]))
    }
}
