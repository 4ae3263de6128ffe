//! What was done to each region, as long as it can matter.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use pontoon_hal::RegionId;

use super::{Epoch, cell::Cell};
use crate::Intervals;

/// The bytes of each region that was used.
///
/// Nobody says when a buffer is dropped, so regions are swept when there are twice as many as after
/// the last sweep. One goes if it was not used since then and the host knows all that was done to
/// it to be over. That changes no verdict: a clock that is asked has all that the host knows (T1),
/// so it covers each epoch that went, and [`Tracker::needs`](super::Tracker::needs) would have
/// passed it over. Only cache maintenance is told as less, if such a region is used once more: it
/// counts as clean.
#[derive(Debug)]
pub(super) struct Regions {
    all: HashMap<RegionId, Region, BuildHasherDefault<IdHasher>>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Region {
    cells: Intervals<Cell>,
    was_used: bool,
}

const SWEEP_AT_LEAST: usize = 256;

impl Default for Regions {
    fn default() -> Self {
        Self { all: HashMap::default(), sweep_at: SWEEP_AT_LEAST }
    }
}

impl Regions {
    pub(super) fn get(&mut self, region: RegionId) -> Option<&mut Intervals<Cell>> {
        self.all.get_mut(&region).map(|it| &mut it.cells)
    }

    /// The bytes of a region of that size, which is used. `is_over`: the host knows an epoch to be
    /// over.
    pub(super) fn used(
        &mut self,
        region: RegionId,
        size: u64,
        is_over: impl Fn(Epoch) -> bool,
    ) -> &mut Intervals<Cell> {
        if self.all.len() >= self.sweep_at && !self.all.contains_key(&region) {
            self.sweep(is_over);
        }
        let fresh = || Region { cells: Intervals::new(size), was_used: true };
        let region = self.all.entry(region).or_insert_with(fresh);
        region.was_used = true;
        &mut region.cells
    }

    /// The bytes of all regions.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Intervals<Cell>> {
        self.all.values_mut().map(|region| &mut region.cells)
    }

    pub(super) fn remove(&mut self, region: RegionId) {
        self.all.remove(&region);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[cold]
    fn sweep(&mut self, is_over: impl Fn(Epoch) -> bool) {
        self.all.retain(|_, region| {
            if std::mem::take(&mut region.was_used) {
                return true;
            }
            let mut matters = false;
            region.cells.update(0..u64::MAX, |_, cell| {
                matters |= !cell.writer.iter().chain(&cell.readers).all(|&epoch| is_over(epoch));
            });
            matters
        });
        self.sweep_at = (2 * self.all.len()).max(SWEEP_AT_LEAST);
    }
}

/// Region ids are numbers that are handed out one after the other: a multiplication spreads them.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}
