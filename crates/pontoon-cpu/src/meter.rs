//! What a device did with its time.

use std::mem;

use pontoon_signal::{Host, Nanos, Os};

use crate::{
    shared::{Shared, lock},
    wait_log::WaitLog,
};

/// What the device did with its time.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    running: u32,
    held: u32,
    /// Up to when the times below are counted.
    counted: Nanos,
    /// At least one command was running.
    busy: Nanos,
    /// None was, and a wait held back at least one queue.
    stalled: Nanos,
    waits: WaitLog,
}

impl Meter {
    fn count_to(&mut self, now: Nanos) {
        let passed = now.since(self.counted);
        self.counted = self.counted.max(now);
        if self.running > 0 {
            self.busy = self.busy.saturating_add(passed);
        } else if self.held > 0 {
            self.stalled = self.stalled.saturating_add(passed);
        }
    }

    fn let_go(&mut self, now: Nanos, held: bool) {
        if held {
            self.count_to(now);
            self.held = self.held.saturating_sub(1);
        }
    }
}

impl Shared {
    /// The times for which the device was busy and stalled, up to now.
    pub(crate) fn metered(&self) -> (Nanos, Nanos) {
        let mut meter = lock(&self.meter);
        meter.count_to(Os.now());
        (meter.busy, meter.stalled)
    }

    pub(crate) fn take_wait_log(&self) -> WaitLog {
        mem::take(&mut lock(&self.meter).waits)
    }

    /// A command starts to run.
    pub(crate) fn begin(&self) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.running += 1;
        now
    }

    /// It has ended; for how long it ran.
    pub(crate) fn end(&self, started: Nanos) -> Nanos {
        let now = Os.now();
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.running -= 1;
        now.since(started)
    }

    /// A wait begins to hold back a queue.
    pub(crate) fn hold(&self, now: Nanos) {
        let mut meter = lock(&self.meter);
        meter.count_to(now);
        meter.held += 1;
    }

    /// A wait was reached; `held` says that it did hold back its queue, for as long as `passed`.
    pub(crate) fn reached(&self, now: Nanos, held: bool, passed: Nanos, delivery: Option<Nanos>) {
        let mut meter = lock(&self.meter);
        meter.let_go(now, held);
        meter.waits.record(passed, delivery);
    }

    /// A wait failed.
    pub(crate) fn failed(&self, now: Nanos, held: bool, timeout: bool) {
        let mut meter = lock(&self.meter);
        meter.let_go(now, held);
        if timeout {
            meter.waits.record_timeout();
        }
    }
}
