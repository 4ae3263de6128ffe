//! What travels between rank 0 and another: regions, and signals.

use std::{ops::Range, sync::Arc, time::Duration};

use pontoon::{
    Bound, Buffer, Fence, Rank, Seq,
    cpu::Region,
    world::{Shared as SharedBlock, Way, World},
};

use super::{
    Ranks,
    failed::Failed,
    pages::{Map, Mirror},
    send::{Part, Sender},
};
use crate::train::{
    error::TrainError,
    job::{IN_FLIGHT, Shared},
    model::Shape,
    places::Places,
    plan::Step,
};

/// The slot of a rank's row that tells of its messages.
const SLOT: u32 = 0;

/// Bytes of a rank's segment that the job's ranks reach: parameters, gradients, losses.
pub(in crate::train) fn heap_bytes(shape: Shape, places: &Places, map: Option<&Map>) -> usize {
    if let Some(map) = map {
        return map.heap_bytes();
    }
    let places = places.len();
    let lens = [shape.parameters(), places * shape.parameters(), IN_FLIGHT * places];
    // Each begins on a page.
    let page = rustix::param::page_size();
    lens.iter().map(|len| (len * size_of::<f32>()).next_multiple_of(page)).sum()
}

/// A part of a step as ranges of elements: of the gradients, and of the losses.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) gradients: Range<usize>,
    pub(super) losses: Range<usize>,
}

impl Sent {
    /// What `rank` sends in `step`.
    pub(super) fn of(shared: &Shared, rank: Rank, step: &Step) -> Self {
        let places = shared.places.of_rank(rank.0 as usize, step.samples().len());
        let count = shared.shape.parameters();
        let slot = step.index % IN_FLIGHT * shared.places.len();
        Self {
            gradients: places.start * count..places.end * count,
            losses: slot + places.start..slot + places.end,
        }
    }
}

/// What is shared with all ranks by one rank.
pub(in crate::train) struct Offered {
    pub(super) params: SharedBlock,
    pub(super) gradients: SharedBlock,
    pub(super) losses: SharedBlock,
}

impl Offered {
    pub(super) fn by(world: &World, shared: &Shared, bound: Bound) -> Result<Self, TrainError> {
        let share = |name: &str, buffer: &Buffer<Region, f32>| {
            world.share(name, buffer.memory().block(), bound)
        };
        Ok(Self {
            params: share("params", &shared.params)?,
            gradients: share("gradients", &shared.gradients)?,
            losses: share("losses", &shared.losses)?,
        })
    }
}

/// The way to one other rank.
pub(super) struct Peer {
    pub(super) rank: Rank,
    way: Way,
    /// Its signals here.
    incoming: pontoon::signal::Slot,
    start: Seq,
    pub(super) failed: Failed,
}

impl Peer {
    pub(super) fn open(world: &World, rank: Rank) -> Result<Self, TrainError> {
        let way = world.way(rank)?;
        let incoming = world.incoming(rank, SLOT)?;
        let start = world.segment().signals().shape().start();
        let failed = Failed::new(&incoming, world.rank());
        Ok(Self { rank, way, incoming, start, failed })
    }

    /// The fence of its message in step `index`.
    pub(super) fn message(&self, index: usize) -> Fence {
        let target = self.start.get().wrapping_add(index as u64 + 1);
        Fence::on(self.incoming.clone(), Seq::new(target), &format!("rank {}", self.rank))
    }

    /// Why a send failed, if one did.
    pub(super) fn failure(&self) -> Option<TrainError> {
        self.failed.get().map(|failure| failure.clone().into())
    }

    /// What sends the rank these regions of this one, by name, in messages of a part of each: each message
    /// within twice the `bound` of the run's waits, for who waits for one gives up first, and says more than
    /// a sender can.
    pub(super) fn sender<const N: usize>(
        &self,
        ranks: &Ranks<'_>,
        parts: [(&str, &SharedBlock); N],
        bound: Duration,
    ) -> Result<Arc<Sender>, TrainError> {
        let within = Bound::within(ranks.join);
        let part = |(name, from): (&str, &SharedBlock)| -> Result<Part, TrainError> {
            Ok(Part { from: from.clone(), to: ranks.world.find(self.rank, name, within)? })
        };
        let parts = parts.into_iter().map(part).collect::<Result<_, _>>()?;
        let (signal, bound) = (self.way.signal(SLOT)?, bound.saturating_mul(2));
        let how = (&self.way, ranks.initiate, ranks.comm);
        Sender::new(how, parts, signal, &self.failed, bound).map(Arc::new)
    }

    /// What tells the rank of what is in memory of rank 0, when it has been stored there by way of `mirror`;
    /// within as long.
    pub(super) fn teller(
        &self,
        mirror: Option<&Arc<Mirror>>,
        bound: Duration,
    ) -> Result<Arc<Sender>, TrainError> {
        let (signal, bound) = (self.way.signal(SLOT)?, bound.saturating_mul(2));
        Ok(Arc::new(Sender::through_pages(&self.way, mirror, signal, &self.failed, bound)))
    }
}

/// A region that stands for as many elements of another rank's.
pub(super) fn stand_in(
    device: &pontoon::CpuDevice,
    len: usize,
) -> Result<Buffer<Region, f32>, TrainError> {
    Ok(Buffer::over(device.stand_in(len.max(1) * size_of::<f32>())?))
}
