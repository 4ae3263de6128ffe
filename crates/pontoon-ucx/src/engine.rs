//! The one worker, who may call it, and what is left to be done when nobody waits any more.
//!
//! Lock order: `core` first, then `doomed`, the outbox or an endpoint's lists, which nest nothing. UCX is
//! called with `core` held, and calls back with it held: so a handler must not come here again,
//! which [`Engine::enter`] refuses, and nothing that a user gave is dropped while it is held.
#![allow(unsafe_code)] // calls of C functions

use std::{
    cell::Cell,
    ffi::c_void,
    mem,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use pontoon_signal::shim::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::{
    Context, Region, Status,
    ffi::{
        Api, UCP_EP_CLOSE_FLAG_FORCE, UCP_OP_ATTR_FIELD_FLAGS, UCS_OK, UcpEp, UcpRequestParam,
        UcpRkey, UcpWorker,
    },
    later::Outbox,
    message::Slot,
    status::{finished, outcome},
};

/// How long the end of a worker waits for its endpoints to close before it leaves all of it behind.
const END: Duration = Duration::from_secs(2);
/// How long an endpoint may take to settle before it is closed by force.
const SETTLE: Duration = Duration::from_millis(200);
/// Scratch kept for the next operations.
const SCRATCH: usize = 64;

/// A worker and what belongs to it.
pub(crate) struct Engine {
    pub(crate) context: Context,
    core: Mutex<Core>,
    /// Readable when an armed worker has something to do. UCX's, open until the worker is destroyed.
    pub(crate) event_fd: i32,
    /// How often somebody else than the progress thread has polled. A hint to that thread.
    pub(crate) polls: AtomicU64,
    /// How often the progress thread has made progress.
    pub(crate) rounds: AtomicU64,
    /// Endpoints to be closed, or being closed: how many.
    dying: AtomicU32,
    doomed: Mutex<Vec<Doomed>>,
    /// What handlers want sent.
    pub(crate) outbox: Outbox,
}

/// What only one thread uses at a time.
///
/// Invariant W1: `raw` is a worker of the engine's context until the engine is dropped. W2: it is
/// called by who holds `Engine::core`, and by nobody else (`UCS_THREAD_MODE_SERIALIZED`).
pub(crate) struct Core {
    pub(crate) raw: NonNull<UcpWorker>,
    pub(crate) handlers: Vec<Arc<Slot>>,
    #[expect(clippy::vec_box, reason = "UCX has their addresses while the list grows")]
    scratch: Vec<Box<Scratch>>,
    settling: Vec<Settling>,
    closing: Vec<Closing>,
}

// SAFETY: W2; UCX binds a serialized worker to no thread.
unsafe impl Send for Core {}

/// Small data that an operation reads or writes after its call has returned.
#[repr(align(64))]
pub(crate) struct Scratch(pub(crate) [u8; Scratch::BYTES]);

impl Scratch {
    /// What is copied there; more goes to the heap.
    pub(crate) const BYTES: usize = 256;
}

/// What UCX may still touch, by any name the user has for it.
#[expect(dead_code, reason = "held, not used")]
pub(crate) enum Held {
    Nothing,
    Scratch(Box<Scratch>),
    ScratchAnd(Box<Scratch>, Region),
    Bytes(Box<[u8]>),
    Region(Region),
    Both(Box<[u8]>, Region),
}

/// An operation that was not waited for to its end.
pub(crate) struct Unfinished {
    pub(crate) request: NonNull<c_void>,
    pub(crate) held: Held,
}

// SAFETY: a request is used by who holds `core`; all that is held can be sent.
unsafe impl Send for Unfinished {}

/// What an endpoint's error handler writes.
#[derive(Default)]
pub(crate) struct State {
    /// A `ucs_status_t`, zero as long as the endpoint is fine; see [`State::failure`].
    code: AtomicU32,
    /// Whom to tell, once; see [`State::tell`].
    told: OnceLock<Box<dyn Fn(Status) + Send + Sync>>,
}

impl State {
    /// Why the endpoint failed, if it has.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Status> {
        let code = self.code.load(Relaxed) as i8;
        if code == UCS_OK { None } else { Some(Status(code)) }
    }

    pub(crate) fn fail(&self, status: Status) {
        // The first is the cause of those after it.
        let first = self.code.compare_exchange(UCS_OK as u32, status.0 as u32, Relaxed, Relaxed);
        if let (Ok(_), Some(told)) = (first, self.told.get()) {
            told(status);
        }
    }

    /// Has `told` called at the failure, with the worker in hand or not, or now if that was before.
    /// Who fails just then may tell it twice.
    pub(crate) fn tell(&self, told: Box<dyn Fn(Status) + Send + Sync>) {
        let _ = self.told.set(told);
        if let (Some(status), Some(told)) = (self.failure(), self.told.get()) {
            told(status);
        }
    }
}

