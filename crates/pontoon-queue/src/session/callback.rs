//! Telling of completions, and the end of a session.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use pontoon_hal::{Device, fault_reason};
use pontoon_signal::{Found, WaitError};

use super::Session;
use crate::{Fence, FenceError, Recovery, fence::Point};

/// What is to be run when a fence is reached or fails.
struct Callback {
    fence: Fence,
    run: Box<Run>,
}

/// Those that have not been run, in the order in which they were given.
pub(super) struct Callbacks {
    waiting: VecDeque<Callback>,
    /// With so many a submission looks which ones are due.
    many: usize,
}

const MANY_AT_LEAST: usize = 16;

impl Default for Callbacks {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), many: MANY_AT_LEAST }
    }
}

impl Callbacks {
    /// Whether so many have come since the last look that another one pays: what a look costs is
    /// shared by as many submissions as it looks at callbacks.
    pub(super) fn are_many(&self) -> bool {
        self.waiting.len() >= self.many
    }
}

type Run = dyn FnOnce(Result<(), &FenceError>) + Send;

impl<D: Device> Session<'_, D> {
    /// Runs `run` once when `fence` is reached, or when it is known that it never will be. For a
    /// batch that is retried or rolled back, that is when no attempt follows.
    ///
    /// It is run by [`progress`](Self::progress), [`wait`](Self::wait) or [`drain`](Self::drain),
    /// now and then by a submission, on the thread that calls them, in the order in which it was
    /// given; never by this call, even if the fence is reached. A session that is dropped runs it with
    /// [`Recovery::SessionEnded`](crate::Recovery::SessionEnded) if it is not known how the fence
    /// ends. One that panics is counted, and the others run.
    pub fn on_complete(
        &mut self,
        fence: &Fence,
        run: impl FnOnce(Result<(), &FenceError>) + Send + 'static,
    ) {
        self.callbacks.waiting.push_back(Callback { fence: fence.clone(), run: Box::new(run) });
    }

    /// Does what the session has to do from time to time: recovers batches that failed, gives
    /// devices what is parked and can go on, and runs callbacks. Waits do the same.
    ///
    /// A parked batch that has all it waits for, but no room in its queue, goes when the session is
    /// driven next: by this, a wait of the session or a submission. No device does it.
    ///
    /// # Blocks
    ///
    /// Only to recover: see [`OnFailure`](crate::OnFailure); at most as long as the session's
    /// patience for each step of it.
    pub fn progress(&mut self) {
        self.advance(self.patience);
        self.call_back();
    }

    /// Runs the callbacks of fences of which it is known how they ended.
    pub(super) fn call_back(&mut self) {
        // Once around: those that stay are in the same order as before.
        for _ in 0..self.callbacks.waiting.len() {
            let Some(callback) = self.callbacks.waiting.pop_front() else { break };
            match self.verdict(&callback.fence) {
                None => self.callbacks.waiting.push_back(callback),
                Some(verdict) => {
                    self.counts.callback_panics += u64::from(!run(callback, verdict.as_ref()));
                }
            }
        }
        self.callbacks.many = (2 * self.callbacks.waiting.len()).max(MANY_AT_LEAST);
    }

    /// How a fence ended; `None` if that is open.
    fn verdict(&self, fence: &Fence) -> Option<Result<(), FenceError>> {
        let mut at = fence.clone();
        if let Some(again) = fence.again() {
            let attempts = again.lock();
            if let Some(failure) = &attempts.failure {
                return Some(Err(failure.clone()));
            }
            at = attempts.latest.clone().unwrap_or(at);
        }
        match at.is_complete() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            // It may be submitted again.
            Err(_) if fence.again().is_some_and(|again| self.is_kept(again)) => None,
            Err(error) => Some(Err(self.rooted(&at, error))),
        }
    }
}

/// Runs a callback; whether it returned.
fn run(callback: Callback, verdict: Result<&(), &FenceError>) -> bool {
    let Callback { fence, run } = callback;
    let ran = catch_unwind(AssertUnwindSafe(|| run(verdict.map(|&()| ()))));
    let returned = ran.is_ok();
    if let Err(panic) = ran {
        tracing::error!(target: "pontoon::fence", stream = fence.stream(), "a callback panicked");
        // Dropping it could panic again.
        mem::forget(panic);
    }
    returned
}

/// What is told of a fence whose session ends before it does.
fn ended(fence: &Fence, point: &Point) -> FenceError {
    let (found, wanted) = (point.slot.value(), point.target);
    let (slot, by) = (point.slot.id(), fence.device());
    let at = Found { slot, found, wanted, producer: None, publishes: 0, last_published: None };
    let error = WaitError::Aborted { at, reason: fault_reason::ABANDONED, by };
    let recovery = Some(Arc::new(Recovery::SessionEnded));
    FenceError { recovery, ..fence.failed(point, error) }
}

impl<D: Device> Drop for Session<'_, D> {
    /// What is parked fails at once, so that nobody waits for it for ever. What devices were given
    /// goes on (`Queue` Q7), and their fences with it.
    fn drop(&mut self) {
        self.end_parked();
        for callback in mem::take(&mut self.callbacks.waiting) {
            let verdict = match self.verdict(&callback.fence) {
                Some(verdict) => verdict,
                None => match callback.fence.point() {
                    Some(point) => Err(ended(&callback.fence, point)),
                    // Another session's, which has not given it to a device.
                    None => {
                        let Some(late) = callback.fence.gate() else { continue };
                        Err(ended(&callback.fence, &late.gate))
                    }
                },
            };
            run(callback, verdict.as_ref());
        }
    }
}
