//! A host thread a device, and one lock held while a stage reads or writes.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{HostWaits, Ran, Run};
use crate::train::{
    error::TrainError,
    job::{Lane, Root},
    plan::Step,
};

/// What the threads agree on.
struct Turns {
    /// Held while a stage reads or writes memory of the job.
    data: Mutex<()>,
    count: Mutex<Count>,
    changed: Condvar,
}

#[derive(Default)]
struct Count {
    /// Gradients done, over all steps and devices.
    gradients: usize,
    /// Updates done.
    updates: usize,
    failed: bool,
}

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let mut root = run.job.root()?;
    let (data, count, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
    let turns = Turns { data, count, changed };
    let mut losses = Vec::new();
    let mut waits = HostWaits::default();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let (root, losses, turns) = (&mut root, &mut losses, &turns);
        let mut root = Some((root, losses));
        let threads: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                let root = root.take();
                scope.spawn(move || {
                    let mut waits = HostWaits::default();
                    let outcome = train(run, lane, root, turns, &mut waits);
                    if outcome.is_err() {
                        lock(&turns.count).failed = true;
                        turns.changed.notify_all();
                    }
                    (outcome, waits)
                })
            })
            .collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut failures = Vec::new();
    for outcome in outcomes {
        // A thread that panicked has said so; the others failed waiting for it.
        let Ok((outcome, times)) = outcome else { continue };
        waits.merge(&times);
        failures.extend(outcome.err());
    }
    failures.sort_by_key(TrainError::is_consequence);
    match failures.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(Ran { losses, waits: waits.figures() }),
    }
}

/// One device's thread. Device 0's also updates.
fn train(
    run: &Run<'_>,
    lane: &mut Lane,
    mut root: Option<(&mut Root, &mut Vec<f32>)>,
    turns: &Turns,
    waits: &mut HostWaits,
) -> Result<(), TrainError> {
    let bound = run.bound();
    let mut gradients = 0;
    for index in 0..run.plan.steps() {
        let step = run.plan.step(index);
        if lane.takes_part(step) {
            let data = waits.timed(|| lock(&turns.data));
            lane.stage(step)?;
            lane.copy(step)?.wait(bound)?;
            drop(data);
            let data = waits.timed(|| lock(&turns.data));
            let normalised = lane.normalise(step)?;
            lane.augment(step)?.wait(bound)?;
            normalised.wait(bound)?;
            drop(data);
            let data = waits.timed(|| lock(&turns.data));
            let slowly = run.is_slow(lane, step);
            lane.gradient(step, slowly)?.wait(bound)?;
            drop(data);
            lock(&turns.count).gradients += 1;
            turns.changed.notify_all();
        }
        gradients += parts(run, step);
        if let Some((root, losses)) = &mut root {
            run.kill_if_due(step);
            await_turn(run, lane.index, step, turns, waits, |count| count.gradients >= gradients)?;
            let data = waits.timed(|| lock(&turns.data));
            root.update(step)?.wait(bound)?;
            run.finish_step(step, losses)?;
            drop(data);
            lock(&turns.count).updates += 1;
            turns.changed.notify_all();
        } else {
            await_turn(run, lane.index, step, turns, waits, |count| count.updates > index)?;
        }
    }
    Ok(())
}

/// How many devices take part in a step.
fn parts(run: &Run<'_>, step: Step<'_>) -> usize {
    let devices = run.job.shared.devices;
    (0..devices).filter(|&device| run.job.shared.has_part(device, step)).count()
}

fn await_turn(
    run: &Run<'_>,
    device: usize,
    step: Step<'_>,
    turns: &Turns,
    waits: &mut HostWaits,
    is_due: impl Fn(&Count) -> bool,
) -> Result<(), TrainError> {
    let started = Instant::now();
    // Each of the others may use up its own bound first.
    let limit = run.bound * (run.job.shared.devices as u32 + 1);
    let mut late = false;
    let outcome = waits.timed(|| {
        let mut count = lock(&turns.count);
        loop {
            if count.failed {
                return Err(TrainError::Elsewhere);
            }
            if is_due(&count) {
                return Ok(());
            }
            let waited = started.elapsed();
            if waited >= limit {
                return Err(TrainError::Turn { device, step: step.index, waited });
            }
            if waited >= run.patience() && !late {
                late = true;
                let who = format!("slow: device {device} has waited {waited:.1?}");
                run.progress.warn(&format!("{who} for the others to finish step {}", step.index));
            }
            let until = if late { limit } else { run.patience() };
            let slice = until.saturating_sub(waited).max(Duration::from_millis(1));
            let woken = turns.changed.wait_timeout(count, slice);
            count = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    });
    waits.timeouts += u64::from(late);
    outcome
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
