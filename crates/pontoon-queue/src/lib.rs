//! Streams over the queues of devices, kept in order by fences, which fail well.
//!
//! A [`Session`] has streams over queues of any devices. Each command says which bytes it uses; the
//! session derives the fewest waits that keep those in order, or is given the waits and refuses a
//! submission that lacks one. A [`Batch`] is recorded, sealed and submitted; a [`Fence`] is a
//! position of a stream's completions, which fails with its cause and never says success instead.
//! A [`Buffer`] is a region seen as elements of one type.
//!
//! ```
//! use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
//! use pontoon_hal::Engine;
//! use pontoon_queue::{Buffer, Session};
//! use pontoon_signal::Rank;
//!
//! let device = CpuDevice::open(Rank(0), CpuSpec::default())?;
//! let numbers = Buffer::<_, u32>::allocate(&device, 4)?;
//! let mut session = Session::auto();
//! let first = session.stream(&device, Engine::Compute, "first")?;
//! let second = session.stream(&device, Engine::Compute, "second")?;
//!
//! let fill = Kernel::new(|context| context.write::<u32>(0).fill(20));
//! let add = Kernel::new(|context| context.write::<u32>(0).iter_mut().for_each(|x| *x += 1));
//! session.launch(first, "fill", &fill, [numbers.write(..)], [])?;
//! session.launch(second, "add", &add, [numbers.write(..)], [])?; // waits for the fill
//! assert_eq!(session.to_vec(&numbers)?, [21; 4]); // waits for both
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Below: a [`Stream`] is one queue without a session, whose order is the caller's own affair; a
//! [`FencePool`] makes fences for work that is no stream's; [`check`](mod@check) tells of a whole
//! program whether its accesses are ordered and whether it ends; [`Acyclic`] refuses the wait that
//! would close a circle.
#![forbid(unsafe_code)]

mod acyclic;
mod batch;
mod bisect;
mod buffer;
pub mod check;
mod clock;
mod fence;
mod intervals;
mod patience;
mod pool;
mod recovery;
mod session;
mod stream;
mod tracker;

pub use acyclic::{Acyclic, Cycle, Node, NodeRank};
pub use batch::{Barrier, Batch, Beyond, Malformed, OnFailure, Recorded, Sealed};
pub use bisect::{Bisection, Verdict, bisect};
pub use buffer::Buffer;
pub use clock::{Axis, Clock};
pub use fence::{Fence, FenceError};
pub use intervals::Intervals;
pub use patience::Patience;
pub use pool::{
    Completer, CreateError, FencePool, LeakReport, LeakSite, Outstanding, PoolReport, PoolSpec,
};
pub use recovery::{Obstacle, Recovery, ReopenError, Root};
pub use session::{
    Abandoned, Awaited, Cause, Chain, ChannelId, CollectiveId, Completed, Completion, Counts,
    Deadlock, Dump, EdgeName, Edges, EventId, Figures, Foreign, FullSync, HIGH_SHARE, Held,
    HostError, Implied, Iteration, Kind, Link, MissingEdge, Moment, Next, Pair, Pending, Profile,
    QueueId, QueueSpec, Reason, RedundantEdge, Refusal, Refused, SemaphoreId, Session, Site,
    Standing, StreamId, Timeline, Unrecorded, WaitFailure, Where,
};
pub use stream::{Stream, StreamError};
