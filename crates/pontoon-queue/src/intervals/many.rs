//! Many runs: a tree of them.

use std::{collections::BTreeMap, ops::Range};

/// Each run by its first byte; it lasts to the next one's, or to the size.
///
/// Invariant R1: a run begins at byte 0. That the others begin later, the map sees to.
#[derive(Clone, Debug)]
pub(super) struct Many<T>(BTreeMap<u64, T>);

impl<T> Many<T> {
    /// The runs, each by its first byte, of which one begins at byte 0.
    pub(super) fn of(runs: impl Iterator<Item = (u64, T)>) -> Self {
        Self(runs.collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The runs, each by its first byte, in order.
    pub(super) fn into_runs(self) -> impl Iterator<Item = (u64, T)> {
        self.0.into_iter()
    }
}

impl<T: PartialEq> Many<T> {
    /// The value of all runs, if they have one.
    pub(super) fn same(&mut self) -> Option<&mut T> {
        let mut values = self.0.values_mut();
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

impl<T: Clone> Many<T> {
    /// As `Intervals::update`, of a range that is not empty and ends by `size`.
    ///
    /// One descent where the range begins and ends with runs, as it does when it is a usual one.
    #[inline]
    pub(super) fn update(
        &mut self,
        size: u64,
        range: Range<u64>,
        mut change: impl FnMut(Range<u64>, &mut T),
    ) {
        loop {
            let mut touched = self.0.range_mut(range.start..=range.end);
            let Some((&(mut start), mut value)) = touched.next().filter(|at| *at.0 == range.start)
            else {
                self.cut(range.start);
                continue;
            };
            if range.end < size && touched.next_back().is_none_or(|(&start, _)| start < range.end) {
                self.cut(range.end);
                continue;
            }
            for (&next, following) in touched {
                change(start..next, value);
                (start, value) = (next, following);
            }
            change(start..range.end, value);
            return;
        }
    }

    /// Makes a run begin at `at`, where none does.
    #[cold]
    fn cut(&mut self, at: u64) {
        if let Some((_, value)) = self.0.range(..at).next_back() {
            let value = value.clone();
            self.0.insert(at, value);
        }
    }
}
