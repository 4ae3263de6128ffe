//! A session: queues whose commands are kept in order, or proved to be.
//!
//! One thread at a time drives a session, so a submission takes no lock; threads that share one put
//! it behind a mutex of their own, which then is what orders them. Everything is decided on the
//! host at submit: a device is given commands and waits for counters, nothing else.
//!
//! - `plan.rs` asks the tracker what a batch has to come after;
//! - `place.rs` gives a batch to its device;
//! - `park/` holds back what waits for a signal that nobody has submitted yet, and refuses circles;
//! - `host.rs` has the host's own accesses and waits, `reached.rs` those for events and semaphores;
//! - `wide.rs` has what is ordered across the lanes of a queue that has several;
//! - `policy.rs` recovers from failures, `reopen.rs` gives a lane a new queue for that;
//! - `callback.rs` tells of completions, and ends the session;
//! - `pending.rs` tells who waits for whom, `dump.rs` and `trace.rs` when, `describe.rs` what a fence is
//!   and why it failed;
//! - `profile/` tells what waiting cost, `timeline.rs` when;
//! - `observe.rs` and `full_sync.rs` help to find an edge that is missing.

mod aids;
mod callback;
mod describe;
mod dump;
mod full_sync;
mod host;
mod ids;
mod json;
mod lane;
mod notes;
mod observe;
mod origins;
mod park;
mod pending;
mod place;
mod plan;
mod policy;
mod profile;
mod reached;
mod refusal;
mod reopen;
mod spin;
mod timeline;
mod trace;
mod wide;

use std::{fmt, panic::Location, sync::Arc};

use pontoon_hal::{Access, CommandOf, Device, Engine, Fault, OpenQueueError, Queue};
use pontoon_signal::{
    Bound, Nanos, Rank,
    shim::{AtomicU32, Ordering::Relaxed},
};

pub use dump::Dump;
pub use full_sync::FullSync;
pub use host::{Completed, HostError, WaitFailure};
pub use ids::{CollectiveId, EventId, Foreign, QueueId, SemaphoreId, StreamId};
pub use observe::EdgeName;
pub use park::{Deadlock, Held, Reason};
pub use pending::{Awaited, Chain, Link, Next, Pending, Standing};
pub use profile::{
    Cause, Figures, HIGH_SHARE, Implied, Iteration, Pair, Profile, RedundantEdge, Where,
};
pub use refusal::{Abandoned, MissingEdge, Refusal, Refused, Site};
pub use timeline::{Moment, Timeline};

use crate::{
    Axis, Batch, Clock, Fence, FencePool, Patience, PoolSpec,
    batch::{self, OnFailure, Sealed, Step, StepOf, WaitFor},
    patience::Deadline,
    tracker::{Domain, Maintenance, Tracker},
};
use aids::Aids;
use callback::Callbacks;
use lane::Lane;
use notes::{Note, Notes};
use park::Parked;
use plan::Plan;
use policy::Kept;
use profile::Profiler;

/// Who sees to it that commands which touch the same bytes are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// The session derives the fewest edges.
    Auto,
    /// The caller gives them, and a submission that lacks one is refused.
    Check,
    /// The caller gives them, and nobody looks. Commands that then meet on the same bytes fail with
    /// a hazard (`Queue` Q6); where they do not meet, they run in the wrong order.
    Trust,
}

/// In which order the commands of a queue are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Each after the one before it.
    InOrder,
    /// Over this many lanes, which run side by side: batch n is on lane n modulo their number, and
    /// only what is on one lane is in order by itself, starts included.
    ///
    /// A wait or a barrier holds for all that the queue is given after it, on each lane, and an event
    /// that is recorded stands for all lanes. A fence, a signal and a collective are of the one
    /// lane that has their batch.
    Launch {
        /// How many batches run side by side.
        lanes: u32,
    },
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernels and copies, on the compute units.
    Compute,
    /// Copies, on the copy engine.
    Copy,
    /// Communication: copies to and from others, on the copy engine, where they never wait behind a
    /// kernel.
    Comm,
}

/// How a queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// What it is for.
    pub kind: Kind,
    /// In which order its commands are over.
    pub completion: Completion,
    /// The most batches under way on a lane; without it, as many commands as the device holds. One
    /// more may be, if another batch waits for it.
    pub credits: Option<u32>,
}

impl QueueSpec {
    /// An in-order queue without a limit of its own.
    pub fn new(kind: Kind) -> Self {
        Self { kind, completion: Completion::InOrder, credits: None }
    }
}

