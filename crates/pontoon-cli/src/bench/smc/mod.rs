//! `bench smc`: what memory of another rank under plain loads and stores costs, beside what it costs otherwise.
//!
//! Two processes of one job: rank 1 is home and does nothing, rank 0 has windows on 64 MiB of it, which
//! begin empty for each measurement.
//!
//! - `miss`: pages touched at random, each a fault; `bare` is the same by the kernel's part alone, which puts
//!   home's own page in place: no table, no twin, no deadline.
//! - `prefetch/page`: all read in order, by one thread; `prefetch/read_only/page` from a window that is read only.
//! - `release/…`: pages of which 64 bytes have changed; `copy` is a copy of these to their places, and `software`
//!   what a release takes beyond. `bytes/ratio/changed` is what is sent, versions included, over what changed,
//!   `shared/…` the same of four threads that change lines of one page and release each.
//! - `acquire/clean`: a page that has not changed.
//! - `bulk`, `cold`, `warm`: 4 MiB, and 64 bytes at random, for the first time and again. *copy* reads into memory of
//!   this rank and copies from there to where it is used, *remote* reads to where it is used, and both again each time;
//!   *smc* loads from the window, `read_only` from one that is read only, and *memory* from memory of this rank. `break_even` is after how many touches
//!   a page that was fetched has cost what as many remote reads would.
//! - `registrations`: how often 10,000 steps through a pool of 256 pages register memory.
//! - `memory/…`: what a window of 1 TiB takes, made of 1024 extents, over its resident pages and their twins, the
//!   kernel's page tables included; with pages in runs of 2 MiB, and each alone.
//!
//! `client.rs` is rank 0, with `reads.rs` and `releases.rs`, `bare.rs` the bare fault, `side.rs` both ranks, `step.rs` the word for what rank 0 does
//! next, `plan.rs` which figures come of that.

mod bare;
mod changes;
pub(crate) mod client;
mod memory;
pub(crate) mod plan;
mod reads;
mod releases;
pub(super) mod side;
pub(crate) mod step;

use std::{io::Write, time::Duration};

use super::{
    BenchError, Options, Rounds,
    link::TCP,
    pin::CpuPair,
    ranks::{What, pair::Pair},
    skip,
};
use crate::figures::Printer;
use plan::{Parts, Plan};
use step::Step;

/// What home shares its memory as.
const NAME: &str = "memory";
/// Bytes of it that are used.
const BYTES: usize = 64 << 20;
/// Bytes of it over shared memory, of which the others are never touched.
const SPARSE: usize = 1 << 30;

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return skip(printer, "smc", "two ranks need two CPUs; this process may use one");
    };
    let rounds = rounds(options.quick);
    let all = Parts { bare: true, writes: true, memory: true };
    let shm = Plan::new("smc", BYTES, all);
    measure(&shm, None, cpus, rounds, printer)?;
    let ucx = Plan::new("smc/ucx-tcp", BYTES, Parts { bare: false, memory: false, ..all });
    measure(&ucx, Some(TCP.variables), cpus, rounds, printer)
}

/// How often each step is done.
pub(crate) fn rounds(quick: bool) -> Rounds {
    if quick {
        Rounds { least: 3, most: 3, time: Duration::ZERO }
    } else {
        Rounds { least: 7, most: 40, time: Duration::from_secs(20) }
    }
}

fn measure<W: Write>(
    plan: &Plan,
    ucx: Option<&[(&str, &str)]>,
    cpus: CpuPair,
    rounds: Rounds,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    let mut pair = match Pair::start(What::Smc, cpus, ucx)? {
        Ok(pair) => pair,
        Err(why) => return skip(printer, plan.name(), &why),
    };
    pair.run([Step::Verify.word()])?;
    let found = plan.measure(rounds, |step| Ok(pair.run([step.word()])?[0]))?;
    // What was changed was changed back.
    pair.run([Step::Verify.word()])?;
    found.print(printer)
}
