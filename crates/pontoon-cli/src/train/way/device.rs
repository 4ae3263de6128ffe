//! The host stops every device between stages.

use pontoon::hal::Device;

use super::{HostWaits, Ran, Run};
use crate::train::{error::TrainError, job::Lane};

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let mut root = run.job.root()?;
    let (mut losses, mut waits) = (Vec::new(), HostWaits::default());
    for index in 0..run.plan.steps() {
        let step = &run.plan.step(index);
        let mut stage = |work: &mut dyn FnMut(&mut Lane) -> Result<(), TrainError>| {
            lanes.iter_mut().filter(|lane| lane.takes_part(step)).try_for_each(work)?;
            stop_all(run, &mut waits)
        };
        stage(&mut |lane| {
            lane.stage(step)?;
            lane.copy(step)?;
            Ok(())
        })?;
        stage(&mut |lane| {
            lane.normalise(step)?;
            lane.augment(step)?;
            Ok(())
        })?;
        stage(&mut |lane| {
            let slowly = run.is_slow(lane, step);
            lane.gradient(step, slowly)?;
            run.kill_if_due(step);
            Ok(())
        })?;
        root.update(step)?;
        stop_all(run, &mut waits)?;
        run.finish_step(step, &mut losses)?;
    }
    let mut waits = waits.figures();
    // While the host waits, every device either runs its part or stands still.
    let devices = run.job.runtime.devices();
    let busy = devices.iter().map(pontoon::CpuDevice::busy).sum();
    waits.stalled = (waits.stalled * devices.len() as u32).saturating_sub(busy);
    Ok(Ran { losses, waits })
}

fn stop_all(run: &Run<'_>, waits: &mut HostWaits) -> Result<(), TrainError> {
    for device in run.job.runtime.devices() {
        let mut late = 0;
        let stop = |bound| {
            let stopped = device.synchronize(bound);
            stopped.map_err(|error| TrainError::Synchronize { device: device.rank(), error })
        };
        let stopped = waits.timed(|| run.patiently(run.bound, &mut late, stop, |error| error));
        waits.timeouts += late;
        stopped?;
    }
    Ok(())
}