/// What a wait for an event that was never recorded means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unrecorded {
    /// A mistake, which is refused.
    #[default]
    Refuse,
    /// Nothing, as in CUDA: there is nothing to wait for.
    Pass,
}

/// Streams over queues of devices, kept in order.
///
/// A session that is dropped fails what is parked, and runs the callbacks that are left.
///
/// ```
/// use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
/// use pontoon_hal::Engine;
/// use pontoon_queue::{Buffer, Session};
/// use pontoon_signal::Rank;
///
/// let (first, second) = (CpuDevice::open(Rank(0), CpuSpec::default())?,
///     CpuDevice::open(Rank(1), CpuSpec::default())?);
/// let numbers = Buffer::<_, u32>::allocate(&first, 4)?;
/// let mut session = Session::auto();
/// let produce = session.stream(&first, Engine::Compute, "produce")?;
/// let consume = session.stream(&second, Engine::Compute, "consume")?;
///
/// let fill = Kernel::new(|context| context.write::<u32>(0).fill(20));
/// let add = Kernel::new(|context| context.write::<u32>(0).iter_mut().for_each(|x| *x += 1));
/// session.launch(produce, "fill", &fill, [numbers.write(..)], [])?;
/// session.launch(consume, "add", &add, [numbers.write(..)], [])?; // comes after the fill
/// assert_eq!(session.to_vec(&numbers)?, [21; 4]); // and this after both
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<'d, D: Device> {
    id: u32,
    edges: Edges,
    unrecorded: Unrecorded,
    /// Of waits on devices.
    bound: Bound,
    patience: Patience,
    tracker: Tracker,
    devices: Vec<DeviceState<'d, D>>,
    /// Lane n has axis n + 1; the host has axis 0.
    lanes: Vec<Lane<'d, D>>,
    queues: Vec<QueueState>,
    /// Of each lane.
    queue_of: Vec<usize>,
    streams: Vec<StreamState>,
    events: Vec<EventState>,
    semaphores: Vec<park::Semaphore>,
    parked: Parked<D>,
    /// Batches that say what becomes of them if they fail.
    kept: Kept<D>,
    /// What is submitted is the session's own, to recover: it derives its edges, and failed queues
    /// hold nothing back.
    recovering: bool,
    callbacks: Callbacks,
    /// When the submission that is made gives up waiting, once it waits.
    room_by: Option<Deadline>,
    pool: FencePool,
    /// How many of the first steps to be planned the session put in.
    brought: usize,
    /// What the records of the batch that is being submitted stand for, over several lanes.
    records: Vec<Fence>,
    /// How many events the lane had at the last barrier among streams that it was given.
    barred: u64,
    /// Where the batch that is being submitted comes from.
    site: &'static Location<'static>,
    /// What the host did.
    notes: Notes,
    counts: Counts,
    profiler: Profiler,
    /// Storage that is used again.
    plan: Plan,
    clock: Clock,
    spare: Vec<Vec<StepOf<D>>>,
    aids: Aids,
}

struct DeviceState<'d, D> {
    device: &'d D,
    /// The last global barrier.
    barrier: Option<(Axis, u64)>,
    /// The last global barrier that was parked, and on which lane.
    held: Option<(usize, Fence)>,
}

struct QueueState {
    lanes: Vec<usize>,
    turn: usize,
    /// Of each lane, what its next batch waits for, since batches of the others did.
    owed: Vec<Vec<WaitFor>>,
}

struct StreamState {
    queue: usize,
    label: Arc<str>,
}

struct EventState {
    label: Arc<str>,
    recorded: Option<Fence>,
    /// Where the other lanes of the queue were by then.
    beside: Vec<Fence>,
}

/// What a session did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Commands submitted, waits apart.
    pub commands: u64,
    /// Dependencies between lanes: derived ones, or those given that were needed.
    pub edges: u64,
    /// Of these, those that only keep a write from overtaking a read.
    pub execution_only: u64,
    /// Waits that devices were given.
    pub waits: u64,
    /// Dependencies given that others imply already.
    pub redundant: u64,
    /// Dependencies that were complete when they were submitted.
    pub complete: u64,
    /// Flushes of a cache towards memory, merged.
    pub flushes: u64,
    /// Invalidations of a cache, merged.
    pub invalidations: u64,
    /// Flushes and invalidations before they were merged.
    pub maintenance_asked: u64,
    /// Flushes and invalidations that earlier ones had done.
    pub maintenance_elided: u64,
    /// Batches that were held back for a signal that nobody had submitted.
    pub parked: u64,
    /// Waits of the host that did not end at once.
    pub host_waits: u64,
    /// How long they took, all together.
    pub host_waited: Nanos,
    /// Batches that were submitted again after a failure.
    pub retries: u64,
    /// Batches of which the bytes were given back what they held before.
    pub rollbacks: u64,
    /// Callbacks that panicked.
    pub callback_panics: u64,
}

