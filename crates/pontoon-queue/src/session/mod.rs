//! A session: queues whose commands are kept in order, or proved to be.
//!
//! One thread at a time drives a session, so a submission takes no lock; threads that share one put
//! it behind a mutex of their own, which then is what orders them. Everything is decided on the
//! host at submit: a device is given commands and waits for counters, nothing else.
//!
//! - `submit.rs` takes batches and single commands;
//! - `plan.rs` asks the tracker what a batch has to come after;
//! - `place.rs` gives a batch to its device;
//! - `park/` holds back what waits for a signal that nobody has submitted yet, and refuses circles;
//! - `host.rs` has the host's own accesses and waits, `reached.rs` those for events and semaphores;
//! - `lent.rs` has the bytes that other ranks use in turns with this one;
//! - `wide.rs` has what is ordered across the lanes of a queue that has several;
//! - `policy.rs` recovers from failures, `reopen.rs` gives a lane a new queue for that;
//! - `callback.rs` tells of completions, and ends the session;
//! - `pending.rs` tells who waits for whom, `dump.rs` and `trace.rs` when, `describe.rs` what a fence is
//!   and why it failed;
//! - `profile/` tells what waiting cost, `timeline.rs` when;
//! - `observe.rs` and `full_sync.rs` help to find an edge that is missing.

mod aids;
mod callback;
mod counts;
mod describe;
mod dump;
mod full_sync;
mod host;
mod ids;
mod json;
mod lane;
mod lent;
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
mod spec;
mod spin;
mod submit;
mod timeline;
mod trace;
mod wide;

use std::{fmt, panic::Location, sync::Arc};

use pontoon_hal::{Device, Engine, Fault, OpenQueueError, Queue};
use pontoon_signal::{
    Bound, Rank,
    shim::{AtomicU32, Ordering::Relaxed},
};

pub use counts::Counts;
pub use dump::Dump;
pub use full_sync::FullSync;
pub use host::{Completed, HostError, WaitFailure};
pub use ids::{ChannelId, CollectiveId, EventId, Foreign, QueueId, SemaphoreId, StreamId};
pub use observe::EdgeName;
pub use park::{Deadlock, Held, Reason};
pub use pending::{Awaited, Chain, Link, Next, Pending, Standing};
pub use profile::{
    Cause, Figures, HIGH_SHARE, Implied, Iteration, Pair, Profile, RedundantEdge, Where,
};
pub use refusal::{Abandoned, MissingEdge, Refusal, Refused, Site};
pub use spec::{Completion, Edges, Kind, QueueSpec, Unrecorded};
pub use timeline::{Moment, Timeline};

use crate::{
    Axis, Clock, Fence, FencePool, Patience, PoolSpec,
    batch::{StepOf, WaitFor},
    patience::Deadline,
    tracker::{Domain, Tracker},
};
use aids::Aids;
use callback::Callbacks;
use lane::Lane;
use notes::{Note, Notes};
use park::Parked;
use plan::Plan;
use policy::Kept;
use profile::Profiler;

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
    channels: Vec<lent::Channel<D::Memory>>,
    /// How many lendings of all channels are out.
    lendings: usize,
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
            channels: Vec::new(),
            lendings: 0,
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
