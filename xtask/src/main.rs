//! pontoon's own checks, for the people who work on it: `cargo run -p xtask -- <command>`.
//!
//! Each check prints what it looked at, and looking at nothing is a failure: a check that sees
//! nothing proves nothing.
#![forbid(unsafe_code)]

mod count;
mod layers;
mod parts;
mod report;
mod source;
mod sync;
mod unsafety;
mod workspace;

use report::Report;
use std::{env, process::ExitCode};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo run -p xtask -- <command>

  layers               dependency arrows between crates point downwards
  sync                 every strong ordering is a named pair that a loom test knows
  unsafety             every crate root carries its layer's unsafe_code lint
  count KIND=LOG...    what the logged test runs ran; a required kind that ran nothing fails
                       (KIND: workspace, loom or weakened), and so does a part of the machine
                       that PONTOON_REQUIRE names and tests skipped for";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let report = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["layers"] => Workspace::load().map(|workspace| layers::check(&workspace)),
        ["sync"] => Workspace::load().and_then(|workspace| sync::check(&workspace.root)),
        ["unsafety"] => Workspace::load().and_then(|workspace| unsafety::check(&workspace)),
        ["count", logs @ ..] if !logs.is_empty() => count::check(logs),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    report.unwrap_or_else(Report::refusal).print(&args[0])
}
