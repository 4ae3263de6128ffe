//! What a server's memory costs here.

use pontoon::{Bound, Rank, hal::paging::PAGE};

use super::{MEMORY, ROUND, ToolError, client::Door};
use crate::{
    bench::{
        BenchError,
        smc::{
            client::{Client, Served},
            plan::{Parts, Plan},
            rounds,
        },
    },
    figures::{Format, Printer, closed_pipe_is_no_fault},
    stdout::stdout,
};

/// Measures what a server's memory costs here: misses, reads in order and at random, and what they cost without a
/// window. The names are those of `pontoon bench smc`.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    door: Door,
    /// Measures releases as well: changes 64 bytes here and there, and changes them back. Whoever else uses the memory
    /// meanwhile sees that, and a run that is cut off leaves it so.
    #[arg(long)]
    write: bool,
    /// Prints one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Three rounds.
    #[arg(long)]
    quick: bool,
}

/// The most of the memory that is used.
const MOST: usize = 64 << 20;

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    let (door, writes) = (&options.door, options.write);
    let format = if options.json { Format::Json } else { Format::Table };
    let done = door.reach().with(|client| {
        let bytes = client.bytes().min(MOST) / PAGE * PAGE;
        if bytes < Plan::LEAST {
            return Err(ToolError::Small { bytes: client.bytes(), least: Plan::LEAST });
        }
        let world = client.world();
        let home = world.find(Rank(0), MEMORY, Bound::within(ROUND))?;
        let served = Served { faults: door.faults.0, deadline: door.deadline };
        let plan = Plan::new("smc", bytes, Parts { bare: false, writes, memory: false });
        let failed = |error: BenchError| match error.is_limit() {
            true => ToolError::Want { error, writes },
            false => ToolError::Bench { loss: client.loss(error), writes },
        };
        let way = world.way(Rank(0))?;
        let mut windows = Client::open(way, home, bytes, served).map_err(failed)?;
        let found = plan.measure(rounds(options.quick), |step| windows.take(step));
        let mut printer = Printer::new(stdout(), format);
        match found.map_err(failed)?.print(&mut printer) {
            Err(BenchError::Output(error)) => {
                closed_pipe_is_no_fault(Err(error)).map_err(ToolError::Report)
            }
            printed => printed.map_err(failed),
        }
    })?;
    match done.loss {
        // What was changed back last may not have come home.
        Some(loss) if writes => Err(ToolError::Bench { loss, writes }),
        _ => {
            done.of_reads(|()| "all was measured".into());
            Ok(())
        }
    }
}
