//! What comes before what, as sets: no clocks, no elisions.

/// Nodes, each with all that comes before it.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    before: Vec<Vec<u64>>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.before.len()
    }

    /// Adds a node that comes after `others` and all before them.
    pub(crate) fn add(&mut self, others: impl IntoIterator<Item = usize>) -> usize {
        let mut all = vec![0; self.before.len() / 64 + 1];
        for other in others {
            all[other / 64] |= 1 << (other % 64);
            for (mine, theirs) in all.iter_mut().zip(&self.before[other]) {
                *mine |= theirs;
            }
        }
        self.before.push(all);
        self.before.len() - 1
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.before.truncate(len);
    }

    /// Whether `first` is the same as `second` or comes before it.
    pub(crate) fn leads(&self, first: usize, second: usize) -> bool {
        let word = self.before[second].get(first / 64);
        first == second || word.is_some_and(|word| word >> (first % 64) & 1 == 1)
    }
}
