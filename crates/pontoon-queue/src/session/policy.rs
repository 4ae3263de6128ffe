//! What becomes of batches that fail.
//!
//! A batch that says so is kept until it is complete: to be submitted again, or with copies of what
//! it is to give back. Its failure is seen by [`Session::progress`] and by the waits, never by a
//! thread of its own.
//!
//! Submitted again is a batch of which a kernel panicked, or a wait took too long: either may go
//! better next time. It is not if another batch failed, for that one has to run first, and only the
//! caller knows what else; nor if the device is lost; nor for a hazard, which is a dependency that
//! is missing: meeting it now and then only hides it. Nor is it if something failed that it waited
//! for, though its own wait had ended before: how long that took must not decide what it reads.
//!
//! Nobody meets such a batch in its middle: what comes after a command of it comes after its end, or
//! it would be undone or done again under somebody who has gone on.
//!
//! What was submitted to the queue after the batch, or waited for it, has failed with it and stays
//! failed: submit it again, with the new fence. What is parked behind it has not begun, and follows
//! the next attempt.

use std::{collections::VecDeque, mem, ops::Range, panic::Location, sync::Arc};

use pontoon_hal::{Access, Cause, Command, Device, Fault, Memory, RegionId};

use super::{Edges, Note, Refusal, Refused, Room, Session, StreamId};
use crate::{
    Axis, Batch, Fence, FenceError, Obstacle, OnFailure, Patience, Recovery,
    batch::{Sealed, Step, StepOf, WaitFor},
    patience::Deadline,
    recovery::Again,
    tracker::Need,
};

/// The batches under way that say what becomes of them, in the order of their submission.
pub(super) struct Kept<D: Device> {
    batches: VecDeque<KeptBatch<D>>,
    /// With so many it is looked which ones are complete.
    prune_at: usize,
    /// How many of them come before the one that is being recovered.
    before: usize,
    /// One of these failed meanwhile, and has to be recovered first.
    is_early: bool,
    /// Memory for copies that is not in use, and of which device.
    snapshots: Vec<(usize, D::Memory)>,
}

/// A batch under way.
struct KeptBatch<D: Device> {
    stream: usize,
    lane: usize,
    steps: Vec<StepOf<D>>,
    site: &'static Location<'static>,
    /// Of its last attempt.
    fence: Fence,
    again: Arc<Again>,
    policy: Policy<D::Memory>,
    /// How something failed that it waited for, if that can no longer be seen where it did.
    lost: Option<FenceError>,
}

enum Policy<M> {
    Retry(u32),
    Rollback(Vec<Snapshot<M>>),
}

/// Bytes, and a copy of them from before the batch.
struct Snapshot<M> {
    of: M,
    range: Range<usize>,
    copy: M,
}

const PRUNE_AT_LEAST: usize = 16;

impl<D: Device> Default for Kept<D> {
    fn default() -> Self {
        let (batches, snapshots) = (VecDeque::new(), Vec::new());
        Self { batches, prune_at: PRUNE_AT_LEAST, before: 0, is_early: false, snapshots }
    }
}

impl<D: Device> Kept<D> {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

impl<D: Device> Session<'_, D> {
    /// Submits a batch that is kept.
    pub(super) fn submit_kept(
        &mut self,
        stream: StreamId,
        batch: Batch<D, Sealed>,
        room: Room,
    ) -> Result<Fence, Refused<D>> {
        match self.keep(stream, &batch, room) {
            Ok(fence) => {
                self.use_again(batch.steps);
                Ok(fence)
            }
            Err(why) => Err(Refused { batch, why }),
        }
    }

