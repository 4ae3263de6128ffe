//! An axis whose queue failed.

use pontoon_hal::RegionId;

use super::Tracker;
use crate::{Axis, Clock};

impl Tracker {
    /// All that the events of an axis so far come after.
    pub(crate) fn clock(&self, axis: Axis) -> &Clock {
        &self.lane(axis).clock
    }

    /// Forgets what was done to a region that nobody names any more.
    pub(crate) fn forget(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    /// Nothing of an axis runs any more, and none of its events that were not over ever will: all
    /// of them are behind whatever is submitted from now on.
    ///
    /// An event that never started still hides, as a later use of the same bytes, those that it was
    /// to come after: they have to be over too. What it was to learn from its waits is not learnt.
    pub(crate) fn write_off(&mut self, axis: Axis) {
        let events = self.events(axis);
        self.lanes[0].clock.advance(axis, events);
        self.lane_mut(axis).restart();
        // So that the next event starts from what the host knows.
        self.host_version += 1;
    }
}
