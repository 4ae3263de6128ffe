//! Memory of other ranks under plain loads and stores.
//!
//! A [`Window`] is a range of addresses whose bytes are at other ranks, their [`Home`]s. A [`Pool`] keeps the pages that
//! are here; its memory is registered with a link once. A page comes when it is touched, is used like any memory,
//! and what was changed in it goes home, byte for byte, with [`release`](Window::release).
//!
//! No access waits for longer than a deadline: where a home does not answer it reads a pattern that is never sent
//! back, and [`check`](Window::check) says so.
//!
//! Where each store has to be at home at once there is a [`Cell`] for code that knows of it, and
//! [`write_through`](Window::write_through) for code that does not.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod ever;
#[doc(hidden)]
pub mod marks;
#[doc(hidden)]
pub mod table;

#[cfg(not(pontoon_loom))]
mod access;
#[cfg(not(pontoon_loom))]
mod acquire;
#[cfg(not(pontoon_loom))]
mod bits;
#[cfg(not(pontoon_loom))]
mod bytes;
#[cfg(not(pontoon_loom))]
mod cell;
#[cfg(not(pontoon_loom))]
mod clock;
#[cfg(not(pontoon_loom))]
mod close;
#[cfg(not(pontoon_loom))]
mod counts;
#[cfg(not(pontoon_loom))]
mod direct;
#[cfg(not(pontoon_loom))]
mod error;
#[cfg(not(pontoon_loom))]
mod evict;
#[cfg(not(pontoon_loom))]
mod export;
#[cfg(not(pontoon_loom))]
mod extent;
#[cfg(not(pontoon_loom))]
mod fetch;
#[cfg(not(pontoon_loom))]
mod hold;
#[cfg(not(pontoon_loom))]
mod home;
#[cfg(not(pontoon_loom))]
mod keeper;
#[cfg(not(pontoon_loom))]
mod mailbox;
#[cfg(not(pontoon_loom))]
mod origin;
#[cfg(not(pontoon_loom))]
mod owed;
#[cfg(not(pontoon_loom))]
mod pane;
#[cfg(not(pontoon_loom))]
mod panes;
#[cfg(not(pontoon_loom))]
mod poison;
#[cfg(not(pontoon_loom))]
mod pool;
#[cfg(not(pontoon_loom))]
mod publish;
#[cfg(not(pontoon_loom))]
mod release;
#[cfg(not(pontoon_loom))]
mod settings;
#[cfg(not(pontoon_loom))]
mod slice;
#[cfg(not(pontoon_loom))]
mod stages;
#[cfg(not(pontoon_loom))]
mod stores;
#[cfg(not(pontoon_loom))]
mod stream;
#[cfg(not(pontoon_loom))]
mod through;
#[cfg(not(pontoon_loom))]
mod trigger;
#[cfg(not(pontoon_loom))]
mod turns;
#[cfg(not(pontoon_loom))]
mod typed;
#[cfg(not(pontoon_loom))]
mod value;
#[cfg(not(pontoon_loom))]
mod window;

#[cfg(not(pontoon_loom))]
pub use {
    acquire::AcquireReport,
    counts::Statistics,
    error::{OpenError, SmcError},
    export::Export,
    extent::{Class, Extent},
    home::{Home, Layout},
    pool::Pool,
    release::Released,
    settings::{Settings, Triggers},
    slice::Slice,
    through::{Arrival, Through},
    typed::Cell,
    value::{Integer, Value},
    window::Window,
};
