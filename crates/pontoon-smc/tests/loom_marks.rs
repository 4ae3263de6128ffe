//! The marks under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_store_that_was_found_while_another_sends_is_sent
}
