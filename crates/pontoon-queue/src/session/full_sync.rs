//! The host waits after each batch, so that a bug of ordering goes away.

use std::time::Duration;

use pontoon_hal::Device;
use pontoon_signal::Bound;

use super::{Cause, Session};

/// What the host waits for after each batch that a device was given.
///
/// A result that is right with it and wrong without has a dependency missing:
/// [`bisect`](crate::bisect()) names it. It changes when things run and nothing else: what a session
/// that checks its edges refuses, it still refuses, and a submission that was taken is still taken.
/// How a batch failed is told by its fence, as ever. Where a batch is not over within the session's
/// patience, such as one that waits for what the same thread does later, the session says so once
/// and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullSync {
    /// The batch.
    Queue,
    /// All that the batch's device was given, by whomever.
    Device,
}

impl FullSync {
    /// What `PONTOON_FULL_SYNC` may be.
    pub(super) const VALUES: [(&str, Option<Self>); 3] =
        [("0", None), ("queue", Some(Self::Queue)), ("device", Some(Self::Device))];
}

/// Lanes that were given a batch since the host waited last. The members of a collective are given
/// to their devices before the first of them is waited for.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    lanes: Vec<usize>,
    told: bool,
}

impl<D: Device> Session<'_, D> {
    /// The lane was given a batch.
    pub(super) fn sync_later(&mut self, lane: usize) {
        if self.aids.full_sync.is_some() {
            self.aids.unsynced.lanes.push(lane);
        }
    }

    /// Waits for what was given since, if the session does.
    pub(super) fn sync_now(&mut self) {
        let Some(full_sync) = self.aids.full_sync else { return };
        while let Some(lane) = self.aids.unsynced.lanes.pop() {
            let expired = match full_sync {
                FullSync::Queue => {
                    let axis = Self::axis(lane);
                    let events = self.tracker.events(axis);
                    let reached = self.reach_for(Cause::FullSync, axis, events, self.patience);
                    reached.is_err_and(|failed| failed.error.is_timeout())
                }
                FullSync::Device => {
                    let cap = self.patience.cap().max(Duration::from_nanos(1));
                    let bound = Bound::within(cap);
                    let reached = self.lanes[lane].device.synchronize(bound);
                    reached.is_err_and(|error| error.is_timeout())
                }
            };
            if expired && !self.aids.unsynced.told {
                self.aids.unsynced.told = true;
                let lane = &self.lanes[lane];
                eprintln!(
                    "pontoon: full sync: device {} queue {} was not through within the session's \
                     patience; from here on commands may run in another order than with a full sync",
                    lane.device.rank(),
                    lane.label
                );
            }
        }
    }
}
