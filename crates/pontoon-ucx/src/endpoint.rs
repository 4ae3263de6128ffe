//! An endpoint: the way to one peer.
#![allow(unsafe_code)] // calls of C functions

use std::{
    ffi::c_void,
    fmt, mem,
    ptr::{self, NonNull},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pontoon_signal::{
    Bound, Nanos,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    Body, Manner, Operation, OperationError, OutOfRange, Remote, SetupError, Status,
    context::refused,
    engine::{Core, Doomed, Engine, Held, InHandler, Scratch, State, Unfinished},
    envelope::{self, Kind},
    ffi::{
        DataCallback, StatusPtr, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV,
        UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
        UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_FLAGS, UCP_OP_ATTR_FIELD_MEMH,
        UCP_OP_ATTR_FIELD_USER_DATA, UcpEp, UcpEpParams, UcpRequestParam, UcpRkey, UcsStatus,
    },
    patience::{Waited, wait},
    status::{finished, outcome},
};

/// The way to one peer. A clone is the same endpoint; the last one closes it, by force: what was
/// begun and not waited for is ended, whatever the peer does.
///
/// A peer that dies, or that cannot be reached any more, fails the endpoint for good; all later
/// operations say so at once, without calling UCX (openucx/ucx#11629: it crashes there).
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

/// Invariant E1: `raw` is an endpoint of the engine's worker until `drop`. E2: `state` has the
/// address that UCX was given, until the endpoint is closed.
pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    raw: NonNull<UcpEp>,
    pub(crate) state: Arc<State>,
    pub(crate) peer: Arc<str>,
    quarantine: Mutex<Vec<Unfinished>>,
    quarantined: AtomicU64,
    /// What was begun by `send_later`.
    unattended: Mutex<Vec<Unfinished>>,
    keys: Mutex<Vec<NonNull<UcpRkey>>>,
}

// SAFETY: E1; endpoint and keys are used by who has the core.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; the rest is locked or atomic.
unsafe impl Sync for Inner {}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Nothing is known against it.
    Up,
    /// It is dead or out of reach, for good.
    Failed(Status),
}

impl Endpoint {
    pub(crate) fn connect(
        engine: &Arc<Engine>,
        peer: &str,
        address: &[u8],
    ) -> Result<Self, SetupError> {
        // UCX reads an address without knowing where it ends.
        let address = envelope::open(Kind::Address, address)?;
        let state = Arc::new(State::default());
        let mut params = UcpEpParams::unset();
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
            | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
            | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = address.as_ptr().cast();
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        if engine.context.notices_death() {
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        }
        params.err_handler.cb = Some(failed);
        params.err_handler.arg = Arc::as_ptr(&state).cast_mut().cast();
        let mut raw = ptr::null_mut();
        let core = engine.enter().map_err(|_| SetupError::FromHandler)?;
        let create = engine.api().ucp_ep_create;
        // SAFETY: U1, W1, W2; the address is one that a worker gave, whole.
        let code = unsafe { create(core.raw.as_ptr(), &raw const params, &raw mut raw) };
        drop(core);
        Status(code).check().map_err(|status| match refused("ucp_ep_create", status) {
            SetupError::Refused { call, status } if status.is_unreachable() => {
                SetupError::Unreachable { call, asked: engine.context.asked(), status }
            }
            error => error,
        })?;
        let raw = NonNull::new(raw).ok_or(refused("ucp_ep_create", Status(code)))?;
        let inner = Inner {
            engine: Arc::clone(engine),
            raw,
            state,
            peer: peer.into(),
            quarantine: Mutex::default(),
            quarantined: AtomicU64::new(0),
            unattended: Mutex::default(),
            keys: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The memory of the peer's that `key` is of, as [`Region::key`](crate::Region::key) gave it.
    ///
    /// # Errors
    ///
    /// [`SetupError::Envelope`] if these are other bytes, else what UCX says.
    pub fn remote(&self, key: &[u8]) -> Result<Remote, SetupError> {
        Remote::unpack(self, key)
    }

    /// Sends a message to the handler with number `id` of the peer's.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was sent.
    pub fn send(
        &self,
        id: u16,
        header: &[u8],
        body: Body<'_>,
        manner: Manner,
    ) -> Result<Operation<'_>, OperationError> {
        const WHAT: &str = "a message";
        let inner = &*self.inner;
        let mut core = inner.enter(WHAT)?;
        let (answer, held) = inner.begin_send(&mut core, id, header, body, manner, None)?;
        inner.settle(core, WHAT, answer, held)
    }

    /// Orders all that was begun with any peer of this worker before all that is begun after it.
    ///
    /// # Errors
    ///
    /// [`OperationError`].
    pub fn fence(&self) -> Result<(), OperationError> {
        let inner = &*self.inner;
        let core = inner.enter("a fence")?;
        // SAFETY: U1, W1, W2.
        let code = unsafe { (inner.engine.api().ucp_worker_fence)(core.raw.as_ptr()) };
        drop(core);
        Status(code).check().map_err(|status| inner.failed("a fence", status))
    }

    /// Is done when all that was begun before with this peer has arrived there.
    ///
    /// Of one endpoint: a flush of the whole worker says that all is well though one endpoint
    /// failed.
    ///
    /// # Errors
    ///
    /// [`OperationError`].
    pub fn flush(&self) -> Result<Operation<'_>, OperationError> {
        let inner = &*self.inner;
        let core = inner.enter("a flush")?;
        let param = UcpRequestParam::unset();
        let flush = inner.engine.api().ucp_ep_flush_nbx;
        // SAFETY: U1, W2, E1.
        let answer = unsafe { flush(inner.raw.as_ptr(), &raw const param) };
        inner.settle(core, "a flush", answer, Held::Nothing)
    }

