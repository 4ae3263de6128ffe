//! The table of windows and the notes of first writes, under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    what_is_found_was_put_in_whole
    what_is_read_is_not_taken_out
    a_place_is_empty_before_it_is_taken_again
    a_page_is_protected_after_it_was_opened
    a_write_that_is_not_told_yet_is_noted
}
