//! The `pontoon` command.
#![forbid(unsafe_code)]

mod advise;
mod bench;
mod check;
mod counted;
mod doctor;
mod duration;
mod figures;
mod from;
mod input;
mod launch;
mod limit;
mod number;
mod size;
mod smc;
mod stdout;
mod train;
mod tune;
mod voice;

use std::{
    env,
    error::Error,
    fmt,
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use rustix::process::{Resource, Signal, getrlimit};

use bench::{BenchError, Which, process::PeerArgs};
use figures::{Format, Printer, closed_pipe_is_no_fault};
use stdout::stdout;

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
    Doctor(doctor::Options),
    Launch(launch::Options),
    Smc(smc::Options),
    Advise(advise::Options),
    #[command(name = bench::process::COMMAND, hide = true)]
    BenchPeer(PeerArgs),
    #[command(name = bench::ranks::rank::COMMAND, hide = true)]
    BenchRank(bench::ranks::rank::RankArgs),
    #[command(name = doctor::topology::pair::COMMAND, hide = true)]
    DoctorRank(doctor::topology::pair::FirstArgs),
    #[command(name = launch::agent::COMMAND, hide = true)]
    LaunchAgent(launch::agent::AgentArgs),
    #[command(name = launch::rank::COMMAND, hide = true)]
    LaunchRank(launch::rank::RankArgs),
}

/// The user asked for something impossible.
const BAD_INPUT: u8 = 2;
/// What was asked for did not work out.
const FAILED: u8 = 1;

/// What the main thread needs at least, of the stack that the shell gives it. Unoptimized it overflows
/// below 384 KiB.
const STACK_MIN: u64 = 512 << 10;

fn main() -> ExitCode {
    // Beyond a stack is no error that could be told.
    if let Some(stack) = getrlimit(Resource::Stack).current.filter(|stack| *stack < STACK_MIN) {
        let (stack, least) = (stack >> 10, STACK_MIN >> 10);
        voice::say(&format!(
            "error: the stack may have {stack} KiB, and {least} KiB are needed: raise `ulimit -s`"
        ));
        return ExitCode::from(BAD_INPUT);
    }
    // A file that is longer than it may be is then an error of the write, as a closed pipe is. A program
    // that a rank becomes has the signal as it was.
    if let Err(error) = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default()) {
        voice::say(&format!("error: cannot handle signals: {error}"));
        return ExitCode::from(FAILED);
    }
    let cli = match command().try_get_matches().and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    // A rank's program has the descriptors as they are.
    if !matches!(cli.command, Command::LaunchRank(_))
        && let Err(error) = stdout::keep()
    {
        voice::say(&format!("error: cannot keep the standard output: {error}"));
        return ExitCode::from(FAILED);
    }
    match cli.command {
        Command::Train(options) => match train::run(&options) {
            Ok(status) => ExitCode::from(status),
            Err(error) if error.is_silent() => ExitCode::from(error.status()),
            Err(error) => fail(&error.told(), error.status()),
        },
        Command::Bench { which, json, quick } => {
            let format = if json { Format::Json } else { Format::Table };
            let mut printer = Printer::new(stdout(), format);
            match bench::run(which, &bench::Options { quick }, &mut printer) {
                Err(BenchError::Output(error)) => {
                    bench_ended(closed_pipe_is_no_fault(Err(error)).map_err(BenchError::Output))
                }
                other => bench_ended(other),
            }
        }
        Command::Check(options) => {
            let mut status = ExitCode::SUCCESS;
            let result = check::run(&options, &mut stdout()).map(|it| status = it);
            match closed_pipe_is_no_fault(result) {
                Ok(()) => status,
                error => exit(error),
            }
        }
        Command::Tune(args) => match tune::run(&args, &mut stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, error.status()),
        },
        Command::Doctor(options) => match doctor::run(&options) {
            Ok(code) => code,
            Err(error) => fail(&error, error.status()),
        },
        Command::Launch(options) => match launch::run(&options) {
            Ok(status) => ExitCode::from(status),
            Err(error) if error.is_silent() => ExitCode::from(error.status()),
            Err(error) => fail(&error, error.status()),
        },
        Command::Advise(options) => match advise::run(&options, &mut stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, error.status()),
        },
        Command::Smc(options) => match smc::run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, error.status()),
        },
        Command::BenchPeer(args) => bench_ended(bench::process::peer(&args)),
        Command::BenchRank(args) => bench_ended(bench::ranks::rank::first(&args)),
        Command::DoctorRank(args) => bench_ended(doctor::topology::pair::first(&args)),
        Command::LaunchAgent(args) => exit(launch::agent::run(args)),
        Command::LaunchRank(args) => {
            launch::rank::become_rank(&args);
            ExitCode::from(FAILED)
        }
    }
}

