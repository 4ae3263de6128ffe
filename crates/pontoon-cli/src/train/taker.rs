//! Who takes the commands of a job.

use bytemuck::Pod;
use pontoon::{Buffer, CpuDevice, Fence, Kernel, Stream, cpu::Region, hal::Access};

use super::{error::TrainError, job::Stage};

/// What takes the commands of one device's stages, and the host's accesses.
pub(super) trait Taker {
    fn launch<const N: usize>(
        &mut self,
        stage: Stage,
        label: &'static str,
        kernel: &Kernel,
        accesses: [Access<Region>; N],
        arguments: &[u64],
    ) -> Result<Fence, TrainError>;

    fn copy(
        &mut self,
        label: &'static str,
        from: Access<Region>,
        to: Access<Region>,
    ) -> Result<Fence, TrainError>;

    fn write<T: Pod>(&mut self, to: &Buffer<Region, T>, from: &[T]) -> Result<(), TrainError>;
}

/// Streams of one device without a session: the caller keeps them in order.
pub(super) struct Streams {
    streams: Vec<(Stage, Stream<CpuDevice>)>,
}

impl Streams {
    pub(super) fn open(device: &CpuDevice, stages: &[Stage]) -> Result<Self, TrainError> {
        let open = |&stage: &Stage| -> Result<_, TrainError> {
            Ok((stage, Stream::open(device, stage.engine(), stage.label())?))
        };
        Ok(Self { streams: stages.iter().map(open).collect::<Result<_, _>>()? })
    }

    fn of(&mut self, stage: Stage) -> &mut Stream<CpuDevice> {
        let mut streams = self.streams.iter_mut();
        let found = streams.find_map(|(of, stream)| (*of == stage).then_some(stream));
        found.expect("a device has a stream for each of its stages")
    }
}

impl Taker for Streams {
    fn launch<const N: usize>(
        &mut self,
        stage: Stage,
        label: &'static str,
        kernel: &Kernel,
        accesses: [Access<Region>; N],
        arguments: &[u64],
    ) -> Result<Fence, TrainError> {
        Ok(self.of(stage).launch(label, kernel, accesses, arguments.iter().copied())?)
    }

    fn copy(
        &mut self,
        label: &'static str,
        from: Access<Region>,
        to: Access<Region>,
    ) -> Result<Fence, TrainError> {
        Ok(self.of(Stage::Copy).copy(label, from, to)?)
    }

    fn write<T: Pod>(&mut self, to: &Buffer<Region, T>, from: &[T]) -> Result<(), TrainError> {
        Ok(to.host_write(0, from)?)
    }
}
