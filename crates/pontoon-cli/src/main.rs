//! The `pontoon` command.
#![forbid(unsafe_code)]

mod bench;
mod doctor;
mod figures;
mod train;
mod tune;

use std::{fmt::Display, io, process::ExitCode};

use clap::Parser;

use bench::{BenchError, Which, process::PeerArgs};
use figures::{Format, Printer, closed_pipe_is_no_fault};

#[derive(Debug, Parser)]
#[command(version, about)]
enum Command {
    /// Measure what handing data over costs
    Bench {
        #[arg(value_enum, default_value = "all")]
        which: Which,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// A third of the rounds
        #[arg(long)]
        quick: bool,
    },
    /// Measure how long waits take here, and choose bounds for them
    Tune(tune::Args),
    #[command(name = bench::process::COMMAND, hide = true)]
    BenchPeer(PeerArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Bench { which, json, quick } => {
            let format = if json { Format::Json } else { Format::Table };
            let mut printer = Printer::new(io::stdout().lock(), format);
            match bench::run(which, &bench::Options { quick }, &mut printer) {
                Err(BenchError::Output(error)) => exit(closed_pipe_is_no_fault(Err(error))),
                other => exit(other),
            }
        }
        Command::Tune(args) => exit(tune::run(&args, &mut io::stdout().lock())),
        Command::BenchPeer(args) => exit(bench::process::peer(&args)),
    }
}

fn exit<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pontoon: {error}");
            ExitCode::FAILURE
        }
    }
}
