//! The count of patterns under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_pattern_that_is_read_is_known_of
}