impl Counts {
    fn maintained(&mut self, did: &Maintenance) {
        self.flushes += u64::from(did.flush.count_ones());
        self.invalidations += u64::from(did.invalidate);
        self.maintenance_asked += u64::from(did.asked);
        self.maintenance_elided += u64::from(did.elided);
    }
}

/// Whether a submission may wait for room.
#[derive(Clone, Copy, Debug)]
enum Room {
    Wait(Patience),
    Try,
    /// It was parked, and has its credit already.
    Parked,
}

/// As many batches as are kept and recorded at a time, mostly.
const SPARE_MOST: usize = 64;

static SESSIONS: AtomicU32 = AtomicU32::new(0);

impl<'d, D: Device> Session<'d, D> {
    /// A session that derives the edges.
    pub fn auto() -> Self {
        Self::new(Edges::Auto)
    }

    /// A session that is given the edges and refuses a submission that lacks one.
    pub fn check() -> Self {
        Self::new(Edges::Check)
    }

    /// A session. `PONTOON_DUMP_DEPS` (1, json, dot) and `PONTOON_FULL_SYNC` (queue, device) of the
    /// environment count as [`with_dump`](Self::with_dump) and
    /// [`with_full_sync`](Self::with_full_sync); they are read once a process.
    pub fn new(edges: Edges) -> Self {
        Self {
            id: SESSIONS.fetch_add(1, Relaxed),
            edges,
            unrecorded: Unrecorded::default(),
            bound: Bound::default(),
            patience: Patience::default(),
            tracker: Tracker::new(),
            devices: Vec::new(),
            lanes: Vec::new(),
            queues: Vec::new(),
            queue_of: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            semaphores: Vec::new(),
            parked: Parked::default(),
            kept: Kept::default(),
            recovering: false,
            callbacks: Callbacks::default(),
            room_by: None,
            brought: 0,
            records: Vec::new(),
            barred: 0,
            site: Location::caller(),
            pool: FencePool::new(Rank(0), PoolSpec::default()),
            notes: Notes::new(0),
            counts: Counts::default(),
            profiler: Profiler::default(),
            plan: Plan::default(),
            clock: Clock::default(),
            spare: Vec::new(),
            aids: Aids::from_env(),
        }
    }

