//! What an access has to come after, and the fewest waits for it.

use std::ops::Range;

use pontoon_hal::{Mode, RegionId};

use super::{Epoch, Tracker};
use crate::Axis;

/// An earlier access that a later one has to come after, and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) epoch: Epoch,
    pub(crate) earlier: Mode,
    pub(crate) later: Mode,
    pub(crate) region: RegionId,
    pub(crate) range: Range<u64>,
}

impl Need {
    /// Whether it only keeps a write from overtaking a read: no bytes have to be made visible.
    pub(crate) fn is_execution_only(&self) -> bool {
        self.earlier == Mode::Read
    }
}

/// The fewest waits that bring all of `needs`: of each axis the last event, and none that another
/// one implies. Exact, since waits for in-order axes and their clocks are all there is: what
/// implies an event does so by its clock. O(k²) for k axes.
pub(crate) fn reduce(tracker: &Tracker, needs: &[Need], edges: &mut Vec<(Axis, u64)>) {
    edges.clear();
    for need in needs {
        let (axis, count) = (need.epoch.axis, need.epoch.count());
        match edges.iter_mut().find(|edge| edge.0 == axis) {
            Some(edge) => edge.1 = edge.1.max(count),
            None => edges.push((axis, count)),
        }
    }
    let mut at = 0;
    while at < edges.len() {
        let edge = edges[at];
        let implied = edges.iter().any(|&other| other != edge && tracker.implies(other, edge));
        if implied {
            edges.swap_remove(at);
        } else {
            at += 1;
        }
    }
}
