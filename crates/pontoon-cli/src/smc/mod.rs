//! Memory of another process under plain loads and stores, to try it by hand: one process serves it, others read it,
//! change it and tell how it is reached.
//!
//! Each client is rank 1 of a job of two, of which the server is rank 0. Both meet at two barriers: at `READY` the
//! memory has its bytes, at `DONE` the client has all that it wanted. What a client released before the latter is the
//! server's.

mod bench;
mod cat;
mod client;
mod error;
mod fill;
mod memory;
mod place;
mod serve;
mod stat;
mod stop;

use std::time::Duration;

use clap::Subcommand;

pub(crate) use error::ToolError;

/// Tries memory of another process under plain loads and stores: serves it, reads it, changes it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Server and clients know each other by a token, in PONTOON_TOKEN or in the file that \
                        PONTOON_TOKEN_FILE names: `export PONTOON_TOKEN=$(openssl rand -hex 32)`."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Serve(serve::Options),
    Cat(cat::Options),
    Fill(fill::Options),
    Stat(stat::Options),
    Bench(bench::Options),
}

/// The name of the memory.
const MEMORY: &str = "memory";
/// Where the server puts how many bytes of it count.
const BYTES: &[u8] = b"smc/bytes";
/// The memory has its bytes.
const READY: &str = "smc/ready";
/// The client has all that it wanted.
const DONE: &str = "smc/done";
/// After how long a silence the other side is dead: it is stopped, or cut off. One whose process ends is noticed at
/// once. Both sides have to have the same.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// How long the two wait for each other where both have come that far.
const ROUND: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Options) -> Result<(), ToolError> {
    match &options.what {
        What::Serve(options) => serve::run(options),
        What::Cat(options) => cat::run(options),
        What::Fill(options) => fill::run(options),
        What::Stat(options) => stat::run(options),
        What::Bench(options) => bench::run(options),
    }
}
