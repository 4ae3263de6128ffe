//! The waiting side of a line.

use alloc::sync::Arc;
use core::{cell::Cell, marker::PhantomData};

use crate::{
    Bound, Ending, Found, Host, Load, Nanos, Os, Seq, SlotId, WaitError,
    bound::{Budget, Next},
    counters::WaitCounters,
    host::Sleeper,
    table::LineRef,
    trace::{RecordId, Trace},
};

/// One thread's view of a slot that it waits on.
///
/// It can be sent to another thread but not shared: its counters have one writer, so that a wait
/// pays no atomic update for them. Another thread makes its own waiter.
///
/// ```
/// # use pontoon_signal::{SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// let waiter = table.waiter(SlotId::new(0, 0))?;
/// std::thread::spawn(move || waiter.value()).join().unwrap();
/// # Ok::<(), pontoon_signal::ClaimError>(())
/// ```
///
/// ```compile_fail,E0277
/// # use pontoon_signal::{SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// let waiter = table.waiter(SlotId::new(0, 0)).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| waiter.value()); // does not compile
/// });
/// ```
#[derive(Debug)]
pub struct Waiter<H: Host = Os> {
    pub(crate) line: LineRef,
    slot: SlotId,
    load: Load,
    counters: Option<Arc<WaitCounters>>,
    pub(crate) host: H,
    /// Makes the type `!Sync`.
    one_thread: PhantomData<Cell<()>>,
}

impl<H: Host> Waiter<H> {
    pub(crate) fn new(line: LineRef, slot: SlotId, host: H) -> Self {
        let counters = Some(Arc::default());
        Self { line, slot, load: Load::Native, counters, host, one_thread: PhantomData }
    }

    /// The same waiter, reading the line by `load`: what the waiting device is capable of.
    pub fn reading_by(self, load: Load) -> Self {
        Self { load, ..self }
    }

