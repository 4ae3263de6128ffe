//! Streams wait for each other's fences; the host only keeps the number of steps under way.
//!
//! The waits are given here, and a session checks that none is missing; or the session derives them
//! and none is given; or they are given and trusted.

mod delay;
mod fences;

use std::{collections::VecDeque, time::Duration};

use bytemuck::Pod;
use pontoon::{
    Bound, Buffer, CpuDevice, Engine, Fence, Kernel, Patience, Session, StreamId, WaitFailure,
    cpu::{Region, WaitLog},
    hal::Access,
};

pub(in crate::train) use fences::edges_of;

use super::{Inject, Ran, Run, root_fault};
use crate::train::{
    error::TrainError,
    job::{IN_FLIGHT, Lane, Root, Stage},
    plan::Step,
    taker::Taker,
};
use delay::Delay;
use fences::Given;

/// The fences of a step under way.
struct Under {
    step: usize,
    gradients: Vec<Fence>,
    update: Fence,
}

/// The session, and its streams by device and stage.
pub(in crate::train) struct Streams<'d> {
    pub(in crate::train) session: Session<'d, CpuDevice>,
    pub(in crate::train) of_devices: Vec<[StreamId; 4]>,
    pub(in crate::train) update: StreamId,
}

/// One device's part of it, or the host's.
pub(in crate::train) struct Part<'s, 'd> {
    streams: &'s mut Streams<'d>,
    device: usize,
}

impl<'d> Streams<'d> {
    pub(in crate::train) fn open(run: &Run<'d>) -> Result<Self, TrainError> {
        let idle = Patience::within(run.bound);
        let mut session = Session::new(run.edges).with_bound(run.bound()).with_patience(idle);
        session = session.with_added_edges(run.added.clone());
        if run.observe {
            session.observe_edges();
        }
        session = session.with_timeline(run.moments);
        let devices = run.job.runtime.devices();
        let mut of_devices = Vec::with_capacity(devices.len());
        for device in devices {
            let mut open = |stage: Stage| session.stream(device, stage.engine(), stage.label());
            let [copy, normalise, augment, train] = Stage::OF_A_DEVICE.map(&mut open);
            of_devices.push([copy?, normalise?, augment?, train?]);
        }
        let update = session.stream(&devices[0], Engine::Compute, Stage::Update.label())?;
        Ok(Self { session, of_devices, update })
    }

    fn of(&self, device: usize, stage: Stage) -> StreamId {
        let at = Stage::OF_A_DEVICE.iter().position(|&of| of == stage);
        at.map_or(self.update, |at| self.of_devices[device][at])
    }

    /// What takes the commands of the device in that place of this process.
    pub(in crate::train) fn part(&mut self, device: usize) -> Part<'_, 'd> {
        Part { streams: self, device }
    }
}

impl Taker for Part<'_, '_> {
    fn launch<const N: usize>(
        &mut self,
        stage: Stage,
        label: &'static str,
        kernel: &Kernel,
        accesses: [Access<Region>; N],
        arguments: &[u64],
    ) -> Result<Fence, TrainError> {
        let stream = self.streams.of(self.device, stage);
        let arguments = arguments.iter().copied();
        Ok(self.streams.session.launch(stream, label, kernel, accesses, arguments)?)
    }

    fn copy(
        &mut self,
        label: &'static str,
        from: Access<Region>,
        to: Access<Region>,
    ) -> Result<Fence, TrainError> {
        let stream = self.streams.of(self.device, Stage::Copy);
        Ok(self.streams.session.copy(stream, label, from, to)?)
    }

    fn write<T: Pod>(&mut self, to: &Buffer<Region, T>, from: &[T]) -> Result<(), TrainError> {
        Ok(self.streams.session.write(to, 0, from)?)
    }
}

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let root = run.job.root();
    let mut streams = Streams::open(run)?;
    let mut given = Given::new(run, lanes.len());
    let mut ran = Ran::default();
    let mut late = 0;
    streams.session.begin_iteration();
    let submitted =
        submit_all(run, &mut lanes, &root, &mut streams, &mut given, &mut ran, &mut late);
    let submitted = submitted.map_err(|error| {
        // Let the failure run down to the last stream: who waited for whom says more than the
        // stream that happened to be submitted to.
        let _ = streams.session.drain(streams.update, Patience::within(run.bound));
        root_fault(streams.session.faults()).map_or(error, TrainError::Fault)
    });
    if let Ok(mut keep) = run.keep.lock() {
        *keep = streams.session.take_timeline();
    }
    submitted?;
    ran.waits = waits(run, late);
    ran.counts = Some(streams.session.counts());
    ran.observed = streams.session.observed();
    ran.profile = Some(streams.session.profile());
    Ok(ran)
}

fn submit_all(
    run: &Run<'_>,
    lanes: &mut [Lane],
    root: &Root,
    streams: &mut Streams<'_>,
    given: &mut Given,
    ran: &mut Ran,
    late: &mut u64,
) -> Result<(), TrainError> {
    let mut under: VecDeque<Under> = VecDeque::with_capacity(IN_FLIGHT);
    for index in 0..run.plan.steps() {
        if under.len() == IN_FLIGHT
            && let Some(oldest) = under.pop_front()
        {
            finish(run, streams, &oldest, given, ran, late)?;
        }
        let step = &run.plan.step(index);
        let before = under.back().map(|under| under.update.clone());
        under.push_back(submit(run, lanes, root, streams, step, before.as_ref(), given)?);
        run.kill_if_due(step);
    }
    for oldest in under {
        finish(run, streams, &oldest, given, ran, late)?;
    }
    Ok(())
}

