//! Groups, barriers and buffers under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    wait_all_hands_over_both
    wait_any_hands_over_its_one
    wait_quorum_asleep_hands_over_who_came
    wait_settled_asleep_misses_neither_line
    wait_settled_asleep_learns_of_an_end
    a_barrier_hands_over_both_ways
    buffers_go_round
    buffers_go_round_asleep
    buffers_seen_to_be_free_are_filled
    a_stage_hands_on
}
