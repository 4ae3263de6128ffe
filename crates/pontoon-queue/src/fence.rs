//! A position of a stream's completions.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::Instant,
};

use pontoon_hal::{Fault, FaultCell, Queue};
use pontoon_signal::{Bound, Rank, Seq, Slot, WaitError};

use crate::{Abandoned, Axis, Chain, Foreign, Recovery, Root, acyclic::Node, recovery::Again};

/// A position of a stream's completions: reached when everything submitted to the stream by then
/// is complete; of a stream over several lanes, all that the lane of its batch had.
/// It never falls back, and it is a handle: clones are the same position.
#[derive(Clone, Debug)]
pub struct Fence {
    at: At,
    device: Rank,
    /// The stream's label, unless the signal has it.
    stream: Option<Arc<str>>,
    /// Of a batch that may be submitted again.
    again: Option<Arc<Again>>,
}

#[derive(Clone, Debug)]
enum At {
    Known(Point),
    Late(Arc<Late>),
}

/// A counter and where it has to get.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) slot: Signal,
    pub(crate) target: Seq,
    /// Where it is among the events of a session; `None` if it is of none.
    pub(crate) place: Option<Place>,
}

/// What a fence is of. To clone it counts one reference, since every submission does.
#[derive(Clone, Debug)]
pub(crate) enum Signal {
    Bare(Slot),
    Queue(Arc<QueueSignal>),
}

/// The signal of a stream's queue.
#[derive(Debug)]
pub(crate) struct QueueSignal {
    completions: Slot,
    /// Where the queue says why it stopped.
    faults: FaultCell,
    stream: Arc<str>,
}

impl Signal {
    pub(crate) fn of<Q: Queue>(queue: &Q, stream: &Arc<str>) -> Self {
        let (completions, faults) = (queue.completions().clone(), queue.faults().clone());
        Self::Queue(Arc::new(QueueSignal { completions, faults, stream: Arc::clone(stream) }))
    }

    /// Where the stream's queue says why it stopped; `None` for a bare signal.
    pub(crate) fn faults(&self) -> Option<&FaultCell> {
        match self {
            Self::Bare(_) => None,
            Self::Queue(queue) => Some(&queue.faults),
        }
    }
}

impl Deref for Signal {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Self::Bare(slot) => slot,
            Self::Queue(queue) => &queue.completions,
        }
    }
}

/// The first `count` events of an axis of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) session: u32,
    pub(crate) axis: Axis,
    pub(crate) count: u64,
}

/// The position of a batch that no device has been given yet.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) session: u32,
    /// The batch, in its session's graph.
    pub(crate) node: Node,
    /// Reached when the batch has been given to a device; fails if it never will be.
    pub(crate) gate: Point,
    /// Set before the gate is opened.
    pub(crate) real: OnceLock<Point>,
    /// Why it never will be, set before the gate fails.
    pub(crate) why: OnceLock<Arc<Abandoned>>,
}

impl Late {
    /// Refuses a session that it is not of.
    pub(crate) fn of(&self, session: u32) -> Result<(), Foreign> {
        if self.session == session {
            return Ok(());
        }
        Err(Foreign { what: "fence of parked batch", index: 0, of: self.session, used_in: session })
    }
}

impl Fence {
    /// A fence over any signal: reached when `slot` is at or past `target`. `name` stands for the
    /// stream in errors.
    pub fn on(slot: Slot, target: Seq, name: &str) -> Self {
        let device = slot.id().producer;
        let point = Point { slot: Signal::Bare(slot), target, place: None };
        Self::known(point, device, Arc::from(name))
    }

    pub(crate) fn known(point: Point, device: Rank, stream: Arc<str>) -> Self {
        Self { at: At::Known(point), device, stream: Some(stream), again: None }
    }

    /// A fence that has its stream's label by its signal.
    pub(crate) fn of_queue(point: Point, device: Rank) -> Self {
        Self { at: At::Known(point), device, stream: None, again: None }
    }

    pub(crate) fn late(late: Arc<Late>, device: Rank, stream: Arc<str>) -> Self {
        Self { at: At::Late(late), device, stream: Some(stream), again: None }
    }

    /// The fence `completions` later on the same signal; as it is, while no device has been given
    /// what it is of. A session takes no wait for a position of its own queues that nobody has
    /// submitted anything to reach.
    pub fn later(&self, completions: u32) -> Self {
        let mut later = self.clone();
        if let Some(point) = self.point() {
            let target = point.target + completions;
            let place = point.place.map(|place| Place {
                count: place.count.saturating_add(completions.into()),
                ..place
            });
            later.at = At::Known(Point { target, place, ..point.clone() });
        }
        later.again = None;
        later
    }

    /// The same position, of a batch that may be submitted again.
    pub(crate) fn with_again(self, again: Arc<Again>) -> Self {
        Self { again: Some(again), ..self }
    }

    pub(crate) fn again(&self) -> Option<&Arc<Again>> {
        self.again.as_ref()
    }

