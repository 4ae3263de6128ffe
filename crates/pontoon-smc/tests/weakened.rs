//! Every ordering of the crate is needed by one of its loom models.
#![cfg(all(pontoon_loom, pontoon_weaken))]

mod models;
#[path = "../../pontoon-signal/tests/harness/weaken.rs"]
mod weaken;
