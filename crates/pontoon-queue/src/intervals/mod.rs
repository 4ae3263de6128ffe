//! Something for every byte of an allocation, kept by runs of bytes that have the same.
//!
//! Runs that became equal are merged late. A pattern of updates that comes again would otherwise
//! have its cuts taken away each time and made again; as it is, it finds them and only looks.

mod few;
mod many;
#[cfg(test)]
mod tests;

use std::{mem, ops::Range};

use few::Few;
use many::Many;

/// A value for every byte of `0..size`.
///
/// Used whole it stays one cell, and an update is O(1). Otherwise an update of a range is
/// O(log n + k) for n runs, of which k are touched; what merging costs is paid by the cuts that made
/// it due. An update that begins and ends where runs do allocates nothing.
///
/// Invariant R2: after an update there are no more runs than `limit`, which is at most a constant more
/// than twice what the last merge left. Neighbours may be equal until the next merge.
///
/// ```
/// use pontoon_queue::Intervals;
///
/// let mut writers = Intervals::<u32>::new(100);
/// writers.update(0..100, |_, writer| *writer = 1);
/// writers.update(50..60, |_, writer| *writer = 2);
/// let mut seen = Vec::new();
/// writers.update(0..55, |bytes, writer| seen.push((bytes, *writer)));
/// assert_eq!(seen, [(0..50, 1), (50..55, 2)]);
/// ```
#[derive(Clone, Debug)]
pub struct Intervals<T> {
    size: u64,
    cells: Cells<T>,
    /// With how many runs the next merge is due.
    limit: usize,
    /// How many updates in a row were of all bytes, while there were runs.
    wholes: u32,
}

#[derive(Clone, Debug)]
enum Cells<T> {
    Whole(T),
    Few(Few<T>),
    Many(Many<T>),
}

/// Most runs of a [`Few`]. Up to a thousand both a search and a cut were measured to take less in
/// the vectors than in the tree; but a cut moves half the values, which may be larger than those.
const FEW: usize = 256;

/// How many cuts there may be between merges, beside as many as the last one left runs: each may
/// leave a run that an update of all bytes meets.
const SLACK: usize = 64;

/// After so many updates in a row of all bytes they are taken to go on so, and runs that are all
/// equal become one cell: a buffer filled by parts and then used whole is again O(1).
const PATIENCE: u32 = 64;

impl<T: Clone + Default + PartialEq> Intervals<T> {
    /// The same default for all bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, cells: Cells::Whole(T::default()), limit: SLACK, wholes: 0 }
    }

    /// How many runs are kept. Neighbours among them may be equal, but not after [`compact`].
    ///
    /// [`compact`]: Self::compact
    #[must_use]
    pub fn runs(&self) -> usize {
        match &self.cells {
            Cells::Whole(_) => 1,
            Cells::Few(few) => few.len(),
            Cells::Many(many) => many.len(),
        }
    }

    /// Lets `change` see and change each run of `range`, cut to it, in order of the bytes.
    ///
    /// Bytes past the size do not exist and are left out. Successive runs may be equal.
    #[inline]
    pub fn update(&mut self, range: Range<u64>, mut change: impl FnMut(Range<u64>, &mut T)) {
        let range = range.start..range.end.min(self.size);
        if range.is_empty() {
            return;
        }
        match &mut self.cells {
            Cells::Whole(value) if range == (0..self.size) => change(range, value),
            _ => self.update_runs(range, change),
        }
    }

    /// Makes neighbours one where they are equal, and one cell of them if all are.
    pub fn compact(&mut self) {
        self.merge();
        self.join_whole();
    }

    fn update_runs(&mut self, range: Range<u64>, change: impl FnMut(Range<u64>, &mut T)) {
        if let Cells::Whole(value) = &mut self.cells {
            self.cells = Cells::Few(Few::of(mem::take(value)));
        }
        self.wholes = if range == (0..self.size) { self.wholes + 1 } else { 0 };
        match &mut self.cells {
            Cells::Few(few) => few.update(self.size, range, change),
            Cells::Many(many) => many.update(self.size, range, change),
            Cells::Whole(_) => unreachable!("runs were made of it"),
        }
        if self.wholes == PATIENCE {
            self.wholes = 0;
            self.join_whole();
        } else if self.runs() > self.limit {
            self.merge();
        }
    }

    /// Makes one cell of all runs if they are equal.
    #[cold]
    fn join_whole(&mut self) {
        let one = match &mut self.cells {
            Cells::Whole(_) => return,
            Cells::Few(few) => few.same(),
            Cells::Many(many) => many.same(),
        };
        if let Some(value) = one {
            self.cells = Cells::Whole(mem::take(value));
            self.limit = SLACK;
        }
    }

    /// Makes neighbours one where they are equal, and keeps what is left as suits its number.
    ///
    /// A representation is left for another only with room for many cuts until that is left again.
    #[cold]
    fn merge(&mut self) {
        let few = match mem::replace(&mut self.cells, Cells::Whole(T::default())) {
            Cells::Whole(value) => {
                self.cells = Cells::Whole(value);
                return;
            }
            Cells::Few(mut few) => {
                few.merge();
                few
            }
            Cells::Many(many) => Few::merged(many.into_runs(), FEW),
        };
        let limit = 2 * few.len() + SLACK;
        (self.limit, self.cells) = if few.len() <= FEW / 2 {
            (limit.min(FEW), Cells::Few(few))
        } else {
            (limit, Cells::Many(Many::of(few.into_runs())))
        };
    }
}
