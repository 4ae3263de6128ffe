//! Sleeping and waking under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_sleeper_is_woken
    a_sleeper_outlasts_an_early_wake
    two_that_add_wake_one
    one_publish_wakes_two
    an_ending_wakes
    a_death_wakes
    all_asleep_are_woken
    any_asleep_is_woken
}
