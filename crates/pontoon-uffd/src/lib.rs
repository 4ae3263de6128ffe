//! Windows of addresses whose pages come when they are touched: userfaultfd, and what goes with it.
//!
//! A [`Window`] is a range of addresses with nothing behind it. A plain load or store of an absent page is a
//! fault, which a [`Pager`] serves: in the thread that made it ([`attach`]), or by threads of a [`Server`].
//! [`Window::alias`] is one whose pages are in shared memory already, and mapped without a copy.
//! First writes to pages are noted, and [`Window::scan`] tells which. [`Paged`] is all that as the hardware
//! layer's `paging` promises it. What the kernel has is [asked](Features::probe) and never assumed, and each thing that it lacks has a slower way, or a sentence.
//!
//! **No user of this crate needs `unsafe`**, and none can break memory by it. A window gives no reference to
//! plain bytes, only to atomics, which anybody may change at any time, the kernel among them; and a raw
//! pointer, for code that uses plain loads and stores and answers for them. Whatever is done to pages, an access
//! to a window reads and writes that window alone, or ends in a signal.
//!
//! Read in this order: [`Features`]; [`Window`], [`Placed`], [`Window::scan`]; [`Pager`], which says what code
//! in a signal handler must keep to; [`attach`] and [`Server`]; [`Paged`].
//! `docs/design/uffd.md` has the reasons, and the traps.
//!
//! ```
//! use std::sync::Arc;
//! use pontoon_signal::shim::Ordering::Relaxed;
//! use pontoon_uffd::{Fault, Features, Pattern, ReserveError, Run, Served, Service, Window, attach};
//!
//! let features = Features::probe();
//! let window = match Window::reserve(&features, 1 << 40, Service::InThread) {
//!     Ok(window) => Arc::new(window), // a terabyte, of which no page is there
//!     // Without userfaultfd the rest of the program goes on.
//!     Err(absent @ ReserveError::Unavailable(_)) => return Ok(println!("skipped: {absent}")),
//!     Err(other) => return Err(other.into()),
//! };
//! // In the thread that faults: no allocation and no lock. The page comes from somewhere.
//! let (pages, sevens) = (Arc::clone(&window), Pattern::new(7));
//! let pager = move |fault: Fault| match pages.fill(fault.page..fault.page + 1, &sevens, true) {
//!     Ok(_) => Served::Again, // put in, or already there
//!     Err(_) => Served::NotMine,
//! };
//! let attached = attach(&window, Arc::new(pager))?;
//!
//! let far = window.words(1_000_000..1_000_001).expect("within");
//! assert_eq!(far[3].load(Relaxed), 7); // a fault, served
//! far[3].store(8, Relaxed); // the first write, noted
//!
//! let mut found = [Run::default(); 8];
//! let scanned = window.scan(1_000_000..1_000_010, &mut found)?;
//! assert_eq!((scanned.runs, found[0].pages()), (1, 1_000_000..1_000_001));
//! # drop(attached);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)] // opened again, file by file, with a reason

#[cfg(not(pontoon_loom))]
#[doc(hidden)]
#[allow(missing_docs, reason = "the kernel's own names, for the test that compares them")]
pub mod abi;
mod bits;
#[cfg(not(pontoon_loom))]
mod descriptor;
#[cfg(not(pontoon_loom))]
mod error;
#[cfg(not(pontoon_loom))]
mod fault;
#[cfg(not(pontoon_loom))]
mod features;
#[doc(hidden)]
pub mod noted;
#[cfg(not(pontoon_loom))]
mod paged;
#[cfg(not(pontoon_loom))]
mod process;
#[cfg(not(pontoon_loom))]
mod reserved;
#[cfg(not(pontoon_loom))]
mod server;
#[cfg(not(pontoon_loom))]
mod service;
#[cfg(not(pontoon_loom))]
mod shelves;
#[cfg(not(pontoon_loom))]
mod source;
#[doc(hidden)]
pub mod table;
#[cfg(all(not(pontoon_loom), target_arch = "x86_64"))]
mod trap;
#[cfg(not(pontoon_loom))]
mod window;

#[cfg(not(pontoon_loom))]
pub use error::{PageError, ReserveError, ServeError};
#[cfg(not(pontoon_loom))]
pub use fault::{Fault, Pager, Served};
#[cfg(not(pontoon_loom))]
pub use features::{Feature, Features};
#[cfg(not(pontoon_loom))]
pub use paged::{Paged, Serving};
#[cfg(not(pontoon_loom))]
pub use server::Server;
#[cfg(not(pontoon_loom))]
pub use service::{
    AlternateStack, Attached, Installed, WINDOWS_MAX, attach, check, on_this_thread, reinstall,
};
#[cfg(not(pontoon_loom))]
pub use source::{Pattern, Source};
#[cfg(all(not(pontoon_loom), target_arch = "x86_64"))]
pub use trap::{check_stores, reinstall_stores};
#[cfg(not(pontoon_loom))]
pub use window::{Placed, Run, Scanned, Service, Shelf, Window};