    fn keep(
        &mut self,
        stream: StreamId,
        batch: &Batch<D, Sealed>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        if self.kept.batches.len() >= self.kept.prune_at {
            self.prune();
            self.kept.prune_at = (2 * self.kept.batches.len()).max(PRUNE_AT_LEAST);
        }
        let (at, site) = (stream.in_session(self.id)?, self.site);
        let queue = &self.queues[self.streams[at].queue];
        let lane = queue.lanes[queue.turn % queue.lanes.len()];
        let mut steps = self.spare.pop().unwrap_or_default();
        steps.extend(batch.steps.iter().cloned());
        // An event stands for now, in every attempt.
        self.settle_steps(lane, &mut steps)?;
        steps.retain(|step| !matches!(step, Step::Wait(WaitFor::Nothing)));
        let policy = match &batch.on_failure {
            OnFailure::Rollback(ranges) => {
                let snapshots = self.snapshots_of(lane, ranges)?;
                let first = steps.iter().position(|step| matches!(step, Step::Work(_)));
                let first = first.unwrap_or(steps.len());
                let copies = snapshots.iter().map(|it| Step::Work(it.command(false)));
                steps.splice(first..first, copies);
                Policy::Rollback(snapshots)
            }
            OnFailure::Retry(times) => Policy::Retry(*times),
            OnFailure::Error => Policy::Retry(0),
        };
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.extend(steps.iter().cloned());
        let given = self.give(stream, &mut steps, room);
        self.use_again(steps);
        let again = Arc::new(Again::default());
        let batch = |fence| KeptBatch {
            stream: at,
            lane,
            steps: kept,
            site,
            fence,
            again: Arc::clone(&again),
            policy,
            lost: None,
        };
        match given {
            Ok(fence) => {
                let fence = fence.with_again(Arc::clone(&again));
                let batch = batch(fence.clone());
                self.kept.batches.push_back(batch);
                Ok(fence)
            }
            Err(why) => {
                let unused = batch(self.fence_of(lane));
                self.recycle(unused, true);
                Err(why)
            }
        }
    }

    /// Memory for copies of `ranges`.
    fn snapshots_of(
        &mut self,
        lane: usize,
        ranges: &[Access<D::Memory>],
    ) -> Result<Vec<Snapshot<D::Memory>>, Refusal> {
        let (device, at) = (self.lanes[lane].device, self.lanes[lane].device_at);
        let mut snapshots = Vec::with_capacity(ranges.len());
        for Access { memory: of, range, .. } in ranges.iter().filter(|it| !it.range.is_empty()) {
            let fits =
                |(on, memory): &(usize, D::Memory)| *on == at && memory.bytes() >= range.len();
            let copy = match self.kept.snapshots.iter().position(fits) {
                Some(free) => self.kept.snapshots.swap_remove(free).1,
                None => device.allocate(range.len()).map_err(Refusal::NoSnapshot)?,
            };
            snapshots.push(Snapshot { of: of.clone(), range: range.clone(), copy });
        }
        Ok(snapshots)
    }

    /// Takes what a batch was kept with to be used again; its copies only if the host knows that
    /// nothing uses them. Those that a dead queue was to write would fail whoever wrote them next.
    fn recycle(&mut self, batch: KeptBatch<D>, is_over: bool) {
        self.use_again(batch.steps);
        let Policy::Rollback(snapshots) = batch.policy else { return };
        if is_over {
            let at = self.lanes[batch.lane].device_at;
            self.kept.snapshots.extend(snapshots.into_iter().map(|it| (at, it.copy)));
        } else {
            snapshots.iter().for_each(|it| self.tracker.forget(it.copy.id()));
        }
    }

    /// Forgets the kept batches that are complete.
    pub(super) fn prune(&mut self) {
        let mut at = 0;
        while let Some(batch) = self.kept.batches.get(at) {
            if batch.fence.is_complete() == Ok(true) {
                self.forget_kept(at);
            } else {
                at += 1;
            }
        }
    }

    /// Forgets a kept batch that is complete, as was acquired.
    fn forget_kept(&mut self, at: usize) {
        let Some(batch) = self.kept.batches.remove(at) else { return };
        // So that its copies' memory can be used by any lane.
        if let Some(point) = batch.fence.point()
            && let Some(place) = point.place
            && !self.is_former(point)
        {
            self.tracker.host_learns(place.axis, place.count);
        }
        self.recycle(batch, true);
    }

    /// Forgets the kept batches that are complete, and recovers those that failed.
    /// It may take as long as the session's patience, if that is longer: a batch whose recovery is
    /// given up is lost.
    pub(super) fn settle(&mut self, patience: Patience) {
        self.settle_by(Deadline::of(patience.or_longer(self.patience)));
    }

