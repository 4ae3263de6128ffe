//! Claiming, joining and leaving a line under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_successor_goes_on
    a_successor_of_the_dead_is_open
    who_joins_finds_the_line_open
    who_joins_keeps_the_ending
    the_last_to_leave_ends_after_all_adds
    one_of_two_claims
    an_eviction_frees_for_a_successor
    an_eviction_leaves_a_successor_alone
}
