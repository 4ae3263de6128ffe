//! Turns: each pair measures while all others wait, and its figures are told to all.
//!
//! All ranks know the order of the turns, which is that of the table. A turn ends with a gathering,
//! in which the lower rank of the pair gives its figures and rank 0 says whether the time is up. So no
//! two pairs measure at once, those who wait are asleep, all have the table when the last turn is over,
//! and a rank that dies ends the gathering with its name.

use std::time::Duration;

use pontoon_hal::link::{LinkError, RemoteSignal};
use pontoon_job::StoreError;
use pontoon_signal::{Host, Nanos, Os, Rank, Seq, Waiter};

use super::{
    BytesPerSecond, Figures, Kind, Topology, Unmeasured,
    pin::Pinned,
    trips::{PUT, Trips},
};
use crate::world::{Shared, World, WorldError, alive::Left};

/// The gathering before the first turn, that of each turn, and the name of the memory.
const READY: &[u8] = b"pontoon/topology/ready";
const TURN: &[u8] = b"pontoon/topology/turn";
const MEMORY: &str = "pontoon/topology";
/// A rank's memory: what it sends from, and where others send to.
const MEMORY_BYTES: usize = 2 * PUT;

/// How much measuring there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    blocks: u32,
    within: Duration,
}

impl Default for Effort {
    /// 31 blocks of half a millisecond or so; no pair begins after eight seconds.
    fn default() -> Self {
        Self { blocks: 31, within: Duration::from_secs(8) }
    }
}

impl Effort {
    /// The fewest blocks that a figure is the median of.
    pub const BLOCKS_MIN: u32 = 5;

    /// Each figure is the median of so many blocks: [`BLOCKS_MIN`](Self::BLOCKS_MIN) at least.
    pub fn with_blocks(self, blocks: u32) -> Self {
        Self { blocks: blocks.max(Self::BLOCKS_MIN), ..self }
    }

    /// No pair begins to measure later than this after the first could.
    pub fn with_time(self, within: Duration) -> Self {
        Self { within, ..self }
    }
}

pub(super) fn measure(
    topology: &mut Topology,
    world: &World,
    effort: Effort,
    left: &Left,
) -> Result<(), WorldError> {
    let memory = memory(world, left)?;
    let mut calls = calls(world)?;
    // From here on all counters are taken, and what is to be found of others is there.
    let lack = memory.as_ref().err().map(String::as_str).unwrap_or_default();
    let lacks = world.job().all_gather(READY, lack.as_bytes(), left.now())?;
    let began = Os.now();
    let mut time_up = false;
    for at in 0..topology.pairs.len() {
        let ranks @ [leader, other] = topology.pairs[at].ranks;
        let lacking = ranks.iter().find(|rank| !lacks[rank.0 as usize].is_empty());
        if let Some(&rank) = lacking {
            let why = String::from_utf8_lossy(&lacks[rank.0 as usize]).into();
            topology.pairs[at].figures = Err(Unmeasured::Lacks { rank, why });
            continue;
        }
        if time_up {
            let figures = &mut topology.pairs[at].figures;
            if figures.is_err() {
                *figures = Err(Unmeasured::TimeUp);
            }
            continue;
        }
        let mut found = None;
        if let (Ok(own), true) = (&memory, ranks.contains(&world.rank)) {
            let peer = if world.rank == leader { other } else { leader };
            let cpus = topology.cpus_apart(at);
            let spins = cpus.is_some() || topology.pairs[at].kind == Kind::OverHosts;
            let own_cpu = cpus.map(|[one, its]| if world.rank == leader { one } else { its });
            let _pinned = own_cpu.and_then(Pinned::to);
            let call = calls[peer.0 as usize].take().expect("one pair of each two ranks");
            let mut trips = call.trips(world, peer, own, spins, left)?;
            if world.rank == leader {
                found = Some(trips.lead(effort.blocks, left)?);
            } else {
                trips.follow(left)?;
            }
        }
        let is_late = Os.now().since(began) > Nanos::from(effort.within);
        let parts = world.job().all_gather(TURN, &told(is_late, found), left.now())?;
        let garbled = || WorldError::Store(StoreError::Garbled);
        let figures = parts.get(leader.0 as usize).and_then(|part| heard(part)?.1);
        topology.pairs[at].figures = Ok(figures.ok_or_else(garbled)?);
        time_up = parts.first().and_then(|part| heard(part)).ok_or_else(garbled)?.0;
    }
    Ok(())
}