    /// The same session, with waits on devices that fail when what they wait for stands still for
    /// as long as `bound`, or after [`WAIT_CAP`](pontoon_hal::WAIT_CAP) times that; and with them the
    /// queue that waits. A device sees the queue that it waits for and none behind that one: while
    /// a third holds it back, it stands still. So `bound` has to outlast the longest time that any
    /// queue of a chain is held back. A [wait of the host](Self::wait) sees the whole chain.
    pub fn with_bound(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    /// The same session, waiting at most `patience` for room in a queue and for its own accesses.
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The same session, with that meaning of a wait for an event that was never recorded.
    pub fn with_unrecorded(mut self, unrecorded: Unrecorded) -> Self {
        self.unrecorded = unrecorded;
        self
    }

    /// Who sees to the edges.
    pub fn edges(&self) -> Edges {
        self.edges
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Why queues failed, of those that did.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        self.lanes.iter().filter_map(|lane| lane.queue.fault())
    }

    /// Opens a queue of `device`. The label names it in errors.
    ///
    /// # Errors
    ///
    /// [`OpenQueueError`].
    pub fn queue(
        &mut self,
        device: &'d D,
        spec: QueueSpec,
        label: &str,
    ) -> Result<QueueId, OpenQueueError> {
        let engine = match spec.kind {
            Kind::Compute => Engine::Compute,
            Kind::Copy | Kind::Comm => Engine::Copy,
        };
        let count = match spec.completion {
            Completion::InOrder => 1,
            Completion::Launch { lanes } => lanes.max(1),
        };
        let at = self.device_at(device);
        let open = |_| Lane::open(device, at, engine, label, spec.credits);
        // All or none.
        let lanes = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
        let domain = Domain::of_device(at);
        let first = self.lanes.len();
        for lane in lanes {
            self.lanes.push(lane);
            self.tracker.open(domain);
            self.queue_of.push(self.queues.len());
        }
        let lanes: Vec<_> = (first..self.lanes.len()).collect();
        let owed = vec![Vec::new(); lanes.len()];
        self.queues.push(QueueState { lanes, turn: 0, owed });
        Ok(QueueId::new(self.id, self.queues.len() - 1))
    }

    fn device_at(&mut self, device: &'d D) -> usize {
        let known = self.devices.iter().position(|known| std::ptr::eq(known.device, device));
        known.unwrap_or_else(|| {
            self.devices.push(DeviceState { device, barrier: None, held: None });
            self.profiler.device(device.report());
            self.devices.len() - 1
        })
    }

    /// Opens a stream over a queue. Streams over one in-order queue share its order.
    ///
    /// # Errors
    ///
    /// [`Foreign`].
    pub fn stream_over(&mut self, queue: QueueId, label: &str) -> Result<StreamId, Foreign> {
        let queue = queue.in_session(self.id)?;
        self.streams.push(StreamState { queue, label: Arc::from(label) });
        Ok(StreamId::new(self.id, self.streams.len() - 1))
    }

    /// Opens a stream over an in-order queue of its own.
    ///
    /// # Errors
    ///
    /// [`OpenQueueError`].
    pub fn stream(
        &mut self,
        device: &'d D,
        engine: Engine,
        label: &str,
    ) -> Result<StreamId, OpenQueueError> {
        let kind = match engine {
            Engine::Compute => Kind::Compute,
            Engine::Copy => Kind::Copy,
        };
        let queue = self.queue(device, QueueSpec::new(kind), label)?;
        self.streams.push(StreamState { queue: queue.index as usize, label: Arc::from(label) });
        Ok(StreamId::new(self.id, self.streams.len() - 1))
    }

    /// Makes an event. It stands for nothing until it is recorded. It is there for as long as the
    /// session, as streams and semaphores are: some 200 bytes and the label each, and for a queue
    /// what its device keeps. Use them again.
    pub fn event(&mut self, label: &str) -> EventId {
        self.events.push(EventState {
            label: Arc::from(label),
            recorded: None,
            beside: Vec::new(),
        });
        EventId::new(self.id, self.events.len() - 1)
    }

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
    fn one_command(
        &mut self,
        stream: StreamId,
        command: CommandOf<D::Queue>,
    ) -> Result<Fence, Refusal> {
        match batch::wrong_with(&command) {
            Some(mistake) => Err(Refusal::Malformed(mistake)),
            None => self.one(stream, Step::Work(command)),
        }
    }

    fn one(&mut self, stream: StreamId, step: StepOf<D>) -> Result<Fence, Refusal> {
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
    fn give(
        &mut self,
        stream: StreamId,
        steps: &mut Vec<StepOf<D>>,
        room: Room,
    ) -> Result<Fence, Refusal> {
        let stream = stream.in_session(self.id)?;
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
    fn recover_first(&mut self, stream: usize) {
        let lanes = &self.queues[self.streams[stream].queue].lanes;
        if lanes.iter().any(|&lane| self.will_recover(lane)) {
            let (site, by) = (self.site, Deadline::of(self.patience));
            self.room_by = Some(by);
            self.settle_by(by);
            self.site = site;
        }
    }

    /// Keeps storage for the next batch. What callers bring in addition is not hoarded.
    fn use_again(&mut self, mut steps: Vec<StepOf<D>>) {
        if self.spare.len() < SPARE_MOST {
            steps.clear();
            self.spare.push(steps);
        }
    }

    fn axis(lane: usize) -> Axis {
        Axis(u32::try_from(lane + 1).unwrap_or(u32::MAX))
    }

    fn lane_of(axis: Axis) -> Option<usize> {
        (axis.0 as usize).checked_sub(1)
    }

    /// The fence of all that a lane was given.
    fn fence_of(&self, lane: usize) -> Fence {
        let axis = Self::axis(lane);
        self.lanes[lane].fence(self.id, axis, self.tracker.events(axis))
    }
}

impl<D: Device> fmt::Debug for Session<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, edges, lanes, streams, .. } = self;
        let (lanes, streams) = (lanes.len(), streams.len());
        write!(f, "Session {id} ({edges:?}, {streams} streams over {lanes} lanes)")
    }
}
