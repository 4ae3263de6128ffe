//! Two ranks of a measurement: two processes of one job, which do steps that this program tells.
//!
//! `pair.rs` is their other end here, `rank.rs` what the two processes are, `talk.rs` how rank 0 tells
//! rank 1 of a step. What a step does is the measurement's: each has a [`Half`] of its own.

pub(crate) mod pair;
pub(crate) mod rank;
pub(super) mod talk;

use pontoon::{job::Env, signal::SignalTable};

use super::BenchError;

/// Whose ranks they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// Those of `bench link`
    Link,
    /// Those of `bench initiate`, where rank 1 spins
    Initiate,
    /// The same where rank 1 sleeps, so that the proxy may have its CPU
    Stream,
    /// Those of `bench smc`
    Smc,
}

impl What {
    /// As the hidden commands take it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Initiate => "initiate",
            Self::Stream => "stream",
            Self::Smc => "smc",
        }
    }
}

/// Where a rank is to take its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'t> {
    /// What the two tell each other by, and lines of their own.
    pub(super) table: &'t SignalTable,
    pub(super) env: &'t Env,
    /// Whether it goes by UCX.
    pub(super) ucx: bool,
    /// Where the rank's proxy is to be.
    pub(super) proxy: usize,
    /// Where the thread is to be that launches kernels and waits for them.
    pub(super) host: usize,
}

/// One rank's half of a measurement. Steps are words.
pub(super) trait Half: Sized {
    /// Joins the job; the inner error says what is missing here to reach the other rank.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    fn join(seat: Seat<'_>) -> Result<Result<Self, String>, BenchError>;

    /// Does a step as rank 0. Gives what it measured: nanoseconds, or what the step says.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    fn lead(&mut self, word: u64) -> Result<f64, BenchError>;

    /// Does the next step as rank 1. Whether there is to be another.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    fn follow(&mut self) -> Result<bool, BenchError>;

    /// The step after which both leave.
    fn end() -> u64;

    /// Leaves the job in good order.
    ///
    /// # Errors
    ///
    /// [`BenchError::World`].
    fn leave(self) -> Result<(), BenchError>;
}
