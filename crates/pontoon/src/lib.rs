//! Hand data between devices, processes and machines in the right order, without locks and never
//! waiting for ever.
//!
//! A counter is the only messenger. Whatever completes grows a 64-bit counter that all parties
//! reach: [`signal`] has the counters and the three verbs (publish, bounded wait, acquire),
//! [`queue`] has streams and fences over devices, [`cpu`] is the device that every machine has.
//!
//! Two devices, and a fence between them:
//!
//! ```
//! use pontoon::{Bound, Buffer, Engine, Kernel, Runtime, Stream};
//!
//! let runtime = Runtime::cpu(2)?;
//! let [first, second] = runtime.devices() else { unreachable!("two were opened") };
//! let numbers = Buffer::<_, u32>::allocate(first, 1024)?;
//! let mut produce = Stream::open(first, Engine::Compute, "produce")?;
//! let mut consume = Stream::open(second, Engine::Compute, "consume")?;
//!
//! let fill = Kernel::new(|kernel| kernel.write::<u32>(0).fill(20));
//! let add = Kernel::new(|kernel| kernel.write::<u32>(0).iter_mut().for_each(|n| *n += 1));
//! let filled = produce.launch("fill", &fill, [numbers.write(..)], [])?;
//! consume.wait(&filled, Bound::default())?; // on the device: the host goes on at once
//! let added = consume.launch("add", &add, [numbers.write(..)], [])?;
//!
//! added.wait(Bound::default())?; // on the host: at most two seconds, then an error that says who
//! assert_eq!(numbers.to_vec()?, [21; 1024]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod failure;
mod runtime;
pub mod smc;
pub mod verify;
pub mod world;

#[doc(inline)]
pub use pontoon_comm as comm;
#[doc(inline)]
pub use pontoon_cpu as cpu;
#[doc(inline)]
pub use pontoon_hal as hal;
#[doc(inline)]
pub use pontoon_job as job;
#[doc(inline)]
pub use pontoon_queue as queue;
#[doc(inline)]
pub use pontoon_shm as shm;
#[doc(inline)]
pub use pontoon_signal as signal;
#[doc(inline)]
pub use pontoon_ucx as ucx;

pub use failure::Failure;
pub use pontoon_cpu::{Context, CpuDevice, CpuSpec, Kernel, OpenDeviceError, Region};
pub use pontoon_hal::{
    Access, AllocateError, Device, Engine, Fault, HostAccessError, Memory, OpenQueueError, Queue,
};
pub use pontoon_queue::{
    Abandoned, Barrier, Batch, Buffer, ChannelId, CollectiveId, Completed, Completion, Counts,
    Deadlock, Dump, Edges, EventId, Fence, FenceError, FullSync, HostError, Kind, Malformed,
    MissingEdge, OnFailure, Patience, Pending, Profile, QueueId, QueueSpec, Recovery, Refusal,
    Refused, ReopenError, Sealed, SemaphoreId, Session, Stream, StreamError, StreamId, Timeline,
    Unrecorded, WaitFailure,
};
pub use pontoon_signal::{Bound, DoubleBuffer, Rank, Seq, SignalTable, SlotId, TableShape};
pub use runtime::Runtime;
pub use world::World;

/// The README's program, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