    /// Waits on the host. What the commands before the fence wrote is then readable here.
    ///
    /// A session does not learn of it: wait by [`Session::wait`](crate::Session::wait) for what the
    /// session has to know. Nor does this drive one: a batch that is parked may need another thread
    /// that does, even if all it lacks is room in its queue.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: a time-out, after which waiting again is fine, or how the stream failed.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn wait(&self, bound: Bound) -> Result<(), FenceError> {
        let started = Instant::now();
        let late = match &self.at {
            At::Known(point) => return self.wait_for(point, bound),
            At::Late(late) => late,
        };
        self.wait_for(&late.gate, bound)?;
        match late.real.get() {
            Some(point) => self.wait_for(point, bound.less(started.elapsed().into())),
            None => Ok(()),
        }
    }

    /// Whether it is reached; if so, what the commands before it wrote is readable here. Makes no
    /// system call.
    ///
    /// # Errors
    ///
    /// [`FenceError`] if the stream failed short of it.
    pub fn is_complete(&self) -> Result<bool, FenceError> {
        let poll = |point: &Point| {
            let waiter = point.slot.uncounted_waiter();
            let observed = waiter.try_wait(point.target);
            let observed = observed.map_err(|error| self.failed(point, error))?;
            Ok(observed.map(|observed| observed.acq_fence()).is_some())
        };
        match (self.point(), self.gate()) {
            (Some(point), _) => poll(point),
            // The gate is polled for its failure: what it is of has not even begun.
            (None, Some(late)) => poll(&late.gate).map(|_| false),
            (None, None) => Ok(false),
        }
    }

    /// The device whose stream it is of.
    pub fn device(&self) -> Rank {
        self.device
    }

    /// The label of the stream it is of.
    pub fn stream(&self) -> &str {
        match (&self.stream, &self.at) {
            (Some(stream), _) => stream,
            (None, At::Known(Point { slot: Signal::Queue(queue), .. })) => &queue.stream,
            (None, _) => "",
        }
    }

    /// The completion that reaches it; `None` while no device has been given what it is of.
    pub fn target(&self) -> Option<Seq> {
        self.point().map(|point| point.target)
    }

    /// The signal and the position, if a device has been given what it is of.
    pub(crate) fn point(&self) -> Option<&Point> {
        match &self.at {
            At::Known(point) => Some(point),
            At::Late(late) => late.real.get(),
        }
    }

    /// The signal and the position of a fence that was never late.
    pub(crate) fn into_point(self) -> Point {
        match self.at {
            At::Known(point) => point,
            At::Late(late) => late.gate.clone(),
        }
    }

    /// What it waits for while no device has been given what it is of.
    pub(crate) fn gate(&self) -> Option<&Arc<Late>> {
        match &self.at {
            At::Known(_) => None,
            At::Late(late) => Some(late),
        }
    }

    fn wait_for(&self, point: &Point, bound: Bound) -> Result<(), FenceError> {
        let waiter = point.slot.uncounted_waiter();
        let observed = waiter.wait_ge_bounded(point.target, bound);
        observed.map_err(|error| self.failed(point, error))?.acq_fence();
        Ok(())
    }

    pub(crate) fn failed(&self, point: &Point, error: WaitError) -> FenceError {
        // A time-out is the waiter's; all else is the stream's, which knows why.
        let fault = point.slot.faults().filter(|_| !error.is_timeout());
        let fault = fault.and_then(FaultCell::get).cloned();
        let (device, stream) = (self.device, Arc::from(self.stream()));
        let abandoned = self.gate().and_then(|late| late.why.get()).cloned();
        FenceError {
            device,
            stream,
            error,
            fault,
            abandoned,
            chain: None,
            root: None,
            recovery: None,
        }
    }
}

/// A fence that was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceError {
    /// The device whose stream the fence is of.
    pub device: Rank,
    /// The stream.
    pub stream: Arc<str>,
    /// What the wait saw: a time-out, or how the stream's signal ended.
    pub error: WaitError,
    /// Why the stream stopped, if it did: the command and the cause.
    pub fault: Option<Fault>,
    /// Why what it stands for never ran, if a session gave it up.
    pub abandoned: Option<Arc<Abandoned>>,
    /// Who waited for whom when the time was up, if a session was asked.
    pub chain: Option<Arc<Chain>>,
    /// What the failure goes back to, if that is something else and a session was asked.
    pub root: Option<Arc<Root>>,
    /// What the session did about it, if its batch said what to do.
    pub recovery: Option<Arc<Recovery>>,
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, stream, error, fault, abandoned, chain, root, recovery } = self;
        match (abandoned, fault) {
            (Some(abandoned), _) => write!(f, "stream {stream} was given up: {}", abandoned.why)?,
            (None, Some(fault)) => fault.fmt(f)?,
            (None, None) => write!(f, "fence of device {device} stream {stream}: {error}")?,
        }
        if let Some(chain) = chain {
            write!(f, "; {chain}")?;
        }
        if let Some(root) = root {
            write!(f, "; because {root}")?;
        }
        match recovery {
            Some(recovery) => write!(f, "; {recovery}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FenceError {}
