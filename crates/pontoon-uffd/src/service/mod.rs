//! Faults served in the threads that make them.

mod context;
mod handler;
mod previous;
mod stack;

pub use handler::{Attached, Installed, WINDOWS_MAX, attach, check, reinstall};
pub use stack::{AlternateStack, on_this_thread};
