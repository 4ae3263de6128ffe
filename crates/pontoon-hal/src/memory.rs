//! Memory that commands work on.

use core::{fmt, ops::Range};

use pontoon_signal::Rank;

use crate::Hazard;

/// A region: device-visible memory of a fixed size. The value is a handle; the memory lives as
/// long as any handle or any submitted command that names it.
///
/// - M1: a new region is zeroed, begins on a page boundary, and every page has been touched.
/// - M2: its size and address do not change.
/// - M3: a host access that overlaps a running command's access, where either writes, is refused
///   with a [`Hazard`] and does nothing. It never waits. It has the bytes as a command has them: a
///   command that starts meanwhile and overlaps it, where either writes, fails with a hazard (Q6),
///   and its queue with it. So the host keeps away from bytes that a submitted command uses, until
///   it has acquired that command's completion.
/// - M4: clones name the same memory.
pub trait Memory: Clone + Send + Sync + 'static {
    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// Which region it is; unique in the process.
    fn id(&self) -> RegionId;

    /// The device it was allocated on.
    fn device(&self) -> Rank;

    /// Copies `into.len()` bytes from `offset` on to the host. A command that starts meanwhile and writes these
    /// bytes fails with a hazard (M3).
    ///
    /// # Errors
    ///
    /// [`HostAccessError`]; nothing was copied.
    fn host_read(&self, offset: usize, into: &mut [u8]) -> Result<(), HostAccessError>;

    /// Copies `from` into the region, from `offset` on. A command that starts meanwhile and writes these
    /// bytes fails with a hazard (M3).
    ///
    /// # Errors
    ///
    /// [`HostAccessError`]; nothing was copied.
    fn host_write(&self, offset: usize, from: &[u8]) -> Result<(), HostAccessError>;
}

/// Which region: a number unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u64);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {}", self.0)
    }
}

/// Why the host could not access a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostAccessError {
    /// The range is not within the region.
    OutOfRange {
        /// The region.
        region: RegionId,
        /// The bytes asked for.
        asked: Range<usize>,
        /// The region's size in bytes.
        bytes: usize,
    },
    /// A running command has the bytes.
    Hazard(Hazard),
}

impl fmt::Display for HostAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { region, asked, bytes } => write!(
                f,
                "bytes {}..{} are not within {region} of {bytes} bytes",
                asked.start, asked.end
            ),
            Self::Hazard(hazard) => hazard.fmt(f),
        }
    }
}

impl core::error::Error for HostAccessError {}
