//! What a mirror did, as rank 0 prints it.

use std::{
    io::{self, Write},
    ops::AddAssign,
};

use serde::{Deserialize, Serialize};

use crate::{counted::counted, doctor::bytes};

/// What mirrors did, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::train) struct Figures {
    /// Pages that came because they were touched.
    pub(super) pages_fetched: u64,
    /// Bytes that were sent home: those that had changed.
    pub(super) bytes_released: u64,
    /// Bytes of the pages of parameters that acquires found changed: they are read only, so they come whole.
    pub(super) bytes_changed: u64,
    /// How often memory was registered with a link.
    pub(super) registrations: u64,
}

impl Figures {
    /// For rank 0.
    pub(in crate::train) fn to_bytes(self) -> Vec<u8> {
        serde_json::to_vec(&self).unwrap_or_default()
    }

    pub(in crate::train) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(in crate::train) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { pages_fetched, bytes_released, bytes_changed, registrations } = *self;
        writeln!(
            out,
            "  shared memory   {} fetched, {} released, {} changed, {registrations} registered",
            counted(pages_fetched, "page"),
            bytes(bytes_released),
            bytes(bytes_changed)
        )
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.pages_fetched += other.pages_fetched;
        self.bytes_released += other.bytes_released;
        self.bytes_changed += other.bytes_changed;
        self.registrations += other.registrations;
    }
}
