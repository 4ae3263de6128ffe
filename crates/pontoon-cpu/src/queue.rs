//! A queue: a ring of commands, run in order, completing by a signal.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use arrayvec::ArrayVec;
use pontoon_hal::{
    ACCESSES_MAX, Accesses, Cause, Command, Engine, Fault, FaultCell, Hazard, Queue, QueueReport,
    SubmitError,
};
use pontoon_signal::{
    Bound, BufferReader, BufferWriter, Host, Nanos, Os, Publisher, Rank, Seq, Slot, WaitError,
};

use crate::{
    device::Shared,
    kernel::{Context, Kernel},
    memory::{Borrow, Holder, Region},
};

pub(crate) type CpuCommand = Command<Region, Kernel>;

/// A queue of a [`CpuDevice`](crate::CpuDevice).
#[derive(Debug)]
pub struct CpuQueue {
    ring: BufferWriter<Option<CpuCommand>>,
    depth: u32,
    lane: Arc<Lane>,
    _number: Number,
}

/// The number of a queue among its device's. Free again when the handle is dropped and nothing
/// will run any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number(Arc<()>);

impl Number {
    pub(crate) fn downgrade(&self) -> Weak<()> {
        Arc::downgrade(&self.0)
    }
}

/// What the units see of a queue.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) device: Rank,
    pub(crate) engine: Engine,
    pub(crate) label: Arc<str>,
    pub(crate) completions: Slot,
    pub(crate) arrivals: Slot,
    /// Set under the lock of `head`, before the signal ends.
    fault: FaultCell,
    head: Mutex<Head>,
}

/// The running end of a queue.
///
/// Invariant Q1: its lock is held for a look or a completion only, never while a command runs or
/// anything of a kernel is dropped: units wait for it, and kernels may own devices and queues.
#[derive(Debug)]
struct Head {
    ring: BufferReader<Option<CpuCommand>>,
    /// `None` once nothing will run or complete here again; its end ends the signal.
    open: Option<Open>,
    next: Option<Next>,
    /// A unit has the command before `next`, so `next` has to wait.
    running: bool,
    /// Another unit came by meanwhile and watches something else now.
    passed_over: bool,
    /// The device closes: nothing starts any more, what runs completes.
    stopped: bool,
    report: QueueReport,
}

/// What a queue gives back when it is over. The signal ends before the number is free.
#[derive(Debug)]
struct Open {
    done: Publisher,
    _number: Number,
}

#[derive(Debug)]
struct Next {
    command: CpuCommand,
    since: Nanos,
    /// It is a wait that was looked at and not reached.
    holds: bool,
}

/// What a look at a queue found.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation a command")]
pub(crate) enum Look {
    /// A wait completed; there may be more.
    Ran,
    /// A command to be run, and then [finished](Lane::finish).
    Run(CpuCommand),
    /// Another unit runs a command of it, and will tell when it turns to another queue; or the
    /// device closes.
    Busy,
    /// Nothing to do until `slot` is at `target`, or until `deadline`.
    Idle { slot: Slot, target: Seq, deadline: Option<Nanos> },
    /// Nothing will ever run here again.
    Over,
}