    /// The same, and leaves for later what it has no time to begin.
    pub(super) fn settle_by(&mut self, by: Deadline) {
        let (mut at, mut begun) = (0, false);
        while let Some(batch) = self.kept.batches.get(at) {
            match batch.fence.is_complete() {
                Ok(false) => at += 1,
                Ok(true) => self.forget_kept(at),
                Err(_) if begun && by.is_past() => at += 1,
                // In their order: one that runs again comes before those after it.
                Err(_) if self.has_failed_before(at, |_| true) => at = 0,
                Err(error) => {
                    begun = true;
                    let Some(batch) = self.kept.batches.remove(at) else { return };
                    (self.kept.before, self.kept.is_early) = (at, false);
                    if let Some(batch) = self.recover(batch, error, by) {
                        self.kept.batches.insert(at, batch);
                        at = if self.kept.is_early { 0 } else { at + 1 };
                        self.pump();
                    }
                }
            }
        }
    }

    /// Whether one of the first `before` batches has failed, on a lane of those.
    fn has_failed_before(&self, before: usize, of: impl Fn(usize) -> bool) -> bool {
        let mut earlier = self.kept.batches.iter().take(before).filter(|it| of(it.lane));
        earlier.any(|it| it.fence.is_complete().is_err())
    }

    /// Whether a dead lane has a batch that runs again before the one that is being recovered.
    pub(super) fn runs_again_first(&self, axis: Axis) -> bool {
        let dead = Self::lane_of(axis);
        self.has_failed_before(self.kept.before, |lane| Some(lane) == dead)
    }

    /// How a batch of a lane failed that has yet to be recovered.
    pub(super) fn to_recover(&self, lane: usize) -> Option<FenceError> {
        let may = self.kept.is_early || self.lanes[lane].is_dead();
        let mut of_lane = self.kept.batches.iter().filter(|it| may && it.lane == lane);
        of_lane.find_map(|it| it.fence.is_complete().err())
    }

    /// Whether what is parked on a lane has to stay until a batch of it was recovered.
    pub(super) fn will_recover(&self, lane: usize) -> bool {
        let may = self.kept.is_early || self.lanes[lane].is_dead();
        may && self.kept.batches.iter().any(|it| {
            // Its fence may fail a moment after the queue.
            it.lane == lane && it.fence.point().is_some() && it.fence.is_complete() != Ok(true)
        })
    }

    /// The first `count` events of an axis, and up to the end of the batch that they end in, if that
    /// may be undone or done again.
    pub(super) fn end_of(&self, axis: Axis, count: u64) -> u64 {
        let lane = Self::lane_of(axis).filter(|_| !self.kept.is_empty());
        let Some(lane) = lane else { return count };
        let mut of_lane = self.kept.batches.iter().filter(|batch| batch.lane == lane);
        let events = of_lane.find_map(|batch| {
            let last = batch.fence.point()?.place?.count;
            if last < count {
                return None;
            }
            self.events_of(batch).filter(|events| events.start < count)
        });
        events.map_or(count, |events| events.end)
    }

    /// What needs a command of a batch that may be undone or done again needs all of the batch.
    pub(super) fn bring_to_ends(&self, needs: &mut [Need]) {
        // Where edges are checked the caller gives them, by the batches' fences.
        if self.kept.is_empty() || self.edges == Edges::Check && !self.recovering {
            return;
        }
        for need in needs {
            need.epoch.at = self.end_of(need.epoch.axis, need.epoch.count()) - 1;
        }
    }

    /// The events of a lane that is replaced and were not over will never be, but for those of a
    /// batch that is submitted `again`. Who waited for them is not submitted again.
    pub(super) fn are_lost(
        &mut self,
        axis: Axis,
        events: Range<u64>,
        again: Range<u64>,
        failure: &FenceError,
    ) {
        for at in 0..self.kept.batches.len() {
            let batch = &self.kept.batches[at];
            let is_lost = |&(on, count): &(Axis, u64)| {
                on == axis && count > events.start && !(again.start < count && count <= again.end)
            };
            if batch.lost.is_none() && self.waits_of(batch).any(|wait| is_lost(&wait)) {
                self.kept.batches[at].lost = Some(failure.clone());
            }
        }
    }

