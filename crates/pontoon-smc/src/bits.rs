//! A bit for each slot of a pool, or for each page of a window.

use pontoon_signal::{
    SystemError, Words,
    shim::{AtomicU64, Ordering::Relaxed},
};

/// Bits that any thread may set and clear. Of what each is about something else tells: it is looked at by who has
/// the slot, or the page.
#[derive(Debug)]
pub(crate) struct Bits(Words);

impl Bits {
    /// So many, all clear. Memory is taken up where some are set.
    pub(crate) fn new(len: usize) -> Result<Self, SystemError> {
        Words::zeroed(len.div_ceil(64)).map(Self)
    }

    fn word(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.0[at / 64], 1 << (at % 64))
    }

    /// Whether it was clear.
    pub(crate) fn set(&self, at: usize) -> bool {
        let (word, bit) = self.word(at);
        word.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Whether it was set.
    pub(crate) fn clear(&self, at: usize) -> bool {
        let (word, bit) = self.word(at);
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0
    }

    pub(crate) fn is_set(&self, at: usize) -> bool {
        let (word, bit) = self.word(at);
        word.load(Relaxed) & bit != 0
    }

    /// Which are set.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().map(|word| word.load(Relaxed)).enumerate();
        words.flat_map(|(at, word)| ones(word).map(move |bit| at * 64 + bit))
    }

    /// Which were set; they are clear then.
    pub(crate) fn take(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().enumerate();
        let taken = words.filter(|(_, word)| word.load(Relaxed) != 0);
        let taken = taken.map(|(at, word)| (at, word.swap(0, Relaxed)));
        taken.flat_map(|(at, word)| ones(word).map(move |bit| at * 64 + bit))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// The places of the ones of a word.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        (bit < 64).then(|| {
            word &= word - 1;
            bit as usize
        })
    })
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn bits_are_told_in_order_and_taken_once() {
        let bits = Bits::new(200).unwrap();
        let some = [0, 1, 63, 64, 127, 199];
        assert!(some.into_iter().all(|at| bits.set(at)));
        assert_eq!(bits.all().collect::<Vec<_>>(), some);
        assert!(bits.clear(64) && !bits.clear(64));
        assert!(bits.set(5) && !bits.set(5) && bits.clear(5));
        assert!(!bits.is_set(64) && bits.is_set(63));
        assert_eq!(bits.take().collect::<Vec<_>>(), [0, 1, 63, 127, 199]);
        assert_eq!(bits.take().count() + bits.all().count(), 0);
    }
}
