//! An operation under way.
#![allow(unsafe_code)] // calls of C functions

use std::fmt;

use pontoon_signal::Bound;

use crate::{
    OperationError,
    endpoint::Inner,
    engine::{Held, Unfinished},
    patience::{Waited, wait},
    status::finished,
};

/// An operation that was begun. What it reads or writes stays in place until it is done.
///
/// One that is dropped before it is done goes on, and its memory goes into the endpoint's
/// quarantine: a put that was given up may still land (openucx/ucx#11929).
#[must_use = "an operation that is not waited for puts its memory into quarantine"]
pub struct Operation<'e> {
    endpoint: &'e Inner,
    what: &'static str,
    pending: Option<Unfinished>,
}

/// Polls of an endpoint that failed, until what is not done by then is given up before its bound:
/// UCX ends the operations of such an endpoint itself, and at once.
const POLLS_OF_THE_DEAD: u32 = 1_000;

impl<'e> Operation<'e> {
    pub(crate) fn new(
        endpoint: &'e Inner,
        what: &'static str,
        pending: Option<Unfinished>,
    ) -> Self {
        Self { endpoint, what, pending }
    }

    /// Waits until it is done: what a put or a message reads may be written again, what a get
    /// writes is there. Only a flush says that a put has arrived.
    ///
    /// # Errors
    ///
    /// [`OperationError::TimedOut`] with its memory in quarantine, or
    /// [`OperationError::PeerFailed`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows; it makes progress meanwhile.
    pub fn wait(self, bound: Bound) -> Result<(), OperationError> {
        self.wait_and(bound, |_| ())
    }

    /// Whether it is done. Makes progress once.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait), but it does not time out; it is over with the error.
    pub fn try_wait(&mut self) -> Result<bool, OperationError> {
        let mut ended = None;
        let engine = &*self.endpoint.engine;
        let pending = &mut self.pending;
        let left = |core: &mut _| check(engine.api(), core, pending, &mut ended, |_| ());
        match engine.progress(1, left) {
            Ok(progress) if !progress.is_done => Ok(false),
            Ok(_) => self.result(ended).map(|()| true),
            Err(_) => Err(OperationError::FromHandler),
        }
    }

    pub(crate) fn wait_and(
        mut self,
        bound: Bound,
        mut look: impl FnMut(&Held),
    ) -> Result<(), OperationError> {
        if self.pending.is_none() {
            return Ok(());
        }
        let endpoint = self.endpoint;
        let (mut ended, mut dead) = (None, 0);
        let pending = &mut self.pending;
        let waited = wait(&endpoint.engine, bound, |core| {
            dead += u32::from(endpoint.state.failure().is_some());
            check(endpoint.engine.api(), core, pending, &mut ended, &mut look)
                || dead > POLLS_OF_THE_DEAD
        });
        match waited {
            Err(_) => Err(OperationError::FromHandler),
            Ok(Waited::Done) => self.result(ended),
            Ok(Waited::TimedOut(waited)) => {
                let _ = self.quarantine();
                Err(endpoint.timed_out(self.what, waited))
            }
        }
    }

    /// What came of it once the wait is over.
    fn result(&mut self, ended: Option<Ended>) -> Result<(), OperationError> {
        match ended {
            Some((Ok(()), _)) => Ok(()),
            Some((Err(status), _)) => Err(self.endpoint.failed(self.what, status)),
            None if self.quarantine() => {
                let status = self.endpoint.state.failure().unwrap_or_default();
                Err(self.endpoint.failed(self.what, status))
            }
            None => Ok(()),
        }
    }

    fn quarantine(&mut self) -> bool {
        let unfinished = self.pending.take();
        unfinished.map(|unfinished| self.endpoint.quarantine(unfinished)).is_some()
    }
}

/// How a request ended, and what it held, to be dropped without the worker in hand.
type Ended = (Result<(), crate::Status>, Held);

/// Looks whether the request is done, and frees it if so.
fn check(
    api: &crate::ffi::Api,
    core: &mut crate::engine::Core,
    pending: &mut Option<Unfinished>,
    ended: &mut Option<Ended>,
    mut look: impl FnMut(&Held),
) -> bool {
    let Some(unfinished) = pending else { return true };
    // SAFETY: U1, W2; the request is ours until it is freed.
    let code = unsafe { (api.ucp_request_check_status)(unfinished.request.as_ptr()) };
    let Some(result) = finished(code) else { return false };
    if let Some(Unfinished { request, held }) = pending.take() {
        // SAFETY: U1, W2; it is done, and not used again.
        unsafe { (api.ucp_request_free)(request.as_ptr()) };
        look(&held);
        *ended = Some((result, core.reuse(held)));
    }
    true
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.quarantine();
    }
}

impl fmt::Debug for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("what", &self.what)
            .field("peer", &self.endpoint.peer)
            .field("is_pending", &self.pending.is_some())
            .finish_non_exhaustive()
    }
}

/// A compare-and-swap under way.
#[derive(Debug)]
#[must_use = "what a compare-and-swap found is known once it is waited for"]
pub struct Swap<'e> {
    pub(crate) operation: Operation<'e>,
    pub(crate) found: u64,
}

impl Swap<'_> {
    /// Waits for what it found. It has swapped if that is what was expected.
    ///
    /// # Errors
    ///
    /// As for [`Operation::wait`]; after a time-out it may swap yet.
    ///
    /// # Blocks
    ///
    /// As for [`Operation::wait`].
    pub fn wait(self, bound: Bound) -> Result<u64, OperationError> {
        let mut found = self.found;
        self.operation.wait_and(bound, |held| found = reply(held).unwrap_or(found))?;
        Ok(found)
    }
}

/// The second word of a scratch, where replies are written.
pub(crate) fn reply(held: &Held) -> Option<u64> {
    let Held::Scratch(scratch) = held else { return None };
    let second = scratch.0.as_ptr().cast::<u64>().wrapping_add(1);
    // SAFETY: within the scratch, which is aligned; volatile, as UCX wrote it behind Rust's back.
    Some(unsafe { second.read_volatile() })
}
