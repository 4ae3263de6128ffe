//! Streams wait for each other's fences; the host only keeps the number of steps under way.

use std::{collections::VecDeque, time::Duration};

use pontoon::{
    Bound, Fence, SignalTable, SlotId, TableShape,
    cpu::WaitLog,
    signal::{Publisher, Seq},
};

use super::{Inject, Ran, Run, Waits, root_fault};
use crate::train::{
    error::TrainError,
    job::{IN_FLIGHT, Lane, Root},
    plan::Step,
};

/// The fences of a step under way.
struct Under {
    step: usize,
    gradients: Vec<Fence>,
    update: Fence,
}

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let mut root = run.job.root()?;
    let mut ran = Ran::default();
    let mut late = 0;
    let submitted = submit_all(run, &mut lanes, &mut root, &mut ran, &mut late);
    submitted.map_err(|error| {
        // Let the failure run down to the last stream: who waited for whom says more than the
        // stream that happened to be submitted to.
        let _ = root.stream.fence().wait(run.bound());
        root_fault(&lanes, &root).map_or(error, TrainError::Fault)
    })?;
    ran.waits = waits(run, late);
    Ok(ran)
}

fn submit_all(
    run: &Run<'_>,
    lanes: &mut [Lane],
    root: &mut Root,
    ran: &mut Ran,
    late: &mut u64,
) -> Result<(), TrainError> {
    let mut gate = Gate::new();
    let mut under: VecDeque<Under> = VecDeque::with_capacity(IN_FLIGHT);
    for index in 0..run.plan.steps() {
        if under.len() == IN_FLIGHT
            && let Some(oldest) = under.pop_front()
        {
            finish(run, &oldest, late)?;
            run.finish_step(&run.plan.step(oldest.step), &mut ran.losses)?;
        }
        let step = &run.plan.step(index);
        let before = under.back().map(|under| under.update.clone());
        under.push_back(submit(run, lanes, root, step, before.as_ref(), &mut gate)?);
        run.kill_if_due(step);
    }
    for oldest in under {
        finish(run, &oldest, late)?;
        run.finish_step(&run.plan.step(oldest.step), &mut ran.losses)?;
    }
    Ok(())
}

/// Submits a step; `before` is the update that its gradients build on.
fn submit(
    run: &Run<'_>,
    lanes: &mut [Lane],
    root: &mut Root,
    step: &Step,
    before: Option<&Fence>,
    gate: &mut Gate,
) -> Result<Under, TrainError> {
    let bound = run.bound();
    let mut gradients = Vec::with_capacity(lanes.len());
    for lane in lanes.iter_mut().filter(|lane| lane.takes_part(step)) {
        lane.stage(step)?;
        let normalised = if run.inject == Some(Inject::DropFence) && run.is_last(lane) {
            normalise_too_early(lane, step, gate, bound)?
        } else {
            let copied = lane.copy(step)?;
            lane.streams.normalise.wait(&copied, bound)?;
            lane.normalise(step)?
        };
        let copied = lane.streams.copy.fence();
        lane.streams.augment.wait(&copied, bound)?;
        let augmented = lane.augment(step)?;
        lane.streams.train.wait(&normalised, bound)?;
        lane.streams.train.wait(&augmented, bound)?;
        if let Some(before) = before {
            lane.streams.train.wait(before, bound)?;
        }
        gradients.push(lane.gradient(step, run.is_slow(lane, step))?);
    }
    // In the order of the devices, which is the order of the shards.
    for gradient in &gradients {
        root.wait(gradient, bound)?;
    }
    Ok(Under { step: step.index, gradients, update: root.update(step)? })
}

/// Waits for a step; says for whom when it takes long.
fn finish(run: &Run<'_>, under: &Under, late: &mut u64) -> Result<(), TrainError> {
    // Every wait of the devices has the run's bound, so a step ends in a few of them.
    run.patiently(
        run.bound * 5,
        late,
        |bound| Ok(under.update.wait(bound)?),
        |error| blame(under).unwrap_or(error),
    )
}

/// The first gradient that is missing, as the error of a wait for it.
fn blame(under: &Under) -> Option<TrainError> {
    let at_once = Bound::within(Duration::from_nanos(1));
    Some(under.gradients.iter().find_map(|fence| fence.wait(at_once).err())?.into())
}

/// Holds back a copy until the test has read what the copy should have brought.
struct Gate {
    publisher: Publisher,
    opened: Fence,
}

impl Gate {
    fn new() -> Self {
        let table = SignalTable::in_process(TableShape::new(1, 1));
        let slot = SlotId::new(0, 0);
        let free = "a new table has its slot free";
        let publisher = table.publisher(slot).expect(free);
        let opened = Fence::on(table.slot(slot).expect(free), Seq::new(0), "gate");
        Self { publisher, opened }
    }
}

/// The injected fault: normalises without waiting for the copy, which comes only afterwards.
fn normalise_too_early(
    lane: &mut Lane,
    step: &Step,
    gate: &mut Gate,
    bound: Bound,
) -> Result<Fence, TrainError> {
    let next = gate.opened.later(1);
    lane.streams.copy.wait(&next, bound)?;
    lane.copy(step)?;
    let normalised = lane.normalise(step)?;
    normalised.wait(bound)?;
    gate.publisher.pub_release(1);
    gate.opened = next;
    Ok(normalised)
}

/// The waits of all devices, and how often the host lost patience.
fn waits(run: &Run<'_>, late: u64) -> Waits {
    let mut log = WaitLog::default();
    for device in run.job.runtime.devices() {
        log.merge(&device.take_wait_log());
    }
    Waits {
        count: log.waits(),
        mean: log.held_mean(),
        p99: log.held_p99(),
        timeouts: log.timeouts() + late,
        stalled: run.job.runtime.devices().iter().map(pontoon::CpuDevice::stalled).sum(),
        delivery: Some((log.delivery_median(), log.delivery_p99())),
    }
}