/// The command line. A negative number after an option is its value, which is refused with what it may be.
fn command() -> clap::Command {
    fn takes_negative(command: clap::Command) -> clap::Command {
        let is_option = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
        command
            .mut_args(|arg| if is_option(&arg) { arg.allow_negative_numbers(true) } else { arg })
            .mut_subcommands(takes_negative)
    }
    takes_negative(Cli::command())
}

fn exit<E: Error>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, FAILED),
    }
}

fn bench_ended(result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, error.status()),
    }
}

fn fail(error: &dyn fmt::Display, status: u8) -> ExitCode {
    voice::say(&format!("error: {error}"));
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
        let printed = error.print().and_then(|()| io::stdout().flush());
        return match closed_pipe_is_no_fault(printed) {
            Ok(()) => ExitCode::from(if error.use_stderr() { BAD_INPUT } else { 0 }),
            Err(error) => {
                voice::say(&format!("error: cannot write the help: {error}"));
                ExitCode::from(FAILED)
            }
        };
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or("error: bad arguments");
    let line: Vec<_> = what.split_whitespace().map(voice::shortened).collect();
    let line = match line.join(" ") {
        // Its names for what is missing leave out the ways that are not options of this command.
        line if line.contains(train::WITHOUT_RANKS) => {
            format!("error: {}", train::ways_to_ranks(env::args_os()))
        }
        line => line,
    };
    voice::say(&format!("{line} (see --help)"));
    ExitCode::from(BAD_INPUT)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    /// Calls `look` with the names that lead to each command.
    fn each_command(
        command: &clap::Command,
        path: &[String],
        look: &mut impl FnMut(&[String], &clap::Command),
    ) {
        look(path, command);
        for below in command.get_subcommands() {
            let path = [path, &[below.get_name().to_owned()]].concat();
            each_command(below, &path, look);
        }
    }

    #[test]
    fn a_negative_number_is_the_value_of_its_option_and_is_refused_as_such() {
        let mut tried = 0;
        each_command(&command(), &["pontoon".to_owned()], &mut |path, at| {
            for arg in at.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let Some(name) = arg.get_long() else { continue };
                let option = format!("--{name}");
                let words = path.iter().cloned().chain([option.clone(), "-1".to_owned()]);
                let Err(error) = command().try_get_matches_from(words) else { continue };
                let text = error.to_string();
                assert!(!text.contains("unexpected argument"), "{path:?} {option}: {text}");
                assert!(!text.contains("a value is required"), "{path:?} {option}: {text}");
                tried += 1;
            }
        });
        assert!(tried > 30, "{tried} options");
        for (words, range) in [
            (["train", "--devices", "-1"], "-1 is not in 1..=64"),
            (["train", "--seed", "-1"], "expected a whole number from 0 to 18446744073709551615"),
            (["launch", "-n", "-1"], "-1 is not in 1..="),
            (["advise", "--times", "-1"], "expected a whole number from 1 to"),
        ] {
            let error = command().try_get_matches_from([&["pontoon"], &words[..]].concat());
            let text = error.expect_err("negative").to_string();
            assert!(text.contains(range), "{words:?}: {text}");
        }
    }

    #[test]
    fn an_option_without_ranks_is_named() {
        let words = ["pontoon", "train", "--params=smc"].map(OsString::from);
        assert!(
            train::ways_to_ranks(words.into_iter()).starts_with("--params is for several ranks")
        );
        let words = ["pontoon", "train", "--lost-after", "2s"].map(OsString::from);
        assert!(train::ways_to_ranks(words.into_iter()).starts_with("--lost-after is for"));
    }
}
