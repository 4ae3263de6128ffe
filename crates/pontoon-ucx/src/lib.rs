//! Memory and messages between hosts, by UCX.
//!
//! libucp is opened at run time: a build needs nothing of it, and where it is absent
//! [`Library::open`] says so by the name of the package. Over it lies a small engine of one worker
//! a process: registered memory, endpoints that notice a peer's death, one-sided access, messages
//! that a handler applies. Every wait has a bound, and the memory of a transfer that did not end
//! within it is kept until its endpoint is gone.
//!
//! Read in this order: [`Library`] (what is opened, and how), [`Context`] and [`Region`],
//! [`Worker`] (who calls UCX, and when), [`Endpoint`] and [`Operation`], [`Handler`]. Over all of
//! that lies [`UcxLink`].
//! `docs/design/ucx.md` has the figures that decided how data and signals are sent.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use pontoon_signal::{Bound, SharedMap};
//! use pontoon_ucx::{Context, Library, OpenError, Options};
//!
//! let library = match Library::open() {
//!     Ok(library) => library,
//!     // Without UCX the rest of the program goes on.
//!     Err(absent @ OpenError::LibraryAbsent { .. }) => return Ok(println!("skipped: {absent}")),
//!     Err(other) => return Err(other.into()),
//! };
//! let context = Context::open(library, Options::default().transports("tcp").devices("lo"))?;
//! let (worker, bound) = (context.worker()?, Bound::within(Duration::from_secs(5)));
//! let region = context.map(Arc::new(SharedMap::create("doc", 4096)?))?;
//! // Address and key would go to another process; here the peer is this one.
//! let endpoint = worker.connect("rank 0", &worker.address()?)?;
//! let remote = endpoint.remote(&region.key()?)?;
//! remote.put_copy(100, b"hello")?.wait(bound)?;
//! endpoint.flush()?.wait(bound)?;
//! let mut bytes = [0; 5];
//! region.read(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! endpoint.close(bound)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here may be called from a signal handler or while a page fault is served: UCX takes
//! locks, allocates, and has crashed when its link went away (openucx/ucx#11467).
#![deny(unsafe_code)] // opened again, file by file, with a reason

mod context;
mod endpoint;
mod engine;
mod envelope;
mod environment;
mod error;
#[doc(hidden)]
#[allow(unsafe_code)] // declarations of a C library, and the calls that find its functions
pub mod ffi;
#[cfg(any(test, pontoon_fuzz))]
#[doc(hidden)]
pub mod fuzz;
mod later;
mod library;
mod limit;
mod link;
mod mapped;
mod message;
mod operation;
mod options;
mod patience;
mod region;
mod remote;
mod signals;
mod status;
mod thread;
mod worker;

pub use context::Context;
pub use endpoint::{Endpoint, PeerState};
pub use envelope::EnvelopeError;
pub use error::{OperationError, OutOfRange, SetupError};
pub use library::{Library, OpenError, Version};
pub use link::{LinkSetupError, UcxLink};
pub use mapped::Mapped;
pub use message::{Body, Handler, Manner, Place};
pub use operation::{Operation, Swap};
pub use options::{Asked, Options};
pub use region::{Backing, Region};
pub use remote::Remote;
pub use status::Status;
pub use worker::{Worker, WorkerReport};
