//! The clauses of [`Device`].

use std::{thread, time::Duration};

use pontoon_signal::{Bound, Seq, WaitError};

use super::{
    Bench, Checked, Gate, MOMENT, PATIENCE, QueueOf, Subject, capability::open_copies, queue,
};
use crate::{Access, Cause, Device, Engine, Memory, OpenQueueError, Queue};
use crate::{Command, SubmitError};

/// D1: queues are independent: one held back by a wait does not hold back another, and neither
/// does a busy one while a unit is free.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d1_queues_are_independent<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "D1", 1);
    let mut gate = Gate::new();
    let count = bench.device.capabilities().queues.min(9) as usize - 1;
    let mut held: Vec<_> = (0..count).map(|_| bench.queue("held")).collect();
    let mut free = bench.queue("free");
    let waiting: Vec<Seq> = held
        .iter_mut()
        .map(|queue| bench.submit(queue, bench.wait(&gate.slot, gate.opened)))
        .collect();
    let region = bench.region(16);
    for round in 0..50 {
        bench.finish(&mut free, bench.fill(&region, round));
    }
    let copies = bench.device.capabilities().copy_engines > 0;
    if copies {
        let (mut engine, copy) = (open_copies(&bench), bench.region(16));
        bench.finish(&mut engine, bench.copy(&region, &copy));
    }
    gate.open();
    for (queue, position) in held.iter().zip(waiting) {
        bench.reached(queue.completions(), position);
    }
    drop(held);

    // A kernel of one queue keeps one unit; every other goes on beside it.
    let units = bench.device.capabilities().compute_units;
    let time = Duration::from_secs(5);
    let (mut busy, access) = (bench.queue("busy"), Access::write(&region, 0..4));
    let position = queue::holding(&bench, &mut busy, &access, time);
    let (from, to) = (bench.region(16), bench.region(16));
    for round in 0..50 {
        if units > 1 {
            bench.finish(&mut free, bench.fill(&from, round));
        }
        if copies {
            let mut engine = open_copies(&bench);
            bench.finish(&mut engine, bench.copy(&from, &to));
        }
    }
    let beside = !busy.completions().value().is_at_or_past(position);
    bench.holds_true("a busy queue held back another, with a unit free", beside);
    bench.reached(busy.completions(), position);
    if units > 1 { Checked::Yes } else { Checked::Partly("second unit") }
}

/// D2: every queue makes progress, however many there are, and however busy the others.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d2_every_queue_makes_progress<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "D2", 1);
    let count = bench.device.capabilities().queues.min(64) as usize;
    let mut queues: Vec<_> = (0..count).map(|_| bench.queue("chained")).collect();
    let region = bench.region(16);
    for round in 0..5 {
        // Each waits for the one opened after it, and the last goes first.
        let mut after = bench.submit(&mut queues[count - 1], bench.fill(&region, round));
        for index in (0..count - 1).rev() {
            let (queue, next) = queues[index..].split_at_mut(1);
            let wait = bench.wait(next[0].completions(), after);
            bench.submit(&mut queue[0], wait);
            after = bench.submit(&mut queue[0], bench.fill(&region, round + index as u32));
        }
        bench.reached(queues[0].completions(), after);
        bench.holds(&region, round);
    }
    if count < 2 {
        return Checked::Partly("second queue");
    }
    // As many queues as keep all units busy, never run dry, do not starve one more.
    let units = bench.device.capabilities().compute_units as usize;
    let (greedy, modest) = queues.split_at_mut(units.min(count - 1));
    let feed = |greedy: &mut [QueueOf<S>]| {
        for queue in greedy {
            while queue.submit(bench.hold(Duration::from_micros(200), &[])).is_ok() {}
        }
    };
    feed(greedy);
    let position = bench.submit(&mut modest[0], bench.fill(&region, 77));
    let (slot, start) = (greedy[0].completions().clone(), greedy[0].submitted());
    bench.until("a queue starved beside greedy ones", || {
        feed(greedy);
        let done = modest[0].completions().value().is_at_or_past(position);
        // Far more than a turn, and soon enough that this thread never lets the queue run dry.
        let others = slot.value().ahead_of(start);
        bench.holds_true("a queue starved while another completed 1000", done || others < 1000);
        done
    });
    Checked::Yes
}

/// D3: `synchronize` returns when everything submitted before it is complete, fails with the queue
/// that failed, and times out with the name of the one that is late.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d3_synchronize_waits_for_all_queues<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "D3", 1);
    let patient = Bound::within(PATIENCE);
    let nothing = bench.device.synchronize(patient);
    bench.holds_true("a device without queues cannot be synchronized", nothing.is_ok());
    let count = bench.device.capabilities().queues.min(4) as usize;
    let mut queues: Vec<_> = (0..count).map(|_| bench.queue("one of some")).collect();
    let regions: Vec<_> = (0..count).map(|_| bench.region(16)).collect();
    for round in 1..50 {
        for (queue, region) in queues.iter_mut().zip(&regions) {
            bench.submit(queue, bench.hold(Duration::from_micros(50), &[]));
            bench.submit(queue, bench.fill(region, round));
        }
        let done = bench.device.synchronize(patient);
        bench.holds_true("synchronize failed with nothing wrong", done.is_ok());
        for (queue, region) in queues.iter().zip(&regions) {
            let all = queue.completions().value() == queue.submitted();
            bench.holds_true("synchronize came back before the last completion", all);
            bench.holds(region, round);
        }
    }

    let mut gate = Gate::new();
    let late = queues.last_mut().expect("there is one at least");
    bench.submit(late, bench.wait(&gate.slot, gate.opened));
    let error = bench.device.synchronize(Bound::within(MOMENT));
    let named =
        error.is_err_and(|error| error.is_timeout() && error.at().slot == late.completions().id());
    bench.holds_true("a late queue is not named by a time-out", named);
    gate.open();
    let done = bench.device.synchronize(patient);
    bench.holds_true("a time-out was sticky", done.is_ok());

    let failing = bench.submit(late, bench.fail());
    bench.ended(late.completions(), failing);
    for _ in 0..100 {
        let error = bench.device.synchronize(patient);
        let failed = error
            .is_err_and(|error| !error.is_timeout() && error.at().slot == late.completions().id());
        bench.holds_true("a queue failed and synchronize hides it", failed);
        thread::yield_now();
    }
    Checked::Yes
}

