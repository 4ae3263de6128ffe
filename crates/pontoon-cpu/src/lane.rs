//! The units' side of a queue: what is next there, and what has completed.

use std::sync::{Arc, Mutex};

use pontoon_hal::{Cause, Command, Engine, Fault, FaultCell, Purpose, QueueReport};
use pontoon_signal::{BufferReader, Host, Nanos, Os, Publisher, Rank, Seq, Slot, Waiter};

use crate::{
    execute::Done,
    held::Held,
    queue::{CpuCommand, Number},
    shared::{Shared, lock},
    spans::{Span, SpanKind, SpanLog},
};

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
    /// Where commands that are over are noted, if they are.
    spans: Option<Arc<SpanLog>>,
    head: Mutex<Head>,
}

/// The running end of a queue.
///
/// Invariant Q1: its lock is held for a look or a completion only, never while a command runs or
/// anything of a kernel is dropped: units wait for it, and kernels may own devices and queues.
///
/// It has its cache lines to itself: the units write them while a submitter reads the rest.
#[derive(Debug)]
#[repr(align(128))]
struct Head {
    ring: BufferReader<Option<CpuCommand>>,
    /// `None` once nothing will run or complete here again; its end ends the signal.
    open: Option<Open>,
    /// The wait that is next.
    held: Option<Held>,
    /// A unit has the command before what is next, which has to wait.
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
    /// Nothing to do until the arrivals are at this.
    Empty(Seq),
    /// A wait holds it until `waiter` sees `target`, or until `deadline`.
    Held { waiter: Waiter, target: Seq, deadline: Option<Nanos> },
    /// Nothing will ever run here again.
    Over,
}

impl Lane {
    pub(crate) fn new(
        shared: &Shared,
        engine: Engine,
        label: &str,
        signal: (Publisher, Slot),
        number: Number,
        ring: BufferReader<Option<CpuCommand>>,
    ) -> Self {
        let (done, completions) = signal;
        let head = Head {
            ring: ring.reading_by(shared.load()).undated(),
            open: Some(Open { done, _number: number }),
            held: None,
            running: false,
            passed_over: false,
            stopped: false,
            report: QueueReport::default(),
        };
        Self {
            device: shared.rank,
            engine,
            label: label.into(),
            completions,
            arrivals: head.ring.pending().0,
            fault: FaultCell::default(),
            spans: shared.spans.clone(),
            head: Mutex::new(head),
        }
    }

    /// Everything submitted by now is complete when the completions are here.
    pub(crate) fn submitted(&self) -> Seq {
        self.arrivals.value()
    }

    pub(crate) fn faults(&self) -> &FaultCell {
        &self.fault
    }

