//! Bytes of a message, written and read in order. Numbers are little-endian; bytes and text have
//! their length before them, 32 bits.

use std::fmt;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// They end within a field.
    Short,
    /// Something comes after the last field.
    Trailing,
    /// A length beyond what the field may have.
    TooLong,
    /// No message, or no part of one, has this number.
    Kind(u8),
    /// Not what a pontoon job begins with.
    Magic,
    /// Not plain text.
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a message ends within a field"),
            Self::Trailing => f.write_str("a message goes on after its last field"),
            Self::TooLong => f.write_str("a length is beyond what is allowed"),
            Self::Kind(kind) => write!(f, "no message has the number {kind}"),
            Self::Magic => f.write_str("it does not begin as a pontoon job does"),
            Self::Text => f.write_str("a name is not plain text"),
        }
    }
}

/// Reads fields from the front.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// At most `max` bytes. Nothing is allocated before they are known to be there.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        if length > max {
            return Err(Malformed::TooLong);
        }
        self.take(length)
    }

    /// At most `max` bytes of UTF-8 without control characters: it may come to stand in a log.
    pub(crate) fn text(&mut self, max: usize) -> Result<Box<str>, Malformed> {
        let text = std::str::from_utf8(self.bytes(max)?).map_err(|_| Malformed::Text)?;
        if text.contains(char::is_control) {
            return Err(Malformed::Text);
        }
        Ok(text.into())
    }

    /// At most `max` items, as many as the 32 bits before them say.
    pub(crate) fn list<T>(
        &mut self,
        max: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(Malformed::TooLong);
        }
        // Not reserved at once: the count is a claim that the bytes have yet to bear out.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Whatever is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// Writes fields to the end.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A frame being written: the place of its length comes first.
    pub(crate) fn frame() -> Self {
        Self(vec![0; 4])
    }

    /// The frame, its length now known.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.finish_before(0)
    }

    /// The beginning of a frame that goes on for `more` bytes.
    pub(crate) fn finish_before(mut self, more: usize) -> Vec<u8> {
        let length = (self.0.len() - 4 + more) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }

    /// The fields, if it is no frame.
    pub(crate) fn bare(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).raw(bytes)
    }

    pub(crate) fn list<T>(&mut self, items: &[T], item: impl Fn(&mut Self, &T)) -> &mut Self {
        self.u32(items.len() as u32);
        for it in items {
            item(self, it);
        }
        self
    }
}
