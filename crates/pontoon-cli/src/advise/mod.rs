//! `pontoon advise`: by which way a program should reach its memory, from what it does with it and what each way
//! costs here.
//!
//! `costs.rs` measures the ways between two processes of this machine, `choice.rs` weighs them, `report.rs` says so.

mod choice;
mod costs;
mod report;

use std::{error, fmt, io};

use clap::ValueEnum;

use crate::{
    bench::BenchError,
    figures::closed_pipe_is_no_fault,
    number::{whole, within},
    size,
};
use choice::{Choice, Use};
use costs::Costs;

/// Says by which way a program should reach memory: unified addressing, plain remote access, or the memory client.
/// Measures what each costs here, for some seconds.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Bytes of the memory that are in use, for example 256M
    #[arg(long, value_parser = size::bytes, default_value = "64M")]
    bytes: usize,
    /// Bytes that are touched at a time
    #[arg(long, value_parser = size::bytes, default_value = "64")]
    touch: usize,
    /// How often a byte is touched before others may have changed it
    #[arg(long, default_value_t = 1, value_parser = |text: &str| whole(text, 1))]
    times: u64,
    /// In which order
    #[arg(long, value_enum, default_value_t = Order::Random)]
    order: Order,
    /// Whether what is touched is changed too
    #[arg(long)]
    writes: bool,
    /// Who touches it
    #[arg(long, value_enum, default_value_t = Toucher::Cpu)]
    by: Toucher,
    /// How many hosts the program runs on
    #[arg(long, default_value_t = 2, value_parser = within(1..=u32::MAX))]
    hosts: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// In which order memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    Random,
    Sequential,
}

/// Whose instructions touch the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Toucher {
    Cpu,
    Accelerator,
    /// CPUs and accelerators
    Both,
}

/// Why there is no advice.
#[derive(Debug)]
pub(crate) enum AdviseError {
    /// An option makes no sense.
    Option(&'static str),
    Measure(BenchError),
    Output(io::Error),
}

impl AdviseError {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Option(_) => crate::BAD_INPUT,
            Self::Measure(error) => error.status(),
            Self::Output(_) => crate::FAILED,
        }
    }
}

impl fmt::Display for AdviseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(why) => f.write_str(why),
            Self::Measure(error) => error.fmt(f),
            Self::Output(error) => write!(f, "the advice could not be written: {error}"),
        }
    }
}

impl error::Error for AdviseError {}

impl From<BenchError> for AdviseError {
    fn from(error: BenchError) -> Self {
        Self::Measure(error)
    }
}

/// Measures, weighs and says.
///
/// # Errors
///
/// See [`AdviseError`].
pub(crate) fn run(options: &Options, out: &mut impl io::Write) -> Result<(), AdviseError> {
    let of = options.in_use()?;
    let costs = Costs::measure(options.hosts > 1)?;
    let choice = Choice::of(&of, costs.as_ref().ok());
    let said = if options.json {
        report::json(&of, &costs, &choice, out)
    } else {
        report::text(&of, &costs, &choice, out)
    };
    closed_pipe_is_no_fault(said).map_err(AdviseError::Output)
}

impl Options {
    fn in_use(&self) -> Result<Use, AdviseError> {
        if self.touch == 0 || self.bytes == 0 {
            return Err(AdviseError::Option("--bytes and --touch have to be at least 1"));
        }
        if self.touch > self.bytes {
            return Err(AdviseError::Option("--touch cannot be more than all --bytes"));
        }
        let Self { bytes, touch, times, order, writes, by, hosts, .. } = *self;
        Ok(Use { bytes, touch, times, order, writes, by, hosts })
    }
}
