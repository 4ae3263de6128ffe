//! In-order streams and fences over any backend.
#![forbid(unsafe_code)]
