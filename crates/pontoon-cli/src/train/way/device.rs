//! The host stops every device between stages.

use pontoon::hal::Device;

use super::{HostWaits, Ran, Run, read_untracked};
use crate::train::{error::TrainError, job::Lane, taker::Streams};

/// What every device does between two stops.
type Work<'w> = dyn FnMut(&mut Lane, &mut Streams) -> Result<(), TrainError> + 'w;

pub(super) fn run(run: &Run<'_>) -> Result<Ran, TrainError> {
    let mut lanes = run.lanes()?;
    let mut streams: Vec<_> =
        (0..lanes.len()).map(|index| run.job.streams(index)).collect::<Result<_, _>>()?;
    let (root, mut root_stream) = (run.job.root(), run.job.root_stream()?);
    let (mut losses, mut waits) = (Vec::new(), HostWaits::default());
    for index in 0..run.plan.steps() {
        let step = &run.plan.step(index);
        let mut stage = |work: &mut Work<'_>| {
            let both = lanes.iter_mut().zip(&mut streams);
            let mut working = both.filter(|(lane, _)| lane.takes_part(step));
            working.try_for_each(|(lane, streams)| work(lane, streams))?;
            stop_all(run, &mut waits)
        };
        stage(&mut |lane, streams| {
            lane.stage(streams, step)?;
            lane.copy(streams, step)?;
            Ok(())
        })?;
        stage(&mut |lane, streams| {
            lane.normalise(streams, step)?;
            lane.augment(streams, step)?;
            Ok(())
        })?;
        stage(&mut |lane, streams| {
            let slowly = run.is_slow(lane, step);
            lane.gradient(streams, step, slowly)?;
            run.kill_if_due(step);
            Ok(())
        })?;
        root.update(&mut root_stream, step, 0)?;
        stop_all(run, &mut waits)?;
        run.finish_step(step, &mut losses, read_untracked)?;
    }
    let mut waits = waits.figures();
    // While the host waits, every device either runs its part or stands still.
    let devices = run.job.runtime.devices();
    let busy = devices.iter().map(pontoon::CpuDevice::busy).sum();
    waits.stalled = (waits.stalled * devices.len() as u32).saturating_sub(busy);
    Ok(Ran { losses, waits, ..Ran::default() })
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
