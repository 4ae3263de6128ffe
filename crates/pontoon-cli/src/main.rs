//! The `pontoon` command.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod doctor;
mod duration;
mod figures;
mod from;
mod train;
mod tune;

use std::{error::Error, io, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};

use bench::{BenchError, Which, process::PeerArgs};
use figures::{Format, Printer, closed_pipe_is_no_fault};

/// Lets code on different devices hand data to each other in the right order.
#[derive(Debug, Parser)]
#[command(name = "pontoon", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Options),
    /// Measures what handing data over costs, beside what it would cost otherwise.
    Bench {
        /// What to measure.
        #[arg(value_enum, default_value = "all")]
        which: Which,
        /// Prints one JSON object a line.
        #[arg(long)]
        json: bool,
        /// A third of the rounds.
        #[arg(long)]
        quick: bool,
    },
    Check(check::Options),
    /// Measures how long waits take here, and chooses bounds for them.
    Tune(tune::Args),
    /// Tells what this machine has, what each part is for and how to get what is missing.
    Doctor {
        /// Prints one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    #[command(name = bench::process::COMMAND, hide = true)]
    BenchPeer(PeerArgs),
}

/// The user asked for something impossible.
const BAD_INPUT: u8 = 2;
/// What was asked for did not work out.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match cli.command {
        Command::Train(options) => match train::run(&options) {
            Err(error) if error.is_bad_input() => fail(&error, BAD_INPUT),
            other => exit(other),
        },
        Command::Bench { which, json, quick } => {
            let format = if json { Format::Json } else { Format::Table };
            let mut printer = Printer::new(io::stdout().lock(), format);
            match bench::run(which, &bench::Options { quick }, &mut printer) {
                Err(BenchError::Output(error)) => exit(closed_pipe_is_no_fault(Err(error))),
                other => exit(other),
            }
        }
        Command::Check(options) => {
            let mut status = ExitCode::SUCCESS;
            let result = check::run(&options, &mut io::stdout().lock()).map(|it| status = it);
            match closed_pipe_is_no_fault(result) {
                Ok(()) => status,
                error => exit(error),
            }
        }
        Command::Tune(args) => exit(tune::run(&args, &mut io::stdout().lock())),
        Command::Doctor { json } => doctor::run(json).unwrap_or_else(|error| fail(&error, FAILED)),
        Command::BenchPeer(args) => exit(bench::process::peer(&args)),
    }
}

fn exit<E: Error>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, FAILED),
    }
}

fn fail(error: &dyn Error, status: u8) -> ExitCode {
    eprintln!("error: {}", on_one_line(&error.to_string()));
    ExitCode::from(status)
}

/// Names of files may hold anything; a message is one line and moves no cursor.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Help goes out as it is; a mistake becomes one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A closed pipe is the reader's choice.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { BAD_INPUT } else { 0 });
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or("error: bad arguments");
    let line: Vec<_> = what.split_whitespace().collect();
    eprintln!("{} (see --help)", on_one_line(&line.join(" ")));
    ExitCode::from(BAD_INPUT)
}
