//! Fences between words under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_fence_keeps_a_write_behind_a_write
    of_two_that_fence_one_sees_the_other
}
