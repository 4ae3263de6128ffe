//! The waits that the job gives, by number, and the one that may be left out.

use pontoon::{Edges, Fence, StreamId};

use super::{Delay, Inject, Run, Streams};
use crate::train::{error::TrainError, job::Stage, plan::Step};

/// What a device's own waits are for. Fence `5 * device + kind` is one of these.
pub(super) const COPY_NORMALISE: usize = 0;
pub(super) const COPY_AUGMENT: usize = 1;
pub(super) const NORMALISE_TRAIN: usize = 2;
pub(super) const AUGMENT_TRAIN: usize = 3;
pub(super) const UPDATE_TRAIN: usize = 4;
/// Those that a gradient waits for.
pub(super) const BEFORE_TRAIN: [usize; 3] = [NORMALISE_TRAIN, AUGMENT_TRAIN, UPDATE_TRAIN];
/// Fence `5 * devices + device`: the update waits for a device's gradient.
pub(super) const TRAIN_UPDATE: usize = 5;
const OF_A_DEVICE: usize = 5;

/// How many fences a job of `devices` devices waits for in a step. The last is the host's: before it
/// reads what a step reports and fills its staging memory again.
pub(in crate::train) fn edges_of(devices: usize) -> usize {
    (OF_A_DEVICE + 1) * devices + 1
}

/// The waits that the job gives.
pub(super) struct Given {
    devices: usize,
    edges: Edges,
    dropped: Option<usize>,
    /// Delays what the missing wait was for, so that its absence shows. Where edges are checked
    /// there is no need: the submission is refused.
    delay: Option<Delay>,
}

impl Given {
    pub(super) fn new(run: &Run<'_>, devices: usize) -> Self {
        let dropped = match run.inject {
            Some(Inject::DropFence(fence)) => {
                Some(fence.unwrap_or(OF_A_DEVICE * (devices - 1) + COPY_NORMALISE))
            }
            _ => None,
        };
        let delay = dropped.filter(|_| run.edges == Edges::Trust).map(|_| Delay::new());
        Self { devices, edges: run.edges, dropped, delay }
    }

    fn number(&self, kind: usize, device: usize) -> usize {
        match kind {
            TRAIN_UPDATE => OF_A_DEVICE * self.devices + device,
            kind => OF_A_DEVICE * device + kind,
        }
    }

    /// Makes `stream` wait for `fence`, unless that is derived or left out on purpose.
    pub(super) fn wait(
        &self,
        streams: &mut Streams<'_>,
        kind: usize,
        device: usize,
        stream: StreamId,
        fence: &Fence,
    ) -> Result<(), TrainError> {
        if self.edges != Edges::Auto && self.dropped != Some(self.number(kind, device)) {
            streams.session.stream_wait(stream, fence)?;
        }
        Ok(())
    }

    /// Whether the host's own wait is left out.
    pub(super) fn is_host_dropped(&self) -> bool {
        self.dropped == Some(edges_of(self.devices) - 1)
    }

    /// Delays the next command of a stage if that is what the missing wait was for.
    pub(super) fn delay(
        &mut self,
        streams: &mut Streams<'_>,
        stage: Stage,
        device: usize,
        stream: StreamId,
        step: &Step,
    ) -> Result<(), TrainError> {
        let (Some(dropped), Some(delay)) = (self.dropped, &mut self.delay) else { return Ok(()) };
        let last = edges_of(self.devices) - 1;
        let (of, on) = match dropped {
            all if all == last => (Stage::Update, 0),
            update if update >= OF_A_DEVICE * self.devices => {
                (Stage::Train, update - OF_A_DEVICE * self.devices)
            }
            own => match own % OF_A_DEVICE {
                COPY_NORMALISE | COPY_AUGMENT => (Stage::Copy, own / OF_A_DEVICE),
                NORMALISE_TRAIN => (Stage::Normalise, own / OF_A_DEVICE),
                AUGMENT_TRAIN => (Stage::Augment, own / OF_A_DEVICE),
                _ => (Stage::Update, 0),
            },
        };
        if (of, on) == (stage, device) && Delay::is_due(step) {
            streams.session.stream_wait(stream, &delay.next())?;
        }
        Ok(())
    }

    /// `fence` is of the command that waits of these kinds are for: what was delayed for it may go on
    /// when it has run.
    pub(super) fn ran(&self, kinds: &[usize], device: usize, fence: &Fence) {
        let is_dropped = |&kind: &usize| self.dropped == Some(self.number(kind, device));
        if kinds.iter().any(is_dropped)
            && let Some(delay) = &self.delay
        {
            delay.open_after(fence);
        }
    }
}
