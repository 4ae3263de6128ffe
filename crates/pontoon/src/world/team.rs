//! Teams of all ranks of a world.

use core::ops::{AddAssign, Range};

use bytemuck::Pod;
use pontoon_comm::{Comm, Member, Team};
use pontoon_cpu::Context;
use pontoon_signal::{Block, Bound};

use super::{World, WorldError};

/// The slots of each rank's row that a team takes.
pub const TEAM_SLOTS: u32 = 2;

impl World {
    /// The team of all ranks, by their numbers, over `block`: memory of this rank's segment that is
    /// shared as `name` and is as large on every rank. It takes the [`TEAM_SLOTS`] slots from `slot` on.
    /// All ranks call it, or none.
    ///
    /// # Errors
    ///
    /// [`WorldError`].
    ///
    /// # Blocks
    ///
    /// Until all ranks have called it, as long as `bound` allows for each step.
    pub fn team(
        &self,
        comm: &Comm,
        name: &str,
        block: &Block,
        slot: u32,
        bound: Bound,
    ) -> Result<Team, WorldError> {
        let shared = self.share(name, block, bound)?;
        let mut members: Vec<_> = (0..self.size()).map(|_| None).collect();
        for peer in self.others() {
            let (way, theirs) = (self.way(peer)?, self.find(peer, name, bound)?);
            let port = |slot| -> Result<_, WorldError> {
                let signal = way.signal(slot)?;
                Ok(way.port(comm, &shared, &theirs, Some(signal))?)
            };
            let incoming = [self.incoming(peer, slot)?, self.incoming(peer, slot + 1)?];
            let (data, ready) = (port(slot)?, port(slot + 1)?);
            members[peer.0 as usize] = Some(Member { data, ready, incoming });
        }
        let team = Team::new(members)?;
        // Nobody signals before everybody knows where the counters were.
        self.barrier(&format!("pontoon/team/{name}"), bound)?;
        Ok(team)
    }
}

/// What adds up `T`s in a kernel, for [`Team::reduce`]: into access `into`, which was declared for writing
/// and begins at byte `into_at` of the team's memory, from access `from`, which was declared for reading and begins
/// at `from_at`.
///
/// # Panics
///
/// As [`Context::read_part`] and [`Context::write_part`], if the accesses are others.
pub fn adding<'k, 'a, T: Pod + AddAssign>(
    kernel: &'k mut Context<'a>,
    (into, into_at): (usize, usize),
    (from, from_at): (usize, usize),
) -> impl FnMut(&[Range<usize>], Range<usize>) + use<'k, 'a, T> {
    let elements = |bytes: &Range<usize>, at: usize| {
        let size = size_of::<T>().max(1);
        (bytes.start - at) / size..(bytes.end - at) / size
    };
    move |landed, bytes| {
        let landed: Vec<&[T]> =
            landed.iter().map(|range| kernel.read_part(from, elements(range, from_at))).collect();
        let Some((first, rest)) = landed.split_first() else { return };
        let sums = kernel.write_part::<T>(into, elements(&bytes, into_at));
        for (at, (sum, first)) in sums.iter_mut().zip(*first).enumerate() {
            let mut landed = *first;
            rest.iter().for_each(|rest| landed += rest[at]);
            *sum += landed;
        }
    }
}