/// An endpoint that nobody has any more.
pub(crate) struct Doomed {
    pub(crate) endpoint: NonNull<UcpEp>,
    /// UCX has its address until the endpoint is closed.
    pub(crate) state: Arc<State>,
    pub(crate) keys: Vec<NonNull<UcpRkey>>,
    pub(crate) quarantine: Vec<Unfinished>,
}

// SAFETY: endpoints and keys are used by who holds `core`.
unsafe impl Send for Doomed {}

/// An endpoint that is to be closed once it has settled.
struct Settling {
    what: Doomed,
    flush: NonNull<c_void>,
    until: Instant,
}

struct Closing {
    what: Doomed,
    /// `None` once it is closed.
    request: Option<NonNull<c_void>>,
}

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as running a user's code with the worker in hand, until dropped.
pub(crate) struct InHandler(bool);

impl InHandler {
    pub(crate) fn begin() -> Self {
        Self(IN_HANDLER.replace(true))
    }
}

impl Drop for InHandler {
    fn drop(&mut self) {
        IN_HANDLER.set(self.0);
    }
}

/// A call that a handler made.
pub(crate) struct FromHandler;

impl Engine {
    pub(crate) fn new(context: Context, raw: NonNull<UcpWorker>, event_fd: i32) -> Arc<Self> {
        let core = Core {
            raw,
            handlers: Vec::new(),
            scratch: Vec::new(),
            settling: Vec::new(),
            closing: Vec::new(),
        };
        Arc::new(Self {
            context,
            core: Mutex::new(core),
            event_fd,
            polls: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            dying: AtomicU32::new(0),
            doomed: Mutex::default(),
            outbox: Outbox::default(),
        })
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.context.api()
    }

