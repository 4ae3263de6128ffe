//! The clauses of [`Queue`].

use std::time::{Duration, Instant};

use pontoon_signal::{Bound, Ending, Seq, WaitError};

use super::{Bench, Checked, Gate, MOMENT, QueueOf, Subject};
use crate::{Access, Cause, Command, CommandOf, Device, Memory, Mode, Queue, SubmitError};

/// Q1: commands complete in the order submitted, each publishes one count, waits included.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q1_commands_complete_in_order<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q1", 1);
    let mut queue = bench.queue("ordered");
    let (first, second) = (bench.region(64), bench.region(64));
    let start = queue.submitted();
    bench.holds_true("a new queue has something submitted", queue.completions().value() == start);
    let mut expected = start;
    for round in 0..100 {
        let mut gate = Gate::new();
        gate.open();
        let commands = [
            bench.fill(&first, round),
            bench.add(&first, &second, 1),
            bench.wait(&gate.slot, gate.opened),
            bench.copy(&second, &first),
            bench.add(&first, &second, 1),
        ];
        for command in commands {
            let position = bench.submit(&mut queue, command);
            expected = expected + 1;
            bench.holds_true("submit gave another position than the next", position == expected);
            bench.holds_true("submitted() is behind submit", queue.submitted() == expected);
            let completed = queue.completions().value();
            bench
                .holds_true("more completed than was submitted", expected.is_at_or_past(completed));
        }
        bench.reached(queue.completions(), expected);
        bench.holds_true(
            "more completed than was submitted",
            queue.completions().value() == expected,
        );
        bench.holds(&first, round + 1);
        bench.holds(&second, round + 2);
    }
    let report = queue.report();
    bench.holds_true("the report counts other completions", report.completed == 500);
    bench.holds_true("the report counts other waits", report.waits == 100);
    Checked::Yes
}

/// Q2: a full queue gives the command back, and has room again once one completed. That `submit`
/// neither locks nor allocates is left to each backend's own tests.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q2_a_full_queue_gives_the_command_back<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q2", 1);
    let mut queue = bench.queue("full");
    let region = bench.region(16);
    let mut gate = Gate::new();
    let first = bench.submit(&mut queue, bench.wait(&gate.slot, gate.opened));
    let mut taken = 1;
    // Long enough for a device to have begun with the first command, which frees no room.
    let _ = queue.completions().waiter().wait_ge_bounded(first, Bound::within(MOMENT));
    let back = loop {
        match queue.submit(bench.fill(&region, taken)) {
            Ok(_) => taken += 1,
            Err(SubmitError::Full(back)) => break back,
            Err(error) => panic!("Q2: a queue that only has to wait says: {error}"),
        }
        bench.holds_true("it takes more than its depth", taken <= queue.depth());
    };
    bench.holds_true("it is full before its depth", taken == queue.depth());
    bench.holds_true("the command came back changed", is_fill(&back, &region, taken));
    bench.holds_true("a refused command was counted", queue.submitted() == first + (taken - 1));
    gate.open();
    bench.reached(queue.completions(), first);
    // At once, not when the device comes round: the completion is the room.
    match queue.submit(back) {
        Ok(position) => bench.reached(queue.completions(), position),
        Err(error) => panic!("Q2: after a completion there is no room: {error}"),
    }
    bench.holds(&region, taken);
    Checked::Partly("look at allocations and locks, which the backend's own tests have")
}

fn is_fill<M: Memory, K>(command: &Command<M, K>, region: &M, value: u32) -> bool {
    let Command::Launch { label, accesses, arguments, .. } = command else { return false };
    *label == "fill"
        && arguments[..] == [u64::from(value)]
        && accesses.len() == 1
        && accesses[0].mode == Mode::Write
        && accesses[0].memory.id() == region.id()
}

/// Q3: what a command wrote is readable by whoever acquired its completion: another queue, another
/// device, the host.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q3_what_was_written_is_readable<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q3", 1);
    let other = Bench::new(subject, "Q3", 2);
    let peers = other.device.capabilities().peer_access;
    let (mut producer, mut neighbour) = (bench.queue("producer"), bench.queue("neighbour"));
    let mut peer = other.queue("peer");
    let (source, near, far) = (bench.region(1024), bench.region(1024), other.region(1024));
    for round in 0..200 {
        let filled = bench.submit(&mut producer, bench.fill(&source, round));
        bench.submit(&mut neighbour, bench.wait(producer.completions(), filled));
        let mut read = bench.submit(&mut neighbour, bench.add(&source, &near, 1));
        let mut reader = &neighbour;
        if peers {
            other.submit(&mut peer, other.wait(neighbour.completions(), read));
            read = other.submit(&mut peer, other.add(&near, &far, 1));
            reader = &peer;
        }
        bench.reached(reader.completions(), read);
        bench.holds(&near, round + 1);
        if peers {
            bench.holds(&far, round + 2);
        }
        bench.holds(&source, round);
    }
    if peers { Checked::Yes } else { Checked::Partly("access to other devices") }
}

