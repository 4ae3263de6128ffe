//! Communication that kernels start themselves.
//!
//! A [`Comm`] is a rank's: it has a thread, the *proxy*, that does what kernels ask for. A [`Port`]
//! is the way from memory here to memory and a signal of one peer, for kernels to call: [`Port::put`]
//! and the like put a task in a [`ring`], or store at once where the peer's memory is mapped. Each
//! gives a [`Ticket`], which keeps the bytes from being used before they may be.
//!
//! Nothing waits without an end, and nothing is lost in silence: a full ring, a dead peer, a proxy that
//! is gone or stands still is an outcome of the call that met it. `docs/design/comm.md` has the argument
//! why it is right.
#![forbid(unsafe_code)]

pub mod ring;
mod task;

#[cfg(not(pontoon_loom))]
mod channel;
#[cfg(not(pontoon_loom))]
mod chooser;
#[cfg(not(pontoon_loom))]
mod comm;
#[cfg(not(pontoon_loom))]
mod double;
#[cfg(not(pontoon_loom))]
mod error;
#[cfg(not(pontoon_loom))]
mod fuse;
#[cfg(not(pontoon_loom))]
mod lane;
#[cfg(not(pontoon_loom))]
mod order;
#[cfg(not(pontoon_loom))]
mod port;
#[cfg(not(pontoon_loom))]
mod post;
#[cfg(not(pontoon_loom))]
mod proxy;
#[cfg(not(pontoon_loom))]
mod routes;
#[cfg(not(pontoon_loom))]
mod settings;
#[cfg(not(pontoon_loom))]
mod team;
#[cfg(not(pontoon_loom))]
mod ticket;
#[cfg(not(pontoon_loom))]
mod trigger;

pub use task::{Operation, Task};
#[cfg(not(pontoon_loom))]
pub use {
    chooser::Why,
    comm::{Comm, CommReport},
    double::{DoubleBuffer, Half},
    error::{CommError, SendError},
    order::{Strong, Vouches, Weak},
    port::{Batch, Mode, Port, Progress},
    settings::{Messages, Settings},
    team::{Member, Shape, Summed, Team},
    ticket::{Sent, Ticket},
    trigger::{Prepare, Trigger},
};
