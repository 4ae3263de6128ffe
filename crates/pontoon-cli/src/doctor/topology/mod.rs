//! `doctor --topology`: how ranks reach each other, and what it takes.
//!
//! In a job, the ranks are those of the job, and rank 0 prints. Outside of one, two ranks are started
//! here for each link, as `bench link` does it: `pair.rs`. `report.rs` prints.

pub(crate) mod pair;
mod report;

use std::{io, time::Duration};

use pontoon::{
    Bound, Rank, World,
    job::Env,
    world::{
        self, Transport, WorldError,
        topology::{Effort, Numa, Topology},
    },
};

use super::DoctorError;
use crate::{
    bench::BenchError, figures::closed_pipe_is_no_fault, number::within, stdout::stdout, voice,
};
use report::Report;

/// How long ranks wait for each other to come, unless given, and for what is under way when the time is up.
const PATIENCE: Duration = Duration::from_secs(20);
/// After how long without a word a rank is dead: they spin, and others may be at work here.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// Room for what is measured with.
const HEAP: usize = 4 << 20;

/// How much to measure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct EffortArgs {
    /// Of how many blocks, of half a millisecond or so, each figure of the topology is the median: 31
    /// unless given.
    #[arg(long, value_name = "N", requires = "topology",
          value_parser = within(Effort::BLOCKS_MIN..=100_000))]
    blocks: Option<u32>,
    /// How long pairs of ranks begin to measure; those that come later are left out. 8s unless given.
    #[arg(long, value_name = "TIME", requires = "topology", value_parser = crate::duration::bound)]
    within: Option<Duration>,
    /// How long the ranks wait for each other to come: 20s unless given.
    #[arg(long, value_name = "TIME", requires = "topology", value_parser = crate::duration::bound)]
    join_bound: Option<Duration>,
}

impl EffortArgs {
    fn within(&self) -> Duration {
        self.within.unwrap_or(Duration::from_secs(8))
    }

    fn effort(&self) -> Effort {
        let effort = Effort::default().with_time(self.within());
        self.blocks.map_or(effort, |blocks| effort.with_blocks(blocks))
    }

    /// Of the wait for all ranks.
    fn join(&self) -> Bound {
        Bound::within(self.join_bound.unwrap_or(PATIENCE))
    }

    /// All of it, and what is under way at the end.
    fn bound(&self) -> Bound {
        Bound::within(self.within().saturating_add(PATIENCE))
    }
}

pub(super) fn run(json: bool, effort: EffortArgs) -> Result<(), DoctorError> {
    let env = Env::read().map_err(|error| BenchError::World(error.into()))?;
    let mut report = Report::new(stdout(), json);
    match env {
        Some(env) => of_job(&env, effort, &mut report),
        None => of_two(json, effort, &mut report),
    }
}

/// The topology of the job that this process is a rank of.
fn of_job(
    env: &Env,
    effort: EffortArgs,
    report: &mut Report<impl io::Write>,
) -> Result<(), DoctorError> {
    voice::speak_as(env.rank);
    let world = open(env, Transport::Auto, effort.join()).map_err(BenchError::World)?;
    let topology = measure(&world, effort).map_err(BenchError::World)?;
    let printed = if world.rank() == Rank(0) {
        let all =
            report.nodes(Numa::read().as_ref()).and_then(|()| report.topology("job", &topology));
        closed_pipe_is_no_fault(all)
    } else {
        Ok(())
    };
    // Whatever came of it here, the others have what they came for.
    world.leave(Bound::within(PATIENCE)).map_err(BenchError::World)?;
    Ok(printed?)
}

/// The topology of two ranks on this host, by each link.
fn of_two(
    json: bool,
    effort: EffortArgs,
    report: &mut Report<impl io::Write>,
) -> Result<(), DoctorError> {
    closed_pipe_is_no_fault(report.nodes(Numa::read().as_ref()))?;
    for (link, ucx) in [("shm", false), ("ucx", true)] {
        let found = pair::start(ucx, json, effort)?;
        let printed = match found {
            Ok(text) => report.relay(&text),
            Err(why) => report.skipped(link, &why),
        };
        closed_pipe_is_no_fault(printed)?;
    }
    Ok(())
}

fn open(env: &Env, transport: Transport, join: Bound) -> Result<World, WorldError> {
    let options = world::Options::default().with_heap(HEAP).with_transport(transport);
    let options = options.with_lost_after(LOST_AFTER).with_bound(join);
    World::open_in(env, options)
}

fn measure(world: &World, effort: EffortArgs) -> Result<Topology, WorldError> {
    let mut topology = Topology::discover(world, Bound::within(PATIENCE))?;
    topology.measure(world, effort.effort(), effort.bound())?;
    Ok(topology)
}