/// Submits a step; `before` is the update that its gradients build on.
fn submit(
    run: &Run<'_>,
    lanes: &mut [Lane],
    root: &Root,
    streams: &mut Streams<'_>,
    step: &Step,
    before: Option<&Fence>,
    given: &mut Given,
) -> Result<Under, TrainError> {
    let mut gradients = Vec::with_capacity(lanes.len());
    for lane in lanes.iter_mut().filter(|lane| lane.takes_part(step)) {
        let device = lane.index;
        let [copy, normalise, augment, train] = streams.of_devices[device];
        let part = &mut streams.part(device);
        lane.stage(part, step)?;
        given.delay(part.streams, Stage::Copy, device, copy, step)?;
        let copied = lane.copy(part, step)?;
        given.wait(part.streams, fences::COPY_NORMALISE, device, normalise, &copied)?;
        given.delay(part.streams, Stage::Normalise, device, normalise, step)?;
        let normalised = lane.normalise(part, step)?;
        given.ran(&[fences::COPY_NORMALISE], device, &normalised);
        given.wait(part.streams, fences::COPY_AUGMENT, device, augment, &copied)?;
        given.delay(part.streams, Stage::Augment, device, augment, step)?;
        let augmented = lane.augment(part, step)?;
        given.ran(&[fences::COPY_AUGMENT], device, &augmented);
        given.wait(part.streams, fences::NORMALISE_TRAIN, device, train, &normalised)?;
        given.wait(part.streams, fences::AUGMENT_TRAIN, device, train, &augmented)?;
        if let Some(before) = before {
            given.wait(part.streams, fences::UPDATE_TRAIN, device, train, before)?;
        }
        given.delay(part.streams, Stage::Train, device, train, step)?;
        let gradient = lane.gradient(part, step, run.is_slow(lane, step))?;
        given.ran(&fences::BEFORE_TRAIN, device, &gradient);
        gradients.push((device, gradient));
    }
    // In the order of the devices, which is the order of the shards.
    let update = streams.update;
    for (device, gradient) in &gradients {
        given.wait(streams, fences::TRAIN_UPDATE, *device, update, gradient)?;
    }
    given.delay(streams, Stage::Update, 0, update, step)?;
    let update = root.update(&mut streams.part(0), step, 0)?;
    for (device, _) in &gradients {
        given.ran(&[fences::TRAIN_UPDATE], *device, &update);
    }
    let gradients = gradients.into_iter().map(|(_, fence)| fence).collect();
    Ok(Under { step: step.index, gradients, update })
}

/// Waits for a step, and reads its losses; says for whom when it takes long.
fn finish(
    run: &Run<'_>,
    streams: &mut Streams<'_>,
    under: &Under,
    given: &Given,
    ran: &mut Ran,
    late: &mut u64,
) -> Result<(), TrainError> {
    // Where the edges are wanted, those of the host's accesses are too: what it waits for by itself
    // is none.
    if !given.is_host_dropped() && !run.observe {
        // Every wait of the devices has the run's bound, so a step ends in a few of them.
        run.patiently(
            run.bound * 5,
            late,
            |bound| wait(&mut streams.session, &under.update, bound),
            |error| blame(under).unwrap_or(error),
        )?;
    }
    let read = |buffer: &Buffer<Region, f32>, at, into: &mut [f32]| {
        Ok(streams.session.read(buffer, at, into)?)
    };
    run.finish_step(&run.plan.step(under.step), &mut ran.losses, read)?;
    let step = streams.session.end_iteration();
    if ran.slowest.as_ref().is_none_or(|slowest| slowest.figures.time < step.figures.time) {
        ran.slowest = Some(step);
    }
    Ok(())
}

pub(in crate::train) fn wait(
    session: &mut Session<'_, CpuDevice>,
    fence: &Fence,
    bound: Bound,
) -> Result<(), TrainError> {
    let limit = bound.deadline().unwrap_or(Duration::MAX);
    match session.wait(fence, Patience::within(limit).at_most(limit)) {
        Ok(_) => Ok(()),
        Err(WaitFailure::Fence(error)) => Err(TrainError::Fence(error)),
        Err(other) => Err(TrainError::Wait(other)),
    }
}

/// The first gradient that is missing, as the error of a wait for it.
fn blame(under: &Under) -> Option<TrainError> {
    let at_once = Bound::within(Duration::from_nanos(1));
    Some(under.gradients.iter().find_map(|fence| fence.wait(at_once).err())?.into())
}

/// The waits of all devices, and how often the host lost patience.
pub(in crate::train) fn waits(run: &Run<'_>, late: u64) -> super::Waits {
    let mut log = WaitLog::default();
    for device in run.job.runtime.devices() {
        log.merge(&device.take_wait_log());
    }
    super::Waits {
        count: log.waits(),
        mean: log.held_mean(),
        p99: log.held_p99(),
        timeouts: log.timeouts() + late,
        stalled: run.job.runtime.devices().iter().map(CpuDevice::stalled).sum(),
        delivery: Some((log.delivery_median(), log.delivery_p99())),
    }
}
