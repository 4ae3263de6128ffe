//! Two ranks that are started to find what is between them.

use std::io::Write;

use pontoon::{
    Bound, Rank, World,
    job::Env,
    signal::SignalTable,
    world::{Transport, WorldError},
};

use super::{EffortArgs, PATIENCE, measure, open, report::Report};
use crate::bench::{
    BenchError,
    pin::CpuPair,
    process::Task,
    ranks::{
        pair::Pair,
        rank::{self, ABSENT, DONE, READY, invited},
    },
};
use crate::stdout::stdout;

/// The hidden command of rank 0.
pub(crate) const COMMAND: &str = "doctor-rank";

/// Arguments of the hidden command.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct FirstArgs {
    #[command(flatten)]
    rank: rank::PairArgs,
    /// What it prints is for programs
    #[arg(long)]
    json: bool,
    // The two of the effort need it.
    #[arg(long)]
    topology: bool,
    #[command(flatten)]
    effort: EffortArgs,
}

/// Has two ranks measure, over shared memory or over UCX. What rank 0 prints of it; the inner error says
/// what is missing here.
///
/// # Errors
///
/// See [`BenchError`].
pub(super) fn start(
    ucx: bool,
    json: bool,
    effort: EffortArgs,
) -> Result<Result<String, String>, BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return Ok(Err("two ranks need two CPUs; this process may use one".to_owned()));
    };
    let pair = Pair::of(COMMAND, cpus, |command| {
        command.arg("--topology").args(ucx.then_some("--ucx")).args(json.then_some("--json"));
        if let Some(blocks) = effort.blocks {
            command.args(["--blocks", &blocks.to_string()]);
        }
        if let Some(within) = effort.within {
            command.args(["--within", &format!("{}ns", within.as_nanos())]);
        }
        if let Some(join) = effort.join_bound {
            command.args(["--join-bound", &format!("{}ns", join.as_nanos())]);
        }
    })?;
    match pair {
        Ok(mut pair) => pair.until_done().map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// Is rank 0.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn first(args: &FirstArgs) -> Result<(), BenchError> {
    let task = Task::Topology { ucx: args.rank.ucx };
    rank::pair(&args.rank, task, |_, env| lead(env, args))
}

fn lead(env: &Env, args: &FirstArgs) -> Result<(), BenchError> {
    let mut out = stdout();
    let mut say =
        |line: &str| writeln!(out, "{line}").and_then(|()| out.flush()).map_err(BenchError::Output);
    let world = match join(env, args.rank.ucx, args.effort.join())? {
        Ok(world) => world,
        Err(why) => return say(&format!("{ABSENT}{}", why.replace('\n', " "))),
    };
    say(READY)?;
    let topology = measure(&world, args.effort)?;
    let label = if args.rank.ucx { "ucx" } else { "shm" };
    Report::new(stdout(), args.json).topology(label, &topology).map_err(BenchError::Output)?;
    let left = world.leave(Bound::within(PATIENCE));
    say(DONE)?;
    Ok(left?)
}

/// Is rank 1, whose place is in `table`.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn second(table: &SignalTable, ucx: bool) -> Result<(), BenchError> {
    // How much is measured is rank 0's to say, and how long both wait to begin.
    let within = Some(crate::duration::LONGEST);
    let longest = EffortArgs { blocks: None, within, join_bound: None };
    // Rank 0 found the same, and tells why.
    let joined = join(&invited(table, Rank(1))?, ucx, longest.join())?;
    let Ok(world) = joined else { return Ok(()) };
    measure(&world, longest)?;
    Ok(world.leave(Bound::within(PATIENCE))?)
}

/// The inner error says what is missing here to reach the other rank.
fn join(env: &Env, ucx: bool, bound: Bound) -> Result<Result<World, String>, BenchError> {
    let transport = if ucx { Transport::Ucx } else { Transport::Shm };
    match open(env, transport, bound) {
        Ok(world) => Ok(Ok(world)),
        Err(WorldError::NoWay { why, .. }) => Ok(Err(why)),
        Err(error) => Err(error.into()),
    }
}