/// Q5: after a fault nothing of the queue runs or completes, its signal has the fault's ending,
/// the fault is readable by then, and other queues go on.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q5_a_fault_stops_the_queue<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q5", 3);
    let mut other = bench.queue("other");
    for round in 0..20 {
        let (mut queue, region) = (bench.queue("failing"), bench.region(16));
        bench.finish(&mut queue, bench.fill(&region, 1));
        let failing = bench.submit(&mut queue, bench.fail());
        // It may be refused already, or full for good.
        let _ = queue.submit(bench.fill(&region, 2));
        let error = bench.ended(queue.completions(), failing);
        let fault = fault_of::<S>(&queue, "Q5");
        bench.holds_true("a fault names another device", fault.device == bench.device.rank());
        bench.holds_true("a fault names another queue", &*fault.queue == "failing");
        bench.holds_true("a fault names another command", fault.command == "fail");
        bench.holds_true("a fault names another position", fault.at == failing);
        bench.holds_true("a fault has another cause", matches!(fault.cause, Cause::Panicked(_)));
        let text = fault.to_string();
        for part in ["device 3", "queue failing", "fail ", &format!("completion {failing}")] {
            bench.holds_true(&format!("{text:?} does not say {part:?}"), text.contains(part));
        }
        let WaitError::Aborted { reason, by, .. } = error else {
            panic!("Q5: a failed kernel ends the signal as {error}")
        };
        let ending = Ending::Aborted { reason, by };
        bench.holds_true("the ending is not the fault's", ending == fault.ending());
        match queue.submit(bench.fill(&region, 3)) {
            Err(SubmitError::Faulted(again)) => {
                bench.holds_true("submit gives another fault", again == fault);
            }
            Err(error) => panic!("Q5: a faulted queue answers: {error}"),
            Ok(_) => panic!("Q5: a faulted queue takes commands"),
        }
        bench.finish(&mut other, bench.fill_part(&region, 32..64, round));
        let completed = queue.completions().value();
        bench.holds_true("a failed command completed", completed + 1 == failing);
        bench.holds_true("a command after a fault ran", bench.read(&region)[0] == 1);
    }
    Checked::Yes
}

/// Q5: whoever waits for a failed queue sees the ending for ever, also when the queue is dropped
/// and others are opened after it.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q5_a_failed_queue_stays_failed_when_dropped<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q5", 3);
    let region = bench.region(16);
    let mut queue = bench.queue("failing");
    let (slot, failing) = (queue.completions().clone(), bench.submit(&mut queue, bench.fail()));
    bench.ended(&slot, failing);
    drop(queue);
    // As many as there are, so that whatever of the old queue can be used again is.
    for _ in 0..2 * bench.device.capabilities().queues {
        let mut queue = None;
        bench.until("a dropped queue never made room for another", || {
            queue = bench.device.open_queue(crate::Engine::Compute, "later").ok();
            queue.is_some()
        });
        let mut queue = queue.expect("until saw it");
        for _ in 0..3 {
            bench.finish(&mut queue, bench.fill(&region, 1));
        }
        bench.ended(&slot, failing);
    }
    Checked::Yes
}

