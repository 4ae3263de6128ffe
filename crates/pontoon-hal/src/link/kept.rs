//! What a link remembers of a handle, kept as something whose type only the link knows.
#![allow(unsafe_code)] // A downcast without a call: see `Kept`.

use core::any::{Any, TypeId};
use std::sync::Arc;

/// A value, with its type beside it. `Any` asks the value for its type by a call through a table,
/// which after a wait is not foreseen by the processor: three of them cost as much as a signal
/// takes from core to core.
///
/// Invariant K1: `is` is the type of what `value` points to.
#[derive(Clone)]
pub(super) struct Kept<P> {
    is: TypeId,
    value: P,
}

impl Kept<Arc<dyn Any + Send + Sync>> {
    pub(super) fn shared(value: Arc<dyn Any + Send + Sync>) -> Self {
        Self { is: (*value).type_id(), value }
    }

    #[inline]
    pub(super) fn get<T: Any>(&self) -> Option<&T> {
        let value: *const (dyn Any + Send + Sync) = &*self.value;
        (self.is == TypeId::of::<T>()).then(|| {
            // SAFETY: K1, it is a `T`, borrowed as long as `self`.
            unsafe { &*value.cast::<T>() }
        })
    }
}

impl Kept<Box<dyn Any + Send>> {
    pub(super) fn sole(value: Box<dyn Any + Send>) -> Self {
        Self { is: (*value).type_id(), value }
    }

    #[inline]
    pub(super) fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        let value: *mut (dyn Any + Send) = &mut *self.value;
        (self.is == TypeId::of::<T>()).then(|| {
            // SAFETY: K1, it is a `T`, borrowed alone as long as `self`.
            unsafe { &mut *value.cast::<T>() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;
    use std::sync::Arc;

    #[test]
    fn only_its_own_type_opens_it() {
        let kept = Kept::shared(Arc::new(7_u32));
        assert_eq!((kept.get::<u32>(), kept.get::<i32>()), (Some(&7), None));
        assert_eq!(kept.get::<Arc<u32>>(), None);
        let mut kept = Kept::sole(Box::new([1_u64, 2]));
        assert_eq!(kept.get_mut::<[u64; 3]>(), None);
        kept.get_mut::<[u64; 2]>().unwrap()[1] = 9;
        assert_eq!(kept.get_mut::<[u64; 2]>(), Some(&mut [1, 9]));
    }
}
