//! An axis whose queue failed.

use pontoon_hal::RegionId;

use super::{Epoch, Tracker};
use crate::{Axis, Clock};

impl Tracker {
    /// All that the events of an axis so far come after.
    pub(crate) fn clock(&self, axis: Axis) -> &Clock {
        &self.lane(axis).clock
    }

    /// Forgets what was done to a region that nobody names any more.
    pub(crate) fn forget(&mut self, region: RegionId) {
        self.regions.remove(region);
    }

    /// Of the events of an axis past the first `over`, which never will be over, those that were to
    /// come after the failure of another: whoever uses their bytes next meets that failure, which
    /// they hide as the last use. `failed` has the axes that failed and how many of their events
    /// are over.
    pub(crate) fn pass_on(&mut self, axis: Axis, over: u64, failed: &[(Axis, u64)]) {
        let lane = &self.lanes[axis.0 as usize];
        let met = |epoch: Epoch| {
            let clock = lane.clock_of(epoch.count()).filter(|_| epoch.axis == axis)?;
            let mut unmet = failed.iter().map(|&(axis, over)| (axis, over, clock.known(axis)));
            let (axis, _, known) = unmet.find(|&(_, over, known)| known > over)?;
            Some(Epoch { axis, at: known - 1 })
        };
        let pass = |epoch: &mut Epoch| {
            if epoch.at >= over
                && let Some(met) = met(*epoch)
            {
                *epoch = met;
            }
        };
        for cells in self.regions.all() {
            cells.update(0..u64::MAX, |_, cell| {
                cell.writer.iter_mut().for_each(pass);
                cell.readers.iter_mut().for_each(pass);
            });
        }
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
