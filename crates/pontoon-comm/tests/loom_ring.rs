//! The ring under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_task_brings_what_was_written_before_it
    a_wide_task_is_whole
    a_slot_is_written_after_it_was_read
    what_one_producer_learned_holds_for_another
    two_producers_share_a_ring
    a_push_that_meets_a_close_is_whole
    a_consumer_that_ends_in_a_batch_gives_no_credit
}
