//! Which slots have something to go home: two bits each.
//!
//! A page is marked as *unsent* when the kernel tells that it was stored to, and until it is home as it was when it was
//! compared. While one call compares and sends it another may be told of a store that came after the comparison, and
//! of which nobody else will be told: so it is marked as found *again* too, and stays unsent.

use pontoon_signal::{
    SystemError, Words,
    shim::{AtomicU64, Ordering::*, sync},
};

use crate::table::SlotIndex;

const UNSENT: u64 = 1;
const AGAIN: u64 = 2;
/// Slots of a word.
const SLOTS: usize = 32;

/// The marks of a pool's slots. Whose page a slot has something else tells.
#[derive(Debug)]
pub struct Marks(Words);

impl Marks {
    /// For so many slots, none marked.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn new(slots: usize) -> Result<Self, SystemError> {
        Words::zeroed(slots.div_ceil(SLOTS)).map(Self)
    }

    fn word(&self, slot: SlotIndex) -> (&AtomicU64, u32) {
        (&self.0[slot.0 / SLOTS], (slot.0 % SLOTS * 2) as u32)
    }

    /// The kernel has told of a store to its page, whoever has hold of it.
    pub fn found(&self, slot: SlotIndex) {
        let (word, at) = self.word(slot);
        // SYNC(smc-found) release: pairs with comparing: who takes the mark away sees the store.
        word.fetch_or((UNSENT | AGAIN) << at, sync("smc-found", Release));
    }

    /// Something of its page is not home.
    pub fn keep(&self, slot: SlotIndex) {
        let (word, at) = self.word(slot);
        word.fetch_or(UNSENT << at, Relaxed);
    }

    /// The caller, who has hold of the page, is about to compare it: stores that were told of before are in what it finds.
    pub fn comparing(&self, slot: SlotIndex) {
        let (word, at) = self.word(slot);
        // SYNC(smc-found) acquire: pairs with found.
        word.fetch_and(!(AGAIN << at), sync("smc-found", Acquire));
    }

    /// What the caller found when it compared the page is home: it is marked no more, unless it was found again since.
    pub fn sent(&self, slot: SlotIndex) {
        let (word, at) = self.word(slot);
        let mut seen = word.load(Relaxed);
        while seen & AGAIN << at == 0 {
            match word.compare_exchange_weak(seen, seen & !(UNSENT << at), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The page is gone from its slot, and nothing of it has to go home.
    pub fn clear(&self, slot: SlotIndex) {
        let (word, at) = self.word(slot);
        if word.load(Relaxed) & (UNSENT | AGAIN) << at != 0 {
            word.fetch_and(!((UNSENT | AGAIN) << at), Relaxed);
        }
    }

    /// Whether something of its page is not home.
    pub fn is_unsent(&self, slot: SlotIndex) -> bool {
        let (word, at) = self.word(slot);
        word.load(Relaxed) & UNSENT << at != 0
    }

    /// The slots of which something is not home.
    pub fn unsent(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        /// The bits of all that are unsent.
        const ALL: u64 = u64::MAX / (UNSENT | AGAIN);
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = word.load(Relaxed) & ALL;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                (bit < 64).then(|| {
                    left &= left - 1;
                    SlotIndex(at * SLOTS + bit / 2)
                })
            })
        })
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::Marks;
    use crate::table::SlotIndex;

    #[test]
    fn marks_are_of_their_slots() {
        let marks = Marks::new(200).unwrap();
        let all = [0, 1, 31, 32, 63, 64, 199].map(SlotIndex);
        for slot in all {
            marks.found(slot);
        }
        assert_eq!(marks.unsent().collect::<Vec<_>>(), all);
        for slot in [all[1], all[3]] {
            marks.comparing(slot);
            marks.sent(slot);
        }
        assert_eq!(marks.unsent().collect::<Vec<_>>(), [0, 31, 63, 64, 199].map(SlotIndex));
        assert!(marks.is_unsent(all[0]) && !marks.is_unsent(all[1]));
        marks.clear(all[0]);
        marks.keep(all[1]);
        assert_eq!(marks.unsent().collect::<Vec<_>>(), [1, 31, 63, 64, 199].map(SlotIndex));
    }

    #[test]
    fn a_page_that_was_found_again_stays_marked() {
        let marks = Marks::new(64).unwrap();
        let slot = SlotIndex(40);
        marks.found(slot);
        marks.comparing(slot);
        marks.found(slot);
        marks.sent(slot);
        assert!(marks.is_unsent(slot));
        marks.comparing(slot);
        marks.sent(slot);
        assert!(!marks.is_unsent(slot));
    }
}