    /// How it reads the line.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Polls until the counter is at or past `target`, at most as long as `bound`.
    ///
    /// The payload may be read only after [`Observed::acq_fence`].
    ///
    /// # Errors
    ///
    /// [`WaitError`]: a time-out, or why the line ended. A counter that reached the target counts
    /// as reached, even if the line ended or the time ran out meanwhile.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows: spinning, then yielding the core, then asleep. Never allocates.
    #[inline]
    pub fn wait_ge_bounded(&self, target: Seq, bound: Bound) -> Result<Observed<'_, H>, WaitError> {
        let mut budget = Budget::new(&self.host, bound);
        self.reach_within(target, &mut budget).map(|value| self.observed(value))
    }

    /// Polls once.
    ///
    /// # Errors
    ///
    /// Why the line ended, if it did so short of `target`; never a time-out.
    #[inline]
    pub fn try_wait(&self, target: Seq) -> Result<Option<Observed<'_, H>>, WaitError> {
        match self.poll(target) {
            Poll::Reached(value) => Ok(Some(self.observed(value))),
            Poll::NotYet => Ok(None),
            Poll::Ended(error) => Err(self.failed(error)),
        }
    }

    /// Polls at most `polls` times back to back, and once at least: for what is likely to be here
    /// before a wait has anything to note down. To miss the target is no time-out.
    ///
    /// # Errors
    ///
    /// As for [`try_wait`](Self::try_wait).
    #[inline]
    pub fn try_wait_soon(
        &self,
        target: Seq,
        polls: u64,
    ) -> Result<Option<Observed<'_, H>>, WaitError> {
        for _ in 1..polls {
            match self.poll(target) {
                Poll::Reached(value) => return Ok(Some(self.observed(value))),
                Poll::NotYet => {}
                Poll::Ended(error) => return Err(self.failed(error)),
            }
        }
        self.try_wait(target)
    }

    #[inline]
    pub(crate) fn reach_within(
        &self,
        target: Seq,
        budget: &mut Budget<'_, H>,
    ) -> Result<Seq, WaitError> {
        loop {
            let burst = budget.burst();
            for missed in 0..burst {
                match self.poll(target) {
                    Poll::Reached(value) => {
                        budget.passed(missed);
                        return Ok(value);
                    }
                    Poll::Ended(error) => return Err(self.failed(error)),
                    Poll::NotYet => {}
                }
            }
            match budget.missed(burst) {
                Next::Poll => {}
                Next::Sleep(at_most) => self.sleep(target, at_most),
                Next::GiveUp => return self.last_look(target, budget),
            }
        }
    }

    /// One look: the value, and on a miss the abort word.
    #[inline]
    pub(crate) fn poll(&self, target: Seq) -> Poll {
        let value = self.line.value(self.load);
        if value.is_at_or_past(target) {
            return Poll::Reached(value);
        }
        match self.line.ending() {
            None => Poll::NotYet,
            Some(ending) => {
                // A producer publishes before it ends; seeing the ending means seeing that too.
                let at = self.found(target);
                if at.is_reached() {
                    return Poll::Reached(at.found);
                }
                Poll::Ended(WaitError::ended(at, ending))
            }
        }
    }

    #[cold]
    fn sleep(&self, target: Seq, at_most: Nanos) {
        let park = self.line.park();
        let seen = park.announce();
        if matches!(self.poll(target), Poll::NotYet) {
            self.host.sleep(Sleeper { park, seen }, at_most);
        }
    }

    /// The value once more after the time is up, so that an arrival in the last moment counts.
    #[cold]
    fn last_look(&self, target: Seq, budget: &Budget<'_, H>) -> Result<Seq, WaitError> {
        match self.poll(target) {
            Poll::Reached(value) => Ok(value),
            Poll::Ended(error) => Err(self.failed(error)),
            Poll::NotYet => match self.timed_out(target, budget) {
                Ok(error) => Err(self.failed(error)),
                Err(value) => Ok(value),
            },
        }
    }

    /// The end of a wait whose caller polled by itself for `waited` and will not go on: one more
    /// look, then the time-out.
    ///
    /// # Errors
    ///
    /// [`WaitError`], as from [`wait_ge_bounded`](Self::wait_ge_bounded).
    pub fn give_up(&self, target: Seq, waited: Nanos) -> Result<Observed<'_, H>, WaitError> {
        if let Some(observed) = self.try_wait(target)? {
            return Ok(observed);
        }
        let at = self.found(target);
        if at.is_reached() {
            return Ok(self.observed(at.found));
        }
        Err(self.failed(WaitError::TimedOut { at, waited, polls: 1 }))
    }

    /// The error of a wait whose bound is used up, or the value if the target was reached while
    /// the error was being put together: no error may show a counter that is past what it misses.
    pub(crate) fn timed_out(&self, target: Seq, budget: &Budget<'_, H>) -> Result<WaitError, Seq> {
        let (waited, polls) = (budget.waited(), budget.polls());
        let at = self.found(target);
        if at.is_reached() { Err(at.found) } else { Ok(WaitError::TimedOut { at, waited, polls }) }
    }

    fn found(&self, wanted: Seq) -> Found {
        let now = self.host.now();
        Found {
            slot: self.slot,
            found: self.line.value(self.load),
            wanted,
            producer: self.line.producer(),
            publishes: self.line.publishes(),
            last_published: self.line.last_publish().map(|at| now.since(at)),
        }
    }

    #[inline]
    pub(crate) fn observed(&self, value: Seq) -> Observed<'_, H> {
        self.count_reached();
        let record = self.line.trace().and_then(|trace| self.record(trace, value));
        Observed { waiter: self, value, record }
    }

    #[cold]
    fn record(&self, trace: &Trace, value: Seq) -> Option<RecordId> {
        // Only past a fence is the time that the publisher noted before `value` sure to be seen.
        crate::SignalLine::acquire();
        trace.observed(self.slot, value, self.line.last_publish(), self.host.now())
    }

    /// Records a wait whose observation and acquisition are one moment, as in a group.
    pub(crate) fn trace_at_once(&self) {
        if let Some(trace) = self.line.trace()
            && let Some(record) = self.record(trace, self.value())
        {
            trace.acquired(record, self.host.now());
        }
    }

    pub(crate) fn count_reached(&self) {
        if let Some(counters) = &self.counters {
            counters.reached();
        }
    }

    /// Proof of `value`, for a caller that has fenced since it was seen.
    pub(crate) fn acquired(&self, value: Seq) -> Acquired<'_> {
        Acquired { line: &self.line, value }
    }

    #[cold]
    pub(crate) fn failed(&self, error: WaitError) -> WaitError {
        if let Some(counters) = &self.counters {
            if error.is_timeout() { counters.timed_out() } else { counters.ended() }
        }
        error
    }

    /// The counter now, for diagnosis. It says nothing of the payload.
    pub fn value(&self) -> Seq {
        self.line.value(self.load)
    }

    /// When the last publish was, or `None` if there was none.
    pub fn last_publish(&self) -> Option<Nanos> {
        self.line.last_publish()
    }

    /// The slot waited on.
    pub fn slot(&self) -> Slot<H> {
        Slot::new(self.line.clone(), self.slot, self.host.clone())
    }

    /// The waits of this waiter so far, readable by any thread while it goes on. `None` for an
    /// [uncounted](Slot::uncounted_waiter) waiter.
    pub fn counters(&self) -> Option<Arc<WaitCounters>> {
        self.counters.clone()
    }
}