    /// What a batch was given waits for.
    fn waits_of(&self, batch: &KeptBatch<D>) -> impl Iterator<Item = (Axis, u64)> {
        let notes = &self.lanes[batch.lane].notes;
        let events = self.events_of(batch).unwrap_or_default();
        events.filter_map(|at| match notes.get(at) {
            Some(Note::Wait(axis, count)) => Some((axis, count)),
            _ => None,
        })
    }

    /// How something failed that a batch waited for.
    fn failed_before(&self, batch: &KeptBatch<D>) -> Option<FenceError> {
        if batch.lost.is_some() {
            return batch.lost.clone();
        }
        self.waits_of(batch).find_map(|(axis, count)| {
            let lane = &self.lanes[Self::lane_of(axis)?];
            let fence = lane.fence(self.id, axis, count);
            let error = fence.is_complete().err().filter(|_| count > lane.completed())?;
            Some(self.rooted(&fence, error))
        })
    }

    /// Whether a batch may yet be submitted again.
    pub(super) fn is_kept(&self, again: &Arc<Again>) -> bool {
        self.kept.batches.iter().any(|batch| Arc::ptr_eq(&batch.again, again))
    }

    /// The fence of the kept batch that has the position of `fence`, if one has.
    pub(super) fn kept_at(&self, fence: &Fence) -> Option<Fence> {
        let same = |batch: &&KeptBatch<D>| {
            let places = (fence.point().map(|it| it.place), batch.fence.point().map(|it| it.place));
            match (places, fence.gate(), batch.fence.gate()) {
                (_, Some(one), Some(other)) if Arc::ptr_eq(one, other) => true,
                ((Some(one), Some(other)), ..) => one == other,
                _ => false,
            }
        };
        self.kept.batches.iter().find(same).map(|batch| batch.fence.clone())
    }

    /// Does what a failed batch says. Gives it back if it is under way again.
    fn recover(
        &mut self,
        mut batch: KeptBatch<D>,
        error: FenceError,
        by: Deadline,
    ) -> Option<KeptBatch<D>> {
        let lost = matches!(&error.fault, Some(fault) if fault.cause == Cause::DeviceLost);
        let failed_at = error.fault.as_ref().and_then(|fault| self.own_event(&batch, fault));
        // Asked for now, while the lane it goes back to is as it failed.
        let mut error = self.rooted(&batch.fence, error);
        let done = batch.again.lock().retries;
        let recovery = match &batch.policy {
            Policy::Retry(times) => {
                let may = failed_at.is_some() && error.fault.as_ref().is_some_and(is_worth_another);
                if may && done < *times {
                    let events = self.events_of(&batch).unwrap_or_default();
                    match self.try_again(&mut batch, by) {
                        Ok(()) => return Some(batch),
                        Err(_) if self.kept.is_early => return Some(batch),
                        Err(why) => {
                            let axis = Self::axis(batch.lane);
                            self.are_lost(axis, events, 0..0, &error);
                            // What is parked was to come after the batch.
                            if let Some(fault) = &error.fault {
                                self.give_up_parked(batch.lane, fault);
                            }
                            Some(Recovery::NotRetried { times: done, why })
                        }
                    }
                } else {
                    (done > 0).then_some(Recovery::Retried { times: done })
                }
            }
            Policy::Rollback(snapshots) => {
                let ranges = ranges_of(snapshots);
                let begun = failed_at.map(|event| self.has_copied(&batch, event, snapshots.len()));
                match begun {
                    None if lost => self.give_back(&batch, by, ranges),
                    None => Some(Recovery::Untouched(ranges)),
                    Some(false) => Some(match self.reopen_after(batch.lane, by) {
                        Ok(()) => Recovery::Untouched(ranges),
                        Err(why) => Recovery::NotRolledBack { ranges, why: Obstacle::Reopen(why) },
                    }),
                    Some(true) => self.give_back(&batch, by, ranges),
                }
            }
        };
        if matches!(batch.policy, Policy::Rollback(_)) && !self.lanes[batch.lane].is_dead() {
            self.forgive(self.streams[batch.stream].queue);
        }
        let holds = matches!(recovery, Some(Recovery::RolledBack(_) | Recovery::Untouched(_)));
        if self.kept.is_early {
            return Some(batch);
        }
        error.recovery = recovery.map(Arc::new);
        batch.again.lock().failure = Some(error);
        let is_over = holds && !self.lanes[batch.lane].is_dead();
        self.recycle(batch, is_over);
        None
    }

