//! What is to be done about slots yet: a bit each.

use pontoon_signal::{
    SystemError, Words,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::table::SlotIndex;

/// What has to go home.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The page was found stored to, and is not known to be home.
    pub(crate) unsent: Bits,
    /// Its bytes are home, and its version does not say so.
    pub(crate) unannounced: Bits,
}

/// A bit for each slot. Of what it is about its slot's state tells: it is looked at by who has the slot.
#[derive(Debug)]
pub(crate) struct Bits(Words);

impl Marks {
    pub(crate) fn new(slots: usize) -> Result<Self, SystemError> {
        Ok(Self { unsent: Bits::new(slots)?, unannounced: Bits::new(slots)? })
    }

    /// All of the page is home, and others may know.
    pub(crate) fn clear(&self, slot: SlotIndex) {
        self.unannounced.clear(slot);
        self.unsent.clear(slot);
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.unsent.0.len() + self.unannounced.0.len()) * 8
    }
}

impl Bits {
    fn new(slots: usize) -> Result<Self, SystemError> {
        Words::zeroed(slots.div_ceil(64)).map(Self)
    }

    fn word(&self, slot: SlotIndex) -> (&AtomicU64, u64) {
        (&self.0[slot.0 / 64], 1 << (slot.0 % 64))
    }

    pub(crate) fn set(&self, slot: SlotIndex) {
        let (word, bit) = self.word(slot);
        word.fetch_or(bit, Relaxed);
    }

    pub(crate) fn clear(&self, slot: SlotIndex) {
        let (word, bit) = self.word(slot);
        if word.load(Relaxed) & bit != 0 {
            word.fetch_and(!bit, Relaxed);
        }
    }

    pub(crate) fn is_set(&self, slot: SlotIndex) -> bool {
        let (word, bit) = self.word(slot);
        word.load(Relaxed) & bit != 0
    }

    /// The slots whose bits are set.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = word.load(Relaxed);
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (bit < 64).then(|| {
                    left &= left - 1;
                    SlotIndex(at * 64 + bit as usize)
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Marks;
    use crate::table::SlotIndex;

    #[test]
    fn marks_are_of_their_slots() {
        let marks = Marks::new(200).unwrap();
        let all = [0, 1, 63, 64, 127, 199].map(SlotIndex);
        all.into_iter().for_each(|slot| marks.unsent.set(slot));
        marks.unannounced.set(all[3]);
        assert_eq!(marks.unsent.slots().collect::<Vec<_>>(), all);
        assert_eq!(marks.unannounced.slots().collect::<Vec<_>>(), [all[3]]);
        marks.clear(all[3]);
        assert!(!marks.unsent.is_set(all[3]) && !marks.unannounced.is_set(all[3]));
        assert_eq!(marks.unsent.slots().count(), 5);
    }
}
