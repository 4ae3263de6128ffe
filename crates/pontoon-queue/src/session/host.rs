//! What the host does itself: accesses, waits, allocation.

use std::{fmt, mem, sync::Arc, time::Duration};

use bytemuck::Pod;
use pontoon_hal::{AllocateError, Device, HostAccessError, Memory, Mode};
use pontoon_signal::{Host, Os, WaitError};

use super::{Cause, Deadlock, Edges, Note, Refusal, Session, StreamId};
use crate::{
    Abandoned, Axis, Buffer, Fence, FenceError, Patience,
    fence::Late,
    patience::Deadline,
    recovery::Again,
    tracker::{HOST, Touch, reduce},
};

/// The first look at who waits for whom comes after a wait of that long: most are shorter.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Proof that a fence was reached: what the commands before it wrote is readable on the host, and
/// the session knows.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The fence that was reached. Another than was waited for if the batch was retried.
    pub fence: Fence,
    /// How often the batch was submitted again.
    pub retries: u32,
}

/// Why a fence was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFailure {
    /// A time-out, after which waiting again is fine, or how the stream failed.
    Fence(FenceError),
    /// The wait would never end: only the caller could do what it waits for.
    Deadlock(Deadlock),
    /// What is waited for can never be, or is not the session's.
    Refused(Refusal),
    /// What it stands for was refused when its turn came, and will never run.
    Abandoned(Arc<Abandoned>),
}

impl WaitFailure {
    /// Whether waiting again could help: only after a time-out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Fence(error) if error.error.is_timeout() && error.fault.is_none())
    }
}

impl fmt::Display for WaitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fence(error) => error.fmt(f),
            Self::Deadlock(deadlock) => deadlock.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Abandoned(abandoned) => {
                write!(f, "stream {} was given up: {}", abandoned.stream, abandoned.why)
            }
        }
    }
}

impl std::error::Error for WaitFailure {}

