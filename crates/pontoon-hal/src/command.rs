//! What a queue can be asked to do.

use core::ops::Range;

use arrayvec::ArrayVec;
use pontoon_signal::{Bound, Seq, Slot};

use crate::Memory;

/// How a command uses the bytes it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It only reads them.
    Read,
    /// It writes them, and may read them.
    Write,
}

/// Bytes of a region that a command uses. It can reach nothing else.
#[derive(Clone, Debug)]
pub struct Access<M> {
    /// The region.
    pub memory: M,
    /// The bytes, from the region's start.
    pub range: Range<usize>,
    /// What for.
    pub mode: Mode,
}

impl<M: Memory> Access<M> {
    /// Reads `range` (bytes) of `memory`.
    pub fn read(memory: &M, range: Range<usize>) -> Self {
        Self { memory: memory.clone(), range, mode: Mode::Read }
    }

    /// Writes `range` (bytes) of `memory`.
    pub fn write(memory: &M, range: Range<usize>) -> Self {
        Self { memory: memory.clone(), range, mode: Mode::Write }
    }

    /// Whether both name common bytes of one region and at least one of them writes.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let writes = self.mode == Mode::Write || other.mode == Mode::Write;
        let overlap = overlap(&self.range, &other.range);
        writes && overlap && self.memory.id() == other.memory.id()
    }

    /// Whether the range is well-formed and within its region.
    pub fn is_within_region(&self) -> bool {
        self.range.start <= self.range.end && self.range.end <= self.memory.bytes()
    }
}

/// Whether two ranges have common bytes. An empty range has none, wherever it lies.
pub fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// The most accesses a command can declare.
pub const ACCESSES_MAX: usize = 8;
/// The most scalar arguments a kernel can be given.
pub const ARGUMENTS_MAX: usize = 8;

/// How many times its deadline a wait command may last in all, however much its signal moves.
pub const WAIT_CAP: u32 = 10;

/// What a command uses, in the order its kernel numbers them.
pub type Accesses<M> = ArrayVec<Access<M>, ACCESSES_MAX>;
/// A kernel's scalar arguments.
pub type Arguments = ArrayVec<u64, ARGUMENTS_MAX>;

/// What a queue can be asked to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command<M, K> {
    /// Runs a kernel over the bytes it declared.
    Launch {
        /// Named in faults.
        label: &'static str,
        /// The kernel, in the device's own language.
        kernel: K,
        /// All that it can reach.
        accesses: Accesses<M>,
        /// Its scalars.
        arguments: Arguments,
    },
    /// Copies bytes between two ranges of the same length.
    Copy {
        /// Named in faults.
        label: &'static str,
        /// Read.
        from: Access<M>,
        /// Written.
        to: Access<M>,
    },
    /// Holds the queue until a signal is reached.
    Wait {
        /// Named in faults.
        label: &'static str,
        /// The signal.
        slot: Slot,
        /// Where it has to get.
        target: Seq,
        /// How long the signal may stand still, counted from when the command is the queue's next
        /// and again from each time it moves; [`WAIT_CAP`] times as long in all. Only the deadline
        /// counts: a device polls at its own pace. A time-out is noticed when a unit looks at the
        /// queue, so long kernels on all units can delay it by as much as they last.
        ///
        /// The device sees this signal and none behind it. While the queue that should move it is
        /// itself held by a wait, nothing moves, however much its own producer does: the deadline
        /// has to be as long as the longest such pause.
        bound: Bound,
    },
}

impl<M, K> Command<M, K> {
    /// The name it goes by in faults.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Launch { label, .. } | Self::Copy { label, .. } | Self::Wait { label, .. } => {
                label
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn nothing_overlaps_nothing() {
        assert!(overlap(&(0..10), &(9..20)) && overlap(&(5..6), &(0..10)));
        assert!(!overlap(&(0..10), &(10..20)));
        for empty in [0..0, 5..5, 10..10] {
            assert!(!overlap(&empty, &(0..10)) && !overlap(&(0..10), &empty));
        }
    }
}
