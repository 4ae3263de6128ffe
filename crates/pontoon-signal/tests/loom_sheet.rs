//! Sheets under loom.
#![cfg(pontoon_loom)]

#[macro_use]
mod models;

models! {
    a_sheet_is_read_whole
    a_sheet_has_its_stamp
    two_writers_leave_a_whole_sheet
    an_entry_goes_on_from_its_last_stamp
    two_uses_of_an_entry_are_never_mixed
}