impl Topology {
    /// A processor for each of pair `at`, if they are of one host and there are two.
    fn cpus_apart(&self, at: usize) -> Option<[u32; 2]> {
        let pair = &self.pairs[at];
        let [one, other] = pair.ranks.map(|rank| &self.places[rank.0 as usize]);
        if pair.kind == Kind::OverHosts { None } else { one.cpus_apart(other) }
    }
}

/// This rank's memory, shared with all; what there is none for is the inner error.
fn memory(world: &World, left: &Left) -> Result<Result<Shared, String>, WorldError> {
    let block = match world.scratch.get() {
        Some(block) => block.clone(),
        None => match world.segment().allocate(MEMORY_BYTES) {
            Ok(block) => world.scratch.get_or_init(|| block).clone(),
            Err(full) => return Ok(Err(full.to_string())),
        },
    };
    match world.share(MEMORY, &block, left.now()) {
        Ok(shared) => Ok(Ok(shared)),
        Err(WorldError::Link(error @ LinkError::Register { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The counters between this rank and another.
struct Call {
    signal: RemoteSignal,
    waiter: Waiter,
    heard: Seq,
}

/// Those of all others, by rank.
fn calls(world: &World) -> Result<Vec<Option<Call>>, WorldError> {
    let call = |peer: Rank| -> Result<Call, WorldError> {
        // Before anybody knows that this rank is ready: nobody calls yet.
        let waiter = world.incoming(peer, world.own_slot)?.waiter();
        let heard = waiter.value();
        Ok(Call { signal: world.way(peer)?.signal(world.own_slot)?, waiter, heard })
    };
    let all = (0..world.size).map(Rank);
    all.map(|peer| if peer == world.rank { Ok(None) } else { call(peer).map(Some) }).collect()
}

impl Call {
    fn trips<'m>(
        self,
        world: &'m World,
        peer: Rank,
        own: &'m Shared,
        spins: bool,
        left: &Left,
    ) -> Result<Trips<'m>, WorldError> {
        let Self { signal, waiter, heard } = self;
        let (way, its) = (world.way(peer)?, world.find(peer, MEMORY, left.now())?);
        let ranks = world.job().membership();
        Ok(Trips { way, signal, waiter, heard, own, its, spins, ranks })
    }
}

/// A rank's part in the gathering of a turn: whether the time is up, and what it measured, if it led.
fn told(is_late: bool, figures: Option<Figures>) -> Vec<u8> {
    let mut part = vec![u8::from(is_late)];
    if let Some(Figures { latency, bandwidth, blocks }) = figures {
        part.extend(latency.0.to_le_bytes());
        part.extend(bandwidth.0.to_le_bytes());
        part.extend(blocks.to_le_bytes());
    }
    part
}

fn heard(part: &[u8]) -> Option<(bool, Option<Figures>)> {
    let (&is_late, rest) = part.split_first()?;
    if is_late > 1 {
        return None;
    }
    if rest.is_empty() {
        return Some((is_late == 1, None));
    }
    let (latency, rest) = rest.split_first_chunk()?;
    let (bandwidth, rest) = rest.split_first_chunk()?;
    let figures = Figures {
        latency: Nanos(u64::from_le_bytes(*latency)),
        bandwidth: BytesPerSecond(u64::from_le_bytes(*bandwidth)),
        blocks: u32::from_le_bytes(rest.try_into().ok()?),
    };
    Some((is_late == 1, Some(figures)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_and_heard_and_another_is_not() {
        let figures = Figures { latency: Nanos(1), bandwidth: BytesPerSecond(u64::MAX), blocks: 5 };
        for whole in [(false, None), (true, Some(figures))] {
            let part = told(whole.0, whole.1);
            assert_eq!(heard(&part), Some(whole));
            assert_eq!(heard(&[&*part, &[0]].concat()), None);
        }
        assert_eq!((heard(&[]), heard(&[2]), heard(&[0; 20])), (None, None, None));
    }

    #[test]
    fn a_figure_is_of_five_blocks_at_least() {
        assert_eq!(Effort::default().with_blocks(0).blocks, 5);
        assert_eq!(Effort::default().with_blocks(70).blocks, 70);
    }
}