    /// The number of the event that failed, if it is one of the batch's.
    fn own_event(&self, batch: &KeptBatch<D>, fault: &Fault) -> Option<u64> {
        let (first, point) = (self.first_event(batch)?, batch.fence.point()?);
        let last = point.place?.count.checked_sub(1)?;
        let before_last = point.target.get().wrapping_sub(fault.at.get());
        last.checked_sub(before_last).filter(|&event| event >= first)
    }

    fn first_event(&self, batch: &KeptBatch<D>) -> Option<u64> {
        self.events_of(batch).map(|events| events.start)
    }

    /// The events of its last attempt.
    fn events_of(&self, batch: &KeptBatch<D>) -> Option<Range<u64>> {
        let count = batch.fence.point()?.place?.count;
        self.lanes[batch.lane].origins.of(count).map(|(first, _)| first..count)
    }

    /// Whether the copies at a batch's beginning were complete before event `failed`.
    fn has_copied(&self, batch: &KeptBatch<D>, failed: u64, copies: usize) -> bool {
        let Some(first) = self.first_event(batch) else { return false };
        let notes = &self.lanes[batch.lane].notes;
        let works = (first..failed).filter(|&at| matches!(notes.get(at), Some(Note::Work(_))));
        works.count() >= copies
    }

    /// Submits a batch again.
    fn try_again(&mut self, batch: &mut KeptBatch<D>, by: Deadline) -> Result<(), Obstacle> {
        // What it waited for is over then, or has failed.
        self.quiesce(batch.lane, by).map_err(Obstacle::Reopen)?;
        if let Some(failed) = self.failed_before(batch) {
            return Err(Obstacle::Failed(failed));
        }
        let mut steps = self.spare.pop().unwrap_or_default();
        steps.extend(batch.steps.iter().filter(|step| self.is_still_due(batch, step)).cloned());
        let lane = batch.lane;
        let events = self.events_of(batch).unwrap_or_default();
        self.reopen_lane(lane, events, by).map_err(Obstacle::Reopen)?;
        // Others may have signalled more than it would have.
        steps.retain(|step| match step {
            Step::Signal(semaphore, to) => !self.is_signalled(*semaphore, *to),
            _ => true,
        });
        if self.is_held(&steps) {
            return Err(Obstacle::TakenBack);
        }
        self.place_own(batch, &mut steps, by)?;
        self.use_again(steps);
        let fence = self.fence_of(lane).with_again(Arc::clone(&batch.again));
        let mut attempts = batch.again.lock();
        attempts.retries += 1;
        // Without the shared part, which would hold itself.
        attempts.latest = Some(self.fence_of(lane));
        drop(attempts);
        batch.fence = fence;
        self.counts.retries += 1;
        Ok(())
    }

    /// Whether a step has to be done again: an event that was recorded elsewhere since stays so.
    fn is_still_due(&self, batch: &KeptBatch<D>, step: &StepOf<D>) -> bool {
        let Step::Record(event) = step else { return true };
        let recorded = self.events[event.index as usize].recorded.as_ref().and_then(Fence::point);
        let (Some(recorded), Some(own)) = (recorded, batch.fence.point()) else { return false };
        recorded.slot.is(&own.slot)
            && recorded.place.is_some_and(|place| {
                let first = self.first_event(batch).unwrap_or(0);
                (first..=own.place.map_or(0, |own| own.count)).contains(&place.count)
            })
    }

    /// Gives the ranges of a batch back what they held before it.
    fn give_back(
        &mut self,
        batch: &KeptBatch<D>,
        by: Deadline,
        ranges: Vec<(RegionId, Range<usize>)>,
    ) -> Option<Recovery> {
        let Policy::Rollback(snapshots) = &batch.policy else { return None };
        let restored = self.restore(batch, snapshots, by);
        self.counts.rollbacks += u64::from(restored.is_ok());
        Some(match restored {
            Ok(()) => Recovery::RolledBack(ranges),
            Err(why) => Recovery::NotRolledBack { ranges, why },
        })
    }

