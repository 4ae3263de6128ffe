//! One line under loom: handing over, adding, ending, tracing.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    raw_memory_is_handed_over
    a_later_publish_hands_over_the_earlier
    a_payload_is_handed_over
    a_proof_too_good_reads_nothing_half_written
    two_that_add_hand_over_both
    a_fault_is_recorded_before_the_abort
    a_publish_before_death_is_reached
    the_first_ending_stays
    a_record_is_whole
    a_traced_publish_has_its_time
}
