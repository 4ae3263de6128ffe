//! String moves and fills: as many elements at once as fit a store.

use core::ops::Range;

use pontoon_hal::guard::STORE_MAX;

use super::decode::Strings;

/// The elements of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) elements: u64,
    /// The lowest address that is stored to.
    pub(super) to: u64,
    /// The lowest address that is read.
    pub(super) from: Option<u64>,
}

impl Strings {
    /// The first of them that can be one store to the addresses `within`, `most` at most: none if the first is not all
    /// within.
    pub(super) fn batch(&self, within: &Range<u64>, most: u64) -> Option<Batch> {
        let size = self.element as u64;
        let (first, end) = (self.to, self.to.checked_add(size)?);
        if first < within.start || end > within.end {
            return None;
        }
        let room = if self.backwards { end - within.start } else { within.end - first };
        let elements = self.count.min(room / size).min(STORE_MAX as u64 / size).min(most);
        let elements = elements.min(self.apart()).max(1);
        let back = if self.backwards { (elements - 1) * size } else { 0 };
        let from = self.from.map(|from| from.wrapping_sub(back));
        Some(Batch { elements, to: first - back, from })
    }

    /// How many can be moved before one is that was moved already.
    fn apart(&self) -> u64 {
        let Some(from) = self.from else { return u64::MAX };
        let ahead =
            if self.backwards { from.wrapping_sub(self.to) } else { self.to.wrapping_sub(from) };
        if ahead == 0 { u64::MAX } else { ahead / self.element as u64 }
    }

    /// A pointer after so many elements.
    pub(super) fn behind(&self, pointer: u64, elements: u64) -> u64 {
        let bytes = elements.wrapping_mul(self.element as u64);
        if self.backwards { pointer.wrapping_sub(bytes) } else { pointer.wrapping_add(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, Strings};
    use proptest::prelude::*;

    /// As the processor does it: an element at a time.
    fn one_by_one(strings: &Strings, memory: &mut [u8]) {
        let (mut to, mut from) = (strings.to, strings.from);
        for _ in 0..strings.count {
            for byte in 0..strings.element {
                memory[to as usize + byte] = match from {
                    // All of an element is read before any of it is stored.
                    Some(from) => memory[from as usize + byte],
                    None => strings.value.to_le_bytes()[byte],
                };
            }
            to = strings.behind(to, 1);
            from = from.map(|from| strings.behind(from, 1));
        }
    }

    fn in_batches(mut strings: Strings, memory: &mut [u8]) -> u32 {
        let mut batches = 0;
        while strings.count > 0 {
            let all = 0..memory.len() as u64;
            let Batch { elements, to, from } = strings.batch(&all, u64::MAX).expect("within");
            let bytes = elements as usize * strings.element;
            if let Some(from) = from {
                memory.copy_within(from as usize..from as usize + bytes, to as usize);
            } else {
                for at in 0..bytes {
                    memory[to as usize + at] = strings.value.to_le_bytes()[at % strings.element];
                }
            }
            strings.count -= elements;
            strings.to = strings.behind(strings.to, elements);
            strings.from = strings.from.map(|from| strings.behind(from, elements));
            batches += 1;
        }
        batches
    }

    proptest! {
        #[test]
        fn batches_move_what_single_elements_do(
            size in 0_u32..4,
            count in 0_u64..40,
            to in 320_u64..640,
            from in proptest::option::of(320_u64..640),
            backwards: bool,
        ) {
            let element = 1 << size;
            // An element that overlaps the next one's source in part is moved in parts by either.
            let from = from.map(|from| from / element as u64 * element as u64 + to % element as u64);
            let strings = Strings { to, from, value: 0x0807_0605_0403_0201, element, count, repeats: true, backwards };
            let mut one: Vec<u8> = (0..1024_u32).map(|at| (at * 31 % 251) as u8).collect();
            let mut other = one.clone();
            one_by_one(&strings, &mut one);
            let batches = in_batches(strings, &mut other);
            prop_assert_eq!(one, other);
            prop_assert!(from.is_some() || batches <= 1);
        }
    }
}
