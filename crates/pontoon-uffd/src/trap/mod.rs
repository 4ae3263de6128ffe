//! Stores to guarded pages: each is trapped, and made by somebody else.
//!
//! The pages are mapped to be read only, so a store raises SIGSEGV. The handler decodes its instruction, has a
//! [`Storer`] make it, and lets the thread go on behind it with the registers that the processor would have left. What
//! it does not know for certain it does not make: the store is refused, a line says so, and the signal is whoever's it
//! was before.

mod decode;
mod flags;
mod handler;
mod memory;
mod registers;
mod strings;
mod tell;

pub(crate) use handler::guard;
pub use handler::{check_stores, reinstall_stores};
