//! A queue: a ring of commands, run in order, completing by a signal.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use arrayvec::ArrayVec;
use pontoon_hal::{
    ACCESSES_MAX, Accesses, Cause, Command, Engine, Fault, Hazard, Queue, QueueReport, SubmitError,
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
}

/// What the units see of a queue.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) device: Rank,
    pub(crate) engine: Engine,
    pub(crate) label: Arc<str>,
    pub(crate) completions: Slot,
    pub(crate) arrivals: Slot,
    fault: OnceLock<Fault>,
    report: Mutex<QueueReport>,
    /// Held by the unit that runs the queue's next command.
    runner: Mutex<Runner>,
}

/// The running end of a queue. One unit at a time has it, so commands run in order.
#[derive(Debug)]
pub(crate) struct Runner {
    ring: BufferReader<Option<CpuCommand>>,
    done: Publisher,
    next: Option<Next>,
}

#[derive(Debug)]
struct Next {
    command: CpuCommand,
    since: Nanos,
}

/// What became of a look at a queue.
pub(crate) enum Step {
    /// A command completed; there may be more.
    Ran,
    /// Nothing to do until `slot` is at `target`, or until `deadline`.
    Idle { slot: Slot, target: Seq, deadline: Option<Nanos> },
    /// Nothing will ever run here again.
    Over,
}

impl CpuQueue {
    pub(crate) fn new(
        device: Rank,
        engine: Engine,
        label: &str,
        done: Publisher,
        completions: Slot,
        depth: u32,
    ) -> Self {
        // Both counters start where the completions are, so that position n of the one is
        // position n of the other.
        let ring = (0..depth).map(|_| None);
        let (ring, reader) = pontoon_signal::DoubleBuffer::starting_at(done.value(), ring);
        let arrivals = reader.pending().0;
        let runner = Mutex::new(Runner { ring: reader, done, next: None });
        let lane = Arc::new(Lane {
            device,
            engine,
            label: label.into(),
            completions,
            arrivals,
            fault: OnceLock::new(),
            report: Mutex::default(),
            runner,
        });
        Self { ring, depth, lane }
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
        match self.ring.try_fill() {
            Ok(Some(mut place)) => {
                *place = Some(command);
                place.publish();
                Ok(self.ring.published())
            }
            Ok(None) => Err(SubmitError::Full(command)),
            Err(_) => Err(SubmitError::Faulted(self.lane.fault_or_lost(self.ring.published()))),
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

    fn fault(&self) -> Option<Fault> {
        self.lane.fault.get().cloned()
    }

    fn report(&self) -> QueueReport {
        *lock(&self.lane.report)
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
    /// The running end, if no other unit has it.
    pub(crate) fn try_runner(&self) -> Option<MutexGuard<'_, Runner>> {
        // Poisoned or not: a unit that panicked outside a kernel has faulted nothing yet, and the
        // next one goes on from a command that is simply still next.
        match self.runner.try_lock() {
            Ok(runner) => Some(runner),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Everything submitted by now is complete when the completions are here.
    pub(crate) fn submitted(&self) -> Seq {
        self.arrivals.value()
    }

    /// Stops the queue: records why, then ends its signal, so that whoever sees the ending finds
    /// the reason.
    pub(crate) fn fail(&self, fault: Fault) {
        let ending = fault.ending();
        let _ = self.fault.set(fault);
        self.completions.end(ending);
    }

    pub(crate) fn lose(&self) {
        self.fail(self.lost(self.completions.value() + 1));
    }

    fn lost(&self, at: Seq) -> Fault {
        let (device, queue) = (self.device, Arc::clone(&self.label));
        Fault { device, queue, command: "everything submitted", at, cause: Cause::DeviceLost }
    }

    fn fault_or_lost(&self, at: Seq) -> Fault {
        self.fault.get().cloned().unwrap_or_else(|| self.lost(at))
    }
}

impl Runner {
    /// Runs the next command, if it can run now.
    pub(crate) fn step(&mut self, lane: &Lane, shared: &Shared) -> Step {
        if lane.fault.get().is_some() {
            return Step::Over;
        }
        if self.next.is_none() {
            let arrival = self.ring.pending();
            match self.ring.try_next() {
                Ok(Some(mut place)) => {
                    let since = Os.now();
                    self.next = place.take().map(|command| Next { command, since });
                }
                Ok(None) => {
                    let (slot, target) = arrival;
                    return Step::Idle { slot, target, deadline: None };
                }
                // The queue was dropped, and all that it was given has run.
                Err(_) => return Step::Over,
            }
        }
        let Some(next) = &self.next else { return Step::Ran };
        let outcome = match &next.command {
            Command::Wait { slot, target, bound, .. } => {
                match poll(slot, *target, *bound, next.since, shared) {
                    Ok(Some(held)) => Ok(Done { busy: Nanos(0), held: Some(held) }),
                    Ok(None) => {
                        let deadline =
                            bound.deadline().map(|d| next.since.saturating_add(d.into()));
                        return Step::Idle { slot: slot.clone(), target: *target, deadline };
                    }
                    Err(error) => Err(Cause::Wait(error)),
                }
            }
            Command::Launch { kernel, accesses, arguments, label } => {
                launch(kernel, accesses, arguments, label, shared)
            }
            Command::Copy { from, to, label } => copy(from, to, label, shared),
            _ => Err(Cause::Panicked("a command this device does not know".into())),
        };
        let label = next.command.label();
        self.next = None;
        if shared.is_lost() {
            return Step::Over;
        }
        match outcome {
            Ok(done) => {
                note(&mut lock(&lane.report), &done);
                self.done.pub_release(1);
                Step::Ran
            }
            Err(cause) => {
                if let Cause::Wait(error) = &cause
                    && error.is_timeout()
                {
                    lock(&lane.report).timeouts += 1;
                    shared.log_timeout();
                }
                let (device, queue) = (lane.device, Arc::clone(&lane.label));
                let at = self.done.value() + 1;
                lane.fail(Fault { device, queue, command: label, at, cause });
                Step::Over
            }
        }
    }
}

/// What a completed command cost.
struct Done {
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
    let waiter = slot.uncounted_waiter();
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
    ran.map_err(|panic| Cause::Panicked(message(panic.as_ref())))?;
    Ok(Done { busy, held: None })
}

fn message(panic: &(dyn Any + Send)) -> Arc<str> {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => Arc::from(*text),
        (_, Some(text)) => Arc::from(text.as_str()),
        _ => Arc::from("no message"),
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
