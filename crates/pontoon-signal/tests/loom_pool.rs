//! Pools of lines under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_lease_hands_over_to_its_waiter
    a_lease_hands_over_to_the_next_user
    two_that_complete_race_with_a_take
    a_line_comes_back_under_a_push
    a_dropped_lease_fails_its_waiter
    a_failed_lease_shows_its_fault
    a_pool_dropped_amid_completion
}
