//! The `pontoon` command.
#![forbid(unsafe_code)]

mod doctor;
mod figures;
mod train;

fn main() {}
