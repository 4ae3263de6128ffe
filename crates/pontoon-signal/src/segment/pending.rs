//! The pending table: what this process waits for, readable from outside.
#![allow(unsafe_code)] // Entries lie in shared memory, reached through a pointer.

use alloc::{string::String, vec::Vec};
use core::ptr::NonNull;

use crate::{
    Block, Nanos, Seq, SlotId,
    segment::Entry,
    shim::{AtomicU64, Ordering::*},
};

/// A wait under way, as its thread wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWait {
    /// Which thread of the process waits, by its system-wide number.
    pub thread: u32,
    /// For which slot.
    pub slot: SlotId,
    /// Where that has to get.
    pub wanted: Seq,
    /// Since when, by the machine's monotonic clock.
    pub since: Nanos,
    /// How long it may take in all; `None` for one that never gives up.
    pub bound: Option<Nanos>,
    /// What for, cut off after [`PendingTable::LABEL_BYTES`] bytes.
    pub label: String,
}

/// The waits of a process. Each takes an entry when it goes on past its first looks and gives it
/// back when it ends; if all are taken, the wait is counted and not written down.
///
/// Invariant E1: `head` and then `entries` entries lie within `block`, from its first byte on.
#[derive(Clone, Debug)]
pub struct PendingTable {
    block: Block,
    entries: usize,
}

const LABEL_WORDS: usize = 5;
const WORDS: usize = 5 + LABEL_WORDS;
const NEVER: u64 = u64::MAX;

#[repr(C, align(128))]
struct Head {
    unwritten: AtomicU64,
}

/// Its owner is the thread that has it. The words begin with that thread too, so that it is read with
/// the rest of its wait, or with a 0 if none is under way.
#[repr(C, align(128))]
struct Place(Entry<WORDS>);

const _: () = assert!(size_of::<Place>() == 128 && size_of::<Head>() == 128);

impl PendingTable {
    /// How much of a label is kept.
    pub const LABEL_BYTES: usize = LABEL_WORDS * 8;

    /// Bytes of a table of `entries` waits.
    pub(crate) const fn bytes(entries: usize) -> usize {
        size_of::<Head>() + entries * size_of::<Place>()
    }

    /// The table in `block`, as many entries as fit.
    ///
    /// # Panics
    ///
    /// If the block does not begin on a line or holds no entry.
    pub(crate) fn in_block(block: Block) -> Self {
        assert!(block.base().cast::<Head>().is_aligned(), "a pending table begins on a line");
        assert!(block.bytes() >= Self::bytes(1), "a pending table holds an entry");
        let entries = (block.bytes() - size_of::<Head>()) / size_of::<Place>();
        Self { block, entries }
    }

    fn head(&self) -> &Head {
        // SAFETY: E1; atomics only, so any bytes are valid and others may write.
        unsafe { self.block.base().cast().as_ref() }
    }

    fn entry(&self, at: usize) -> &Entry<WORDS> {
        assert!(at < self.entries, "entry {at} of {}", self.entries);
        // SAFETY: E1.
        let first: NonNull<Place> = unsafe { self.block.base().add(size_of::<Head>()) }.cast();
        // SAFETY: E1, `at` is below `entries`.
        let place = unsafe { first.add(at) };
        // SAFETY: E1 and W1.
        let Place(entry) = unsafe { place.as_ref() };
        entry
    }

    /// Writes down a wait of the calling thread's until the guard is dropped. Neither allocates,
    /// locks nor waits.
    pub fn enter(
        &self,
        slot: SlotId,
        wanted: Seq,
        since: Nanos,
        bound: Option<Nanos>,
        label: &str,
    ) -> PendingGuard<'_> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // Threads start at different places, so that they seldom meet.
        let start = thread as usize;
        let mut words = [0; WORDS];
        words[0] = u64::from(thread);
        words[1] = u64::from(slot.producer.0) << 32 | u64::from(slot.slot);
        words[2] = wanted.get();
        words[3] = since.0;
        words[4] = bound.map_or(NEVER, |bound| bound.0.min(NEVER - 1));
        for (word, bytes) in words[5..].iter_mut().zip(label.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        let mut entries = (0..self.entries).map(|at| self.entry((start + at) % self.entries));
        // One that a foreign process left half-written stays taken.
        let written =
            |entry: &&Entry<WORDS>| entry.take(u64::from(thread)) && entry.write(words).is_some();
        let entry = entries.find(written);
        if entry.is_none() {
            self.head().unwritten.fetch_add(1, Relaxed);
        }
        PendingGuard { entry }
    }

    /// The waits under way, longest first.
    pub fn read(&self) -> Vec<PendingWait> {
        let entries = (0..self.entries).map(|at| self.entry(at));
        let mut waits: Vec<_> = entries.filter_map(wait_of).collect();
        waits.sort_by_key(|wait| wait.since);
        waits
    }

    /// How many waits found all entries taken.
    pub fn unwritten(&self) -> u64 {
        self.head().unwritten.load(Relaxed)
    }
}

/// The wait that is written down there, if one is under way.
fn wait_of(entry: &Entry<WORDS>) -> Option<PendingWait> {
    let (_, words) = entry.read()?;
    let [thread, slot, wanted, since, bound, label @ ..] = words;
    if thread == 0 {
        return None;
    }
    let bytes: Vec<u8> = label.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Some(PendingWait {
        thread: thread as u32,
        slot: SlotId::new((slot >> 32) as u32, slot as u32),
        wanted: Seq::new(wanted),
        since: Nanos(since),
        bound: (bound != NEVER).then_some(Nanos(bound)),
        label: String::from_utf8_lossy(&bytes[..end]).into_owned(),
    })
}

/// A wait that is written down while this lives.
#[derive(Debug)]
pub struct PendingGuard<'t> {
    entry: Option<&'t Entry<WORDS>>,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.entry else { return };
        if entry.write([0; WORDS]).is_some() {
            entry.give_back();
        }
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::{PendingTable, PendingWait};
    use crate::{Block, Nanos, Seq, SlotId};

    fn table(entries: usize) -> PendingTable {
        let bytes = PendingTable::bytes(entries);
        let block = Block::private("pending", bytes).unwrap();
        PendingTable::in_block(block.part(0..bytes).unwrap())
    }

    #[test]
    fn a_wait_is_there_as_long_as_it_lasts() {
        let table = table(2);
        let (slot, wanted) = (SlotId::new(3, 1), Seq::new(u64::MAX));
        let later = table.enter(slot, wanted, Nanos(9), None, "gradients");
        let label = "a label that is longer than an entry has room for, by some";
        let earlier = table.enter(slot, wanted, Nanos(5), Some(Nanos(7)), label);
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let first = PendingWait {
            thread,
            slot,
            wanted,
            since: Nanos(5),
            bound: Some(Nanos(7)),
            label: label[..PendingTable::LABEL_BYTES].into(),
        };
        let second = PendingWait {
            since: Nanos(9),
            bound: None,
            label: "gradients".into(),
            ..first.clone()
        };
        assert_eq!(table.read(), [first.clone(), second]);
        assert_eq!(table.unwritten(), 0);
        drop(table.enter(slot, wanted, Nanos(1), None, "no room"));
        assert_eq!((table.read().len(), table.unwritten()), (2, 1));
        drop(later);
        assert_eq!(table.read(), [first]);
        drop(earlier);
        assert_eq!(table.read(), []);
    }
}
