//! Faults served in the threads that make them.

mod context;
mod handler;
mod hook;
mod previous;
mod stack;

#[cfg(target_arch = "x86_64")]
pub(crate) use context::Delivered;
pub use handler::{Attached, WINDOWS_MAX, attach, check, reinstall};
#[cfg(target_arch = "x86_64")]
pub(crate) use hook::Hook;
pub use hook::Installed;
pub use stack::{AlternateStack, on_this_thread};
