//! What devices and queues report of their time: the clauses D6 and Q8.

use std::time::Instant;

use pontoon_signal::{Bound, Nanos};

use super::{Bench, Checked, Gate, MOMENT, PATIENCE, Subject};
use crate::{Command, Device, DeviceReport, Purpose, Queue};

/// D6: what a device reports of its time adds up.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d6_a_device_reports_its_time<S: Subject>(subject: &S) -> Checked {
    let opening = Instant::now();
    let bench = Bench::new(subject, "D6", 1);
    let Some(before) = bench.device.report() else {
        return Checked::No("a device that meters its time");
    };
    let report = || bench.device.report().unwrap_or_default();
    bench.holds_true("a device that was given nothing did something", before == report());

    // A wait and nothing else: it stands still, and the report says so while it does.
    let (mut held, mut gate) = (bench.queue("held"), Gate::new());
    let opened = bench.submit(&mut held, bench.wait(&gate.slot, gate.opened));
    bench.until("a device that a wait holds does not stand still", || {
        report().stalled.since(before.stalled).as_duration() > MOMENT
    });
    bench.holds_true("it was busy with a wait", report().busy == before.busy);

    // A command beside the wait: it is busy, and does not stand still meanwhile.
    if bench.device.capabilities().queues > 1 {
        let mut busy = bench.queue("busy");
        let idle = report();
        let ended = bench.submit(&mut busy, bench.hold(20 * MOMENT, &[]));
        bench.until("a device that runs a command is not busy", || report().busy > idle.busy);
        let (first, second) = (report(), report());
        // Only if it still runs do both reports tell of nothing else.
        let running = busy.completions().value() != ended;
        bench.holds_true("a busy device stood still", !running || first.stalled == second.stalled);
        bench.reached(busy.completions(), ended);
        let ran = report().busy.since(idle.busy).as_duration();
        bench.holds_true("it was busy for less than its command ran", ran >= 20 * MOMENT);
    }
    gate.open();
    bench.reached(held.completions(), opened);
    let after = report();
    let open = Nanos::from(opening.elapsed());
    bench.holds_true(
        "it was busy and stood still for longer than it was open",
        after.busy.saturating_add(after.stalled) <= open,
    );
    let idle: [DeviceReport; 2] = [report(), report()];
    bench.holds_true("an idle device did something", idle[0] == idle[1]);
    Checked::Yes
}

/// Q8: a queue reports its waits by what they were for and by their signals.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q8_waits_are_reported_by_purpose_and_source<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q8", 1);
    let mut queue = bench.queue("waiting");
    for (at, purpose) in Purpose::ALL.into_iter().enumerate() {
        let before = queue.report().by;
        let mut gate = Gate::new();
        let (slot, target, bound) = (gate.slot.clone(), gate.opened, Bound::within(PATIENCE));
        let source = slot.id();
        let started = Instant::now();
        let wait = Command::Wait { label: purpose.label(), slot, target, bound };
        let position = bench.submit(&mut queue, wait);
        // Not before the device has come to it, if it says so.
        let stalled = || bench.device.report().map(|report| report.stalled);
        let so_far = stalled();
        bench.until("a wait holds nothing back", || so_far.is_none() || stalled() > so_far);
        gate.open();
        bench.reached(queue.completions(), position);
        let (by, took) = (queue.report().by, Nanos::from(started.elapsed()));
        for other in Purpose::ALL {
            let counted = by.times(other).count() - before.times(other).count();
            let right = counted == u64::from(other == purpose);
            bench.holds_true("a wait counts under another purpose", right);
        }
        let held = by.times(purpose).since(before.times(purpose)).total();
        bench.holds_true("a wait took longer than it was under way", held <= took);
        bench.holds_true("a wait took no time", so_far.is_none() || held > Nanos(0));
        // All gates are the same slot of their tables, so they are one source.
        let from = by.held_by(source).since(before.held_by(source));
        bench.holds_true("a wait is not counted for its signal", from == held);
        let all: u64 = Purpose::ALL.iter().map(|&purpose| by.times(purpose).count()).sum();
        let waits = queue.report().waits;
        bench.holds_true("the purposes are not all of the waits", all == waits);
        bench.holds_true("a wait is missing", waits == at as u64 + 1);
    }
    Checked::Yes
}
