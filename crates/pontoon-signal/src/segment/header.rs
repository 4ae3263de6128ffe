//! The first page of a segment: whose it is, how it is laid out, and whether both sides agree.

use core::fmt;

use crate::{
    LINE_BYTES, Nanos, OpenError, ProcessId, Rank, SystemError,
    segment::{PendingTable, Recorder, RegionTable},
    shim::AtomicU32,
};

/// Sections of a segment, in the order of its header.
pub(crate) const SECTIONS: usize = 6;

/// Part of a segment: bytes from its start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a segment begins with. All but `state` is written once, before the file is handed on.
///
/// Plain numbers in the creator's byte order; `magic` tells a foreign one.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    pub(crate) layout: u64,
    pub(crate) bytes: u64,
    pub(crate) job: [u8; 16],
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) pid: u32,
    pub(crate) epoch: u32,
    pub(crate) start_time: u64,
    pub(crate) created: u64,
    pub(crate) sections: [Section; SECTIONS],
    pub(crate) state: AtomicU32,
}

/// "segment" and a 1, as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"segment1");
/// Goes up with every change of the header or of what a section holds.
pub(crate) const VERSION: u32 = 4;
pub(crate) const HEADER_BYTES: usize = 256;

#[cfg(not(pontoon_loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SegmentHeader>() <= HEADER_BYTES);
    assert!(offset_of!(SegmentHeader, layout) == 16);
    assert!(offset_of!(SegmentHeader, job) == 32);
    assert!(offset_of!(SegmentHeader, rank) == 48);
    assert!(offset_of!(SegmentHeader, start_time) == 64);
    assert!(offset_of!(SegmentHeader, sections) == 80);
    assert!(offset_of!(SegmentHeader, state) == 176);
};

/// A number that differs between builds which lay the parts of a segment out differently, even if
/// somebody forgot to count the version up.
pub(crate) const LAYOUT: u64 = {
    let sizes = [
        VERSION as u64,
        HEADER_BYTES as u64,
        SECTIONS as u64,
        LINE_BYTES as u64,
        crate::header::VERSION as u64,
        Recorder::bytes(1) as u64,
        Recorder::bytes(2) as u64,
        PendingTable::bytes(1) as u64,
        PendingTable::bytes(2) as u64,
        RegionTable::bytes(1) as u64,
        RegionTable::bytes(2) as u64,
    ];
    // FNV-1a, over the words.
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < sizes.len() {
        hash = (hash ^ sizes[at]).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
};

/// Whose segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The job, as its ranks agreed to name it.
    pub job: [u8; 16],
    /// Which rank of it.
    pub rank: Rank,
    /// How many ranks the job has.
    pub world: u32,
    /// How often the rank was started before: tells a restarted one from the one it replaces.
    pub epoch: u32,
    /// The process that laid the segment out.
    pub pid: u32,
    /// When that process was started, in the kernel's ticks since boot: with the pid, no other.
    pub start_time: u64,
    /// When the segment was laid out, by the machine's monotonic clock.
    pub created: Nanos,
}

impl Identity {
    /// The process that laid the segment out.
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_time: self.start_time }
    }
}

/// How far the owner of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Laid out; its owner has not joined its job yet.
    New,
    /// In use.
    Joined,
    /// Its owner left in order.
    Left,
}

impl SegmentState {
    pub(crate) const fn word(self) -> u32 {
        match self {
            Self::New => 0,
            Self::Joined => 1,
            Self::Left => 2,
        }
    }

    /// A word that this version does not know reads as left: nobody waits for it.
    pub(crate) const fn of_word(word: u32) -> Self {
        match word {
            0 => Self::New,
            1 => Self::Joined,
            _ => Self::Left,
        }
    }
}

/// Why a segment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system refused.
    System(SystemError),
    /// Its file or its signal table cannot be used.
    Table(OpenError),
    /// The sizes asked for are more than memory can hold.
    TooLarge,
    /// The memory does not begin with a segment's magic number.
    NotASegment {
        /// The first eight bytes found.
        found: u64,
    },
    /// The creator's machine stores numbers in the other byte order.
    ByteOrder,
    /// The creator has another version of the layout.
    Version {
        /// The creator's version and layout hash.
        theirs: (u32, u64),
        /// This side's version and layout hash.
        ours: (u32, u64),
    },
    /// The memory is shorter than the segment, or its header is of another size.
    Cut {
        /// Bytes mapped.
        bytes: usize,
        /// The size of the header, as it says.
        header_bytes: u32,
        /// The size of the segment, as its header says.
        wanted: u64,
    },
    /// The header asks for bytes that are not there, or for sections that overlap it.
    Malformed {
        /// Bytes mapped.
        bytes: usize,
        /// Which section, by its number.
        section: usize,
    },
}

impl From<OpenError> for SegmentError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::System(error) => Self::System(error),
            error => Self::Table(error),
        }
    }
}

impl From<SystemError> for SegmentError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "no shared memory for a segment: {error}"),
            Self::Table(error) => write!(f, "the signals of a segment cannot be used: {error}"),
            Self::TooLarge => f.write_str("a segment of that size is more than memory can hold"),
            Self::NotASegment { found } => {
                write!(f, "not a segment: it begins with {found:#018x}, not {MAGIC:#018x}")
            }
            Self::ByteOrder => f.write_str("the segment is in the other byte order"),
            Self::Version { theirs, ours } => write!(
                f,
                "segment of version {} (layout {:016x}); this side has version {} (layout \
                 {:016x}): run the same release on both",
                theirs.0, theirs.1, ours.0, ours.1
            ),
            Self::Cut { bytes, header_bytes, wanted } => write!(
                f,
                "a segment of {wanted} bytes with a header of {header_bytes} was laid out, and {bytes} \
                 bytes are there, of which a header takes {HEADER_BYTES}"
            ),
            Self::Malformed { bytes, section } => write!(
                f,
                "the segment's header places section {section} outside of its {bytes} bytes"
            ),
        }
    }
}

impl core::error::Error for SegmentError {}