    /// The right to call the worker.
    #[inline]
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, Core>, FromHandler> {
        if IN_HANDLER.get() {
            return Err(FromHandler);
        }
        // Handlers do not unwind into UCX, and nothing else here panics half-way.
        Ok(self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets UCX do what is due, up to `rounds` times or until nothing is, or until `done`. Tells
    /// how much was done.
    pub(crate) fn progress(
        &self,
        rounds: u32,
        mut done: impl FnMut(&mut Core) -> bool,
    ) -> Result<Progress, FromHandler> {
        let mut core = self.enter()?;
        let (mut events, mut is_done) = (0, false);
        for _ in 0..rounds {
            // SAFETY: U1, W1, W2.
            let some = unsafe { (self.api().ucp_worker_progress)(core.raw.as_ptr()) };
            events += some;
            is_done = done(&mut core);
            if is_done || some == 0 {
                break;
            }
        }
        let sent = if self.outbox.is_empty() { Vec::new() } else { self.outbox.send(&mut core) };
        let buried = if self.dying.load(Relaxed) == 0 { Vec::new() } else { self.bury(&mut core) };
        drop(core);
        // What a user gave may come here again when it is dropped.
        drop((sent, buried));
        Ok(Progress { events, is_done })
    }

    /// Whether the worker slept well: no event is pending, and the next makes `event_fd` readable.
    pub(crate) fn arm(&self) -> Result<bool, FromHandler> {
        let core = self.enter()?;
        // SAFETY: U1, W1, W2.
        let code = unsafe { (self.api().ucp_worker_arm)(core.raw.as_ptr()) };
        // Dying endpoints are looked at by polling: their close need not make an event.
        Ok(code == UCS_OK && self.dying.load(Relaxed) == 0 && self.outbox.is_empty())
    }

    /// Has an endpoint closed by whoever makes progress next. Never blocks, from wherever it is
    /// called.
    pub(crate) fn doom(&self, what: Doomed) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.dying.fetch_add(1, Relaxed);
    }

    /// How many endpoints are to be closed or being closed.
    pub(crate) fn dying(&self) -> u32 {
        self.dying.load(Relaxed)
    }

    /// Begins a flush of an endpoint that is to be closed; `None` if there is nothing to wait for.
    ///
    /// One that is closed while UCX still connects it, with something under way, ends the process:
    /// `wireup_ep.c: Assertion pending_count == 0` (seen in 1.13.1).
    fn settle(&self, what: &Doomed) -> Option<NonNull<c_void>> {
        if what.state.failure().is_some() {
            return None;
        }
        let param = UcpRequestParam::unset();
        // SAFETY: U1, W2; the endpoint is ours, nobody else has it any more, and it has not failed.
        let answer =
            unsafe { (self.api().ucp_ep_flush_nbx)(what.endpoint.as_ptr(), &raw const param) };
        outcome(answer).unwrap_or_default()
    }

    fn close(&self, what: Doomed) -> Closing {
        let mut param = UcpRequestParam::unset();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        // Only that ends what hangs: openucx/ucx's request_cancel does nothing for puts and gets.
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        // SAFETY: U1, W2; the endpoint is ours, and nobody else has it any more.
        let answer =
            unsafe { (self.api().ucp_ep_close_nbx)(what.endpoint.as_ptr(), &raw const param) };
        // One that failed to close is as gone as one that is closed.
        Closing { what, request: outcome(answer).unwrap_or_default() }
    }

    /// Goes on closing what is to be closed, and gives back what UCX is done with.
    fn bury(&self, core: &mut Core) -> Vec<Doomed> {
        let api = self.api();
        let doomed = mem::take(&mut *self.doomed.lock().unwrap_or_else(PoisonError::into_inner));
        for what in doomed {
            match self.settle(&what) {
                Some(flush) => {
                    core.settling.push(Settling { what, flush, until: Instant::now() + SETTLE });
                }
                None => core.closing.push(self.close(what)),
            }
        }
        let settled = core.settling.extract_if(.., |settling| {
            // SAFETY: U1, W2; the request is ours until it is freed.
            let code = unsafe { (api.ucp_request_check_status)(settling.flush.as_ptr()) };
            finished(code).is_some()
                || settling.what.state.failure().is_some()
                || Instant::now() >= settling.until
        });
        let settled: Vec<_> = settled.collect();
        for Settling { mut what, flush, .. } in settled {
            // Freed with what else the endpoint had under way.
            what.quarantine.push(Unfinished { request: flush, held: Held::Nothing });
            core.closing.push(self.close(what));
        }
        let done = core.closing.extract_if(.., |closing| {
            let Some(request) = closing.request else { return true };
            // SAFETY: U1, W2; the request is ours until it is freed.
            let code = unsafe { (api.ucp_request_check_status)(request.as_ptr()) };
            finished(code).is_some()
        });
        let buried: Vec<Doomed> = done
            .map(|closing| {
                if let Some(request) = closing.request {
                    // SAFETY: U1, W2; it is done, and not used again.
                    unsafe { (api.ucp_request_free)(request.as_ptr()) };
                }
                closing.what
            })
            .collect();
        for what in &buried {
            for unfinished in &what.quarantine {
                // SAFETY: U1, W2; UCX has ended it with the endpoint, and it is not used again.
                unsafe { (api.ucp_request_free)(unfinished.request.as_ptr()) };
            }
            for key in &what.keys {
                // SAFETY: U1, W2; the key is ours, and no operation with it is left.
                unsafe { (api.ucp_rkey_destroy)(key.as_ptr()) };
            }
            self.dying.fetch_sub(1, Relaxed);
        }
        buried
    }
}

/// What a call for progress did.
pub(crate) struct Progress {
    pub(crate) events: u32,
    pub(crate) is_done: bool,
}

impl Core {
    pub(crate) fn scratch(&mut self) -> Box<Scratch> {
        self.scratch.pop().unwrap_or_else(|| Box::new(Scratch([0; Scratch::BYTES])))
    }

    /// Takes back what an operation held that is done; the rest is the caller's to drop once it has
    /// left the core.
    pub(crate) fn reuse(&mut self, held: Held) -> Held {
        match held {
            Held::Scratch(scratch) if self.scratch.len() < SCRATCH => {
                self.scratch.push(scratch);
                Held::Nothing
            }
            Held::ScratchAnd(scratch, region) if self.scratch.len() < SCRATCH => {
                self.scratch.push(scratch);
                Held::Region(region)
            }
            other => other,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let start = Instant::now();
        while self.dying() > 0 {
            // In a handler nothing can be closed, and the handler's worker is not this one.
            let Ok(progress) = self.progress(16, |_| false) else { break };
            if start.elapsed() > END {
                break;
            }
            if progress.events == 0 {
                std::thread::yield_now();
            }
        }
        let core = self.core.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.dying.load(Relaxed) > 0 {
            // UCX still has what these hold: better a leak than a write into memory of others.
            mem::forget((mem::take(&mut core.closing), mem::take(&mut core.handlers)));
            mem::forget(mem::take(&mut core.settling));
            mem::forget(mem::take(
                &mut *self.doomed.lock().unwrap_or_else(PoisonError::into_inner),
            ));
            mem::forget(self.context.clone());
            return;
        }
        // SAFETY: U1, W1; endpoints hold the engine, so they are gone, and so is everybody else.
        unsafe { (self.context.api().ucp_worker_destroy)(core.raw.as_ptr()) };
    }
}
