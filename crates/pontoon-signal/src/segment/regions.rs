//! The regions of a segment's heap that are registered, for peers to check a key against.
#![allow(unsafe_code)] // Entries lie in shared memory, reached through a pointer.

use core::ptr::NonNull;

use crate::{Block, segment::Entry};

/// What is registered: which bytes of the heap, and a number that nobody guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRegion {
    /// The number.
    pub nonce: u64,
    /// Where it begins, in bytes from the start of the heap.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Which entry of a table, and which use of it: no two registrations have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The entry.
    pub at: u32,
    /// Its stamp as long as the registration lasts.
    pub stamp: u64,
}

/// The registered regions. Its owner alone lists and withdraws; peers look.
///
/// Invariant R1: `entries` entries lie within `block`, from its first byte on.
#[derive(Clone, Debug)]
pub struct RegionTable {
    block: Block,
    entries: u32,
}

const WORDS: usize = 6;

/// An entry has an owner while a registration has it. The words of one that is listed begin with a 1;
/// of one that was withdrawn, with a 0.
#[repr(C, align(64))]
#[derive(Debug)]
struct Place(Entry<WORDS>);

const _: () = assert!(size_of::<Place>() == 64);

impl RegionTable {
    /// Bytes of a table of `entries` regions.
    pub(crate) const fn bytes(entries: usize) -> usize {
        entries * size_of::<Place>()
    }

    /// The table in `block`, as many entries as fit.
    ///
    /// # Panics
    ///
    /// If the block does not begin on a line or holds no entry.
    pub(crate) fn in_block(block: Block) -> Self {
        assert!(block.base().cast::<Place>().is_aligned(), "a region table begins on a line");
        assert!(block.bytes() >= Self::bytes(1), "a region table holds an entry");
        let entries = u32::try_from(block.bytes() / size_of::<Place>()).unwrap_or(u32::MAX);
        Self { block, entries }
    }

    fn entry(&self, at: u32) -> Option<&Entry<WORDS>> {
        let first: NonNull<Place> = self.block.base().cast();
        (at < self.entries).then(|| {
            // SAFETY: R1, `at` is below `entries`.
            let place = unsafe { first.add(at as usize) };
            // SAFETY: R1; atomics only (W1), so any bytes are valid and others may write.
            let Place(entry) = unsafe { place.as_ref() };
            entry
        })
    }

    /// Lists `region`, or gives `None` if all entries are taken.
    pub fn list(&self, region: PublishedRegion) -> Option<Listed> {
        let words = [1, region.nonce, region.offset, region.bytes, 0, 0];
        (0..self.entries).find_map(|at| {
            let entry = self.entry(at).filter(|entry| entry.take(1))?;
            Some(Listed { at, stamp: entry.write(words)? })
        })
    }

    /// Ends a registration: its key opens nothing from here on.
    pub fn withdraw(&self, listed: Listed) {
        let Some(entry) = self.entry(listed.at).filter(|entry| entry.is_at(listed.stamp)) else {
            return;
        };
        if entry.write([0; WORDS]).is_some() {
            entry.give_back();
        }
    }

    /// What is listed there, if it still is.
    pub fn find(&self, listed: Listed) -> Option<PublishedRegion> {
        match self.entry(listed.at)?.read()? {
            (stamp, [1, nonce, offset, bytes, ..]) if stamp == listed.stamp => {
                Some(PublishedRegion { nonce, offset, bytes })
            }
            _ => None,
        }
    }

    /// Whether it is still listed: one load, for the path of an operation.
    #[inline]
    pub fn is_listed(&self, listed: Listed) -> bool {
        self.entry(listed.at).is_some_and(|entry| entry.is_at(listed.stamp))
    }

    /// The registration `listed`, to be looked at often; `None` if there is no such entry.
    pub fn listing(&self, listed: Listed) -> Option<Listing> {
        let entry = NonNull::from(self.entry(listed.at)?);
        Some(Listing { entry, stamp: listed.stamp, block: self.block.clone() })
    }

    /// How many regions it has room for.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

/// A registration that is looked at often: its entry is found already.
///
/// Invariant R2: `entry` lies within `block`, which keeps it mapped.
#[derive(Debug)]
pub struct Listing {
    entry: NonNull<Entry<WORDS>>,
    stamp: u64,
    #[expect(dead_code, reason = "R2: it keeps the entry mapped")]
    block: Block,
}

// SAFETY: R2; the entry belongs to the mapping, not to a thread, and is atomics only (W1).
unsafe impl Send for Listing {}
// SAFETY: as for `Send`.
unsafe impl Sync for Listing {}

impl Listing {
    /// Whether it still lasts: one load.
    #[inline]
    pub fn holds(&self) -> bool {
        // SAFETY: R2; atomics only (W1), so any bytes are valid and others may write.
        let entry = unsafe { self.entry.as_ref() };
        entry.is_at(self.stamp)
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::{Listed, PublishedRegion, RegionTable};
    use crate::Block;

    fn table(entries: usize) -> RegionTable {
        let bytes = RegionTable::bytes(entries);
        let block = Block::private("regions", bytes).unwrap();
        RegionTable::in_block(block.part(0..bytes).unwrap())
    }

    fn region(n: u64) -> PublishedRegion {
        PublishedRegion { nonce: n, offset: n * 64, bytes: 64 }
    }

    #[test]
    fn a_region_is_there_until_it_is_withdrawn() {
        let table = table(2);
        let (first, second) = (table.list(region(1)).unwrap(), table.list(region(2)).unwrap());
        assert_eq!(table.list(region(3)), None);
        assert_eq!(table.find(first), Some(region(1)));
        table.withdraw(first);
        assert_eq!((table.find(first), table.is_listed(first)), (None, false));
        assert_eq!(table.find(second), Some(region(2)));
        let again = table.list(region(4)).unwrap();
        assert_eq!((again.at, table.find(again)), (first.at, Some(region(4))));
        assert_ne!(again, first);
        // Late, it takes nothing from its successor.
        table.withdraw(first);
        assert_eq!(table.find(again), Some(region(4)));
    }

    /// A stamp that began anew would let the key of a former registration open this one.
    #[test]
    fn an_entry_that_was_left_half_written_is_lost() {
        let table = table(2);
        let first = table.list(region(1)).unwrap();
        table.withdraw(first);
        table.entry(0).unwrap().tear();
        assert_eq!(table.list(region(2)).map(|listed| listed.at), Some(1));
        assert_eq!((table.list(region(3)), table.find(first)), (None, None));
    }

    #[test]
    fn what_was_never_listed_is_not_found() {
        let table = table(1);
        for (at, stamp) in [(0, 0), (0, 2), (1, 2), (u32::MAX, 2)] {
            let listed = Listed { at, stamp };
            assert_eq!(table.find(listed), None);
            // The stamp of nothing is 0, which no registration has.
            assert!(stamp == 0 || !table.is_listed(listed));
        }
    }
}
