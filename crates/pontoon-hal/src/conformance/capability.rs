//! The clauses of [`Capabilities`](crate::Capabilities).

use std::{iter, time::Duration};

use super::{Bench, Checked, PATIENCE, QueueOf, Subject, queue};
use crate::{Access, Device, Engine, Memory, OpenQueueError, Queue, SubmitError};

/// C1 and C4: what a kernel wrote is what the host finds once it acquired the completion. Other
/// devices are Q3's; an address shows to no command, so it is left to each backend's own tests.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c1_c4_the_host_sees_what_kernels_wrote<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "C1", 1);
    let found = bench.device.capabilities();
    if !found.system_scope_atomics {
        return Checked::No("atomics of system scope");
    }
    let mut queue = bench.queue("writer");
    let region = bench.region(5000);
    for round in 1..200 {
        bench.finish(&mut queue, bench.fill(&region, round));
        bench.holds(&region, round);
    }
    Checked::Partly(match found.unified_addresses {
        true => "look at addresses, which the backend's own tests have",
        false => "unified addresses",
    })
}

/// C2: a kernel reads and writes the regions of another device.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c2_kernels_reach_other_devices<S: Subject>(subject: &S) -> Checked {
    let (bench, other) = (Bench::new(subject, "C2", 1), Bench::new(subject, "C2", 2));
    if !bench.device.capabilities().peer_access {
        return Checked::No("access to other devices");
    }
    let (mut queue, mut owner) = (bench.queue("visitor"), other.queue("owner"));
    let (theirs, back, mine) = (other.region(1024), other.region(1024), bench.region(1024));
    for round in 0..50 {
        other.finish(&mut owner, other.fill(&theirs, round));
        bench.finish(&mut queue, bench.add(&theirs, &mine, 1));
        bench.finish(&mut queue, bench.add(&mine, &theirs, 1));
        bench.holds(&theirs, round + 2);
        other.finish(&mut owner, other.add(&theirs, &back, 1));
        other.holds(&back, round + 3);
    }
    Checked::Yes
}

/// C3, C5 and C6: the report makes sense, and stays. That the device polls as it says shows in no
/// result, so it is left to each backend's own tests.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c3_c5_c6_the_report_makes_sense<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "C5", 1);
    let found = bench.device.capabilities();
    bench.holds_true("a first touch costs nothing", found.first_touch.0 > 0);
    bench.holds_true("a page is no power of two", found.page_bytes.is_power_of_two());
    let (mut queue, region) = (bench.queue("busy"), bench.region(16));
    for round in 0..20 {
        bench.finish(&mut queue, bench.fill(&region, round));
        bench.holds_true("the report changes", found == bench.device.capabilities());
    }
    bench.holds_true("the rank is another", bench.device.rank().0 == 1);
    Checked::Partly("look at how it polls, which the backend's own tests have")
}

/// C7: that many kernels run at once.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c7_all_units_run_at_once<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "C7", 1);
    let found = bench.device.capabilities();
    bench.holds_true("there is no unit", found.compute_units >= 1);
    let count = found.compute_units.min(found.queues) as usize;
    let mut queues: Vec<_> = (0..count).map(|_| bench.queue("one unit")).collect();
    // Longer and longer, for a busy machine: the last one to begin has to meet the first one.
    let mut time = Duration::from_secs(1);
    loop {
        let regions: Vec<_> = (0..count).map(|_| bench.region(16)).collect();
        let held: Vec<_> = iter::zip(&mut queues, &regions)
            .map(|(queue, region)| {
                queue::holding(&bench, queue, &Access::write(region, 0..64), time)
            })
            .collect();
        // Each ran when the next one began, so that the first one to end tells of all.
        let together = iter::zip(&queues, &held)
            .all(|(queue, &position)| !queue.completions().value().is_at_or_past(position));
        for (queue, position) in iter::zip(&queues, held) {
            bench.reached(queue.completions(), position);
        }
        if together {
            break;
        }
        time *= 3;
        bench.holds_true("its units never all ran at once", time < PATIENCE);
    }
    if count < found.compute_units as usize {
        return Checked::Partly("queue for each unit");
    }
    Checked::Yes
}

/// C8: the copy engine copies and runs no kernel; a device without one says so.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c8_copy_engines_copy<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "C8", 1);
    if bench.device.capabilities().copy_engines == 0 {
        let none = bench.device.open_queue(Engine::Copy, "copies").err();
        let expected = OpenQueueError::NoSuchEngine(Engine::Copy);
        bench.holds_true("there is a copy engine", none == Some(expected));
        return Checked::Partly("copy engine");
    }
    let (region, copy) = (bench.region(16), bench.region(16));
    let mut copies = open_copies(&bench);
    let refused = matches!(copies.submit(bench.fill(&region, 1)), Err(SubmitError::Malformed(_)));
    bench.holds_true("the copy engine took a kernel", refused);
    region.host_write(0, &[3; 64]).expect("the host has it alone");
    bench.finish(&mut copies, bench.copy(&region, &copy));
    bench.holds(&copy, 0x0303_0303);
    Checked::Yes
}

/// C9: that many queues can be open at once, with a slot each, and no more.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn c9_all_queues_can_be_open<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "C9", 1);
    let found = bench.device.capabilities();
    bench.holds_true("there is no queue", found.queues >= 1);
    let region = bench.region(16);
    for round in 0..2 {
        let mut queues: Vec<QueueOf<S>> = Vec::new();
        bench.until("not all queues could be opened", || {
            // Those of the round before may still be on their way out.
            queues.extend(bench.device.open_queue(Engine::Compute, "one of all").ok());
            queues.len() == found.queues as usize
        });
        let more = bench.device.open_queue(Engine::Compute, "one too many").err();
        let expected = OpenQueueError::TooMany { queues: found.queues };
        bench.holds_true("there are more queues than it says", more == Some(expected));
        let mut ids: Vec<_> = queues.iter().map(|queue| queue.completions().id().slot).collect();
        ids.sort_unstable();
        ids.dedup();
        bench.holds_true("two open queues share a slot", ids.len() == queues.len());
        for queue in &mut queues {
            bench.finish(queue, bench.fill(&region, round));
        }
    }
    Checked::Yes
}

/// A queue on the copy engine; those that were dropped may still be on their way out.
pub(super) fn open_copies<S: Subject>(bench: &Bench<'_, S>) -> QueueOf<S> {
    let mut queue = None;
    bench.until("no queue on the copy engine", || {
        queue = bench.device.open_queue(Engine::Copy, "copies").ok();
        queue.is_some()
    });
    queue.expect("until saw it")
}
