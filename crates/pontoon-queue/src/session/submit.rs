//! What a stream is given: batches, or one command at a time.

use std::{panic::Location, sync::Arc};

use pontoon_hal::{Access, CommandOf, Device};

use super::{QueueState, Refusal, Refused, Room, SPARE_MOST, Session, StreamId};
use crate::{
    Batch, Fence,
    batch::{self, OnFailure, Sealed, Step, StepOf, WaitFor},
    patience::Deadline,
};

impl<D: Device> Session<'_, D> {
    /// An empty batch, in storage that was used before if there is any.
    pub fn batch(&mut self) -> Batch<D> {
        Batch::with_storage(self.spare.pop().unwrap_or_default())
    }

    /// Submits a batch. The fence is reached when all of it is complete.
    ///
    /// A batch that is parked, for it waits for what nobody has submitted, is refused now for
    /// whatever does not depend on what comes before it then. One that has to be refused when its
    /// turn comes is given up, and so is all that its queue was given after it: their fences fail,
    /// and streams over the queue are refused until [`reopen`](Self::reopen).
    ///
    /// # Errors
    ///
    /// [`Refused`]: the batch, and why. Nothing of it was queued.
    ///
    /// # Blocks
    ///
    /// While the queue has no room, and while a batch of the stream that failed is recovered; at most
    /// as long as the session's patience in all.
    #[track_caller]
    pub fn submit(
        &mut self,
        stream: StreamId,
        batch: Batch<D, Sealed>,
    ) -> Result<Fence, Refused<D>> {
        self.site = Location::caller();
        self.submit_with(stream, batch, Room::Wait(self.patience))
    }

    /// As [`submit`](Self::submit), but never waits: a full queue gives the batch back.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    #[track_caller]
    pub fn try_submit(
        &mut self,
        stream: StreamId,
        batch: Batch<D, Sealed>,
    ) -> Result<Fence, Refused<D>> {
        self.site = Location::caller();
        self.submit_with(stream, batch, Room::Try)
    }

    fn submit_with(
        &mut self,
        stream: StreamId,
        mut batch: Batch<D, Sealed>,
        room: Room,
    ) -> Result<Fence, Refused<D>> {
        let brought = self.bring(stream, &mut batch.steps);
        let given = if matches!(batch.on_failure, OnFailure::Error) {
            match self.give(stream, &mut batch.steps, room) {
                Ok(fence) => {
                    self.use_again(batch.steps);
                    Ok(fence)
                }
                Err(why) => {
                    self.dump_refusal(&why);
                    Err(Refused { batch, why })
                }
            }
        } else {
            let kept = self.submit_kept(stream, batch, room);
            kept.inspect_err(|refused| self.dump_refusal(&refused.why))
        };
        match (given, brought) {
            (Ok(fence), Some(brought)) => {
                self.was_given(brought, &fence);
                Ok(fence)
            }
            (Err(mut refused), Some(brought)) => {
                self.was_refused(brought, &mut refused.batch.steps);
                Err(refused)
            }
            (given, None) => given,
        }
    }

    /// Submits a kernel over `accesses`, numbered in this order, with scalar `arguments`.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing was queued.
    ///
    /// # Blocks
    ///
    /// As [`submit`](Self::submit).
    #[track_caller]
    pub fn launch(
        &mut self,
        stream: StreamId,
        label: &'static str,
        kernel: &D::Kernel,
        accesses: impl IntoIterator<Item = Access<D::Memory>>,
        arguments: impl IntoIterator<Item = u64>,
    ) -> Result<Fence, Refusal> {
        self.site = Location::caller();
        let command = batch::launch::<D>(label, kernel, accesses, arguments)?;
        self.one_command(stream, command)
    }

    /// Submits a copy of `from` (read) to `to` (written), of the same length in bytes.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing was queued.
    ///
    /// # Blocks
    ///
    /// As [`submit`](Self::submit).
    #[track_caller]
    pub fn copy(
        &mut self,
        stream: StreamId,
        label: &'static str,
        from: Access<D::Memory>,
        to: Access<D::Memory>,
    ) -> Result<Fence, Refusal> {
        self.site = Location::caller();
        self.one_command(stream, CommandOf::<D::Queue>::Copy { label, from, to })
    }

    /// What the stream is given from now on comes after `fence`. The fence that comes back is that of
    /// the wait on one lane.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing was queued.
    ///
    /// # Blocks
    ///
    /// As [`submit`](Self::submit).
    #[track_caller]
    pub fn stream_wait(&mut self, stream: StreamId, fence: &Fence) -> Result<Fence, Refusal> {
        self.site = Location::caller();
        self.one(stream, Step::Wait(WaitFor::Fence(fence.clone())))
    }

    /// Gives a command that nobody sealed.
    pub(super) fn one_command(
        &mut self,
        stream: StreamId,
        command: CommandOf<D::Queue>,
    ) -> Result<Fence, Refusal> {
        match batch::wrong_with(&command) {
            Some(mistake) => Err(Refusal::Malformed(mistake)),
            None => self.one(stream, Step::Work(command)),
        }
    }

    pub(super) fn one(&mut self, stream: StreamId, step: StepOf<D>) -> Result<Fence, Refusal> {
        if let Step::Work(command) = &step
            && let Some(mistake) = batch::wrong_with(command)
        {
            return Err(mistake.into());
        }
        let mut steps = self.spare.pop().unwrap_or_default();
        steps.push(step);
        let room = Room::Wait(self.patience);
        let brought = self.bring(stream, &mut steps);
        let given = self.give(stream, &mut steps, room);
        match (&given, brought) {
            (Ok(fence), Some(brought)) => self.was_given(brought, fence),
            (Err(_), Some(brought)) => self.was_refused(brought, &mut steps),
            (_, None) => {}
        }
        self.use_again(steps);
        given.inspect_err(|why| self.dump_refusal(why))
    }

    /// Gives `steps` to a lane of the stream, or parks them. On success they are used up.
    pub(super) fn give(
        &mut self,
        stream: StreamId,
        steps: &mut Vec<StepOf<D>>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        let stream = stream.in_session(self.id)?;
        self.refuse_lent(steps)?;
        self.room_by = None;
        if self.callbacks.are_many() {
            self.call_back();
        }
        if !self.kept.is_empty() && matches!(room, Room::Wait(_)) {
            self.recover_first(stream);
        }
        let at = self.streams[stream].queue;
        let QueueState { lanes, turn, .. } = &self.queues[at];
        // Of a queue with several lanes none is of use without the others.
        if let Some(why) = lanes.iter().find_map(|&lane| self.lanes[lane].given_up.as_ref()) {
            return Err(Refusal::Abandoned(Arc::clone(why)));
        }
        let (lane, count) = (lanes[*turn], lanes.len());
        let fence = if self.parked.is_empty() && !self.is_held(steps) {
            self.place(lane, steps, &[], room)?
        } else {
            self.park(stream, lane, steps, room)?
        };
        // What was refused has had no turn.
        self.queues[at].turn = (self.queues[at].turn + 1) % count;
        Ok(fence)
    }

    /// What a stream was given before and failed is recovered before it is given more.
    #[cold]
    pub(super) fn recover_first(&mut self, stream: usize) {
        let lanes = &self.queues[self.streams[stream].queue].lanes;
        if lanes.iter().any(|&lane| self.will_recover(lane)) {
            let (site, by) = (self.site, Deadline::of(self.patience));
            self.room_by = Some(by);
            self.settle_by(by);
            self.site = site;
        }
    }

    /// Keeps storage for the next batch. What callers bring in addition is not hoarded.
    pub(super) fn use_again(&mut self, mut steps: Vec<StepOf<D>>) {
        if self.spare.len() < SPARE_MOST {
            steps.clear();
            self.spare.push(steps);
        }
    }
}
