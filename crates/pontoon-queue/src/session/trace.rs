//! Events for `tracing`, target `pontoon::fence`. Without a subscriber each is one comparison.
//!
//! - `created`: a device was given a batch; `parked`, `released`, `given up`: it was held back, and
//!   what became of it;
//! - `wait`, then `complete` or `expired`: the host waits;
//! - `edge`: one queue was made to wait for another.
//!
//! All but `edge` have `session`, `device`, `queue`, `position` and `label`: the position that is
//! waited for or reached, and the command that reaches it.

use pontoon_hal::Device;

use super::{Note, Session};
use crate::Axis;

impl<D: Device> Session<'_, D> {
    pub(super) fn traced(&self, what: &'static str, lane: usize, position: u64) {
        let label = || self.label_at(Self::axis(lane), position);
        tracing::trace!(
            target: "pontoon::fence",
            session = self.id,
            device = self.lanes[lane].device.rank().0,
            queue = &*self.lanes[lane].label,
            position,
            label = label(),
            "{what}"
        );
    }

    /// Of a batch that has no position.
    pub(super) fn traced_parked(&self, what: &'static str, lane: usize, label: &'static str) {
        tracing::trace!(
            target: "pontoon::fence",
            session = self.id,
            device = self.lanes[lane].device.rank().0,
            queue = &*self.lanes[lane].label,
            position = tracing::field::Empty,
            label,
            "{what}"
        );
    }

    pub(super) fn traced_edge(&self, lane: usize, axis: Axis, count: u64) {
        let Some(other) = Self::lane_of(axis) else { return };
        tracing::trace!(
            target: "pontoon::fence",
            session = self.id,
            device = self.lanes[lane].device.rank().0,
            queue = &*self.lanes[lane].label,
            position = self.tracker.events(Self::axis(lane)),
            on_device = self.lanes[other].device.rank().0,
            on_queue = &*self.lanes[other].label,
            on_position = count,
            on_label = self.label_at(axis, count),
            "edge"
        );
    }

    /// What reaches a position.
    fn label_at(&self, axis: Axis, position: u64) -> &'static str {
        match position.checked_sub(1).and_then(|at| self.note(axis, at)) {
            Some(Note::Work(label)) => label,
            Some(Note::Wait(..) | Note::Outside) => "wait",
            None => "",
        }
    }
}
