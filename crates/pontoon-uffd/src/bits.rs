//! A bit a page, in memory that nobody pays for before a bit of it is set.

use core::ops::Range;

use pontoon_signal::{
    SystemError, Words,
    shim::Ordering::{self, Relaxed},
};

/// A bit for each of so many pages. Who sets one while a fault is served may fault on the word it is
/// in, which is ordinary memory: the kernel serves that.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Words,
}

const A_WORD: usize = u64::BITS as usize;

impl Bits {
    pub(crate) fn new(pages: usize) -> Result<Self, SystemError> {
        Ok(Self { words: Words::zeroed(pages.div_ceil(A_WORD))? })
    }

    #[cfg_attr(
        pontoon_loom,
        allow(dead_code, reason = "for poisoned pages, of which loom has none")
    )]
    pub(crate) fn is_set(&self, page: usize) -> bool {
        self.words[page / A_WORD].load(Relaxed) & 1 << (page % A_WORD) != 0
    }

    /// The first of `pages` whose bits are set and that follow each other.
    #[cfg_attr(pontoon_loom, allow(dead_code, reason = "as of is_set"))]
    pub(crate) fn first(&self, pages: Range<usize>) -> Option<Range<usize>> {
        let start = words(pages.clone()).find_map(|(at, mask)| {
            let set = self.words[at].load(Relaxed) & mask;
            (set != 0).then(|| at * A_WORD + set.trailing_zeros() as usize)
        })?;
        let end = (start..pages.end).find(|&page| !self.is_set(page)).unwrap_or(pages.end);
        Some(start..end)
    }

    pub(crate) fn set(&self, pages: Range<usize>, order: Ordering) {
        for (at, mask) in words(pages) {
            self.words[at].fetch_or(mask, order);
        }
    }

    #[cfg_attr(
        pontoon_loom,
        allow(dead_code, reason = "for poisoned pages, of which loom has none")
    )]
    /// Clears the bits of `pages`: a look is all it costs where none is set.
    pub(crate) fn clear(&self, pages: Range<usize>) {
        for (at, mask) in words(pages) {
            if self.words[at].load(Relaxed) & mask != 0 {
                self.words[at].fetch_and(!mask, Relaxed);
            }
        }
    }

    /// Clears the bits of `pages` and gives `found` those that were set, as runs, until it answers
    /// `false`. The page that it ended at: bits from there on are as they were.
    pub(crate) fn take(
        &self,
        pages: Range<usize>,
        order: Ordering,
        mut found: impl FnMut(Range<usize>) -> bool,
    ) -> usize {
        for (at, mask) in words(pages.clone()) {
            if self.words[at].load(Relaxed) & mask == 0 {
                continue;
            }
            let mut taken = self.words[at].fetch_and(!mask, order) & mask;
            while taken != 0 {
                let first = taken.trailing_zeros() as usize;
                let run = (taken >> first).trailing_ones() as usize;
                if !found(at * A_WORD + first..at * A_WORD + first + run) {
                    self.words[at].fetch_or(taken, Relaxed);
                    return at * A_WORD + first;
                }
                taken &= !(ones(run) << first);
            }
        }
        pages.end
    }
}

/// The words that hold the bits of `pages`, each with the bits that it holds.
fn words(pages: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut next = pages.start;
    core::iter::from_fn(move || {
        (next < pages.end).then(|| {
            let (at, shift) = (next / A_WORD, next % A_WORD);
            let count = (A_WORD - shift).min(pages.end - next);
            next += count;
            (at, ones(count) << shift)
        })
    })
}

/// So many bits, from 1 to 64.
fn ones(count: usize) -> u64 {
    u64::MAX >> (A_WORD - count)
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::Bits;
    use pontoon_signal::shim::Ordering::Relaxed;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_take_gives_each_set_bit_once_as_runs(
            set in prop::collection::btree_set(0_usize..300, 0..40),
            (start, len) in (0_usize..300, 0_usize..300),
            most in 0_usize..12,
        ) {
            let (bits, end) = (Bits::new(300).unwrap(), (start + len).min(300));
            set.iter().for_each(|&page| bits.set(page..page + 1, Relaxed));
            let (mut runs, mut taken) = (0, Vec::new());
            let next = bits.take(start..end, Relaxed, |run| {
                runs += 1;
                if runs > most {
                    return false;
                }
                taken.extend(run);
                true
            });
            let expected: Vec<usize> = set.range(start..next).copied().collect();
            prop_assert_eq!(&taken, &expected);
            let (mut at, mut left) = (0, Vec::new());
            while let Some(run) = bits.first(at..300) {
                prop_assert!(run.end == 300 || !bits.is_set(run.end));
                at = run.end;
                left.extend(run);
            }
            prop_assert_eq!(left, (0..300).filter(|&page| bits.is_set(page)).collect::<Vec<_>>());
            for page in 0..300 {
                let still = set.contains(&page) && !taken.contains(&page);
                prop_assert_eq!(bits.is_set(page), still, "page {}", page);
            }
            bits.set(start..end, Relaxed);
            prop_assert!((start..end).all(|page| bits.is_set(page)));
            bits.clear(start..end);
            prop_assert!((start..end).all(|page| !bits.is_set(page)));
        }
    }
}