impl CpuQueue {
    pub(crate) fn new(
        shared: &Shared,
        engine: Engine,
        label: &str,
        signal: (Publisher, Slot),
        number: Number,
        depth: u32,
    ) -> Self {
        let (done, completions) = signal;
        // Both counters start where the completions are, so that position n of the one is
        // position n of the other.
        let ring = (0..depth).map(|_| None);
        let (ring, reader) = pontoon_signal::DoubleBuffer::starting_at(done.value(), ring);
        let head = Head {
            ring: reader.reading_by(shared.load()),
            open: Some(Open { done, _number: number.clone() }),
            next: None,
            running: false,
            passed_over: false,
            stopped: false,
            report: QueueReport::default(),
        };
        let lane = Arc::new(Lane {
            device: shared.rank,
            engine,
            label: label.into(),
            completions,
            arrivals: head.ring.pending().0,
            fault: FaultCell::default(),
            head: Mutex::new(head),
        });
        Self { ring, depth, lane, _number: number }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl Queue for CpuQueue {
    type Memory = Region;
    type Kernel = Kernel;

    fn submit(&mut self, command: CpuCommand) -> Result<Seq, SubmitError<CpuCommand>> {
        if let Some(fault) = self.lane.fault.get() {
            return Err(SubmitError::Faulted(fault.clone()));
        }
        check(&command, self.lane.engine).map_err(SubmitError::Malformed)?;
        // A command that runs has left its place in the ring and is under way all the same.
        let under_way = self.ring.published().ahead_of(self.lane.completions.value());
        if under_way >= i64::from(self.depth) {
            return Err(SubmitError::Full(command));
        }
        match self.ring.try_fill() {
            Ok(Some(mut place)) => {
                *place = Some(command);
                place.publish();
                Ok(self.ring.published())
            }
            Ok(None) => Err(SubmitError::Full(command)),
            // The lane has the reading end, so it is there; what it would mean is this.
            Err(_) => Err(SubmitError::Full(command)),
        }
    }

    fn completions(&self) -> &Slot {
        &self.lane.completions
    }

    fn submitted(&self) -> Seq {
        self.ring.published()
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn faults(&self) -> &FaultCell {
        &self.lane.fault
    }

    fn report(&self) -> QueueReport {
        lock(&self.lane.head).report
    }
}

/// Why a command could never run.
fn check(command: &CpuCommand, engine: Engine) -> Result<(), &'static str> {
    match command {
        Command::Launch { accesses, .. } => {
            if engine == Engine::Copy {
                return Err("the copy engine runs no kernels");
            }
            if !accesses.iter().all(|access| access.is_within_region()) {
                return Err("an access is not within its region");
            }
            let mut pairs = accesses.iter().enumerate();
            if pairs.any(|(i, a)| accesses[i + 1..].iter().any(|b| a.conflicts_with(b))) {
                return Err("two of its accesses overlap and one writes");
            }
            Ok(())
        }
        Command::Copy { from, to, .. } => {
            if !(from.is_within_region() && to.is_within_region()) {
                return Err("an access is not within its region");
            }
            if from.range.len() != to.range.len() {
                return Err("source and destination differ in length");
            }
            if from.mode != pontoon_hal::Mode::Read || to.mode != pontoon_hal::Mode::Write {
                return Err("a copy reads its source and writes its destination");
            }
            if from.conflicts_with(to) {
                return Err("source and destination overlap");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

impl Lane {
    /// Everything submitted by now is complete when the completions are here.
    pub(crate) fn submitted(&self) -> Seq {
        self.arrivals.value()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Looks at what is next, and completes it if it is a wait that was reached.
    pub(crate) fn look(&self, shared: &Shared) -> Look {
        let mut head = lock(&self.head);
        let head = &mut *head;
        if head.open.is_none() {
            return Look::Over;
        }
        if head.running || head.stopped {
            head.passed_over = true;
            return Look::Busy;
        }
        if head.next.is_none() {
            let arrived = head.ring.try_next().map(|place| place.and_then(|mut p| p.take()));
            match arrived {
                Ok(Some(command)) => {
                    head.next = Some(Next { command, since: Os.now(), holds: false });
                }
                Ok(None) => {
                    let (slot, target) = head.ring.pending();
                    return Look::Idle { slot, target, deadline: None };
                }
                // The queue was dropped, and all that it was given has run.
                Err(_) => {
                    head.open = None;
                    return Look::Over;
                }
            }
        }
        let Some(mut next) = head.next.take() else { return Look::Ran };
        let Command::Wait { label, slot, target, bound } = &next.command else {
            head.running = true;
            return Look::Run(next.command);
        };
        let outcome = match poll(slot, *target, *bound, next.since, shared) {
            Ok(Some(held)) => Ok(Done { busy: Nanos(0), held: Some(held) }),
            Ok(None) => {
                let deadline = bound.deadline().map(|d| next.since.saturating_add(d.into()));
                let (slot, target) = (slot.clone(), *target);
                if !next.holds {
                    next.holds = true;
                    shared.hold(true);
                }
                head.next = Some(next);
                return Look::Idle { slot, target, deadline };
            }
            Err(error) => {
                if error.is_timeout() {
                    head.report.timeouts += 1;
                    shared.log_timeout();
                }
                Err(Cause::Wait(error))
            }
        };
        if next.holds {
            shared.hold(false);
        }
        self.complete(head, label, outcome);
        Look::Ran
    }

    /// Completes the command that a look gave out, or stops the queue with it.
    pub(crate) fn finish(&self, label: &'static str, outcome: Result<Done, Cause>) {
        let mut head = lock(&self.head);
        head.running = false;
        self.complete(&mut head, label, outcome);
    }

    /// Whether another unit came by while a command ran and has to be told to look again.
    pub(crate) fn was_passed_over(&self) -> bool {
        std::mem::take(&mut lock(&self.head).passed_over)
    }

    fn complete(&self, head: &mut Head, label: &'static str, outcome: Result<Done, Cause>) {
        // The device may have been lost meanwhile: then nothing completes any more.
        let Some(open) = &mut head.open else { return };
        match outcome {
            Ok(done) => {
                note(&mut head.report, &done);
                open.done.pub_release(1);
            }
            Err(cause) => self.fail(head, label, cause),
        }
    }

    /// Starts nothing any more, because the device closes.
    pub(crate) fn stop(&self) {
        lock(&self.head).stopped = true;
    }

    /// Stops the queue because its device is gone.
    pub(crate) fn lose(&self) {
        self.fail(&mut lock(&self.head), "everything submitted", Cause::DeviceLost);
    }

    /// Records why the queue stops, then ends its signal, so that whoever sees the ending finds
    /// the reason. The first reason stays.
    fn fail(&self, head: &mut Head, command: &'static str, cause: Cause) {
        let Some(open) = head.open.take() else { return };
        let (device, queue, at) = (self.device, Arc::clone(&self.label), open.done.value() + 1);
        let fault = self.fault.record(Fault { device, queue, command, at, cause });
        open.done.end(fault.ending());
    }
}

/// Runs a command that a look gave out.
pub(crate) fn run(command: CpuCommand, shared: &Shared) -> Result<Done, Cause> {
    // Dropping the kernel may drop what it captured, which is as little to be trusted as the
    // kernel. It is gone before the completion is published: then its regions are free.
    let ran = catch_unwind(AssertUnwindSafe(move || match &command {
        Command::Launch { kernel, accesses, arguments, label } => {
            launch(kernel, accesses, arguments, label, shared)
        }
        Command::Copy { from, to, label } => copy(from, to, label, shared),
        _ => Err(Cause::Panicked("a command this device does not know".into())),
    }));
    ran.unwrap_or_else(|panic| Err(panicked(panic)))
}

/// What a completed command cost.
pub(crate) struct Done {
    busy: Nanos,
    held: Option<Nanos>,
}

fn note(report: &mut QueueReport, done: &Done) {
    report.completed += 1;
    report.busy = report.busy.saturating_add(done.busy);
    if let Some(held) = done.held {
        report.waits += 1;
        report.held = report.held.saturating_add(held);
    }
}

/// One look at a wait: how long it held the queue, or `None` if it still does.
fn poll(
    slot: &Slot,
    target: Seq,
    bound: Bound,
    since: Nanos,
    shared: &Shared,
) -> Result<Option<Nanos>, WaitError> {
    let waiter = shared.waiter(slot);
    let observed = match waiter.try_wait(target)? {
        Some(observed) => observed,
        None => {
            let waited = Os.now().since(since);
            match bound.deadline() {
                Some(deadline) if waited >= deadline.into() => waiter.give_up(target, waited)?,
                _ => return Ok(None),
            }
        }
    };
    observed.acq_fence();
    let now = Os.now();
    let held = now.since(since);
    let published = slot.last_publish().filter(|&at| at.since(since) > Nanos(0));
    shared.log_wait(held, published.map(|at| now.since(at)));
    Ok(Some(held))
}

fn launch(
    kernel: &Kernel,
    accesses: &Accesses<Region>,
    arguments: &[u64],
    label: &'static str,
    shared: &Shared,
) -> Result<Done, Cause> {
    let holder = Holder { label, device: Some(shared.rank) };
    let borrows: Result<ArrayVec<_, ACCESSES_MAX>, Hazard> =
        accesses.iter().map(|access| Borrow::of(access, holder)).collect();
    let mut borrows = borrows.map_err(Cause::Hazard)?;
    let started = shared.begin();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        kernel.run(&mut Context::new(shared.rank, &mut borrows, arguments));
    }));
    let busy = shared.end(started);
    ran.map_err(panicked)?;
    Ok(Done { busy, held: None })
}

fn panicked(panic: Box<dyn Any + Send>) -> Cause {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => Arc::from(*text),
        (_, Some(text)) => Arc::from(text.as_str()),
        _ => Arc::from("no message"),
    };
    dispose(panic);
    Cause::Panicked(message)
}

/// Drops what was thrown. What that throws is given up: it could go on for ever.
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

fn copy(
    from: &pontoon_hal::Access<Region>,
    to: &pontoon_hal::Access<Region>,
    label: &'static str,
    shared: &Shared,
) -> Result<Done, Cause> {
    let holder = Holder { label, device: Some(shared.rank) };
    let from = Borrow::of(from, holder).map_err(Cause::Hazard)?;
    let mut to = Borrow::of(to, holder).map_err(Cause::Hazard)?;
    let started = shared.begin();
    to.bytes_mut().copy_from_slice(from.bytes());
    Ok(Done { busy: shared.end(started), held: None })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
