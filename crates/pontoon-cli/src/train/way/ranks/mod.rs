//! The same job over ranks: processes that each have some of the devices.
//!
//! Rank 0 has the parameters. In each step every other rank sends it the gradients of its shards and
//! is sent the parameters when they are updated: one message each way. What travels is lent
//! ([`Session::lend`](pontoon::Session::lend)): a rank gives up the bytes that its message tells the
//! other to write, until the answer brings them back. Rank 0 alone decides who takes part in a step,
//! so that all go on with the same parameters whoever dies.
//!
//! Instead of being sent the bytes, both sides may find them in [memory of rank 0](pages): then the
//! messages are signals and no more, at the same places in the order of things.

mod blame;
mod exchange;
mod failed;
#[cfg(test)]
mod faulty;
mod front;
mod named;
mod pages;
mod root;
mod send;
mod worker;

use std::{
    cell::{Cell, OnceCell},
    time::Duration,
};

use pontoon::{Bound, Buffer, CpuDevice, Rank, comm::Comm, cpu::Region, world::World};

use super::{Ran, Run};
use crate::train::{
    error::TrainError,
    job::{Share, Shared, Stage},
    plan::Absence,
};

pub(in crate::train) use blame::blame;
pub(in crate::train) use exchange::{Offered, heap_bytes};
pub(crate) use named::Named;
pub(super) use named::is_own;
pub(crate) use pages::Params;
pub(in crate::train) use pages::{Figures, Home, Map};
pub(crate) use send::Initiate;

/// What to do when a rank dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnPeerDeath {
    /// All ranks end, and each says who died.
    End,
    /// The others go on without it from the next step on; without rank 0 they cannot.
    Continue,
}

/// So many queues has a CPU device.
const QUEUES: u32 = 64;
/// So many streams has rank 0 on its first device for its own part of a step.
const OWN: u32 = Stage::OF_A_DEVICE.len() as u32 + 1;
/// The most ranks that a job may have: rank 0 has a stream for each of the others beside its own. It
/// keeps who is gone in one word, in which there is room for more.
pub(in crate::train) const RANKS_MAX: u32 = QUEUES - OWN + 1;

/// How much longer than it takes to notice a death the news of it may take that a wait has failed by:
/// a rank's signals end before all know why.
pub(in crate::train) const NEWS: Duration = Duration::from_secs(2);

/// What a run over ranks is given besides.
pub(in crate::train) struct Ranks<'w> {
    pub(in crate::train) world: &'w World,
    /// What kernels send by, and who starts it.
    pub(in crate::train) comm: &'w Comm,
    pub(in crate::train) initiate: Initiate,
    /// Where everything is in memory of rank 0, if the others map that.
    pub(in crate::train) map: Option<&'w Map>,
    /// What rank 0 has them in, then.
    pub(in crate::train) home: Option<&'w Home>,
    pub(in crate::train) on_death: OnPeerDeath,
    /// How long the ranks wait for each other before the first step.
    pub(in crate::train) join: Duration,
    /// How long a death that a wait has failed by may take to be known.
    pub(in crate::train) news: Duration,
    /// What the others reach here. It is there until this rank has left or is gone: a run that fails ends before
    /// those of the others, and what they send meanwhile is lost, not refused.
    pub(in crate::train) offered: &'w OnceCell<Offered>,
    /// Whether all were ready for the first step. Until then no rank can be done without.
    pub(in crate::train) began: &'w Cell<bool>,
}

impl Ranks<'_> {
    /// Shares this rank's part of the job with the others.
    fn offer(&self, shared: &Shared) -> Result<&Offered, TrainError> {
        let offered = Offered::by(self.world, shared, Bound::within(self.join))?;
        Ok(self.offered.get_or_init(|| offered))
    }

    /// Allocates what ranks share: where links reach it, unless all ranks find it at rank 0.
    pub(in crate::train) fn buffer(
        &self,
        device: &CpuDevice,
        share: Share,
        len: usize,
    ) -> Result<Buffer<Region, f32>, TrainError> {
        match (self.map, self.home) {
            (Some(_), Some(home)) => home.buffer(device, share),
            (Some(_), None) => Ok(Buffer::allocate(device, len)?),
            (None, _) => {
                let block = self.world.segment().allocate(len * size_of::<f32>())?;
                Ok(Buffer::over(device.region_over(block)?))
            }
        }
    }
}

/// What came of it.
pub(in crate::train) struct RanRanks {
    pub(in crate::train) ran: Ran,
    /// Who died on the way, and from which step on the others went on without.
    pub(in crate::train) lost: Vec<(Rank, Absence)>,
    /// What this rank did with memory of rank 0.
    pub(in crate::train) pages: Option<Figures>,
}

/// Runs this rank's part.
pub(in crate::train) fn run(run: &Run<'_>, ranks: &Ranks<'_>) -> Result<RanRanks, TrainError> {
    if ranks.world.rank() == Rank(0) { root::run(run, ranks) } else { worker::run(run, ranks) }
}

#[cfg(test)]
mod tests {
    use pontoon::{Engine, Runtime, Stream};

    use super::*;

    #[test]
    fn a_device_has_streams_for_as_many_ranks_as_there_may_be_and_no_more() {
        let runtime = Runtime::cpu(1).expect("a device");
        let open = || Stream::open(&runtime.devices()[0], Engine::Compute, "a stream");
        let streams: Vec<_> = (0..OWN + RANKS_MAX - 1).map(|_| open()).collect();
        assert!(streams.iter().all(Result::is_ok));
        open().map(drop).expect_err("one more");
    }
}
