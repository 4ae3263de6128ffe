//! Which addresses are a region's, of all devices of the process.
//!
//! A region gives commands slices of its memory and knows who holds which (R1). Another region over
//! the same bytes would know nothing of that, so there is none (R3).

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pontoon_hal::{AllocateError, RegionId};
use pontoon_signal::Block;

/// The end and the region of each range, by its first address. No two overlap.
type Ranges = BTreeMap<usize, (usize, RegionId)>;

static TAKEN: Mutex<Ranges> = Mutex::new(Ranges::new());

/// Addresses that are a region's until this is dropped. To be dropped before the memory is.
#[derive(Debug)]
pub(crate) struct Claim {
    first: usize,
}

impl Claim {
    /// Takes the block's addresses for `region`.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Taken`] if some are another region's.
    pub(crate) fn of(block: &Block, region: RegionId) -> Result<Self, AllocateError> {
        let first = block.base().addr().get();
        Self::addresses(first..first + block.bytes(), region)
    }

    fn addresses(range: Range<usize>, region: RegionId) -> Result<Self, AllocateError> {
        let mut taken = ranges();
        // The last that begins before the end overlaps, or none does.
        if let Some((_, &(end, by))) = taken.range(..range.end).next_back()
            && end > range.start
        {
            return Err(AllocateError::Taken { by });
        }
        taken.insert(range.start, (range.end, region));
        Ok(Self { first: range.start })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        ranges().remove(&self.first);
    }
}

/// Nobody panics between two changes of one claim.
fn ranges() -> MutexGuard<'static, Ranges> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_of_two_regions_at_a_time() {
        // Where no mapping can be.
        let top = usize::MAX - 1000;
        let claim = |from, to| Claim::addresses(top + from..top + to, RegionId(from as u64));
        let (first, second) = (claim(100, 200).unwrap(), claim(200, 300).unwrap());
        let by = |at| Err(AllocateError::Taken { by: RegionId(at) });
        for (from, to, at) in
            [(100, 200, 100), (50, 101, 100), (120, 130, 100), (199, 400, 200), (0, 900, 200)]
        {
            assert_eq!(claim(from, to).map(drop), by(at), "{from}..{to}");
        }
        assert!(claim(50, 100).is_ok() && claim(300, 400).is_ok());
        drop(first);
        assert!(claim(50, 200).is_ok());
        drop(second);
        assert!(claim(50, 400).is_ok());
    }
}
