//! A rank's shared memory: everything that others of its job, and readers outside it, may see.
//!
//! - `header.rs`: the first page, whose it is and how it is laid out;
//! - `sheet.rs`: a few words that are seen whole or not at all, which the others are made of;
//! - `entry.rs`: such a sheet, lent to one writer after the other;
//! - `pending.rs`: what the process waits for;
//! - `recorder.rs`: what happened last;
//! - `regions.rs`: what of the heap is registered, and by which key.

mod entry;
#[cfg(not(pontoon_loom))]
mod header;
#[cfg(not(pontoon_loom))]
mod layout;
#[cfg(not(pontoon_loom))]
mod pending;
#[cfg(not(pontoon_loom))]
mod recorder;
#[cfg(not(pontoon_loom))]
mod regions;
mod sheet;

pub use entry::Entry;
#[cfg(not(pontoon_loom))]
pub use header::{Identity, SegmentError, SegmentState};
#[cfg(not(pontoon_loom))]
pub use layout::{HeapFull, Segment, SegmentShape};
#[cfg(not(pontoon_loom))]
pub use pending::{PendingGuard, PendingTable, PendingWait};
#[cfg(not(pontoon_loom))]
pub use recorder::{Record, RecordKind, Recorder};
#[cfg(not(pontoon_loom))]
pub use regions::{Listed, Listing, PublishedRegion, RegionTable};
pub use sheet::Sheet;
