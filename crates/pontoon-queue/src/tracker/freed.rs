//! Regions that were freed.

use pontoon_hal::RegionId;

/// Which regions were freed, by runs of ids.
///
/// Ids are handed out one after the other and never again, so what is freed grows together: there
/// are no more runs than regions that live or were dropped without a free, and one. Beyond
/// [`MOST`] the run of the oldest is forgotten: a command that names one of those is no longer
/// refused by the session. Its memory is there for as long as the command is.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Firsts and ends; sorted, and none touches the next.
    runs: Vec<(u64, u64)>,
}

/// 64 KiB of runs.
const MOST: usize = 4096;

impl Freed {
    pub(super) fn contains(&self, region: RegionId) -> bool {
        let after = self.runs.partition_point(|&(first, _)| first <= region.0);
        after.checked_sub(1).is_some_and(|at| region.0 < self.runs[at].1)
    }

    pub(super) fn insert(&mut self, region: RegionId) {
        if self.contains(region) {
            return;
        }
        let id = region.0;
        let at = self.runs.partition_point(|&(first, _)| first <= id);
        let joins_before = at > 0 && self.runs[at - 1].1 == id;
        let joins_after =
            self.runs.get(at).is_some_and(|&(first, _)| first.checked_sub(1) == Some(id));
        match (joins_before, joins_after) {
            (true, true) => self.runs[at - 1].1 = self.runs.remove(at).1,
            (true, false) => self.runs[at - 1].1 += 1,
            (false, true) => self.runs[at].0 = id,
            (false, false) => {
                self.runs.insert(at, (id, id.saturating_add(1)));
                if self.runs.len() > MOST {
                    self.runs.remove(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_in_any_order_grows_together() {
        let mut freed = Freed::default();
        for id in
            (0..1000).step_by(2).chain((1..1000).step_by(2).collect::<Vec<_>>().into_iter().rev())
        {
            assert!(!freed.contains(RegionId(id)));
            freed.insert(RegionId(id));
            assert!(freed.contains(RegionId(id)));
        }
        freed.insert(RegionId(500));
        assert_eq!(freed.runs, [(0, 1000)]);
        assert!(!freed.contains(RegionId(1000)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut freed = Freed::default();
        (0..2 * MOST as u64).for_each(|at| freed.insert(RegionId(2 * at)));
        assert_eq!(freed.runs.len(), MOST);
        assert!(freed.contains(RegionId(4 * MOST as u64 - 2)) && !freed.contains(RegionId(0)));
    }
}
