//! What a check finds.

use std::ops::Range;

use super::program::BufferId;

/// Something that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Two accesses that must be ordered and are not.
    Hazard(Hazard),
    /// A wait that nothing left can satisfy.
    NeverSignalled {
        /// What took its last signal away: a `drop`, or a command that failed.
        first: Option<usize>,
        /// The wait.
        second: usize,
    },
    /// Entries of which none can go on before the next has.
    Deadlock {
        /// From the lowest.
        cycle: Vec<usize>,
    },
}

/// Two accesses that must be ordered and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// What is wrong.
    pub kind: HazardKind,
    /// The allocation.
    pub buffer: BufferId,
    /// Bytes of the allocation, all that hang together.
    pub range: Range<u64>,
    /// The entry that comes first in the program.
    pub first: usize,
    /// The other.
    pub second: usize,
    /// How many later pairs are wrong at these bytes too, where there are most.
    pub more: usize,
}

/// What is wrong with two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HazardKind {
    /// The second reads what the first may not have written yet.
    ReadAfterWrite,
    /// The second may overwrite what the first has yet to read.
    WriteAfterRead,
    /// Nobody knows which of the two writes stays.
    WriteAfterWrite,
    /// Ordered, but the classes of the barriers between do not hand one's bytes to the other.
    Visibility,
    /// The second reaches bytes through what the first has freed.
    UseAfterFree,
}

impl Hazard {
    /// Whether another one is the same pair at the bytes that follow.
    pub(super) fn goes_on(&self, next: &Self) -> bool {
        (self.kind, self.first, self.second, self.range.end)
            == (next.kind, next.first, next.second, next.range.start)
    }
}
