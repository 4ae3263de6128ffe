//! Rank 0's side: the memory itself.

use pontoon::{
    Bound, Buffer, CpuDevice, Kernel,
    cpu::Region,
    smc::{Export, Exported},
    world::World,
};

use super::Map;
use crate::train::{error::TrainError, job::Share};

/// What all ranks work on, for as long as this is there.
pub(in crate::train) struct Home {
    export: Exported,
    map: Map,
}

/// Under which name the others find it.
pub(super) const NAME: &str = "train";

impl Home {
    pub(in crate::train) fn open(
        world: &World,
        map: &Map,
        bound: Bound,
    ) -> Result<Self, TrainError> {
        Ok(Self { export: world.export(NAME, map.bytes(), bound)?, map: map.clone() })
    }

    /// A part of it, for kernels.
    pub(in crate::train) fn buffer(
        &self,
        device: &CpuDevice,
        share: Share,
    ) -> Result<Buffer<Region, f32>, TrainError> {
        let bytes = match share {
            Share::Params => &self.map.params,
            Share::Gradients => &self.map.gradients,
            Share::Losses => &self.map.losses,
        };
        let block = self.export.data().and_then(|data| data.part(bytes.clone()));
        let block = block.ok_or(TrainError::Options("what is exported has room for all of it"))?;
        Ok(Buffer::over(device.region_over(block)?))
    }

    /// A kernel that tells the others' acquires of parameters that an update before it has written.
    pub(in crate::train::way::ranks) fn publish(&self) -> Kernel {
        let (export, params) = (Export::clone(&self.export), self.map.params.clone());
        Kernel::new(move |_| {
            let all_there = export.publish(params.clone());
            debug_assert!(all_there, "the export was made for them");
        })
    }
}
