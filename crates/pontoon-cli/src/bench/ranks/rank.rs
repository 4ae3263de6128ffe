//! The two ranks of a measurement: two processes of one job, each on a CPU of its own. What they
//! measure may be another's: [`pair`] is what all have in common.
//!
//! Rank 0 is told the steps by the program that measures, a line of words at a time, and answers
//! with a line of figures. It starts rank 1, and tells it each step over a signal table of their own,
//! on whose bare words the rival runs as well.

use std::{
    io::{self, BufRead, Write},
    net::{Ipv4Addr, TcpListener},
};

use pontoon::{
    Rank,
    job::{Env, Token},
    signal::{SignalTable, SlotId, TableShape, shim::Ordering::Relaxed},
    world::WorldError,
};

use super::{Half, Seat, What};
use crate::bench::{
    BenchError, initiate, link,
    process::{Peer, Task, begin},
    smc,
};
use crate::stdout::stdout;

/// The hidden command of rank 0.
pub(crate) const COMMAND: &str = "bench-rank";

/// Arguments of a hidden command that is rank 0 of two.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PairArgs {
    #[arg(long)]
    cpu: usize,
    /// The CPU of rank 1
    #[arg(long)]
    far: usize,
    /// Who started it; it ends with that process
    #[arg(long)]
    parent: i32,
    /// Goes by UCX, with the transports that the environment names
    #[arg(long)]
    pub(crate) ucx: bool,
}

/// Arguments of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RankArgs {
    #[command(flatten)]
    pair: PairArgs,
    #[arg(long, value_enum)]
    what: What,
    /// Another CPU
    #[arg(long)]
    spare: Vec<usize>,
}

/// What rank 0 says before its first figures.
pub(crate) const READY: &str = "ready";
/// What rank 0 says instead, and why.
pub(crate) const ABSENT: &str = "absent ";
/// What a rank 0 says last that is told no steps.
pub(crate) const DONE: &str = "done";

/// The lines of the ranks' own table, in each row: those that a measurement has to itself, then what
/// the ranks tell each other.
pub(in crate::bench) const OWN: u32 = 64;
pub(super) const TOLD: u32 = OWN;
pub(super) const STEP: u32 = TOLD + 1;
pub(super) const RESULT: u32 = TOLD + 2;
const PORT: u32 = TOLD + 3;
const TOKEN: u32 = TOLD + 4;
const TOKEN_WORDS: u32 = 4;
/// Hexadecimal digits in a word.
const DIGITS: usize = 16;
pub(in crate::bench) const SHAPE: TableShape = TableShape::new(2, TOKEN + TOKEN_WORDS);

/// Is rank 0.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn first(args: &RankArgs) -> Result<(), BenchError> {
    let PairArgs { cpu, far, ucx, .. } = args.pair;
    pair(&args.pair, Task::Rank { what: args.what, ucx }, |table, env| {
        // With two CPUs it shares one.
        let shared = if args.what == What::Stream { far } else { cpu };
        let proxy = args.spare.first().copied().unwrap_or(shared);
        let host = args.spare.get(1).copied().unwrap_or(cpu);
        let seat = Seat { table, env, ucx, proxy, host };
        match args.what {
            What::Link => obey::<link::side::Side>(seat),
            What::Initiate | What::Stream => obey::<initiate::side::Side>(seat),
            What::Smc => obey::<smc::side::Side>(seat),
        }
    })
}

/// Is rank 0 of a job of two, of which rank 1 does `task` and finds its place in the table that is
/// also given to `lead`.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn pair(
    args: &PairArgs,
    task: Task,
    lead: impl FnOnce(&SignalTable, &Env) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    begin(args.parent, args.cpu)?;
    let table = SignalTable::shared(SHAPE)?;
    let env = invite(&table)?;
    let peer = Peer::start(&table, args.far, task)?;
    let led = lead(&table, &env);
    peer.finish(led)
}

/// Takes lines of steps from standard input until there are no more.
fn obey<H: Half>(seat: Seat<'_>) -> Result<(), BenchError> {
    let mut out = stdout();
    let mut say = |text: &str| {
        let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        said.map_err(BenchError::Output)
    };
    let mut half = match H::join(seat)? {
        Ok(half) => half,
        Err(why) => return say(&format!("{ABSENT}{}\n", why.replace('\n', " "))),
    };
    say(&format!("{READY}\n"))?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(BenchError::Peer)?;
        let mut figures = String::new();
        for word in line.split_ascii_whitespace() {
            let word = word.parse().map_err(|_| BenchError::OutOfStep)?;
            figures += &format!("{} ", half.lead(word)?);
        }
        say(&format!("{figures}\n"))?;
    }
    half.lead(H::end())?;
    half.leave()
}

/// Is rank 1.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn second(
    table: &SignalTable,
    what: What,
    ucx: bool,
    cpu: usize,
) -> Result<(), BenchError> {
    let env = invited(table, Rank(1))?;
    let seat = Seat { table, env: &env, ucx, proxy: cpu, host: cpu };
    match what {
        What::Link => answer::<link::side::Side>(seat),
        What::Initiate | What::Stream => answer::<initiate::side::Side>(seat),
        What::Smc => answer::<smc::side::Side>(seat),
    }
}

fn answer<H: Half>(seat: Seat<'_>) -> Result<(), BenchError> {
    // Rank 0 found the same, and tells why.
    let Ok(mut half) = H::join(seat)? else { return Ok(()) };
    while half.follow()? {}
    half.leave()
}

/// A job of two, and its address in `table`.
pub(in crate::bench) fn invite(table: &SignalTable) -> Result<Env, BenchError> {
    let seed = Env::alone().map_err(WorldError::from)?.token.reveal();
    for (at, digits) in (0..TOKEN_WORDS).zip(seed.as_bytes().chunks(DIGITS)) {
        let word = str::from_utf8(digits).ok().and_then(|it| u64::from_str_radix(it, 16).ok());
        let word = word.ok_or(BenchError::OutOfStep)?;
        table.line(SlotId::new(0, TOKEN + at))?.word().store(word, Relaxed);
    }
    let free = || Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
    let port = free().map_err(|error| BenchError::System { call: "bind", error })?;
    table.line(SlotId::new(0, PORT))?.word().store(u64::from(port), Relaxed);
    invited(table, Rank(0))
}

/// The job whose address is in `table`, as `rank` of it. What was stored there before a process was
/// started is there for it to read.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn invited(table: &SignalTable, rank: Rank) -> Result<Env, BenchError> {
    let mut digits = String::new();
    for at in 0..TOKEN_WORDS {
        let word = table.line(SlotId::new(0, TOKEN + at))?.word().load(Relaxed);
        digits += &format!("{word:0DIGITS$x}");
    }
    let port = table.line(SlotId::new(0, PORT))?.word().load(Relaxed);
    let mut env = Env::alone().map_err(WorldError::from)?;
    (env.rank, env.world) = (rank, 2);
    (env.local_rank, env.local_world) = (Some(rank.0), Some(2));
    env.master.port = u16::try_from(port).map_err(|_| BenchError::OutOfStep)?;
    env.job = "bench".into();
    env.token = Token::parse(digits.as_bytes()).map_err(|_| BenchError::OutOfStep)?;
    Ok(env)
}