/// Q6: of two commands that run at the same time and reach common bytes of which one writes, the
/// second fails before it starts, and its fault names both. That a kernel reaches nothing it did
/// not declare is left to each backend's own tests.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q6_unordered_accesses_are_a_hazard<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q6", 1);
    if bench.device.capabilities().compute_units < 2 {
        return Checked::No("a second unit");
    }
    let mut holder = bench.queue("holder");
    for (mode, refused) in [(Mode::Write, true), (Mode::Read, true), (Mode::Read, false)] {
        let mut second = bench.queue("second");
        let (region, result) = (bench.region(32), bench.region(16));
        let access = Access { memory: region.clone(), range: 0..64, mode };
        let held = holding(&bench, &mut holder, &access, Duration::from_secs(1));
        // Beside the bytes that are held everything may run.
        bench.finish(&mut second, bench.fill_part(&region, 64..128, 9));
        let command: CommandOf<QueueOf<S>> = match refused {
            true => bench.fill_part(&region, 60..64, 5),
            false => Command::Copy {
                label: "copy",
                from: Access::read(&region, 0..64),
                to: Access::write(&result, 0..64),
            },
        };
        let label = command.label();
        let position = bench.submit(&mut second, command);
        if !refused {
            bench.reached(second.completions(), position);
            bench.reached(holder.completions(), held);
            continue;
        }
        let beside = holder.completions().value() != held;
        bench.ended(second.completions(), position);
        let fault = fault_of::<S>(&second, "Q6");
        let text = fault.to_string();
        let Cause::Hazard(hazard) = fault.cause else { panic!("Q6: a hazard failed as {text}") };
        bench.holds_true("a hazard names another region", hazard.region == region.id());
        bench.holds_true("a hazard names another holder", hazard.holder == "hold");
        bench.holds_true("a hazard is elsewhere", hazard.on == Some(bench.device.rank()));
        bench.holds_true("other bytes are refused", hazard.refused == (60..64, Mode::Write));
        bench.holds_true("other bytes are held", hazard.running == (0..64, mode));
        bench.holds_true("its text names not both", text.contains(label) && text.contains("hold"));
        bench.holds_true("a hazard was found with nothing running", beside);
        bench.reached(holder.completions(), held);
        bench.holds_true("a refused command wrote", bench.read(&region)[15] == 0);
    }
    Checked::Partly("look for undeclared bytes, which the backend's own tests have")
}

/// Q7: dropping the queue waits for nothing; what was submitted still runs, then the signal ends.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q7_dropping_waits_for_nothing<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q7", 4);
    let region = bench.region(16);
    let mut gate = Gate::new();
    let mut queue = bench.queue("dropped");
    let slot = queue.completions().clone();
    let waiting = bench.submit(&mut queue, bench.wait(&gate.slot, gate.opened));
    let mut last: Seq = waiting;
    if queue.depth() > 1 {
        last = bench.submit(&mut queue, bench.fill(&region, 4));
    }
    drop(queue);
    bench.holds_true("the drop waited, or lost a wait", slot.value() + 1 == waiting);
    gate.open();
    bench.reached(&slot, last);
    let error = bench.ended(&slot, last + 1);
    let dead = matches!(error, WaitError::PeerDead { rank, .. } if rank == bench.device.rank());
    bench.holds_true("a dropped queue does not end as its device's", dead);
    bench.holds(&region, if last == waiting { 0 } else { 4 });

    if bench.device.capabilities().compute_units < 2 {
        return Checked::Partly("second unit");
    }
    // Another queue's kernel is no reason to be late: the ending comes while it runs.
    let mut busy = bench.queue("busy");
    let queue = bench.queue("dropped");
    let slot = queue.completions().clone();
    let time = Duration::from_secs(5);
    let held = holding(&bench, &mut busy, &Access::write(&region, 0..4), time);
    drop(queue);
    bench.ended(&slot, slot.value() + 1);
    let running = !busy.completions().value().is_at_or_past(held);
    bench.holds_true("a queue ended only when another's kernel had ended", running);
    Checked::Yes
}

/// Has `queue` hold `access`, which begins with byte 0, for `time`, and gives the position as soon
/// as it does: the host is refused.
#[track_caller]
pub(super) fn holding<S: Subject>(
    bench: &Bench<'_, S>,
    queue: &mut QueueOf<S>,
    access: &Access<super::MemoryOf<S>>,
    time: Duration,
) -> Seq {
    let start = Instant::now();
    loop {
        bench.still_patient(start, "a kernel ran and the host was not refused what it holds");
        let held = bench.submit(queue, bench.hold(time, std::slice::from_ref(access)));
        let mut met = false;
        bench.until("a kernel neither began nor ended", || {
            met = access.memory.host_write(0, &[0]).is_err();
            met || queue.fault().is_some() || queue.completions().value().is_at_or_past(held)
        });
        match queue.fault() {
            // It began while the host had the bytes: then once more, on another queue.
            Some(fault) if matches!(&fault.cause, Cause::Hazard(hazard) if hazard.on.is_none()) => {
                *queue = bench.queue(&fault.queue);
            }
            Some(fault) => panic!("a kernel that only holds its unit failed: {fault}"),
            None if met => return held,
            // On a busy machine it can be over before it is met.
            None => {}
        }
    }
}

#[track_caller]
pub(super) fn fault_of<S: Subject>(queue: &QueueOf<S>, clause: &str) -> crate::Fault {
    let Some(fault) = queue.fault() else {
        panic!("{clause}: the signal ended and the fault cannot be read yet")
    };
    fault
}
