//! What can never go on, and why.
//!
//! When the run is stuck, the waits that nothing left can satisfy are reported and taken for
//! satisfied; then, where entries wait for each other and for nobody else, the shortest circle of
//! them is reported and taken to go on. What moves then was stuck only behind what is reported.
//! This is repeated until all has run.
//!
//! Invariant D1: each turn mends a wait or forces an entry that was not forced, so the turns end. A
//! forced entry waits only for its place in its thread or its FIFO, and what stands there is not
//! forced, or would have gone on; so every circle has an entry that is not forced.

use std::collections::BTreeSet;

use super::{
    circle,
    finding::Finding,
    program::{Act, Program, Raise, SemaphoreWait},
    run::Run,
};

/// Finds what never ends, and lets the run go on past it.
pub(super) fn stuck(run: &mut Run<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reported = BTreeSet::new();
    loop {
        let left = run.to_come();
        let hopeless: Vec<_> =
            left.iter().map(|&at| (at, hopeless(run, &left, at))).filter(|it| it.1.any()).collect();
        for (second, why) in &hopeless {
            if reported.insert(*second) {
                let first = why.waits.iter().find_map(|wait| culprit(run.program, *wait));
                findings.push(Finding::NeverSignalled { first, second: *second });
            }
            why.waits.iter().for_each(|wait| run.mend(*second, wait.semaphore));
            if why.lock {
                run.force(*second);
            }
        }
        if hopeless.is_empty() {
            let circles = circle::shortest(&left, |at| needs(run, &left, at));
            if circles.is_empty() {
                return findings;
            }
            for cycle in circles {
                cycle.iter().for_each(|&at| run.force(at));
                findings.push(Finding::Deadlock { cycle });
            }
        }
        run.go_on();
    }
}

/// What of an entry's waits nothing left can satisfy.
#[derive(Debug, Default)]
struct Hopeless {
    waits: Vec<SemaphoreWait>,
    lock: bool,
}

impl Hopeless {
    fn any(&self) -> bool {
        self.lock || !self.waits.is_empty()
    }
}

fn hopeless(run: &Run<'_>, left: &[usize], at: usize) -> Hopeless {
    if run.is_forced(at) {
        return Hopeless::default();
    }
    let entry = &run.program.entries[at];
    let waits = entry.semaphore_waits().filter(|&wait| {
        let raises = left.iter().flat_map(|&by| raises(run.program, by, wait, false));
        !run.holds(at, wait) && most(run.value(wait.semaphore.0), raises) < wait.value
    });
    let stands = run.standing(entry.thread.0) == Some(at);
    let lock = match entry.act {
        Act::Lock(id) if stands => {
            run.holder[id.0].is_some_and(|holder| unlock_of(run.program, holder).is_none())
        }
        _ => false,
    };
    Hopeless { waits: waits.collect(), lock }
}

/// How an entry raises the semaphore of a wait; of a failed one, how it would have.
fn raises(
    program: &Program,
    at: usize,
    wait: SemaphoreWait,
    failed: bool,
) -> impl Iterator<Item = Raise> + '_ {
    let entry = &program.entries[at];
    let signals = match entry.work() {
        Some(work) if failed && work.fails => work.signals.as_slice(),
        _ => entry.signals(),
    };
    signals.iter().filter(move |signal| signal.semaphore == wait.semaphore).map(|it| it.raise)
}

/// The most that a value can be raised to.
fn most(value: u64, raises: impl Iterator<Item = Raise>) -> u64 {
    let (set, sum) = raises.fold((value, 0_u64), |(set, sum), raise| match raise {
        Raise::To(to) => (set.max(to), sum),
        Raise::By(by) => (set, sum.saturating_add(by)),
    });
    set.saturating_add(sum)
}

/// The last entry that took away what a wait would have been satisfied by.
fn culprit(program: &Program, wait: SemaphoreWait) -> Option<usize> {
    let initial = program.semaphores[wait.semaphore.0].initial;
    let fails = |at: usize| program.entries[at].work().is_some_and(|work| work.fails);
    let all = 0..program.entries.len();
    let had_all = all.clone().flat_map(|at| raises(program, at, wait, true));
    let enough = most(initial, had_all) >= wait.value;
    all.rev().find(|&at| match &program.entries[at].act {
        Act::Drop(semaphore) => *semaphore == wait.semaphore,
        _ => enough && fails(at) && raises(program, at, wait, true).any(|raise| helps(raise, wait)),
    })
}

fn helps(raise: Raise, wait: SemaphoreWait) -> bool {
    match raise {
        Raise::To(to) => to >= wait.value,
        Raise::By(by) => by > 0,
    }
}

/// Where the thread that took a mutex gives it back.
fn unlock_of(program: &Program, lock: usize) -> Option<usize> {
    let taken = &program.entries[lock];
    let Act::Lock(id) = taken.act else { return None };
    (lock + 1..program.entries.len()).find(|&at| {
        let entry = &program.entries[at];
        entry.thread == taken.thread && matches!(entry.act, Act::Unlock(other) if other == id)
    })
}

/// The entries one of which must go on before this one can.
fn needs(run: &Run<'_>, left: &[usize], at: usize) -> Vec<usize> {
    let entry = &run.program.entries[at];
    let mut needs = Vec::new();
    let standing = run.standing(entry.thread.0).filter(|_| !run.submitted[at]);
    if let Some(standing) = standing.filter(|&standing| standing != at) {
        needs.push(standing);
    }
    if let (true, Some((queue, _))) = (run.submitted[at], entry.submission()) {
        needs.extend(run.head(queue).filter(|&head| head != at));
    }
    if run.is_forced(at) {
        return needs;
    }
    for wait in entry.semaphore_waits().filter(|&wait| !run.holds(at, wait)) {
        let adds = left.iter().any(|&by| {
            raises(run.program, by, wait, false).any(|raise| matches!(raise, Raise::By(_)))
        });
        let signals = |&&by: &&usize| {
            raises(run.program, by, wait, false).any(|raise| adds || helps(raise, wait))
        };
        needs.extend(left.iter().filter(signals));
    }
    // A rank that has come to the head waits there: it is not what the others wait for.
    if let Some(id) = entry.work().and_then(|work| work.collective) {
        let others = run.together[&id].iter();
        needs.extend(others.filter(|&&other| other != at && !run.done[other] && !run.ready(other)));
    }
    if run.submitted[at] || standing == Some(at) {
        needs.extend(reached(run, at));
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// What an entry that its thread has come to waits for, besides semaphores.
fn reached(run: &Run<'_>, at: usize) -> Vec<usize> {
    let met = &run.met[at];
    let mut needs: Vec<_> =
        met.records.iter().copied().filter(|&record| !run.done[record]).collect();
    for &(queue, filled) in &met.queues {
        // A queue that is its own partner is in order, which its FIFO is anyway.
        needs.extend(run.unfinished(queue, filled).iter().filter(|&&other| other != at));
    }
    match &run.program.entries[at].act {
        Act::Submit(queue, _) if !run.submitted[at] => {
            needs.extend(run.unfinished(*queue, usize::MAX).first());
        }
        Act::Lock(id) => {
            needs.extend(run.holder[id.0].and_then(|holder| unlock_of(run.program, holder)));
        }
        _ => {}
    }
    needs
}