/// D4: a lost device ends the signals of all its queues with `PeerDead` and its rank; nothing
/// completes any more, and what needs it is told.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d4_a_lost_device_ends_its_signals<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "D4", 5);
    let count = bench.device.capabilities().queues.min(4) as usize;
    let gate = Gate::new();
    let region = bench.region(16);
    let mut queues: Vec<_> = (0..count).map(|_| bench.queue("lost")).collect();
    let access = Access::write(&region, 0..64);
    queue::holding(&bench, &mut queues[0], &access, Duration::from_secs(1));
    for queue in &mut queues[1..] {
        bench.submit(queue, bench.wait(&gate.slot, gate.opened));
    }
    let completed: Vec<Seq> = queues.iter().map(|queue| queue.completions().value()).collect();
    if !subject.lose(&bench.device) {
        return Checked::No("a way to lose a device on purpose");
    }
    for queue in &queues {
        let error = bench.ended(queue.completions(), queue.submitted());
        let dead = matches!(error, WaitError::PeerDead { rank, .. } if rank.0 == 5);
        bench.holds_true("a lost device ends a signal otherwise", dead);
        let fault = queue::fault_of::<S>(queue, "D4");
        bench.holds_true("a lost device is no fault", fault.cause == Cause::DeviceLost);
        bench.holds_true("a loss is elsewhere", fault.device.0 == 5 && &*fault.queue == "lost");
    }
    for queue in &mut queues {
        let refused = matches!(queue.submit(bench.fill(&region, 1)), Err(SubmitError::Faulted(_)));
        bench.holds_true("a lost device takes commands", refused);
    }
    let none = bench.device.open_queue(Engine::Compute, "late").err();
    bench.holds_true("a lost device opens queues", none == Some(OpenQueueError::DeviceLost));
    let error = bench.device.synchronize(Bound::within(PATIENCE));
    bench
        .holds_true("a lost device is synchronized", error.is_err_and(|error| !error.is_timeout()));
    bench.until("a kernel never gave its bytes back", || region.host_write(0, &[0]).is_ok());
    let later: Vec<Seq> = queues.iter().map(|queue| queue.completions().value()).collect();
    bench.holds_true("a lost device completed something", later == completed);
    drop(bench);
    for queue in &queues {
        let position = queue.submitted();
        let error = queue.completions().waiter().try_wait(position).err();
        let dead = matches!(error, Some(WaitError::PeerDead { .. }));
        assert!(dead, "D4: a lost device's signals ended otherwise when it was dropped");
    }
    Checked::Yes
}

/// D5: dropping the device ends it as if lost, after the commands that run have ended: whoever
/// sees the ending finds no command running, and nothing completes after it.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn d5_dropping_ends_what_does_not_run<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "D5", 6);
    let gate = Gate::new();
    let region = bench.region(16);
    let (mut busy, mut held) = (bench.queue("busy"), bench.queue("held"));
    let access = Access::write(&region, 0..64);
    let running = queue::holding(&bench, &mut busy, &access, Duration::from_secs(1));
    let waiting = bench.submit(&mut held, bench.wait(&gate.slot, gate.opened));
    let never = if busy.depth() > 1 {
        bench.submit(&mut busy, bench.fill(&region, 9))
    } else {
        running + 1
    };
    let (slot, seen) = (busy.completions().clone(), region.clone());
    let watcher = thread::spawn(move || {
        let error = slot.waiter().wait_ge_bounded(never, Bound::within(PATIENCE)).err();
        (error, slot.value(), seen.host_write(0, &[0]).is_ok())
    });
    drop(bench);
    let (error, value, free) = watcher.join().expect("the watcher only waits");
    let dead = |error| matches!(error, Some(WaitError::PeerDead { rank, .. }) if rank.0 == 6);
    assert!(dead(error), "D5: a dropped device ends a signal as {error:?}");
    assert!(free, "D5: a command still ran when the signal had ended");
    assert_eq!(busy.completions().value(), value, "D5: something completed after the ending");
    assert_eq!(value, running, "D5: a command that ran did not complete, or one that did not, did");
    assert!(
        dead(held.completions().waiter().try_wait(waiting).err()),
        "D5: a held queue's signal did not end with the device"
    );
    let mut element = [0; 4];
    region.host_read(0, &mut element).expect("nothing runs any more");
    assert_eq!(element, [0; 4], "D5: a command ran on a dropped device");
    let slot = gate.slot.clone();
    let wait = Command::Wait { label: "late", slot, target: gate.opened, bound: Bound::default() };
    let refused = matches!(held.submit(wait), Err(SubmitError::Faulted(_)));
    assert!(refused, "D5: a dropped device takes commands");
    Checked::Yes
}
