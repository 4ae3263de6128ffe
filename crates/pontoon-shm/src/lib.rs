//! The link between processes of one host: each maps the others' segments.
//!
//! An operation is a copy, or an atomic instruction, in the peer's memory: it is done when the call
//! returns, and the peer's processors take no part. A signal is a publish in the peer's table. What
//! is below a key is checked by [`ShmLink`]; who may map a segment at all is decided before, when
//! its file is [handed over](Handover).
//!
//! Read in this order: [`ShmLink`], then `region.rs` (keys), `watch.rs` (who is alive); [`Handover`] and [`fetch`]; [`JobFolder`] and [`sweep`].
//! `docs/design/link.md` has the argument why the order holds.
//!
//! ```
//! use pontoon_hal::link::{Link, Order};
//! use pontoon_shm::{ShmLink, identity};
//! use pontoon_signal::{Bound, Rank, Segment, SegmentShape, Seq, SlotId};
//!
//! let job = *b"sixteen bytes...";
//! let segment = |rank| Segment::create(SegmentShape::new(2, 4, 1 << 16), identity(job, rank, 2, 0));
//! let (ours, theirs) = (segment(Rank(0))?, segment(Rank(1))?);
//! let (here, there) = (ShmLink::new(ours.clone()), ShmLink::new(theirs.clone()));
//! here.connect(Rank(1), theirs.clone())?; // of another process: its file, by `fetch`
//!
//! let landing = there.register(&theirs.allocate(4096)?)?;
//! let key = landing.key().expect("part of its segment"); // to the other side
//! let (target, mut signal) = (here.attach(Rank(1), key)?, here.attach_signal(Rank(1), 0)?);
//! let source = here.register(&ours.allocate(4096)?)?;
//! here.write_signal(&source, 0..4096, &target, 0, &mut signal, 1, Order::Weak)?;
//!
//! let waiter = theirs.signals().waiter(SlotId::new(0, 0))?;
//! let _ = waiter.wait_ge_bounded(Seq::new(1), Bound::default())?.acq_fence();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod explain;
mod folder;
#[cfg(any(test, pontoon_fuzz))]
#[doc(hidden)]
pub mod fuzz;
mod handover;
mod link;
mod peer;
mod process;
mod region;
mod sweep;
mod watch;

pub use error::{ConnectError, FolderError, HandoverError};
pub use folder::{JobFolder, PassedOver, passed_over, runtime_base};
pub use handover::{Handover, HandoverReport, Secret, fetch};
pub use link::ShmLink;
pub use process::identity;
pub use sweep::{Swept, sweep};
