//! Bytes that were sent and of which nobody said that they are home: home may have them, or get them yet.
//!
//! Whether this side stored something else to them since is no matter: what it has of them is sent again, be it what
//! the twin has. Else a store that was taken back before it was sent again would stay at home.

use core::ops::Range;
use std::{collections::BTreeMap, sync::Mutex};

use pontoon_signal::SystemError;

use crate::{bits::Bits, extent::locked, table::SlotIndex};

/// The bytes that each slot's page owes its home.
#[derive(Debug)]
pub(crate) struct Owed {
    /// The slots that owe any: where an access faults nothing else is looked at.
    slots: Bits,
    bytes: Mutex<BTreeMap<usize, Vec<Range<usize>>>>,
}

impl Owed {
    pub(crate) fn new(slots: usize) -> Result<Self, SystemError> {
        Ok(Self { slots: Bits::new(slots)?, bytes: Mutex::default() })
    }

    /// Whether the caller's slot owes anything.
    pub(crate) fn is_any(&self, slot: SlotIndex) -> bool {
        self.slots.is_set(slot.0)
    }

    /// What the caller's slot owes, in order.
    pub(crate) fn of(&self, slot: SlotIndex) -> Vec<Range<usize>> {
        if !self.is_any(slot) {
            return Vec::new();
        }
        locked(&self.bytes).get(&slot.0).cloned().unwrap_or_default()
    }

    /// The caller's slot owes these bytes too.
    pub(crate) fn add(&self, slot: SlotIndex, bytes: Range<usize>) {
        let mut all = locked(&self.bytes);
        let its = all.entry(slot.0).or_default();
        its.push(bytes);
        *its = joined(core::mem::take(its));
        self.slots.set(slot.0);
    }

    /// The caller's slot owes nothing.
    pub(crate) fn settle(&self, slot: SlotIndex) {
        if self.is_any(slot) {
            locked(&self.bytes).remove(&slot.0);
            self.slots.clear(slot.0);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes()
    }
}

/// The same bytes as the longest ranges in order.
pub(crate) fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touch = next.start <= range.end;
        if touch {
            range.end = range.end.max(next.end);
        }
        touch
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::{Owed, joined};
    use crate::table::SlotIndex;

    #[test]
    fn ranges_that_touch_are_one() {
        let ranges = vec![8..9, 0..2, 1..4, 4..5, 20..30, 22..24];
        assert_eq!(joined(ranges), [0..5, 8..9, 20..30]);
    }

    #[test]
    fn a_slot_owes_each_byte_once_until_it_is_settled() {
        let owed = Owed::new(100).unwrap();
        let [one, other] = [SlotIndex(3), SlotIndex(99)];
        (0..3).for_each(|_| owed.add(one, 5..9));
        owed.add(one, 7..12);
        owed.add(other, 0..1);
        assert_eq!(owed.of(one), vec![5..12]);
        owed.settle(one);
        assert!(!owed.is_any(one) && owed.of(one).is_empty());
        assert_eq!(owed.of(other), vec![0..1]);
    }
}
