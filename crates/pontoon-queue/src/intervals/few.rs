//! Few runs: a sorted vector of their first bytes, searched by itself, and one of their values.

use std::ops::Range;

/// Each run by its first byte; it lasts to the next one's, or to the size.
///
/// Invariant R1: a run begins at byte 0, and every other at a later byte than the one before it.
#[derive(Clone, Debug)]
pub(super) struct Few<T> {
    starts: Vec<u64>,
    values: Vec<T>,
}

impl<T> Few<T> {
    /// One run.
    pub(super) fn of(value: T) -> Self {
        Self { starts: vec![0], values: vec![value] }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The runs, each by its first byte, in order.
    pub(super) fn into_runs(self) -> impl Iterator<Item = (u64, T)> {
        self.starts.into_iter().zip(self.values)
    }
}

impl<T: PartialEq> Few<T> {
    /// The value of all runs, if they have one.
    pub(super) fn same(&mut self) -> Option<&mut T> {
        let (first, others) = self.values.split_first_mut()?;
        others.iter().all(|value| value == first).then_some(first)
    }

    /// Runs in order, of which neighbours become one where they are equal.
    pub(super) fn merged(runs: impl Iterator<Item = (u64, T)>, room: usize) -> Self {
        let mut few = Self { starts: Vec::with_capacity(room), values: Vec::with_capacity(room) };
        for (start, value) in runs {
            if few.values.last() != Some(&value) {
                few.starts.push(start);
                few.values.push(value);
            }
        }
        few
    }

    /// Makes neighbours one where they are equal, in place.
    pub(super) fn merge(&mut self) {
        let mut kept = 0;
        for at in 1..self.values.len() {
            if self.values[at] != self.values[kept] {
                kept += 1;
                self.starts[kept] = self.starts[at];
                self.values.swap(kept, at);
            }
        }
        self.starts.truncate(kept + 1);
        self.values.truncate(kept + 1);
    }
}

impl<T: Clone> Few<T> {
    /// As `Intervals::update`, of a range that is not empty and ends by `size`.
    #[inline]
    pub(super) fn update(
        &mut self,
        size: u64,
        range: Range<u64>,
        mut change: impl FnMut(Range<u64>, &mut T),
    ) {
        let first = self.cut(range.start);
        let last = if range.end < size { self.cut(range.end) } else { self.len() };
        let ends = self.starts[first + 1..last].iter().copied().chain([range.end]);
        let mut start = range.start;
        for (value, end) in self.values[first..last].iter_mut().zip(ends) {
            change(start..end, value);
            start = end;
        }
    }

    /// Makes a run begin at `at`, and says which it is.
    #[inline]
    fn cut(&mut self, at: u64) -> usize {
        let place = self.starts.partition_point(|&start| start < at);
        if self.starts.get(place) != Some(&at) {
            self.insert(place, at);
        }
        place
    }

    /// Makes the run before `place` two. There is one: by R1 `at` is not 0.
    #[cold]
    fn insert(&mut self, place: usize, at: u64) {
        let value = self.values[place - 1].clone();
        self.values.insert(place, value);
        self.starts.insert(place, at);
    }
}
