//! Who signals a semaphore, for the host.

use std::sync::Arc;

use pontoon_hal::Device;

use super::{SemaphoreId, Session};
use crate::{Axis, Fence, fence::Late};

impl<D: Device> Session<'_, D> {
    /// Values of a semaphore and the positions that signal them, growing; of those that the host
    /// knows only the last.
    pub(in crate::session) fn signals_of(&self, semaphore: usize) -> &[(u64, Axis, u64)] {
        &self.semaphores[semaphore].reached
    }

    /// The parked batch that will bring a semaphore to `value`.
    pub(in crate::session) fn promiser(
        &self,
        semaphore: SemaphoreId,
        value: u64,
    ) -> Option<(Fence, Arc<Late>)> {
        let it = self.semaphores.get(semaphore.index as usize)?;
        let &(_, node) = it.promised.iter().find(|(promised, _)| *promised >= value)?;
        let parcel = self.parked.parcels.get(&node)?;
        let device = self.lanes[parcel.lane].device.rank();
        let label = Arc::clone(&self.streams[parcel.stream].label);
        let late = Arc::clone(&parcel.late);
        Some((Fence::late(Arc::clone(&late), device, label), late))
    }

    /// Why the host would wait for a value for ever.
    pub(in crate::session) fn nobody_signals(&self, semaphore: SemaphoreId, value: u64) -> String {
        let label = self.semaphores.get(semaphore.index as usize).map_or("", |it| &*it.label);
        format!(
            "the host waits for semaphore {label} to reach {value}, which nobody has submitted a \
             signal for yet"
        )
    }
}