/// A slot that can be waited on: the handle to pass around. Cloning it allocates nothing.
#[derive(Clone, Debug)]
pub struct Slot<H: Host = Os> {
    pub(crate) line: LineRef,
    id: SlotId,
    host: H,
}

impl<H: Host> Slot<H> {
    pub(crate) fn new(line: LineRef, id: SlotId, host: H) -> Self {
        Self { line, id, host }
    }

    /// A waiter of the calling thread's, with counters of its own.
    pub fn waiter(&self) -> Waiter<H> {
        Waiter::new(self.line.clone(), self.id, self.host.clone())
    }

    /// A waiter that keeps no counters, and so allocates nothing.
    pub fn uncounted_waiter(&self) -> Waiter<H> {
        self.clone().into_uncounted_waiter()
    }

    /// As [`uncounted_waiter`](Self::uncounted_waiter), in place of the slot: copies nothing.
    pub fn into_uncounted_waiter(self) -> Waiter<H> {
        let Self { line, id: slot, host } = self;
        let (load, one_thread) = (Load::Native, PhantomData);
        Waiter { line, slot, load, counters: None, host, one_thread }
    }

    /// Ends the line: see [`SignalTable::end`](crate::SignalTable::end).
    pub fn end(&self, ending: Ending) -> bool {
        self.line.end_and_wake(ending)
    }

    /// The counter now, for diagnosis. It says nothing of the payload.
    #[inline]
    pub fn value(&self) -> Seq {
        self.line.value(Load::Native)
    }

    /// The counter now; everything that its producers wrote before they published it is readable.
    #[inline]
    pub fn acquire(&self) -> Seq {
        let value = self.value();
        crate::SignalLine::acquire();
        value
    }

    /// Why the line ended, if it did.
    #[inline]
    pub fn ending(&self) -> Option<Ending> {
        self.line.ending()
    }

    /// When the last publish was, or `None` if there was none.
    pub fn last_publish(&self) -> Option<Nanos> {
        self.line.last_publish()
    }

    /// Whether both are the same line.
    pub fn is(&self, other: &Self) -> bool {
        self.line.is(&other.line)
    }

    /// Which slot it is.
    pub fn id(&self) -> SlotId {
        self.id
    }
}

/// What one poll saw.
pub(crate) enum Poll {
    Reached(Seq),
    NotYet,
    Ended(WaitError),
}

/// A target seen as reached. The payload is not readable yet.
///
/// ```compile_fail,E0308
/// # use pontoon_signal::{Acquired, Bound, Seq, SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// # let waiter = table.waiter(SlotId::new(0, 0)).unwrap();
/// let observed = waiter.wait_ge_bounded(Seq::new(0), Bound::default()).unwrap();
/// let proof: Acquired<'_> = observed; // only `observed.acq_fence()` is one
/// ```
#[must_use = "what was observed is readable only after acq_fence()"]
#[derive(Debug)]
pub struct Observed<'w, H: Host = Os> {
    waiter: &'w Waiter<H>,
    value: Seq,
    record: Option<RecordId>,
}

impl<'w, H: Host> Observed<'w, H> {
    /// Makes everything that the producer wrote before its publish readable here.
    #[inline]
    pub fn acq_fence(self) -> Acquired<'w> {
        crate::SignalLine::acquire();
        if let (Some(record), Some(trace)) = (self.record, self.waiter.line.trace()) {
            trace.acquired(record, self.waiter.host.now());
        }
        Acquired { line: &self.waiter.line, value: self.value }
    }

    /// The counter as it was seen, at or past the target.
    pub fn value(&self) -> Seq {
        self.value
    }
}

/// Proof that a counter was seen at some value and that what was published by then is readable.
#[derive(Clone, Copy, Debug)]
pub struct Acquired<'w> {
    line: &'w LineRef,
    value: Seq,
}

impl Acquired<'_> {
    /// The counter as it was seen.
    pub fn value(&self) -> Seq {
        self.value
    }

    /// Whether this proves that `line` reached `target`.
    pub(crate) fn covers(&self, line: &LineRef, target: Seq) -> bool {
        self.line.is(line) && self.value.is_at_or_past(target)
    }
}
