//! Waits of the host for events and semaphores, and how they stand.

use pontoon_hal::Device;

use super::{Deadlock, EventId, Foreign, SemaphoreId, Session, WaitFailure, plan::Resolved};
use crate::{Fence, Patience, batch::WaitFor, tracker::HOST};

impl<D: Device> Session<'_, D> {
    /// Waits on the host for all that an event stands for now, as [`wait`](Self::wait) does for a
    /// fence.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`]. An event that was never recorded is refused unless
    /// [`Unrecorded::Pass`](crate::Unrecorded::Pass) was asked for.
    ///
    /// # Blocks
    ///
    /// As long as `patience` allows, for each lane of the queue that it was recorded in.
    pub fn wait_event(&mut self, event: EventId, patience: Patience) -> Result<(), WaitFailure> {
        for fence in self.stands_for(event)? {
            let fence = self.kept_at(&fence).unwrap_or(fence);
            let _ = self.wait(&fence, patience)?;
        }
        Ok(())
    }

    /// Whether all that an event stands for now is over; if so, what it wrote is readable here. A
    /// query makes no system call, and the session does not learn of it.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`] as of [`wait_event`](Self::wait_event), but for time-outs and deadlocks.
    pub fn is_recorded_over(&self, event: EventId) -> Result<bool, WaitFailure> {
        let mut is_over = true;
        for fence in self.stands_for(event)? {
            is_over &= self.is_reached(&fence)?;
        }
        Ok(is_over)
    }

    /// Waits on the host until a semaphore has got to `value`: until the first signal submitted that
    /// is enough has been made. What is submitted from now on comes after it.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`]. A value that nobody has submitted a signal for is a deadlock at once, as is
    /// one that only what this thread could let go would signal.
    ///
    /// # Blocks
    ///
    /// As long as `patience` allows.
    pub fn wait_semaphore(
        &mut self,
        semaphore: SemaphoreId,
        value: u64,
        patience: Patience,
    ) -> Result<(), WaitFailure> {
        loop {
            self.advance(patience);
            let wait = WaitFor::Semaphore(semaphore, value);
            match self.resolve(&wait).map_err(WaitFailure::Refused)? {
                Resolved::Nothing | Resolved::Outside => return Ok(()),
                Resolved::At(axis, count) => {
                    let Some(lane) = Self::lane_of(axis) else { return Ok(()) };
                    let fence = self.lanes[lane].fence(self.id, axis, count);
                    let fence = self.kept_at(&fence).unwrap_or(fence);
                    return self.wait(&fence, patience).map(drop);
                }
                Resolved::Open => {
                    let Some((promiser, late)) = self.promiser(semaphore, value) else {
                        let link = self.nobody_signals(semaphore, value);
                        return Err(WaitFailure::Deadlock(Deadlock { path: vec![link] }));
                    };
                    self.let_go(&promiser, &late, patience)?;
                }
            }
        }
    }

    /// Whether a semaphore has got to `value`; if so, what precedes the signal is readable here. A
    /// query makes no system call, and the session does not learn of it.
    ///
    /// # Errors
    ///
    /// [`WaitFailure`]: it never will.
    pub fn has_reached(&self, semaphore: SemaphoreId, value: u64) -> Result<bool, WaitFailure> {
        let wait = WaitFor::Semaphore(semaphore, value);
        match self.resolve(&wait).map_err(WaitFailure::Refused)? {
            Resolved::Nothing | Resolved::Outside => Ok(true),
            Resolved::At(axis, count) => match Self::lane_of(axis) {
                Some(lane) => self.is_reached(&self.lanes[lane].fence(self.id, axis, count)),
                None => Ok(true),
            },
            Resolved::Open => Ok(false),
        }
    }

    /// How far a semaphore has got: up to there all signals have been made. A query makes no system
    /// call.
    ///
    /// # Errors
    ///
    /// [`Foreign`].
    pub fn value(&self, semaphore: SemaphoreId) -> Result<u64, Foreign> {
        let signals = self.signals_of(semaphore.in_session(self.id)?).iter();
        let made = signals.take_while(|&&(_, axis, count)| match Self::lane_of(axis) {
            Some(lane) => self.lanes[lane].is_over(count) == Ok(true),
            None => axis == HOST,
        });
        Ok(made.last().map_or(0, |&(value, ..)| value))
    }

    fn stands_for(&self, event: EventId) -> Result<Vec<Fence>, WaitFailure> {
        self.resolve(&WaitFor::Event(event)).map_err(WaitFailure::Refused)?;
        let event = &self.events[event.index as usize];
        Ok(event.recorded.iter().chain(&event.beside).cloned().collect())
    }

    fn is_reached(&self, fence: &Fence) -> Result<bool, WaitFailure> {
        fence.is_complete().map_err(|error| self.failed(fence, error))
    }
}
