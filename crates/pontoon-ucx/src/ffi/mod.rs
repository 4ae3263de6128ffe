//! libucp as its headers declare it: what is used, and no more.
//!
//! Checked in, so that neither a build nor a program needs the headers; `tests/layout.rs` compares
//! them with the headers where there are some. Every structure that UCX may grow begins with a
//! mask of the fields that are set, so those of 1.13 serve all later versions.
#![allow(missing_docs, reason = "names and meanings are those of ucp.h")]

mod api;
mod constants;
mod structs;

pub use api::Api;
pub use constants::*;
pub use structs::*;
