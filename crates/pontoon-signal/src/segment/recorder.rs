//! The flight recorder: the last things that happened, for whoever looks from outside or afterwards.
#![allow(unsafe_code)] // Records lie in shared memory, reached through a pointer.

use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::{
    Block, Nanos, Rank,
    segment::Sheet,
    shim::{AtomicU64, Ordering::*},
};

/// A record: what happened to whom, and three numbers that its kind explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When, by the machine's monotonic clock.
    pub at: Nanos,
    /// What happened.
    pub kind: RecordKind,
    /// Whom it is about.
    pub rank: Rank,
    /// What the kind says.
    pub data: [u64; 3],
}

/// What a record is about. Numbers from 0x1_0000 on are the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordKind(pub u32);

impl RecordKind {
    /// The rank joined; data: pid, epoch.
    pub const JOINED: Self = Self(1);
    /// The rank left in order.
    pub const LEFT: Self = Self(2);
    /// The rank was found dead; data: how, as the finder numbers it.
    pub const DIED: Self = Self(3);
    /// A wait for the rank ended without reaching its target; data: slot, wanted, found.
    pub const WAIT_FAILED: Self = Self(4);
    /// The link to the rank failed; data: its code.
    pub const LINK_FAILED: Self = Self(5);
    /// A connection that is none of the job's was refused; data: why, as the refuser numbers it.
    pub const STRANGER: Self = Self(6);
    /// A record of a user's kernel or program.
    pub const USER: Self = Self(0x1_0000);
}

/// The last records of a segment, oldest overwritten first.
///
/// Any thread of any process that maps the segment may add one: an add takes a place by one atomic
/// addition and never waits. If another writer still has that place, a whole round earlier, the
/// record is counted as lost.
///
/// Invariant F1: `head` and then `places` sheets lie within `block`, from its first byte on.
#[derive(Clone, Debug)]
pub struct Recorder {
    block: Block,
    places: usize,
}

const WORDS: usize = 7;
type Place = Sheet<WORDS>;

/// Before the places, on a line of its own.
#[repr(C, align(128))]
struct Head {
    next: AtomicU64,
    lost: AtomicU64,
}

const _: () = assert!(size_of::<Place>() == 64 && size_of::<Head>() == 128);

impl Recorder {
    /// Bytes of a recorder of `places` records.
    pub(crate) const fn bytes(places: usize) -> usize {
        size_of::<Head>() + places * size_of::<Place>()
    }

    /// The recorder in `block`, as many records as fit.
    ///
    /// # Panics
    ///
    /// If the block does not begin on a line or holds no record.
    pub(crate) fn in_block(block: Block) -> Self {
        assert!(block.base().cast::<Head>().is_aligned(), "a recorder begins on a line");
        assert!(block.bytes() >= Self::bytes(1), "a recorder holds a record");
        let places = (block.bytes() - size_of::<Head>()) / size_of::<Place>();
        Self { block, places }
    }

    fn head(&self) -> &Head {
        // SAFETY: F1; atomics only, so any bytes are valid and others may write.
        unsafe { self.block.base().cast().as_ref() }
    }

    fn place(&self, at: u64) -> &Place {
        let at = (at % self.places as u64) as usize;
        // SAFETY: F1.
        let first: NonNull<Place> = unsafe { self.block.base().add(size_of::<Head>()) }.cast();
        // SAFETY: F1, `at` is below `places`.
        let place = unsafe { first.add(at) };
        // SAFETY: F1 and W1.
        unsafe { place.as_ref() }
    }

    /// Adds a record. Neither allocates, locks nor waits.
    pub fn add(&self, record: Record) {
        let Record { at, kind, rank, data: [a, b, c] } = record;
        let number = self.head().next.fetch_add(1, Relaxed);
        let words = [at.0, u64::from(kind.0) << 32 | u64::from(rank.0), a, b, c, 0, 0];
        if !self.place(number).write(stamp(number), words) {
            self.head().lost.fetch_add(1, Relaxed);
        }
    }

    /// How many records were added so far, and how many of them found no place.
    pub fn counts(&self) -> (u64, u64) {
        (self.head().next.load(Relaxed), self.head().lost.load(Relaxed))
    }

    /// The records that are there, oldest first. One that is being written meanwhile is left out.
    pub fn read(&self) -> Vec<Record> {
        // Not reserved at once: a file can be long and hold little.
        let mut found: Vec<(u64, Record)> = Vec::new();
        for at in 0..self.places as u64 {
            let Some((stamp, [when, what, a, b, c, ..])) = self.place(at).read() else { continue };
            let (kind, rank) = (RecordKind((what >> 32) as u32), Rank(what as u32));
            found.push((stamp, Record { at: Nanos(when), kind, rank, data: [a, b, c] }));
        }
        found.sort_unstable_by_key(|&(stamp, _)| stamp);
        found.into_iter().map(|(_, record)| record).collect()
    }
}

/// Even and never zero.
fn stamp(number: u64) -> u64 {
    (number.wrapping_add(1) << 1).max(2)
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::{Record, RecordKind, Recorder, WORDS};
    use crate::{Block, Nanos, Rank, shim::Ordering::*};

    fn recorder(places: usize) -> Recorder {
        let block = Block::private("recorder", Recorder::bytes(places)).unwrap();
        Recorder::in_block(block.part(0..Recorder::bytes(places)).unwrap())
    }

    fn record(n: u64) -> Record {
        Record { at: Nanos(n), kind: RecordKind::USER, rank: Rank(n as u32), data: [n, n, n] }
    }

    #[test]
    fn the_last_records_stay_in_order() {
        let recorder = recorder(4);
        assert_eq!(recorder.read(), []);
        for n in 0..7 {
            recorder.add(record(n));
        }
        assert_eq!(recorder.read(), [3, 4, 5, 6].map(record));
        assert_eq!(recorder.counts(), (7, 0));
    }

    /// As in a segment whose owner put the count there.
    #[test]
    fn no_number_makes_a_record_look_as_if_it_were_never_written() {
        let recorder = recorder(4);
        for last in [(1 << 63) - 1, u64::MAX] {
            recorder.head().next.store(last, Relaxed);
            recorder.add(record(7));
            assert!(recorder.read().contains(&record(7)), "after {last:#x}");
            recorder.place(last).write(2, [0; WORDS]);
        }
    }

    #[test]
    fn many_that_add_leave_whole_records() {
        let recorder = recorder(8);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let recorder = recorder.clone();
                scope.spawn(move || (0..5_000).for_each(|n| recorder.add(record(n * 4 + thread))));
            }
            for _ in 0..2_000 {
                for read in recorder.read() {
                    assert_eq!(read, record(read.at.0), "a record in two halves");
                }
            }
        });
        let (added, lost) = recorder.counts();
        assert!(added == 20_000 && lost < added, "{lost} of {added} lost");
    }
}
