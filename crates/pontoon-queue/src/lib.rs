//! In-order streams and fences over any backend.
//!
//! A [`Stream`] submits commands to one queue of a device; a [`Fence`] is a position of its
//! completions, which any other stream, of any device, can be made to wait for, and the host too.
//! A [`Buffer`] is a region seen as elements of one type. [`check`](mod@check) tells of a
//! program whether its accesses are ordered and whether it ends; [`Acyclic`] refuses the wait that
//! would close a circle.
//!
//! ```
//! use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
//! use pontoon_hal::Engine;
//! use pontoon_queue::{Buffer, Stream};
//! use pontoon_signal::{Bound, Rank};
//!
//! let device = CpuDevice::open(Rank(0), CpuSpec::default())?;
//! let numbers = Buffer::<_, u32>::allocate(&device, 4)?;
//! let mut first = Stream::open(&device, Engine::Compute, "first")?;
//! let mut second = Stream::open(&device, Engine::Compute, "second")?;
//!
//! let fill = Kernel::new(|context| context.write::<u32>(0).fill(20));
//! let add = Kernel::new(|context| context.write::<u32>(0).iter_mut().for_each(|x| *x += 1));
//! let filled = first.launch("fill", &fill, [numbers.write(..)], [])?;
//! second.wait(&filled, Bound::default())?;
//! let added = second.launch("add", &add, [numbers.write(..)], [])?;
//!
//! added.wait(Bound::default())?;
//! assert_eq!(numbers.to_vec()?, [21; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod acyclic;
mod batch;
mod buffer;
pub mod check;
mod clock;
mod fence;
mod intervals;
mod patience;
mod pool;
mod session;
mod stream;
mod tracker;

pub use acyclic::{Acyclic, Cycle, Node, NodeRank};
pub use batch::{Barrier, Batch, Malformed, OnFailure, Recorded, Sealed};
pub use buffer::Buffer;
pub use clock::{Axis, Clock};
pub use fence::{Fence, FenceError};
pub use intervals::Intervals;
pub use patience::Patience;
pub use pool::{
    Completer, CreateError, FencePool, LeakReport, LeakSite, Outstanding, PoolReport, PoolSpec,
};
pub use session::{
    Abandoned, Chain, CollectiveId, Completed, Completion, Counts, Deadlock, Edges, EventId,
    Foreign, HostError, Kind, Link, MissingEdge, Next, Pending, QueueId, QueueSpec, Refusal,
    Refused, SemaphoreId, Session, Site, StreamId, Unrecorded, WaitFailure,
};
pub use stream::{Stream, StreamError};
