//! The run drawn in time: what each queue and the host did when, and who waited for whom.
//!
//! The format is `docs/formats/trace.md`.

mod events;
mod file;

use pontoon::{
    CpuDevice,
    cpu::Spans,
    queue::{Moment, Timeline},
};

pub(crate) use file::TraceError;

use super::plan::Plan;
use events::Events;
use file::TraceFile;
use std::{io, path::Path};

/// The most commands that are kept of a device.
const SPANS_MAX: usize = 1 << 18;
/// The most moments that are kept of the host.
const MOMENTS_MAX: usize = 1 << 20;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Commands of a device.
    pub(super) spans: u32,
    /// Moments of the host.
    pub(super) moments: usize,
}

impl Room {
    /// Enough for a job, if that is not too much.
    pub(super) fn of(plan: &Plan, devices: u32) -> Self {
        // Six commands and five waits a step, and on device 0 the update and its waits.
        let devices = devices as usize;
        let spans = plan.steps().saturating_mul(16 + 2 * devices).min(SPANS_MAX);
        // Each command is given, each edge may be over; three accesses, and a few waits.
        let moments = plan.steps().saturating_mul(32 * devices + 32).min(MOMENTS_MAX);
        Self { spans: spans as u32, moments }
    }
}

/// A trace that will be written to a file.
#[derive(Debug)]
pub(super) struct Trace {
    file: TraceFile,
}

/// A trace that was.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) file: String,
    /// Commands and waits of devices.
    pub(super) spans: usize,
    /// What found no room.
    pub(super) dropped: u64,
}

impl Trace {
    /// Sees to it that the file can be written.
    pub(super) fn create(path: &Path) -> Result<Self, TraceError> {
        Ok(Self { file: TraceFile::create(path)? })
    }

    /// Writes what `devices` and the host did.
    pub(super) fn write(
        self,
        devices: &[CpuDevice],
        timeline: &Timeline,
    ) -> Result<Written, TraceError> {
        let taken: Vec<Spans> = devices.iter().map(CpuDevice::take_spans).collect();
        let dropped = taken.iter().map(|spans| spans.dropped).sum::<u64>() + timeline.dropped;
        let spans: Vec<_> = taken.into_iter().flat_map(|spans| spans.spans).collect();
        let count = spans.len();
        let name = self.file.name();
        let events = Events::new(spans, &timeline.moments);
        self.file.write(|out| events.write(dropped, out))?;
        Ok(Written { file: name, spans: count, dropped })
    }
}

/// What writes events.
type Out<'o> = &'o mut dyn io::Write;
type Moments<'m> = &'m [Moment];
