//! A host thread a device, and one lock held while a stage reads or writes.

use std::{
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use pontoon::Fence;

use super::{HostWaits, Ran, Run, read_untracked};
use crate::train::{
    error::TrainError,
    job::{Lane, Root},
    plan::Step,
    taker::Streams,
};

/// What the threads agree on.
struct Turns {
    /// Held while a stage reads or writes memory of the job.
    data: Mutex<()>,
    count: Mutex<Count>,
    changed: Condvar,
}

struct Count {
    /// For each device: the step after the last one whose gradient it has done.
    gradients: Vec<usize>,
    /// Updates done.
    updates: usize,
    failed: bool,
}

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let mut streams: Vec<_> =
        (0..lanes.len()).map(|index| run.job.streams(index)).collect::<Result<_, _>>()?;
    let mut root = (run.job.root(), run.job.root_stream()?);
    let gradients = vec![0; run.job.shared.among.all];
    let count = Mutex::new(Count { gradients, updates: 0, failed: false });
    let turns = Turns { data: Mutex::default(), count, changed: Condvar::new() };
    let mut losses = Vec::new();
    let mut waits = HostWaits::default();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let (root, losses, turns) = (&mut root, &mut losses, &turns);
        let mut root = Some((root, losses));
        let threads: Vec<_> = lanes
            .iter_mut()
            .zip(&mut streams)
            .map(|(lane, streams)| {
                let root = root.take();
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    let mut waits = HostWaits::default();
                    let outcome = train(run, (lane, streams), root, turns, &mut waits);
                    if outcome.is_err() {
                        lock(&turns.count).failed = true;
                        turns.changed.notify_all();
                    }
                    (outcome, waits)
                });
                started.inspect_err(|_| {
                    lock(&turns.count).failed = true;
                    turns.changed.notify_all();
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.map(thread::ScopedJoinHandle::join)).collect()
    });
    let mut failures = Vec::new();
    for outcome in outcomes {
        let (outcome, times) = match outcome {
            Ok(Ok(ended)) => ended,
            // A thread that panicked has said so; the others failed waiting for it.
            Ok(Err(_)) => continue,
            Err(error) => {
                failures.push(TrainError::Thread(error));
                continue;
            }
        };
        waits.merge(&times);
        failures.extend(outcome.err());
    }
    failures.sort_by_key(TrainError::is_consequence);
    match failures.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(Ran { losses, waits: waits.figures(), ..Ran::default() }),
    }
}

/// One device's thread. Device 0's also updates.
fn train(
    run: &Run<'_>,
    (lane, streams): (&mut Lane, &mut Streams),
    mut root: Option<(&mut (Root, Streams), &mut Vec<f32>)>,
    turns: &Turns,
    waits: &mut HostWaits,
) -> Result<(), TrainError> {
    for index in 0..run.plan.steps() {
        let step = &run.plan.step(index);
        if lane.takes_part(step) {
            let data = waits.timed(|| lock(&turns.data));
            lane.stage(streams, step)?;
            done(run, &lane.copy(streams, step)?, waits)?;
            drop(data);
            let data = waits.timed(|| lock(&turns.data));
            let normalised = lane.normalise(streams, step)?;
            done(run, &lane.augment(streams, step)?, waits)?;
            done(run, &normalised, waits)?;
            drop(data);
            let data = waits.timed(|| lock(&turns.data));
            let slowly = run.is_slow(lane, step);
            done(run, &lane.gradient(streams, step, slowly)?, waits)?;
            drop(data);
            lock(&turns.count).gradients[lane.index] = index + 1;
            turns.changed.notify_all();
        }
        if let Some(((root, stream), losses)) = &mut root {
            run.kill_if_due(step);
            let all_done = |count: &Count| missing(run, count, step).is_none();
            await_turn(run, lane.index, step, turns, waits, all_done)?;
            let data = waits.timed(|| lock(&turns.data));
            done(run, &root.update(stream, step, 0)?, waits)?;
            run.finish_step(step, losses, read_untracked)?;
            drop(data);
            lock(&turns.count).updates += 1;
            turns.changed.notify_all();
        } else {
            await_turn(run, lane.index, step, turns, waits, |count| count.updates > index)?;
        }
    }
    Ok(())
}

/// The first device whose gradient of `step` is missing.
fn missing(run: &Run<'_>, count: &Count, step: &Step) -> Option<usize> {
    let mut devices = count.gradients.iter().enumerate();
    let late = devices
        .find(|&(device, &done)| done <= step.index && run.job.shared.has_part(device, step));
    late.map(|(device, _)| device)
}

/// A wait of one device's thread for another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    device: usize,
    step: usize,
    /// Whose gradient is missing; `None` if they are all there and device 0 has yet to update.
    missing: Option<usize>,
    waited: Duration,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, step, missing, waited } = self;
        let waited = waited.as_secs_f64();
        write!(f, "device {device} waited {waited:.3} s under the lock for ")?;
        match missing {
            Some(missing) => write!(f, "the gradient of device {missing} in step {step}"),
            None => write!(f, "the update of device 0 in step {step}"),
        }
    }
}

fn await_turn(
    run: &Run<'_>,
    device: usize,
    step: &Step,
    turns: &Turns,
    waits: &mut HostWaits,
    is_due: impl Fn(&Count) -> bool,
) -> Result<(), TrainError> {
    let started = Instant::now();
    // Each of the others may use up its own bound first.
    let limit = run.bound * (run.job.shared.among.all as u32 + 1);
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
            let missing = missing(run, &count, step);
            let turn = Turn { device, step: step.index, missing, waited };
            if waited >= limit {
                return Err(TrainError::Turn(turn));
            }
            if waited >= run.patience() && !late {
                late = true;
                run.progress.warn(&format!("slow: {turn}"));
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

/// Waits for a device's own work; says when it takes long.
fn done(run: &Run<'_>, fence: &Fence, waits: &mut HostWaits) -> Result<(), TrainError> {
    let wait = |bound| Ok(fence.wait(bound)?);
    run.patiently(run.bound, &mut waits.timeouts, wait, |error| error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