    /// What is known of the peer.
    #[inline]
    pub fn state(&self) -> PeerState {
        self.inner.state.failure().map_or(PeerState::Up, PeerState::Failed)
    }

    /// How the peer was named when it was connected to.
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// How many operations were given up before they were done, and have their memory kept.
    pub fn quarantined(&self) -> u64 {
        self.inner.quarantined.load(Relaxed)
    }

    /// Closes it and waits until UCX has nothing of it any more, the quarantine included.
    ///
    /// # Errors
    ///
    /// [`OperationError::TimedOut`]; it is closed later, by whoever makes progress. Also if other
    /// clones of the endpoint are left: nothing is closed then.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn close(self, bound: Bound) -> Result<(), OperationError> {
        let (engine, peer) = (Arc::clone(&self.inner.engine), Arc::clone(&self.inner.peer));
        drop(self);
        match wait(&engine, bound, |_| engine.dying() == 0) {
            Ok(Waited::Done) => Ok(()),
            Ok(Waited::TimedOut(waited)) => {
                Err(OperationError::TimedOut { what: "a close", peer, waited, quarantined: 0 })
            }
            Err(_) => Err(OperationError::FromHandler),
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    /// The right to call the worker, if the endpoint is fine.
    #[inline]
    pub(crate) fn enter(&self, what: &'static str) -> Result<MutexGuard<'_, Core>, OperationError> {
        let core = self.engine.enter().map_err(|_| OperationError::FromHandler)?;
        match self.state.failure() {
            None => Ok(core),
            Some(status) => Err(self.failed(what, status)),
        }
    }

    pub(crate) fn raw(&self) -> *mut UcpEp {
        self.raw.as_ptr()
    }

    /// Begins to send a message: UCX's answer, and what is held until it is done. UCX calls `done`
    /// if that is a request, from within whatever makes progress.
    pub(crate) fn begin_send(
        &self,
        core: &mut Core,
        id: u16,
        header: &[u8],
        body: Body<'_>,
        manner: Manner,
        done: Option<(DataCallback, *mut c_void)>,
    ) -> Result<(StatusPtr, Held), OutOfRange> {
        let mut param = UcpRequestParam::unset();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = match manner {
            Manner::Auto => 0,
            Manner::Eager => UCP_AM_SEND_FLAG_EAGER,
            Manner::Rendezvous => UCP_AM_SEND_FLAG_RNDV,
        };
        if let Some((callback, user_data)) = done {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
            (param.cb, param.user_data) = (Some(callback), user_data);
        }
        let (data, bytes, region) = match body {
            Body::Nothing => (&[][..], 0, None),
            Body::Copied(data) => (data, data.len(), None),
            Body::Of { region, offset, bytes } => {
                (&[][..], bytes, Some((region, region.at(offset, bytes)?)))
            }
        };
        // UCX may read header and data after the call has returned.
        let mut held = copy(core, &[header, data]);
        let copied = held.first();
        // SAFETY: the copy of the data follows that of the header, within the same bytes.
        let mut from = unsafe { copied.add(header.len()) }.cast_const();
        if let Some((region, at)) = region {
            from = at;
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
            param.memh = region.memh();
            held = held.and(region);
        }
        let (send, to) = (self.engine.api().ucp_am_send_nbx, self.raw.as_ptr());
        let (header, length) = (copied.cast_const().cast(), header.len());
        // SAFETY: U1, W2, E1; `held` keeps header and data in place until it is done.
        let answer =
            unsafe { send(to, id.into(), header, length, from.cast(), bytes, &raw const param) };
        Ok((answer, held))
    }

    /// Leaves an operation to itself: nobody waits for it. Gives what is not needed any more.
    pub(crate) fn leave_unattended(
        &self,
        core: &mut Core,
        answer: StatusPtr,
        held: Held,
    ) -> Option<Held> {
        match outcome(answer) {
            Ok(Some(request)) => {
                let mut unattended = lock(&self.unattended);
                unattended.push(Unfinished { request, held });
                None
            }
            Ok(None) => Some(core.reuse(held)),
            Err(status) => {
                let _ = self.failed("a message", status);
                Some(held)
            }
        }
    }

    /// Frees what nobody waits for and is done.
    pub(crate) fn reap(&self, core: &mut Core) -> Vec<Held> {
        let api = self.engine.api();
        let mut unattended = lock(&self.unattended);
        let done = unattended.extract_if(.., |unfinished| {
            // SAFETY: U1, W2; the request is ours until it is freed.
            let code = unsafe { (api.ucp_request_check_status)(unfinished.request.as_ptr()) };
            finished(code).is_some()
        });
        done.map(|unfinished| {
            // SAFETY: U1, W2; it is done, and not used again.
            unsafe { (api.ucp_request_free)(unfinished.request.as_ptr()) };
            core.reuse(unfinished.held)
        })
        .collect()
    }

    /// What becomes of a call that UCX answered.
    #[inline]
    pub(crate) fn settle(
        &self,
        mut core: MutexGuard<'_, Core>,
        what: &'static str,
        answer: StatusPtr,
        held: Held,
    ) -> Result<Operation<'_>, OperationError> {
        match outcome(answer) {
            Ok(None) => {
                let held = core.reuse(held);
                drop(core);
                drop(held);
                Ok(Operation::new(self, what, None))
            }
            Ok(Some(request)) => Ok(Operation::new(self, what, Some(Unfinished { request, held }))),
            Err(status) => {
                drop(core);
                drop(held);
                Err(self.failed(what, status))
            }
        }
    }

    pub(crate) fn quarantine(&self, unfinished: Unfinished) {
        lock(&self.quarantine).push(unfinished);
        self.quarantined.fetch_add(1, Relaxed);
    }

    pub(crate) fn keep_key(&self, key: NonNull<UcpRkey>) {
        lock(&self.keys).push(key);
    }

    #[cold]
    pub(crate) fn failed(&self, what: &'static str, status: Status) -> OperationError {
        let peer = Arc::clone(&self.peer);
        if self.state.failure().is_some() || status.is_of_the_peer() {
            // UCX's own word for it may come later; nothing may be called until then.
            self.state.fail(status);
            return OperationError::PeerFailed { what, peer, status };
        }
        OperationError::Refused { what, peer, status }
    }

    #[cold]
    pub(crate) fn timed_out(&self, what: &'static str, waited: Nanos) -> OperationError {
        if let Some(status) = self.state.failure() {
            return self.failed(what, status);
        }
        let (peer, quarantined) = (Arc::clone(&self.peer), self.quarantined.load(Relaxed));
        OperationError::TimedOut { what, peer, waited, quarantined }
    }
}

impl Held {
    /// Where the copy begins.
    pub(crate) fn first(&mut self) -> *mut u8 {
        match self {
            Self::Scratch(scratch) | Self::ScratchAnd(scratch, _) => scratch.0.as_mut_ptr(),
            Self::Bytes(bytes) | Self::Both(bytes, _) => bytes.as_mut_ptr(),
            // A null pointer is no more wrong where there are no bytes, but not one to add to.
            Self::Nothing | Self::Region(_) => NonNull::dangling().as_ptr(),
        }
    }

