//! CPU threads as a device.
//!
//! A device is a set of threads, its compute units, and a copy engine. Kernels are Rust closures
//! that get typed views of the accesses their command declared and nothing else. Regions are
//! shared memory. A queue is a [`DoubleBuffer`](pontoon_signal::DoubleBuffer) of commands, its
//! completions are a signal, and an idle unit sleeps on the signals of all queues at once: the only
//! atomic of this crate's own counts the units that are awake, and orders nothing.
//!
//! ```
//! use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
//! use pontoon_hal::{Access, Command, Device, Engine, Memory, Queue};
//! use pontoon_signal::{Bound, Rank};
//!
//! let device = CpuDevice::open(Rank(0), CpuSpec::default())?;
//! let region = device.allocate(4096)?;
//! let mut queue = device.open_queue(Engine::Compute, "main")?;
//! let kernel = Kernel::new(|context| context.write::<u32>(0).fill(7));
//! let done = queue.submit(Command::Launch {
//!     label: "fill",
//!     kernel,
//!     accesses: [Access::write(&region, 0..16)].into_iter().collect(),
//!     arguments: Default::default(),
//! })?;
//! queue.completions().waiter().wait_ge_bounded(done, Bound::default())?.acq_fence();
//! let mut bytes = [0; 4];
//! region.host_read(12, &mut bytes)?;
//! assert_eq!(u32::from_ne_bytes(bytes), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)] // opened again in `memory`, with a reason

mod device;
mod execute;
mod held;
mod kernel;
mod lane;
mod memory;
mod meter;
mod queue;
mod rest;
mod shared;
mod spans;
mod taken;
mod unit;
mod wait_log;

pub use device::{CpuDevice, CpuSpec, OpenDeviceError};
pub use kernel::{Context, Kernel};
pub use memory::Region;
pub use queue::CpuQueue;
pub use spans::{Span, SpanKind, Spans};
pub use wait_log::WaitLog;