    fn restore(
        &mut self,
        batch: &KeptBatch<D>,
        snapshots: &[Snapshot<D::Memory>],
        by: Deadline,
    ) -> Result<(), Obstacle> {
        self.reopen_after(batch.lane, by).map_err(Obstacle::Reopen)?;
        let mut steps: Vec<_> = snapshots.iter().map(|it| Step::Work(it.command(true))).collect();
        self.meet_own(batch.lane, &steps, by)?;
        self.place_own(batch, &mut steps, by)?;
        let axis = Self::axis(batch.lane);
        let count = self.tracker.events(axis);
        self.reach(axis, count, by.left()).map_err(Obstacle::Failed)?;
        self.tracker.host_learns(axis, count);
        Ok(())
    }

    /// Waits on the host for what steps of the session's own have to come after, so that none of it
    /// takes a device's wait too long, or takes them with it if it fails.
    fn meet_own(&mut self, lane: usize, steps: &[StepOf<D>], by: Deadline) -> Result<(), Obstacle> {
        loop {
            let (mut plan, mut clock) = (mem::take(&mut self.plan), mem::take(&mut self.clock));
            self.recovering = true;
            let planned = self.plan(lane, steps, &[], &mut plan, &mut clock);
            self.recovering = false;
            let edge = plan.edges.first().map(|edge| (edge.axis, edge.count));
            (self.plan, self.clock) = (plan, clock);
            planned.map_err(Obstacle::Refused)?;
            let Some((axis, count)) = edge else { return Ok(()) };
            match self.reach(axis, count, by.left()) {
                Ok(()) => self.tracker.host_learns(axis, count),
                Err(error) if error.error.is_timeout() => return Err(Obstacle::Failed(error)),
                Err(error) if self.runs_again_first(axis) => {
                    self.kept.is_early = true;
                    return Err(Obstacle::Failed(error));
                }
                // Its queue is dead, and holds nothing back.
                Err(_) => {}
            }
        }
    }

    /// Gives a lane that was just opened steps of the session's own. What failed queues were given
    /// never runs, so they wait for none of it; nor do they for what waits for the batch's failure
    /// and has yet to fail of it, so that has to happen first.
    fn place_own(
        &mut self,
        batch: &KeptBatch<D>,
        steps: &mut Vec<StepOf<D>>,
        by: Deadline,
    ) -> Result<(), Obstacle> {
        let own = Self::axis(batch.lane);
        let end = self.events_of(batch).map_or(u64::MAX, |events| events.end);
        for lane in (0..self.lanes.len()).filter(|&lane| lane != batch.lane) {
            let axis = Self::axis(lane);
            if !self.lanes[lane].is_dead() && self.tracker.clock(axis).known(own) >= end {
                let all = self.tracker.events(axis);
                if let Err(error) = self.reach(axis, all, by.left())
                    && error.error.is_timeout()
                {
                    return Err(Obstacle::Failed(error));
                }
            }
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].is_dead() {
                self.quiesce(lane, by).map_err(Obstacle::Reopen)?;
            }
        }
        if self.has_failed_before(self.kept.before, |_| true) {
            self.kept.is_early = true;
            return Err(Obstacle::TakenBack);
        }
        self.site = batch.site;
        self.recovering = true;
        let placed = self.place_parked(batch.lane, steps, &[]);
        self.recovering = false;
        placed.map_err(Obstacle::Refused)
    }
}

impl<M: Memory> Snapshot<M> {
    /// Copies the bytes away, or back.
    fn command<K>(&self, back: bool) -> Command<M, K> {
        let copied = 0..self.range.len();
        let (label, from, to) = match back {
            false => {
                let from = Access::read(&self.of, self.range.clone());
                ("copy for rollback", from, Access::write(&self.copy, copied))
            }
            true => {
                let from = Access::read(&self.copy, copied);
                ("rollback", from, Access::write(&self.of, self.range.clone()))
            }
        };
        Command::Copy { label, from, to }
    }
}

fn ranges_of<M: Memory>(snapshots: &[Snapshot<M>]) -> Vec<(RegionId, Range<usize>)> {
    snapshots.iter().map(|it| (it.of.id(), it.range.clone())).collect()
}

/// Whether it may go better next time.
fn is_worth_another(fault: &Fault) -> bool {
    match &fault.cause {
        Cause::Panicked(_) => true,
        Cause::Wait(error) => error.is_timeout(),
        _ => false,
    }
}
