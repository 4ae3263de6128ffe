//! The worker: what carries all that a process sends and gets.
#![allow(unsafe_code)] // calls of C functions

use std::{
    fmt,
    ptr::{self, NonNull},
    slice,
    sync::{Arc, Mutex, PoisonError},
};

use pontoon_signal::{
    Bound, Nanos,
    shim::{AtomicU64, Ordering::Relaxed, UnsafeCell},
};

use crate::{
    Context, Endpoint, Handler, OperationError, SetupError, Status,
    context::refused,
    engine::{Engine, InHandler},
    envelope::{self, Kind},
    ffi::{
        UCP_AM_FLAG_WHOLE_MSG, UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB,
        UCP_AM_HANDLER_PARAM_FIELD_FLAGS, UCP_AM_HANDLER_PARAM_FIELD_ID, UCP_WAKEUP_AMO,
        UCP_WAKEUP_RMA, UCP_WAKEUP_RX, UCP_WAKEUP_TX, UCP_WORKER_PARAM_FIELD_EVENTS,
        UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_THREAD_MODE_SERIALIZED, UcpAmHandlerParam,
        UcpWorkerParams,
    },
    message::{Slot, arrived},
    patience::{Waited, wait},
    thread::Thread,
};

/// What carries all that a process sends and gets.
///
/// UCX does nothing by itself: somebody must make progress. Whoever waits for an operation does;
/// so does [`progress`](Self::progress), and [`wait_until`](Self::wait_until). Where nobody may be
/// waiting, [`start_thread`](Self::start_thread) has a thread do it: it sleeps while nothing is due,
/// and stays away while somebody else polls. What arrives just after the last poll waits up to two
/// milliseconds for it.
///
/// Never called from a signal handler.
pub struct Worker {
    engine: Arc<Engine>,
    thread: Mutex<Option<Thread>>,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// How often somebody else than the thread made progress.
    pub polls: u64,
    /// How often the thread made progress.
    pub rounds: u64,
    /// How many messages were lost because their handler panicked.
    pub panics: u64,
    /// How many endpoints are being closed.
    pub closing: u32,
    /// Whether the progress thread runs.
    pub has_thread: bool,
}

