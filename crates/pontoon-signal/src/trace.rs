//! The three time points of a signal: published, observed, acquired.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    Nanos, Rank, Seq, SlotId,
    shim::{AtomicU64, Ordering::*, sync},
};

/// When a signal was published, seen by the waiter, and made readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimePoints {
    /// The slot waited on.
    pub slot: SlotId,
    /// The counter as the waiter saw it.
    pub value: Seq,
    /// The producer's last publish as the waiter saw it; later than `value`'s own if the producer
    /// had gone on meanwhile.
    pub published: Nanos,
    /// When the wait saw the value.
    pub observed: Nanos,
    /// When the acquire fence was done.
    pub acquired: Nanos,
}

/// A debug array: the first waits of a traced table. It is filled once and never overwritten.
#[derive(Debug)]
pub(crate) struct Trace {
    next: AtomicU64,
    records: Box<[Record]>,
}

/// Invariant R1: a record is written by the one waiter that took its index, and is complete when
/// `acquired` is not zero.
#[derive(Debug)]
struct Record {
    slot: AtomicU64,
    value: AtomicU64,
    published: AtomicU64,
    observed: AtomicU64,
    acquired: AtomicU64,
}

/// The record of a wait that was observed and not yet acquired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordId(usize);

impl Trace {
    pub(crate) fn new(waits: u32) -> Self {
        let zero = || AtomicU64::new(0);
        let record = |_| Record {
            slot: zero(),
            value: zero(),
            published: zero(),
            observed: zero(),
            acquired: zero(),
        };
        Self { next: zero(), records: (0..waits).map(record).collect() }
    }

    pub(crate) fn observed(
        &self,
        slot: SlotId,
        value: Seq,
        published: Option<Nanos>,
        now: Nanos,
    ) -> Option<RecordId> {
        let index = usize::try_from(self.next.fetch_add(1, Relaxed)).ok()?;
        let record = self.records.get(index)?;
        let slot = u64::from(slot.producer.0) << 32 | u64::from(slot.slot);
        record.slot.store(slot, Relaxed);
        record.value.store(value.get(), Relaxed);
        record.published.store(published.unwrap_or_default().0, Relaxed);
        record.observed.store(now.0, Relaxed);
        Some(RecordId(index))
    }

    pub(crate) fn acquired(&self, record: RecordId, now: Nanos) {
        // SYNC(trace-record) release: the rest of the record is there for whoever sees this.
        self.records[record.0].acquired.store(now.0.max(1), sync("trace-record", Release));
    }

    /// The complete records, and how many waits found no room.
    pub(crate) fn read(&self) -> (Vec<TimePoints>, u64) {
        let taken = self.next.load(Relaxed);
        let dropped = taken.saturating_sub(self.records.len() as u64);
        (self.records.iter().filter_map(Record::read).collect(), dropped)
    }
}

impl Record {
    fn read(&self) -> Option<TimePoints> {
        // SYNC(trace-record) acquire: pairs with `acquired`.
        let acquired = self.acquired.load(sync("trace-record", Acquire));
        let slot = self.slot.load(Relaxed);
        (acquired != 0).then(|| TimePoints {
            slot: SlotId { producer: Rank((slot >> 32) as u32), slot: slot as u32 },
            value: Seq::new(self.value.load(Relaxed)),
            published: Nanos(self.published.load(Relaxed)),
            observed: Nanos(self.observed.load(Relaxed)),
            acquired: Nanos(acquired),
        })
    }
}
