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
//! the host first waits for all of that. Only a command of a lost device can still be running then,
//! for nobody can stop it: what meets it on the same bytes fails with a hazard (`Queue` Q6).

use std::sync::Arc;

use pontoon_hal::{Device, Fault, Queue};

use super::{Refusal, Session, StreamId};
use crate::{Axis, Patience, ReopenError, fence::Point};

impl<D: Device> Session<'_, D> {
    /// Makes a stream usable again that failed, or that was given up: its queue is replaced where
    /// it failed. Without a failure it does nothing.
    ///
    /// Whatever the stream was given and was not over stays failed; what is parked behind it is
    /// given up, for it was to come after that. Signals that the queue never made are taken back,
    /// and can be submitted again. All streams over the queue are usable again.
    ///
    /// # Errors
    ///
    /// [`ReopenError`]. For a moment the device has both queues open, so it needs one to spare.
    ///
    /// # Blocks
    ///
    /// While the queue still runs what it was given before, and until what the failed commands were
    /// to come after is over; at most as long as the session's patience for each.
    pub fn reopen(&mut self, stream: StreamId) -> Result<(), ReopenError> {
        let queue = self.streams[stream.in_session(self.id)?].queue;
        for lane in self.queues[queue].lanes.clone() {
            let this = &self.lanes[lane];
            // What was given up waits in the queue for what never comes, and is no event.
            let all = this.target(self.tracker.events(Self::axis(lane)));
            if this.is_dead() || this.queue.submitted() != all {
                self.reopen_after(lane, self.patience)?;
            }
        }
        self.forgive(queue);
        self.pump();
        Ok(())
    }

    /// Gives up what is parked on a lane, and gives it another queue.
    pub(super) fn reopen_after(
        &mut self,
        lane: usize,
        patience: Patience,
    ) -> Result<(), ReopenError> {
        if let Some(fault) = self.lanes[lane].queue.fault() {
            self.give_up_parked(lane, &fault);
        }
        self.reopen_lane(lane, patience)
    }

    /// Gives up what is parked on a lane, for what it was to come after failed.
    pub(super) fn give_up_parked(&mut self, lane: usize, fault: &Fault) {
        if let Some(&head) = self.lanes[lane].parked.front() {
            self.give_up(head, Refusal::Faulted(fault.clone()));
        }
    }

    /// The streams over a queue are usable again.
    pub(super) fn forgive(&mut self, queue: usize) {
        let streams = self.streams.iter_mut().filter(|stream| stream.queue == queue);
        streams.for_each(|stream| stream.abandoned = None);
        self.forgive_owed(queue);
    }

    /// Gives a lane another queue. What is parked stays parked.
    pub(super) fn reopen_lane(
        &mut self,
        lane: usize,
        patience: Patience,
    ) -> Result<(), ReopenError> {
        let axis = Self::axis(lane);
        let events = self.tracker.events(axis);
        if let Err(error) = self.reach(axis, events, patience)
            && error.error.is_timeout()
        {
            return Err(ReopenError::Wait(error));
        }
        self.quiesce(lane, patience)?;
        let this = &mut self.lanes[lane];
        let completed = this.completed().min(events);
        // Acquires what they wrote.
        let _ = this.is_over(completed);
        this.reopen(events).map_err(ReopenError::Open)?;
        self.tracker.host_learns(axis, completed);
        self.tracker.write_off(axis);
        self.take_back_signals(lane, completed);
        let queue = Arc::clone(&self.lanes[lane].label);
        tracing::debug!(target: "pontoon::fence", session = self.id, queue = &*queue, "reopened");
        Ok(())
    }

    /// Waits for all that the events of a dead lane were to come after, but for other dead lanes:
    /// what those were to come after, its own events were too.
    pub(super) fn quiesce(&mut self, lane: usize, patience: Patience) -> Result<(), ReopenError> {
        for other in (0..self.lanes.len()).filter(|&other| other != lane) {
            let axis = Self::axis(other);
            let count = self.tracker.clock(Self::axis(lane)).known(axis);
            if count <= self.tracker.host_knows(axis) || self.lanes[other].is_dead() {
                continue;
            }
            match self.reach(axis, count, patience) {
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