impl Worker {
    pub(crate) fn create(context: &Context) -> Result<Self, SetupError> {
        let api = context.api();
        let mut params = UcpWorkerParams::unset();
        params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
        params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
        params.events = UCP_WAKEUP_RMA | UCP_WAKEUP_AMO | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
        let mut raw = ptr::null_mut();
        let create = api.ucp_worker_create;
        // SAFETY: U1, X1; `raw` is room for the answer.
        let code = unsafe { create(context.raw(), &raw const params, &raw mut raw) };
        Status(code).check().map_err(|status| refused("ucp_worker_create", status))?;
        let raw = NonNull::new(raw).ok_or(refused("ucp_worker_create", Status(code)))?;
        let mut event_fd = -1;
        // SAFETY: U1; the worker is ours, and `event_fd` is room for the answer.
        let code = unsafe { (api.ucp_worker_get_efd)(raw.as_ptr(), &raw mut event_fd) };
        // The engine destroys the worker from here on.
        let engine = Engine::new(context.clone(), raw, event_fd);
        Status(code).check().map_err(|status| refused("ucp_worker_get_efd", status))?;
        Ok(Self { engine, thread: Mutex::default() })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What a peer needs to connect to it: give this to the peer's [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// What UCX says.
    pub fn address(&self) -> Result<Vec<u8>, SetupError> {
        let api = self.engine.api();
        let core = self.engine.enter().map_err(|_| SetupError::FromHandler)?;
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        let get = api.ucp_worker_get_address;
        // SAFETY: U1, W1, W2; the two places are room for the answer.
        let code = unsafe { get(core.raw.as_ptr(), &raw mut address, &raw mut bytes) };
        Status(code).check().map_err(|status| refused("ucp_worker_get_address", status))?;
        // SAFETY: the call that succeeded left so many bytes there.
        let body = unsafe { slice::from_raw_parts(address.cast::<u8>(), bytes) };
        let sealed = envelope::seal(Kind::Address, body);
        // SAFETY: U1, W1, W2; the address is what was given, and is not used again.
        unsafe { (api.ucp_worker_release_address)(core.raw.as_ptr(), address) };
        Ok(sealed)
    }

    /// Makes an endpoint to the worker with this address. `peer` names it in errors.
    ///
    /// It does not wait for the peer; whether that is there shows with the first operation.
    ///
    /// # Errors
    ///
    /// [`SetupError::Envelope`] if `address` is not what a worker gave; else what UCX says, as that
    /// the peer is not reachable by the transports asked for.
    pub fn connect(&self, peer: &str, address: &[u8]) -> Result<Endpoint, SetupError> {
        Endpoint::connect(&self.engine, peer, address)
    }

    /// Has `handler` take the messages with number `id`. Those with a number that nobody takes are
    /// dropped. The first handler of a number stays.
    ///
    /// # Errors
    ///
    /// What UCX says.
    pub fn handle(&self, id: u16, handler: Box<dyn Handler>) -> Result<(), SetupError> {
        let api = self.engine.api();
        let mut core = self.engine.enter().map_err(|_| SetupError::FromHandler)?;
        let slot = Arc::new(Slot {
            handler: UnsafeCell::new(handler),
            worker: core.raw,
            api,
            panics: AtomicU64::new(0),
        });
        let mut param = UcpAmHandlerParam::unset();
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID
            | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
            | UCP_AM_HANDLER_PARAM_FIELD_CB
            | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        (param.id, param.flags) = (id.into(), UCP_AM_FLAG_WHOLE_MSG);
        param.cb = Some(arrived);
        param.arg = Arc::as_ptr(&slot).cast_mut().cast();
        let set = api.ucp_worker_set_am_recv_handler;
        // SAFETY: U1, W1, W2; the slot stays until the worker is destroyed.
        let code = unsafe { set(core.raw.as_ptr(), &raw const param) };
        core.handlers.push(slot);
        Status(code).check().map_err(|status| refused("ucp_worker_set_am_recv_handler", status))
    }

    /// Does what is due, once. Tells how much that was.
    ///
    /// # Errors
    ///
    /// [`OperationError::FromHandler`] only.
    pub fn progress(&self) -> Result<u32, OperationError> {
        let polls = &self.engine.polls;
        polls.store(polls.load(Relaxed).wrapping_add(1), Relaxed);
        let progress = self.engine.progress(1, |_| false);
        progress.map(|progress| progress.events).map_err(|_| OperationError::FromHandler)
    }

    /// Makes progress until `done`, and sleeps while nothing is due. Tells how long it waited if
    /// that was in vain. `done` has the worker in hand, as a handler has.
    ///
    /// What a peer stores into shared memory wakes nobody: `done` is called every 50 ms
    /// at least.
    ///
    /// # Errors
    ///
    /// [`OperationError::FromHandler`] only.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn wait_until(
        &self,
        bound: Bound,
        mut done: impl FnMut() -> bool,
    ) -> Result<Result<(), Nanos>, OperationError> {
        let marked = |_: &mut _| {
            let _mark = InHandler::begin();
            done()
        };
        match wait(&self.engine, bound, marked) {
            Ok(Waited::Done) => Ok(Ok(())),
            Ok(Waited::TimedOut(waited)) => Ok(Err(waited)),
            Err(_) => Err(OperationError::FromHandler),
        }
    }

    /// Starts the progress thread, if it does not run.
    ///
    /// # Errors
    ///
    /// [`SetupError::System`].
    pub fn start_thread(&self) -> Result<(), SetupError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            *thread = Some(Thread::start(Arc::clone(&self.engine))?);
        }
        Ok(())
    }

    /// Stops the progress thread, if it runs: from now on only callers make progress.
    ///
    /// # Blocks
    ///
    /// Until it has ended, some microseconds and a handler's time.
    pub fn stop_thread(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(thread);
    }

    /// What it has done.
    ///
    /// # Errors
    ///
    /// [`OperationError::FromHandler`] only.
    pub fn report(&self) -> Result<WorkerReport, OperationError> {
        let has_thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let core = self.engine.enter().map_err(|_| OperationError::FromHandler)?;
        let panics = core.handlers.iter().map(|slot| slot.panics.load(Relaxed)).sum();
        let polls = self.engine.polls.load(Relaxed);
        let rounds = self.engine.rounds.load(Relaxed);
        Ok(WorkerReport { polls, rounds, panics, closing: self.engine.dying(), has_thread })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop_thread();
        // Each holds its endpoint, and that the engine.
        self.engine.outbox.clear();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
