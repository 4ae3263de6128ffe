//! Giving a lane another queue, since one that failed is dead for good (`Queue` Q5).
//!
//! The axis of the lane goes on: the events of the dead queue lie before the first completion of the
//! new one, so they are over, and the host knows it. That is what lets a batch overwrite what its
//! first attempt half wrote. A fence of the dead queue keeps that queue's signal: it was reached,
//! or it stays failed, also for what waits for it from now on.
//!
//! Of an event that never started, two things must not be believed. That what it waited for is over:
//! the waits never ended. And that only it matters to whoever uses its bytes next: the tracker has
//! it as their last use, and what it was to come after is forgotten there, but may still run. So
//! the host first waits for all of that; and where it failed instead, the event's bytes are noted as
//! if it had been their last use, so that whoever uses them next meets the failure. Only a command of a lost device can still be running then,
//! for nobody can stop it: what meets it on the same bytes fails with a hazard (`Queue` Q6).

use std::{ops::Range, sync::Arc};

use pontoon_hal::{Device, Fault, Queue};

use super::{Refusal, Session, StreamId};
use crate::{Axis, ReopenError, fence::Point, patience::Deadline};

impl<D: Device> Session<'_, D> {
    /// Makes a stream usable again that failed, or that was given up: its queue is replaced where
    /// it failed. Without a failure it does nothing.
    ///
    /// Batches that say what becomes of them have that first. Whatever else the stream was given and
    /// was not over stays failed; what is parked behind it is given up, for it was to come after that. Signals that the queue never made are taken back,
    /// and can be submitted again. All streams over the queue are usable again.
    ///
    /// # Errors
    ///
    /// [`ReopenError`]. For a moment the device has both queues open, so it needs one to spare.
    ///
    /// # Blocks
    ///
    /// While the queue still runs what it was given before, and until what the failed commands were
    /// to come after is over; at most as long as the session's patience.
    pub fn reopen(&mut self, stream: StreamId) -> Result<(), ReopenError> {
        let queue = self.streams[stream.in_session(self.id)?].queue;
        let by = Deadline::of(self.patience);
        // What says what becomes of it has it now, or it would happen under what comes next.
        self.settle_by(by);
        for at in 0..self.queues[queue].lanes.len() {
            // It may have failed while others were recovered.
            while let Some(error) = self.to_recover(self.queues[queue].lanes[at]) {
                if by.is_past() {
                    return Err(ReopenError::Wait(error));
                }
                self.settle_by(by);
            }
        }
        for lane in self.queues[queue].lanes.clone() {
            if self.lanes[lane].is_dead() {
                self.reopen_after(lane, by)?;
            }
        }
        self.forgive(queue);
        self.pump();
        Ok(())
    }

    /// Gives up what is parked on a lane, and gives it another queue.
    pub(super) fn reopen_after(&mut self, lane: usize, by: Deadline) -> Result<(), ReopenError> {
        if let Some(fault) = self.lanes[lane].queue.fault() {
            self.give_up_parked(lane, &fault);
        }
        self.reopen_lane(lane, 0..0, by)
    }

    /// Gives up what is parked on a lane, for what it was to come after failed.
    pub(super) fn give_up_parked(&mut self, lane: usize, fault: &Fault) {
        if let Some(&head) = self.lanes[lane].parked.front() {
            self.give_up(head, Refusal::Faulted(fault.clone()));
        }
    }

    /// The streams over a queue are usable again.
    pub(super) fn forgive(&mut self, queue: usize) {
        for &lane in &self.queues[queue].lanes {
            self.lanes[lane].given_up = None;
        }
        self.forgive_owed(queue);
    }

    /// Gives a lane another queue. What is parked stays parked. The events `again` are of a batch
    /// that will be submitted again.
    pub(super) fn reopen_lane(
        &mut self,
        lane: usize,
        again: Range<u64>,
        by: Deadline,
    ) -> Result<(), ReopenError> {
        let axis = Self::axis(lane);
        let events = self.tracker.events(axis);
        let failure = match self.reach(axis, events, by.left()) {
            Err(error) if error.error.is_timeout() => return Err(ReopenError::Wait(error)),
            Err(error) => Some(self.rooted(&self.fence_of(lane), error)),
            Ok(()) => None,
        };
        self.quiesce(lane, by)?;
        let this = &mut self.lanes[lane];
        let completed = this.completed().min(events);
        // Acquires what they wrote.
        let _ = this.is_over(completed);
        this.reopen(events).map_err(ReopenError::Open)?;
        self.tracker.host_learns(axis, completed);
        let dead = (0..self.lanes.len()).filter(|&other| self.lanes[other].is_dead());
        let failed: Vec<_> =
            dead.map(|other| (Self::axis(other), self.lanes[other].completed())).collect();
        if !failed.is_empty() {
            self.tracker.pass_on(axis, completed, &failed);
        }
        self.tracker.write_off(axis);
        if let Some(failure) = failure {
            self.are_lost(axis, completed..events, again, &failure);
        }
        self.take_back_signals(lane, completed);
        let queue = Arc::clone(&self.lanes[lane].label);
        tracing::debug!(target: "pontoon::fence", session = self.id, queue = &*queue, "reopened");
        Ok(())
    }

    /// Waits for all that the events of a dead lane were to come after, but for other dead lanes:
    /// what those were to come after, its own events were too.
    pub(super) fn quiesce(&mut self, lane: usize, by: Deadline) -> Result<(), ReopenError> {
        for other in (0..self.lanes.len()).filter(|&other| other != lane) {
            let axis = Self::axis(other);
            let count = self.tracker.clock(Self::axis(lane)).known(axis);
            if count <= self.tracker.host_knows(axis) || self.lanes[other].is_dead() {
                continue;
            }
            match self.reach(axis, count, by.left()) {
                Ok(()) => self.tracker.host_learns(axis, count),
                Err(error) if error.error.is_timeout() => return Err(ReopenError::Wait(error)),
                // It died meanwhile.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether an axis is of a queue that failed and was not replaced.
    pub(super) fn is_dead(&self, axis: Axis) -> bool {
        Self::lane_of(axis).is_some_and(|lane| self.lanes[lane].is_dead())
    }

    /// Whether a position is of a queue that was replaced since.
    pub(super) fn is_former(&self, point: &Point) -> bool {
        let place = point.place.filter(|place| place.session == self.id);
        let lane = place.and_then(|place| Self::lane_of(place.axis));
        lane.is_some_and(|lane| self.lanes[lane].is_former(point))
    }
}
