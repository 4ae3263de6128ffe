//! The `pontoon` command.
#![forbid(unsafe_code)]

mod doctor;
mod duration;
mod figures;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

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
    /// Tells what this machine has, what each part is for and how to get what is missing.
    Doctor {
        /// Prints one JSON object a line.
        #[arg(long)]
        json: bool,
    },
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
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_bad_input() { BAD_INPUT } else { FAILED }),
        },
        Command::Doctor { json } => doctor::run(json).unwrap_or_else(|error| fail(&error, FAILED)),
    }
}

fn fail(error: &dyn std::error::Error, status: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(status)
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
    eprintln!("{} (see --help)", line.join(" "));
    ExitCode::from(BAD_INPUT)
}