/// Why the host could not use bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// The session refused the access: nothing orders it against one on a device, or the region was
    /// freed.
    Refused(Refusal),
    /// What had to be over before was not, in time or at all.
    Wait(FenceError),
    /// The memory refused it.
    Access(HostAccessError),
    /// There is no such memory.
    Allocate(AllocateError),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Wait(error) => error.fmt(f),
            Self::Access(error) => error.fmt(f),
            Self::Allocate(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HostError {}

impl<D: Device> Session<'_, D> {
    /// Waits for `fence` on the host. What the commands before it wrote is then readable here, and
    /// what is submitted from now on comes after them. If the batch is retried, that is waited for
    /// too. Does what [`progress`](Self::progress) does for whatever failed, and runs callbacks.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`]. A wait for a batch that is parked, and that only this thread could let go,
    /// is a deadlock at once.
    ///
    /// # Blocks
    ///
    /// As long as `patience` allows: spinning as long as that has paid for this queue, then asleep. To
    /// recover a batch that failed, as long as [`progress`](Self::progress) may.
    pub fn wait(&mut self, fence: &Fence, patience: Patience) -> Result<Completed, WaitFailure> {
        let outcome = match fence.shared() {
            None => self.wait_once(fence, patience),
            Some(again) => self.wait_all(fence, &again, patience),
        };
        if !self.kept.is_empty() && matches!(&outcome, Err(failure) if !failure.is_timeout()) {
            self.settle(patience);
        }
        self.call_back();
        outcome
    }

    /// Waits for the last attempt of a batch.
    fn wait_all(
        &mut self,
        fence: &Fence,
        again: &Again,
        patience: Patience,
    ) -> Result<Completed, WaitFailure> {
        let by = Deadline::of(patience);
        loop {
            let (latest, retries) = {
                let attempts = again.lock();
                if let Some(failure) = &attempts.failure {
                    return Err(self.failed(fence, failure.clone()));
                }
                (attempts.latest.clone().unwrap_or_else(|| fence.clone()), attempts.retries)
            };
            match self.wait_once(&latest, by.left()) {
                Ok(_) => {
                    self.prune();
                    return Ok(Completed { fence: latest, retries });
                }
                Err(failure) if failure.is_timeout() => return Err(failure),
                Err(failure) => {
                    self.settle(by.left());
                    let attempts = again.lock();
                    // Another session's.
                    if attempts.failure.is_none() && attempts.retries == retries {
                        return Err(failure);
                    }
                }
            }
        }
    }

    fn wait_once(&mut self, fence: &Fence, patience: Patience) -> Result<Completed, WaitFailure> {
        if let (None, Some(late)) = (fence.point(), fence.gate()) {
            let gone = self.let_go(fence, &Arc::clone(late), patience);
            gone.inspect_err(|failed| self.dump_failure(failed))?;
        }
        let Some(point) = fence.point() else {
            return Ok(Completed { fence: fence.clone(), retries: 0 });
        };
        match point.place.filter(|place| place.session == self.id && !self.is_former(point)) {
            Some(place) => {
                if let Err(why) = self.is_submitted(place.axis, place.count) {
                    let path = vec![format!("the host would submit nothing more: {why}")];
                    return Err(WaitFailure::Deadlock(Deadlock { path }));
                }
                let reached = self.reach(place.axis, place.count, patience);
                reached.map_err(|error| self.failed(fence, error))?;
                self.tracker.host_learns(place.axis, place.count);
            }
            None => {
                let reached = fence.wait(patience.bound());
                let reached = reached.inspect_err(|error| self.dump_expired(error));
                reached.map_err(|error| WaitFailure::Fence(self.rooted(fence, error)))?;
            }
        }
        Ok(Completed { fence: fence.clone(), retries: 0 })
    }

    pub(super) fn failed(&self, fence: &Fence, error: FenceError) -> WaitFailure {
        match fence.gate().and_then(|late| late.why.get()) {
            Some(why) if error.recovery.is_none() => WaitFailure::Abandoned(Arc::clone(why)),
            _ => {
                let error = self.rooted(fence, error);
                WaitFailure::Fence(FenceError { stream: fence.stream().into(), ..error })
            }
        }
    }

    /// Recovers what failed, and gives devices what is parked and can go on.
    pub(super) fn advance(&mut self, patience: Patience) {
        if !self.kept.is_empty() {
            self.settle(patience);
        }
        self.pump();
    }

    /// Waits until a parked batch has been given to its device.
    pub(super) fn let_go(
        &mut self,
        fence: &Fence,
        late: &Arc<Late>,
        patience: Patience,
    ) -> Result<(), WaitFailure> {
        let by = Deadline::of(patience);
        loop {
            self.advance(by.left());
            if fence.point().is_some() {
                return Ok(());
            }
            if let Some(why) = late.why.get() {
                return Err(WaitFailure::Abandoned(Arc::clone(why)));
            }
            if late.of(self.id).is_err() {
                // Another session's: it may be let go by another thread.
                return fence.wait(patience.bound()).map_err(WaitFailure::Fence);
            }
            let Some(lane) = self.waits_for_room(late) else {
                return Err(WaitFailure::Deadlock(self.host_deadlock(late)));
            };
            let (axis, next) = (Self::axis(lane), self.lanes[lane].completed() + 1);
            match self.reach(axis, next, by.left()) {
                Err(error) if error.error.is_timeout() || !self.will_recover(lane) => {
                    return Err(WaitFailure::Fence(error));
                }
                _ => {}
            }
        }
    }

    /// Waits until the first `count` events of an axis are over. The tracker does not learn of it.
    pub(super) fn reach(
        &mut self,
        axis: Axis,
        count: u64,
        patience: Patience,
    ) -> Result<(), FenceError> {
        let Some(at) = Self::lane_of(axis) else { return Ok(()) };
        if self.lanes[at].is_over(count) == Ok(true) {
            self.traced("complete", at, count);
            return Ok(());
        }
        self.traced("wait", at, count);
        let started = Os.now();
        let mut root = None;
        let mut slice = FIRST_LOOK.min(patience.idle());
        loop {
            let lane = &mut self.lanes[at];
            let so_far = Os.now().since(started).as_duration();
            let left = patience.cap().saturating_sub(so_far);
            let bound = lane.spin.within(slice.min(left));
            let error = match lane.waiter().wait_ge_bounded(lane.target(count), bound) {
                Ok(observed) => {
                    observed.acq_fence();
                    let waited = self.waited(at, count, started);
                    self.lanes[at].spin.learn(waited);
                    self.traced("complete", at, count);
                    return Ok(());
                }
                Err(error) => error,
            };
            let now = self.root_of(axis, count);
            let goes_on = root.is_none() || root != Some(now);
            let waited = Os.now().since(started);
            if error.is_timeout() && goes_on && waited.as_duration() < patience.cap() {
                // What it waits for goes on: the time without progress starts anew.
                root = Some(now);
                slice = patience.idle();
                continue;
            }
            self.waited(at, count, started);
            let lane = &self.lanes[at];
            let point = lane.point(self.id, axis, count);
            let fence = lane.fence(self.id, axis, count);
            let mut failed = fence.failed(&point, error);
            if let WaitError::TimedOut { waited: of_all, .. } = &mut failed.error {
                *of_all = waited;
                failed.chain = Some(Arc::new(self.chain(axis, count)));
                self.traced("expired", at, count);
                self.dump_expired(&failed);
            }
            return Err(failed);
        }
    }

    /// Waits for all that a stream was given so far.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`]; [`WaitFailure::Abandoned`] with [`Refusal::Foreign`] for another session's
    /// stream.
    ///
    /// # Blocks
    ///
    /// As long as `patience` allows, for each lane of the stream's queue.
    pub fn drain(&mut self, stream: StreamId, patience: Patience) -> Result<(), WaitFailure> {
        let foreign = |foreign| {
            let why = Refusal::Foreign(foreign);
            WaitFailure::Abandoned(Arc::new(Abandoned { stream: "foreign".into(), why }))
        };
        let at = stream.in_session(self.id).map_err(foreign)?;
        self.advance(patience);
        for lane in self.queues[self.streams[at].queue].lanes.clone() {
            if let Some(late) = self.last_parked(lane) {
                let (device, label) =
                    (self.lanes[lane].device.rank(), self.streams[at].label.clone());
                let last = Fence::late(late, device, label);
                let _ = self.wait(&self.kept_at(&last).unwrap_or(last), patience)?;
            }
            let all = self.fence_of(lane);
            let all = self.kept_at(&all).unwrap_or(all);
            let _ = self.wait(&all, patience)?;
            // What it was given before is over, and what it was given then will never be.
            if let Some(why) = &self.lanes[lane].given_up {
                return Err(WaitFailure::Abandoned(Arc::clone(why)));
            }
        }
        Ok(())
    }

    /// Reads elements of a buffer on the host, from `at` on.
    ///
    /// # Errors
    ///
    /// [`HostError`].
    ///
    /// # Blocks
    ///
    /// Where edges are derived: until what wrote them is over, at most as long as the session's
    /// patience.
    pub fn read<T: Pod>(
        &mut self,
        buffer: &Buffer<D::Memory, T>,
        at: usize,
        into: &mut [T],
    ) -> Result<(), HostError> {
        let elements = at..at.saturating_add(into.len());
        self.meet("a host read", buffer.read(elements).range, buffer.memory(), Mode::Read)?;
        buffer.host_read(at, into).map_err(HostError::Access)?;
        self.noted("a host read");
        Ok(())
    }

    /// Writes elements of a buffer on the host, from `at` on.
    ///
    /// # Errors
    ///
    /// [`HostError`].
    ///
    /// # Blocks
    ///
    /// Where edges are derived: until what used them is over, at most as long as the session's
    /// patience.
    pub fn write<T: Pod>(
        &mut self,
        buffer: &Buffer<D::Memory, T>,
        at: usize,
        from: &[T],
    ) -> Result<(), HostError> {
        let elements = at..at.saturating_add(from.len());
        self.meet("a host write", buffer.write(elements).range, buffer.memory(), Mode::Write)?;
        buffer.host_write(at, from).map_err(HostError::Access)?;
        self.noted("a host write");
        Ok(())
    }

    /// Reads all elements of a buffer on the host.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Blocks
    ///
    /// As [`read`](Self::read).
    pub fn to_vec<T: Pod>(&mut self, buffer: &Buffer<D::Memory, T>) -> Result<Vec<T>, HostError> {
        let mut elements = vec![T::zeroed(); buffer.len()];
        self.read(buffer, 0, &mut elements)?;
        Ok(elements)
    }

    /// Allocates `len` zeroed elements on `device`.
    ///
    /// # Errors
    ///
    /// [`HostError::Allocate`].
    pub fn allocate<T: Pod>(
        &mut self,
        device: &D,
        len: usize,
    ) -> Result<Buffer<D::Memory, T>, HostError> {
        let buffer = Buffer::allocate(device, len).map_err(HostError::Allocate)?;
        self.meet("an allocation", buffer.write(..).range, buffer.memory(), Mode::Write)?;
        self.noted("an allocation");
        Ok(buffer)
    }

    /// Frees a buffer: from now on no command may name its region. The memory itself lives as long
    /// as any handle.
    ///
    /// # Errors
    ///
    /// [`HostError`]: where edges are checked, whatever used it has to be over by a wait; where they
    /// are derived too, no parked batch may name it ([`Refusal::Named`]).
    ///
    /// # Blocks
    ///
    /// As [`write`](Self::write).
    pub fn free<T: Pod>(&mut self, buffer: &Buffer<D::Memory, T>) -> Result<(), HostError> {
        let region = buffer.memory().id();
        self.may_free(region).map_err(HostError::Refused)?;
        self.meet("a free", 0..buffer.memory().bytes(), buffer.memory(), Mode::Write)?;
        self.noted("a free");
        if self.edges != Edges::Trust {
            self.tracker.free(region);
        }
        Ok(())
    }

    /// Sees to it that the host may use bytes, and leaves the touch to be noted.
    fn meet(
        &mut self,
        label: &'static str,
        range: std::ops::Range<usize>,
        memory: &D::Memory,
        mode: Mode,
    ) -> Result<(), HostError> {
        if !self.aids.added.is_empty() {
            self.meet_added(label)?;
        }
        loop {
            let met = self.meet_now(label, range.clone(), memory, mode);
            let failed = matches!(&met, Err(HostError::Wait(error)) if !error.error.is_timeout());
            if !failed || self.kept.is_empty() {
                return met;
            }
            // What failed may run again, and then that is what has to be over.
            let before = (self.counts.retries, self.counts.rollbacks);
            self.settle(self.patience);
            if before == (self.counts.retries, self.counts.rollbacks) {
                return met;
            }
        }
    }

    fn meet_now(
        &mut self,
        label: &'static str,
        range: std::ops::Range<usize>,
        memory: &D::Memory,
        mode: Mode,
    ) -> Result<(), HostError> {
        self.access_starts();
        if self.edges == Edges::Trust {
            return Ok(());
        }
        let touch =
            Touch { region: memory.id(), range: range.start as u64..range.end as u64, mode };
        if self.tracker.is_freed(touch.region) {
            return Err(HostError::Refused(Refusal::Freed { label, region: touch.region }));
        }
        self.may_touch_bytes(label, touch.region, &range).map_err(HostError::Refused)?;
        let (mut plan, mut clock) = (mem::take(&mut self.plan), mem::take(&mut self.clock));
        self.tracker.start(HOST, &mut clock);
        plan.needs.clear();
        self.tracker.needs(&clock, &touch, &mut plan.needs);
        self.bring_to_ends(&mut plan.needs);
        reduce(&self.tracker, &plan.needs, &mut plan.reduced);
        let mut met = Ok(());
        if !plan.needs.is_empty() && self.edges == Edges::Check {
            let later = self.site(HOST, Some(label));
            met = Err(HostError::Refused(Refusal::Missing(self.missing(&plan, later))));
        }
        if met.is_ok() {
            met = plan.reduced.iter().try_for_each(|&(axis, count)| {
                if self.aids.observer.is_some() {
                    self.observe_host(label, axis, count);
                }
                if let Err(error) = self.reach_for(Cause::Access, axis, count, self.patience) {
                    let fence = Self::lane_of(axis).map(|lane| &self.lanes[lane]);
                    let fence = fence.map(|lane| lane.fence(self.id, axis, count));
                    let rooted = fence.map(|fence| self.rooted(&fence, error.clone()));
                    return Err(HostError::Wait(rooted.unwrap_or(error)));
                }
                self.tracker.host_learns(axis, count);
                Ok(())
            });
        }
        plan.touches.clear();
        plan.touches.push((touch, memory.bytes() as u64));
        (self.plan, self.clock) = (plan, clock);
        if let Err(HostError::Refused(why)) = &met {
            self.dump_refusal(why);
        }
        self.access_starts();
        met
    }

    /// Notes the touch that was met.
    fn noted(&mut self, label: &'static str) {
        self.access_ends(label);
        if self.edges == Edges::Trust {
            return;
        }
        let touches = self.plan.touches.iter().map(|(touch, size)| (touch, *size));
        let did = self.tracker.commit(HOST, touches);
        self.counts.maintained(&did);
        self.notes.push(Note::Work(label));
    }
}
