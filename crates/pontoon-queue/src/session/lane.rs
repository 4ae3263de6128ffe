//! One queue of a device, as a session sees it.

use std::{collections::VecDeque, sync::Arc};

use pontoon_hal::{Device, Engine, Fault, FaultCell, OpenQueueError, Queue};
use pontoon_signal::{Seq, WaitError, Waiter};

use super::{Abandoned, Refusal, notes::Notes, origins::Origins, spin::Spin};
use crate::{
    Axis, Fence,
    acyclic::Node,
    fence::{Place, Point, Signal},
};

/// One in-order queue of a device, and another one in its place after it failed.
///
/// Invariant L1: what the tracker counts as event n of the lane's axis is the command whose
/// completion is `start + n + 1`: nobody else submits to the queue. Events before the queue was
/// opened lie before its first completion, and so are over.
pub(super) struct Lane<'d, D: Device> {
    pub(super) device: &'d D,
    /// Which of the session's devices.
    pub(super) device_at: usize,
    pub(super) engine: Engine,
    pub(super) label: Arc<str>,
    pub(super) queue: D::Queue,
    pub(super) start: Seq,
    waiter: Waiter,
    /// The queue's, for fences.
    signal: Signal,
    /// The most batches that may be under way; without it, as many as fit.
    pub(super) credits: Option<u32>,
    /// Up to where each batch under way goes, while credits are counted.
    ends: VecDeque<u64>,
    /// Batches that no device has been given yet, in order.
    pub(super) parked: VecDeque<Node>,
    /// Why one of those was given up. Nothing is taken after it until the lane is reopened; the
    /// queue knows nothing of it, and what it was given goes on.
    pub(super) given_up: Option<Arc<Abandoned>>,
    pub(super) notes: Notes,
    pub(super) origins: Origins,
    pub(super) spin: Spin,
    /// Where the queue before began, and why it failed.
    former: Option<(Seq, FaultCell)>,
}

impl<'d, D: Device> Lane<'d, D> {
    pub(super) fn open(
        device: &'d D,
        device_at: usize,
        engine: Engine,
        label: &str,
        credits: Option<u32>,
    ) -> Result<Self, OpenQueueError> {
        let queue = device.open_queue(engine, label)?;
        let (start, waiter) = (queue.submitted(), queue.completions().uncounted_waiter());
        let (notes, origins) = (Notes::new(queue.depth()), Origins::new(queue.depth()));
        let (ends, parked, spin) = (VecDeque::new(), VecDeque::new(), Spin::default());
        let label = Arc::from(label);
        let signal = Signal::of(&queue, &label);
        Ok(Self {
            device,
            device_at,
            engine,
            label,
            queue,
            start,
            waiter,
            signal,
            credits,
            ends,
            parked,
            given_up: None,
            notes,
            origins,
            spin,
            former: None,
        })
    }

    /// Goes on with another queue, after `events` events that are over.
    pub(super) fn reopen(&mut self, events: u64) -> Result<(), OpenQueueError> {
        let queue = self.device.open_queue(self.engine, &self.label)?;
        self.former = Some((self.start, self.queue.faults().clone()));
        self.start = Seq::new(queue.submitted().get().wrapping_sub(events));
        self.waiter = queue.completions().uncounted_waiter();
        self.signal = Signal::of(&queue, &self.label);
        self.ends.clear();
        self.queue = queue;
        Ok(())
    }

    /// Whether it is of a queue that this lane had before.
    pub(super) fn is_former(&self, point: &Point) -> bool {
        self.former.is_some() && !point.slot.is(self.queue.completions())
    }

    /// Its last failure, and the number of the event that failed.
    pub(super) fn last_fault(&self) -> Option<(&Fault, u64)> {
        let former = self.former.as_ref().and_then(|(start, faults)| Some((*start, faults.get()?)));
        let now = self.queue.faults().get().map(|fault| (self.start, fault));
        let (start, fault) = now.or(former)?;
        Some((fault, fault.at.get().wrapping_sub(start.get()).wrapping_sub(1)))
    }

    /// Whether the queue failed, so that nothing of it runs any more.
    pub(super) fn is_dead(&self) -> bool {
        self.queue.faults().get().is_some()
    }

    /// Refuses to take more after a failure.
    pub(super) fn takes(&self) -> Result<(), Refusal> {
        match (self.queue.faults().get(), &self.given_up) {
            (Some(fault), _) => Err(Refusal::Faulted(fault.clone())),
            (None, Some(why)) => Err(Refusal::Abandoned(Arc::clone(why))),
            (None, None) => Ok(()),
        }
    }

    /// Where the completions are when the first `count` events are over.
    pub(super) fn target(&self, count: u64) -> Seq {
        Seq::new(self.start.get().wrapping_add(count))
    }

    /// How many events are over. It says nothing of what they wrote.
    pub(super) fn completed(&self) -> u64 {
        self.waiter.value().get().wrapping_sub(self.start.get())
    }

    /// Whether the first `count` events are over; if so, what they wrote is readable.
    pub(super) fn is_over(&self, count: u64) -> Result<bool, WaitError> {
        let observed = self.waiter.try_wait(self.target(count))?;
        Ok(observed.map(|observed| observed.acq_fence()).is_some())
    }

    pub(super) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    pub(super) fn point(&self, session: u32, axis: Axis, count: u64) -> Point {
        Point {
            slot: self.signal.clone(),
            target: self.target(count),
            place: Some(Place { session, axis, count }),
        }
    }

    pub(super) fn fence(&self, session: u32, axis: Axis, count: u64) -> Fence {
        Fence::of_queue(self.point(session, axis, count), self.device.rank())
    }

    /// Counts a batch that goes up to `count`.
    pub(super) fn spend(&mut self, count: u64) {
        if self.credits.is_some() {
            self.ends.push_back(count);
        }
    }

    /// Where the completions have to get before another batch may be under way, of which `spare`
    /// may be beyond the credits; `None` if it may now. The error: no completion helps, for batches
    /// that no device has been given have all credits.
    pub(super) fn credit(&mut self, spare: u32) -> Result<Option<u64>, u32> {
        let Some(credits) = self.credits else { return Ok(None) };
        let completed = self.completed();
        while self.ends.front().is_some_and(|&end| end <= completed) {
            self.ends.pop_front();
        }
        let most = credits.saturating_add(spare) as usize;
        let under_way = self.ends.len() + self.parked.len();
        if under_way < most {
            return Ok(None);
        }
        match self.ends.get(under_way - most) {
            Some(&end) => Ok(Some(end)),
            None => Err(credits),
        }
    }
}
