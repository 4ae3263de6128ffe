//! The table under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_page_is_claimed_once
    a_slot_that_is_free_again_is_done_with
    the_free_slots_are_a_list
    who_holds_a_slot_sees_what_the_last_did
}
