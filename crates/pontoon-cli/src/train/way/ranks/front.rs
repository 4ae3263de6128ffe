//! What a rank's own devices do in a step, up to their gradients.

use pontoon::{Edges, Fence};

use super::super::{Run, signals::Streams};
use crate::train::{error::TrainError, job::Lane, plan::Step};

/// Makes a stream wait for a fence, unless the session derives that.
pub(super) fn wait(
    streams: &mut Streams<'_>,
    stream: pontoon::StreamId,
    fence: &Fence,
) -> Result<(), TrainError> {
    if streams.session.edges() != Edges::Auto {
        streams.session.stream_wait(stream, fence)?;
    }
    Ok(())
}

/// Submits the gradients of a step on every device of this rank that has a part of it. `params` is
/// what brings the parameters they build on.
pub(super) fn gradients(
    run: &Run<'_>,
    lanes: &mut [Lane],
    streams: &mut Streams<'_>,
    step: &Step,
    params: Option<&Fence>,
) -> Result<Vec<Fence>, TrainError> {
    let mut gradients = Vec::with_capacity(lanes.len());
    for (here, lane) in lanes.iter_mut().enumerate().filter(|(_, lane)| lane.takes_part(step)) {
        let [_, normalise, augment, train] = streams.of_devices[here];
        lane.stage(&mut streams.part(here), step)?;
        let copied = lane.copy(&mut streams.part(here), step)?;
        wait(streams, normalise, &copied)?;
        let normalised = lane.normalise(&mut streams.part(here), step)?;
        wait(streams, augment, &copied)?;
        let augmented = lane.augment(&mut streams.part(here), step)?;
        wait(streams, train, &normalised)?;
        wait(streams, train, &augmented)?;
        if let Some(params) = params {
            wait(streams, train, params)?;
        }
        let slowly = run.is_slow(lane, step);
        gradients.push(lane.gradient(&mut streams.part(here), step, slowly)?);
    }
    Ok(gradients)
}