    fn and(self, region: &crate::Region) -> Self {
        let region = region.clone();
        match self {
            Self::Nothing => Self::Region(region),
            Self::Scratch(scratch) => Self::ScratchAnd(scratch, region),
            Self::Bytes(bytes) => Self::Both(bytes, region),
            other => other,
        }
    }
}

/// Whoever panicked with a list in hand had finished with it.
fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies `parts` one after the other to where they stay.
pub(crate) fn copy(core: &mut Core, parts: &[&[u8]]) -> Held {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    if bytes == 0 {
        return Held::Nothing;
    }
    if bytes > Scratch::BYTES {
        return Held::Bytes(parts.concat().into());
    }
    let mut scratch = core.scratch();
    let mut at = 0;
    for part in parts {
        scratch.0[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Held::Scratch(scratch)
}

/// `ucp_err_handler_cb_t`; `arg` is a `State`.
///
/// # Safety
///
/// UCX calls it as registered, before the endpoint is closed (E2).
unsafe extern "C" fn failed(arg: *mut c_void, _: *mut UcpEp, status: UcsStatus) {
    // From within progress: what the end of a peer drops must not ask for the core again.
    let _mark = InHandler::begin();
    // SAFETY: E2.
    let state = unsafe { &*arg.cast::<State>() };
    state.fail(Status(status));
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut quarantine = mem::take(&mut *lock(&self.quarantine));
        quarantine.append(&mut lock(&self.unattended));
        self.engine.doom(Doomed {
            endpoint: self.raw,
            state: Arc::clone(&self.state),
            keys: mem::take(&mut *lock(&self.keys)),
            quarantine,
        });
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("peer", &self.inner.peer)
            .field("state", &self.state())
            .field("quarantined", &self.quarantined())
            .finish_non_exhaustive()
    }
}
