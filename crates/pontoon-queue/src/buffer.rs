//! A region seen as elements of one type.

use std::{
    marker::PhantomData,
    ops::{Bound as End, Range, RangeBounds},
};

use bytemuck::Pod;
use pontoon_hal::{Access, AllocateError, Device, HostAccessError, Memory};

/// A region seen as `len` elements of type `T`. The value is a handle: clones name the same
/// memory.
#[derive(Debug)]
pub struct Buffer<M, T> {
    memory: M,
    len: usize,
    elements: PhantomData<fn() -> T>,
}

impl<M: Memory, T: Pod> Buffer<M, T> {
    /// Allocates `len` zeroed elements on `device`.
    ///
    /// # Errors
    ///
    /// [`AllocateError`].
    pub fn allocate<D: Device<Memory = M>>(device: &D, len: usize) -> Result<Self, AllocateError> {
        let bytes = len.saturating_mul(size_of::<T>());
        Ok(Self { memory: device.allocate(bytes)?, len, elements: PhantomData })
    }

    /// `memory` as elements: as many as fit.
    pub fn over(memory: M) -> Self {
        let len = memory.bytes() / size_of::<T>().max(1);
        Self { memory, len, elements: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The region.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Declares that a command reads these elements. A range that is not within the buffer is
    /// refused when the command is submitted.
    pub fn read(&self, elements: impl RangeBounds<usize>) -> Access<M> {
        Access::read(&self.memory, self.bytes(elements))
    }

    /// Declares that a command writes these elements, and may read them.
    pub fn write(&self, elements: impl RangeBounds<usize>) -> Access<M> {
        Access::write(&self.memory, self.bytes(elements))
    }

    /// Copies `from` into the buffer, from element `at` on. Never waits.
    ///
    /// A command that starts meanwhile and uses these elements fails with a hazard, and its queue
    /// stops: wait first for what was submitted to them.
    ///
    /// # Errors
    ///
    /// [`HostAccessError`] if it would not fit, or a running command has the elements.
    pub fn host_write(&self, at: usize, from: &[T]) -> Result<(), HostAccessError> {
        self.memory.host_write(at.saturating_mul(size_of::<T>()), bytemuck::cast_slice(from))
    }

    /// Copies elements from `at` on to the host. Never waits.
    ///
    /// A command that starts meanwhile and writes these elements fails with a hazard, and its queue
    /// stops: wait first for what was submitted to write them.
    ///
    /// # Errors
    ///
    /// As for [`host_write`](Self::host_write).
    pub fn host_read(&self, at: usize, into: &mut [T]) -> Result<(), HostAccessError> {
        self.memory.host_read(at.saturating_mul(size_of::<T>()), bytemuck::cast_slice_mut(into))
    }

    /// Copies all elements to the host. Never waits.
    ///
    /// A command that starts meanwhile and writes any of them fails with a hazard, as with
    /// [`host_read`](Self::host_read).
    ///
    /// # Errors
    ///
    /// [`HostAccessError`] if a running command writes one of them.
    pub fn to_vec(&self) -> Result<Vec<T>, HostAccessError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.host_read(0, &mut elements)?;
        Ok(elements)
    }

    fn bytes(&self, elements: impl RangeBounds<usize>) -> Range<usize> {
        let start = match elements.start_bound() {
            End::Included(&start) => start,
            End::Excluded(&before) => before.saturating_add(1),
            End::Unbounded => 0,
        };
        let end = match elements.end_bound() {
            End::Included(&last) => last.saturating_add(1),
            End::Excluded(&end) => end,
            End::Unbounded => self.len,
        };
        start.saturating_mul(size_of::<T>())..end.saturating_mul(size_of::<T>())
    }
}

impl<M: Memory, T> Clone for Buffer<M, T> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), len: self.len, elements: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;
    use pontoon_cpu::{CpuDevice, CpuSpec};
    use pontoon_signal::Rank;

    #[test]
    fn ranges_are_counted_in_elements() {
        let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
        let buffer = Buffer::<_, u64>::allocate(&device, 10).unwrap();
        assert_eq!(buffer.read(..).range, 0..80);
        assert_eq!(buffer.read(2..4).range, 16..32);
        assert_eq!(buffer.read(2..=4).range, 16..40);
        assert!(!buffer.read(4..=10).is_within_region());
        assert!(!buffer.read(..usize::MAX).is_within_region());
    }
}
