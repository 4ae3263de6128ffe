//! Something for every byte of an allocation, kept by runs of bytes that have the same.

use std::{collections::BTreeMap, ops::Range};

/// A value for every byte of `0..size`.
///
/// Used whole it stays one cell, and an update is O(1). Otherwise an update of a range is
/// O(log n + k) for n runs, of which k are touched.
#[derive(Clone, Debug)]
pub struct Intervals<T> {
    size: u64,
    cells: Cells<T>,
}

#[derive(Clone, Debug)]
enum Cells<T> {
    Whole(T),
    /// Each run by its first byte; it lasts to the next one's.
    ///
    /// Invariant R1: there is a run from byte 0, and neighbours differ.
    Runs(BTreeMap<u64, T>),
}

impl<T: Clone + Default + PartialEq> Intervals<T> {
    /// The same default for all bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, cells: Cells::Whole(T::default()) }
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> usize {
        match &self.cells {
            Cells::Whole(_) => 1,
            Cells::Runs(runs) => runs.len(),
        }
    }

    /// Lets `change` see and change each run of `range`, cut to it, in order of the bytes.
    ///
    /// Bytes past the size do not exist and are left out.
    pub fn update(&mut self, range: Range<u64>, mut change: impl FnMut(Range<u64>, &mut T)) {
        let range = range.start..range.end.min(self.size);
        if range.is_empty() {
            return;
        }
        if let Cells::Whole(value) = &mut self.cells {
            if range == (0..self.size) {
                change(range, value);
                return;
            }
            self.cells = Cells::Runs(BTreeMap::from([(0, value.clone())]));
        }
        let Cells::Runs(runs) = &mut self.cells else { return };
        cut(runs, range.start);
        if range.end < self.size {
            cut(runs, range.end);
        }
        let mut touched = runs.range_mut(range.clone()).peekable();
        while let Some((&start, value)) = touched.next() {
            let end = touched.peek().map_or(range.end, |(next, _)| **next);
            change(start..end, value);
        }
        self.merge(range);
    }

    /// Restores R1 after the runs of `range` changed.
    fn merge(&mut self, range: Range<u64>) {
        let Cells::Runs(runs) = &mut self.cells else { return };
        let before = runs.range(..range.start).next_back().map(|(&start, _)| start);
        let mut same = Vec::new();
        let mut last: Option<&T> = None;
        for (&start, value) in runs.range(before.unwrap_or(0)..=range.end) {
            if last == Some(value) {
                same.push(start);
            }
            last = Some(value);
        }
        for start in same {
            runs.remove(&start);
        }
        if runs.len() == 1
            && let Some((_, value)) = runs.pop_first()
        {
            self.cells = Cells::Whole(value);
        }
    }
}

/// Makes a run begin at `at`.
fn cut<T: Clone>(runs: &mut BTreeMap<u64, T>, at: u64) {
    if let Some((&start, value)) = runs.range(..=at).next_back()
        && start < at
    {
        let value = value.clone();
        runs.insert(at, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(map: &mut Intervals<u8>) -> Vec<(Range<u64>, u8)> {
        let mut runs = Vec::new();
        let mut copy = map.clone();
        copy.update(0..u64::MAX, |range, value| runs.push((range, *value)));
        runs
    }

    #[test]
    fn used_whole_it_is_one_cell() {
        let mut map = Intervals::<u8>::new(100);
        map.update(0..100, |range, value| {
            assert_eq!(range, 0..100);
            *value = 7;
        });
        assert!(matches!(map.cells, Cells::Whole(7)));
    }

    #[test]
    fn a_part_is_cut_out_and_merges_again() {
        let mut map = Intervals::<u8>::new(100);
        map.update(10..20, |_, value| *value = 1);
        assert_eq!(all(&mut map), [(0..10, 0), (10..20, 1), (20..100, 0)]);
        map.update(15..30, |_, value| *value = 1);
        assert_eq!(all(&mut map), [(0..10, 0), (10..30, 1), (30..100, 0)]);
        map.update(10..30, |_, value| *value = 0);
        assert!(matches!(map.cells, Cells::Whole(0)));
    }

    #[test]
    fn it_does_what_a_value_for_each_byte_does() {
        let mut map = Intervals::<u8>::new(64);
        let mut bytes = [0_u8; 64];
        let mut seed = 1_u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            let (a, b) = ((seed >> 33) % 65, (seed >> 43) % 65);
            let (range, add) = (a.min(b)..a.max(b), (seed >> 60) as u8 % 3);
            map.update(range.clone(), |_, value| *value = (*value + add) % 4);
            for byte in &mut bytes[range.start as usize..range.end as usize] {
                *byte = (*byte + add) % 4;
            }
            let runs = all(&mut map);
            assert!(runs.windows(2).all(|two| two[0].1 != two[1].1), "{runs:?}");
            for (range, value) in runs {
                assert!(range.clone().all(|at| bytes[at as usize] == value), "{range:?}");
            }
        }
    }
}
