//! The first line of a shared signal table: what it is, and whether both sides agree on it.

use core::fmt;

use crate::{Rank, Seq, SystemError, line::LINE_BYTES};

/// What a shared table begins with; the lines follow from byte 128 on.
///
/// All fields are plain numbers in the creator's byte order, written once before the file is
/// handed on. Its first eight bytes tell a foreign byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) line_bytes: u32,
    pub(crate) first_rank: u32,
    pub(crate) producers: u32,
    pub(crate) slots: u32,
    pub(crate) traced: u32,
    pub(crate) start: u64,
}

/// "pontoon" and a 1, as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"pontoon1");
/// Goes up with every change of the header or the line.
pub(crate) const VERSION: u32 = 2;

/// Size and shape of a signal table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    pub(crate) first_rank: Rank,
    pub(crate) producers: u32,
    pub(crate) slots: u32,
    pub(crate) start: Seq,
    pub(crate) trace: u32,
}

impl TableShape {
    /// A row of `slots` counters for each of `producers` producers, ranked from 0.
    pub const fn new(producers: u32, slots: u32) -> Self {
        Self { first_rank: Rank(0), producers, slots, start: Seq::new(0), trace: 0 }
    }

    /// The rank of the first row's producer.
    pub const fn first_rank(self, first_rank: Rank) -> Self {
        Self { first_rank, ..self }
    }

    /// Where every counter starts. Tests start near 2^64, so that the wrap is met.
    pub const fn starting_at(self, start: Seq) -> Self {
        Self { start, ..self }
    }

    /// Records the time points of the first `waits` successful waits of this process.
    ///
    /// Publishers of a traced table note the time before they announce, which puts the clock's
    /// cost on the path of every signal.
    pub const fn traced(self, waits: u32) -> Self {
        Self { trace: waits, ..self }
    }

    /// Where every counter starts.
    pub const fn start(self) -> Seq {
        self.start
    }

    /// The number of lines; of a shape that [`table_bytes`] accepts.
    pub(crate) fn lines(self) -> usize {
        self.producers as usize * self.slots as usize
    }

    pub(crate) fn header(self) -> Header {
        Header {
            magic: MAGIC,
            version: VERSION,
            line_bytes: LINE_BYTES as u32,
            first_rank: self.first_rank.0,
            producers: self.producers,
            slots: self.slots,
            traced: u32::from(self.trace > 0),
            start: self.start.get(),
        }
    }
}

/// Why a shared table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused.
    System(SystemError),
    /// The file is not sealed against shrinking.
    Unsealed,
    /// The shape has no line.
    Empty,
    /// The shape has more lines than memory can hold.
    TooLarge {
        /// Its producers and their slots.
        shape: (u32, u32),
    },
    /// The memory does not begin with a table's magic number.
    NotATable {
        /// The first eight bytes found.
        found: u64,
    },
    /// The creator's machine stores numbers in the other byte order.
    ByteOrder,
    /// The creator has another version of the layout.
    Version {
        /// The creator's version and line size in bytes.
        theirs: (u32, u32),
        /// This side's version and line size in bytes.
        ours: (u32, u32),
    },
    /// The memory is smaller than its header says.
    Truncated {
        /// Bytes mapped.
        bytes: usize,
        /// Bytes that the header asks for.
        wanted: usize,
    },
}

impl From<SystemError> for OpenError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "no shared memory for a signal table: {error}"),
            Self::Unsealed => f.write_str(
                "the file is not sealed against shrinking: whoever has it could take memory away \
                 that this side has mapped; hand over the file of `SignalTable::shared`",
            ),
            Self::Empty => f.write_str("a signal table needs 1 producer and 1 slot at least"),
            Self::TooLarge { shape: (producers, slots) } => write!(
                f,
                "a signal table of {producers} producers with {slots} slots each is more than \
                 memory can hold"
            ),
            Self::NotATable { found } => {
                write!(f, "not a signal table: it begins with {found:#018x}, not {MAGIC:#018x}")
            }
            Self::ByteOrder => f.write_str("the signal table is in the other byte order"),
            Self::Version { theirs, ours } => write!(
                f,
                "signal table of layout version {} ({}-byte lines); this side has version {} \
                 ({}-byte lines): run the same release on both",
                theirs.0, theirs.1, ours.0, ours.1
            ),
            Self::Truncated { bytes, wanted } => {
                write!(f, "signal table of {bytes} bytes is cut off: its header asks for {wanted}")
            }
        }
    }
}

impl core::error::Error for OpenError {}

impl Header {
    /// The shape, if this side can use a table with this header in `bytes` bytes.
    pub(crate) fn check(&self, bytes: usize) -> Result<TableShape, OpenError> {
        if self.magic == MAGIC.swap_bytes() {
            return Err(OpenError::ByteOrder);
        }
        if self.magic != MAGIC {
            return Err(OpenError::NotATable { found: self.magic });
        }
        let (theirs, ours) = ((self.version, self.line_bytes), (VERSION, LINE_BYTES as u32));
        if theirs != ours {
            return Err(OpenError::Version { theirs, ours });
        }
        let shape = TableShape::new(self.producers, self.slots)
            .first_rank(Rank(self.first_rank))
            .starting_at(Seq::new(self.start));
        let wanted = table_bytes(shape)?;
        if bytes < wanted {
            return Err(OpenError::Truncated { bytes, wanted });
        }
        Ok(shape)
    }
}

/// Bytes of a shared table: the header's line, then all others.
pub(crate) fn table_bytes(shape: TableShape) -> Result<usize, OpenError> {
    let too_large = OpenError::TooLarge { shape: (shape.producers, shape.slots) };
    let lines = (shape.producers as usize).checked_mul(shape.slots as usize).ok_or(too_large)?;
    if lines == 0 {
        return Err(OpenError::Empty);
    }
    lines
        .checked_add(1)
        .and_then(|lines| lines.checked_mul(LINE_BYTES))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or(too_large)
}

#[cfg(test)]
mod tests {
    use super::{OpenError, TableShape};
    use std::string::ToString;

    #[test]
    fn a_mismatch_names_both_sides() {
        let mut header = TableShape::new(2, 3).header();
        header.version = 9;
        let error = header.check(1 << 20).unwrap_err();
        assert_eq!(error, OpenError::Version { theirs: (9, 128), ours: (2, 128) });
        assert!(error.to_string().contains("version 9") && error.to_string().contains("version 2"));
    }

    #[test]
    fn foreign_cut_off_and_absurd_tables_are_refused() {
        let good = TableShape::new(2, 3).header();
        assert!(good.check(7 * 128).is_ok());
        assert_eq!(
            good.check(6 * 128),
            Err(OpenError::Truncated { bytes: 6 * 128, wanted: 7 * 128 })
        );
        let mut swapped = good;
        swapped.magic = good.magic.swap_bytes();
        assert_eq!(swapped.check(1 << 20), Err(OpenError::ByteOrder));
        let mut noise = good;
        noise.magic = 7;
        assert_eq!(noise.check(1 << 20), Err(OpenError::NotATable { found: 7 }));
        let mut empty = good;
        empty.slots = 0;
        assert_eq!(empty.check(1 << 20), Err(OpenError::Empty));
        let mut huge = good;
        (huge.producers, huge.slots) = (u32::MAX, u32::MAX);
        let all = OpenError::TooLarge { shape: (u32::MAX, u32::MAX) };
        assert_eq!(huge.check(1 << 20), Err(all));
    }
}