    pub(crate) fn report(&self) -> QueueReport {
        lock(&self.head).report
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Looks at what is next, and completes it if it is a wait that was reached.
    pub(crate) fn look(&self, shared: &Shared) -> Look {
        self.look_at(&mut lock(&self.head), shared)
    }

    fn look_at(&self, head: &mut Head, shared: &Shared) -> Look {
        if head.open.is_none() {
            return Look::Over;
        }
        if head.running || head.stopped {
            head.passed_over = true;
            return Look::Busy;
        }
        if let Some(held) = head.held.take() {
            return self.look_at_wait(head, held, true, shared);
        }
        let arrived = head.ring.try_next().map(|place| place.and_then(|mut p| p.take()));
        match arrived {
            Ok(Some(Command::Wait { label, slot, target, bound })) => {
                let waiter = slot.into_uncounted_waiter().reading_by(shared.load());
                let held = Held::new(label, waiter, target, bound, Os.now());
                self.look_at_wait(head, held, false, shared)
            }
            Ok(Some(command)) => {
                head.running = true;
                Look::Run(command)
            }
            Ok(None) => Look::Empty(head.ring.taken() + 1),
            // The queue was dropped, and all that it was given has run.
            Err(_) => {
                head.open = None;
                Look::Over
            }
        }
    }

    /// One look at a wait; `again` if an earlier one found it not reached.
    fn look_at_wait(&self, head: &mut Head, mut held: Held, again: bool, shared: &Shared) -> Look {
        let looked = held.waiter.try_wait(held.target);
        // After the look: what was published by then was published before.
        let now = if again || self.spans.is_some() { Os.now() } else { held.since };
        if matches!(looked, Ok(None)) {
            held.progress.look(&held.waiter, now);
        }
        let outcome = match looked {
            Ok(None) if held.deadline().is_none_or(|deadline| now < deadline) => {
                if !again {
                    shared.hold(now);
                }
                let waiter = shared.waiter(&held.waiter.slot());
                let (target, deadline) = (held.target, held.deadline());
                head.held = Some(held);
                return Look::Held { waiter, target, deadline };
            }
            Ok(None) => held.waiter.give_up(held.target, now.since(held.since)),
            Ok(Some(observed)) => Ok(observed),
            Err(error) => Err(error),
        };
        let outcome = match outcome {
            Ok(observed) => {
                observed.acq_fence();
                let passed = now.since(held.since);
                let delivery = held.waiter.last_publish().filter(|_| again);
                let delivery = delivery.filter(|at| at.since(held.since) > Nanos(0));
                shared.reached(now, again, passed, delivery.map(|at| now.since(at)));
                let (purpose, target) = (Purpose::of(held.label), held.target);
                let kind = SpanKind::Wait { purpose, signal: held.waiter.slot().id(), target };
                Ok(Done { started: held.since, took: passed, kind })
            }
            Err(error) => {
                head.report.timeouts += u64::from(error.is_timeout());
                shared.failed(now, again, error.is_timeout());
                Err(Cause::Wait(error))
            }
        };
        self.complete(head, held.label, outcome);
        Look::Ran
    }

    /// Completes the command that a look gave out, or stops the queue with it.
    pub(crate) fn finish(&self, label: &'static str, outcome: Result<Done, Cause>) {
        self.finish_in(&mut lock(&self.head), label, outcome);
    }

    /// Completes the command that a look gave out, or stops the queue with it, and looks again.
    pub(crate) fn finish_and_look(
        &self,
        label: &'static str,
        outcome: Result<Done, Cause>,
        shared: &Shared,
    ) -> Look {
        let mut head = lock(&self.head);
        self.finish_in(&mut head, label, outcome);
        self.look_at(&mut head, shared)
    }

    fn finish_in(&self, head: &mut Head, label: &'static str, outcome: Result<Done, Cause>) {
        head.running = false;
        self.complete(head, label, outcome);
    }

    /// Whether another unit came by while a command ran and has to be told to look again.
    pub(crate) fn was_passed_over(&self) -> bool {
        std::mem::take(&mut lock(&self.head).passed_over)
    }

    fn complete(&self, head: &mut Head, command: &'static str, outcome: Result<Done, Cause>) {
        // The device may have been lost meanwhile: then nothing completes any more.
        let Some(open) = &mut head.open else { return };
        match outcome {
            Ok(done) => {
                note(&mut head.report, &done);
                if let Some(spans) = &self.spans {
                    let (queue, position) = (self.completions.id(), open.done.value() + 1);
                    let (start, end) = (done.started, done.started.saturating_add(done.took));
                    let (label, kind) = (Arc::clone(&self.label), done.kind);
                    spans.note(Span { queue, label, position, command, kind, start, end });
                }
                open.done.pub_release(1);
            }
            Err(cause) => self.fail(head, command, cause),
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

fn note(report: &mut QueueReport, done: &Done) {
    report.completed += 1;
    match done.kind {
        SpanKind::Work => report.busy = report.busy.saturating_add(done.took),
        SpanKind::Wait { purpose, signal, .. } => {
            report.by.record(purpose, signal, done.took);
            report.waits += 1;
            report.held = report.held.saturating_add(done.took);
        }
    }
}
