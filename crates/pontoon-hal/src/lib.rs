//! What a pontoon backend promises, in one place.
//!
//! Everything above this crate knows devices only by these traits. Their promises are numbered
//! clauses (D1, Q1, M1 …); [`conformance`] holds each backend to them.
//!
//! Read in this order: [`Device`], [`Queue`], [`Command`], [`Memory`], [`Fault`],
//! [`Capabilities`]; for what lies between ranks, [`link::Link`]; and for memory that is elsewhere,
//! [`paging::Paging`], with [`guard::Storer`] for stores that are made elsewhere.
#![deny(unsafe_code)]

mod capability;
mod command;
pub mod conformance;
mod device;
mod fault;
pub mod guard;
pub mod link;
mod memory;
pub mod paging;
mod placement;
mod queue;
mod times;
mod wait;

pub use capability::Capabilities;
pub use command::{
    ACCESSES_MAX, ARGUMENTS_MAX, Access, Accesses, Arguments, Command, Mode, WAIT_CAP, overlap,
};
pub use device::{AllocateError, Device, DeviceReport, Engine, OpenQueueError};
pub use fault::{Cause, Fault, FaultCell, Hazard, fault_reason};
pub use memory::{HostAccessError, Memory, RegionId};
pub use placement::Placement;
pub use queue::{CommandOf, Queue, QueueReport, SubmitError};
pub use times::Times;
pub use wait::{Purpose, SOURCES_MAX, WaitReport};
