//! Counters that devices, threads and processes hand data over by.
//!
//! A counter is the only messenger. A producer writes its payload and calls
//! [`Publisher::pub_release`]; a consumer calls [`Waiter::wait_ge_bounded`] and, once the target
//! is [`Observed`], [`Observed::acq_fence`]. What that gives, [`Acquired`], is the only key to the
//! payload of [`Payload`], [`DoubleBuffer`] and [`Stage`]: forgetting the fence does not compile.
//! Every wait is bounded and ends in an outcome that says who, what and how far.
//!
//! Read in this order: [`Seq`] (a position), [`SignalLine`] (the counter's 128 bytes),
//! [`Publisher`] and [`Waiter`] (the verbs), [`SignalTable`] (where lines live).
//! `docs/design/signal.md` has the argument why it is right.
#![no_std]
#![deny(unsafe_code)] // opened again, file by file, with a reason

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod barrier;
#[cfg(not(pontoon_loom))]
mod block;
mod bound;
mod buffers;
mod counters;
mod ending;
mod error;
mod group;
#[cfg_attr(pontoon_loom, allow(dead_code, reason = "loom has no shared memory"))]
mod header;
mod host;
mod id;
#[cfg(not(pontoon_loom))]
mod life;
mod line;
#[cfg(not(pontoon_loom))]
mod lines;
#[cfg(not(pontoon_loom))]
mod map;
mod nanos;
mod order;
mod park;
mod payload;
mod pool;
mod publisher;
mod segment;
mod seq;
#[doc(hidden)]
pub mod shim;
#[cfg(not(pontoon_loom))]
mod span;
#[cfg_attr(pontoon_loom, allow(dead_code, reason = "loom has no shared memory"))]
mod system;
mod table;
#[cfg(all(feature = "std", not(pontoon_loom)))]
mod thread;
mod trace;
#[cfg(feature = "std")]
mod tuned;
mod waiter;
mod words;

pub use barrier::Barrier;
#[cfg(not(pontoon_loom))]
pub use block::Block;
pub use bound::{Bound, ZeroBound};
pub use buffers::{BufferReader, BufferWriter, DoubleBuffer, Filled, Filling, Stage};
pub use counters::WaitCounters;
pub use ending::{Ending, Reason};
pub use error::{Found, WaitError};
pub use group::{
    AcquiredGroup, GROUP_MAX, ObservedGroup, Turn, Wait, wait_all, wait_any, wait_in_order,
    wait_quorum, wait_settled,
};
pub use header::{OpenError, TableShape};
pub use host::{Host, Os, Sleeper};
pub use id::{Rank, SlotId};
#[cfg(not(pontoon_loom))]
pub use life::{Life, ProcessId, Vigil};
pub use line::{LINE_BYTES, Load, Producer, SignalLine};
#[cfg(not(pontoon_loom))]
pub use lines::{LINE_WORDS, first_difference};
#[cfg(not(pontoon_loom))]
pub use map::{Mapping, SharedMap};
pub use nanos::Nanos;
pub use order::fence_system;
pub use payload::{NotAnnounced, Payload, Promise};
pub use pool::{Lease, LinePool};
pub use publisher::{BehindCounter, ClaimError, Publisher, SharedPublisher};
#[doc(hidden)]
pub use segment::Entry;
pub use segment::Sheet;
#[cfg(not(pontoon_loom))]
pub use segment::{
    HeapFull, Identity, Listed, Listing, PendingGuard, PendingTable, PendingWait, PublishedRegion,
    Record, RecordKind, Recorder, RegionTable, Segment, SegmentError, SegmentShape, SegmentState,
};
pub use seq::Seq;
#[cfg(not(pontoon_loom))]
pub use span::Span;
#[cfg(not(pontoon_loom))]
#[doc(hidden)]
pub use span::bare_copy;
pub use system::SystemError;
pub use table::{LineRef, SignalTable};
#[cfg(all(feature = "std", not(pontoon_loom)))]
pub use thread::{spawn_undisturbed, undisturbed};
pub use trace::TimePoints;
#[cfg(feature = "std")]
pub use tuned::{Between, Profile, ProfileError, Tuned, TunedRing, TunedRings};
pub use waiter::{Acquired, Observed, Slot, Waiter};
pub use words::Words;
