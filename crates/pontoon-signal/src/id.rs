//! Who and where: ranks and slots.

use core::fmt;

/// A process of a job, or a device inside one process: who publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A slot of a signal table: which of its producer's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Whose row.
    pub producer: Rank,
    /// Which slot of the row.
    pub slot: u32,
}

impl SlotId {
    /// Slot `slot` in the row of `producer`.
    pub const fn new(producer: u32, slot: u32) -> Self {
        Self { producer: Rank(producer), slot }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "producer {} slot {}", self.producer, self.slot)
    }
}
