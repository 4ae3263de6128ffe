//! What loom models are made of. Each crate whose models loom runs has this as a module among them.

use loom::{cell::UnsafeCell, model::Builder};
use std::sync::Arc;

/// A model by its name.
pub(crate) type Model = (&'static str, fn());

/// Checks every execution with at most `preemptions` switches away from a thread that could have
/// gone on. The faults looked for here need two; models of three threads grow too large beyond.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Plain memory that loom watches: reading it while it may be written is a failure.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Watched>);

struct Watched(UnsafeCell<u32>);

// SAFETY: loom runs one thread at a time and fails the model on accesses that are not ordered.
unsafe impl Send for Watched {}
// SAFETY: as for `Send`.
unsafe impl Sync for Watched {}

impl Memory {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Watched(UnsafeCell::new(0))))
    }

    pub(crate) fn write(&self, value: u32) {
        self.0.0.with_mut(|cell| {
            // SAFETY: see `Watched`.
            unsafe { *cell = value }
        });
    }

    pub(crate) fn read(&self) -> u32 {
        self.0.0.with(|cell| {
            // SAFETY: see `Watched`.
            unsafe { *cell }
        })
    }
}
