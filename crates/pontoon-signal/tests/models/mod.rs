//! The loom models: small programs that loom runs through every interleaving and every value
//! that the memory model allows a load to return. `loom_*.rs` run them one a test; `weakened.rs`
//! runs them all against each ordering taken away.
//!
//! A wait here spins (every miss lets others run) or sleeps at once. loom has no time, so a
//! sleeper that nobody wakes is a deadlock, which it reports.

mod claim;
mod group;
mod line;
mod park;
mod pool;

use loom::{cell::UnsafeCell, model::Builder};
use pontoon_signal::{Bound, SignalTable, SlotId, TableShape};
use std::sync::Arc;

/// A model by its name.
pub(crate) type Model = (&'static str, fn());

/// Every model.
#[allow(dead_code, reason = "each loom_*.rs runs only its own")]
pub(crate) fn all() -> impl Iterator<Item = &'static Model> {
    [line::MODELS, claim::MODELS, park::MODELS, group::MODELS, pool::MODELS].into_iter().flatten()
}

/// Runs the model `name` of this process's list.
#[allow(dead_code, reason = "weakened.rs runs them from the list")]
pub(crate) fn run(name: &str) {
    let (_, model) = all().find(|(known, _)| *known == name).expect("a model of that name");
    model();
}

/// A test for each of the models named.
#[allow(unused_macros, reason = "weakened.rs runs them from the list")]
macro_rules! models {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            models::run(stringify!($name));
        }
    )* };
}

const SLOT: SlotId = SlotId::new(0, 0);

/// Checks every execution with at most `preemptions` switches away from a thread that could have
/// gone on. The faults looked for here need two; models of three threads grow too large beyond.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn table() -> SignalTable {
    SignalTable::in_process(TableShape::new(2, 1))
}

/// A wait that polls until it has what it wants.
fn spinning() -> Bound {
    Bound::never_give_up().spinning(u32::MAX)
}

/// A wait that sleeps after its first miss.
fn asleep() -> Bound {
    Bound::never_give_up().spinning(0).yielding(0)
}

/// Plain memory that loom watches: reading it while it may be written is a failure.
#[derive(Clone)]
struct Memory(Arc<Watched>);

struct Watched(UnsafeCell<u32>);

// SAFETY: loom runs one thread at a time and fails the model on accesses that are not ordered.
unsafe impl Send for Watched {}
// SAFETY: as for `Send`.
unsafe impl Sync for Watched {}

impl Memory {
    fn new() -> Self {
        Self(Arc::new(Watched(UnsafeCell::new(0))))
    }

    fn write(&self, value: u32) {
        self.0.0.with_mut(|cell| {
            // SAFETY: see `Watched`.
            unsafe { *cell = value }
        });
    }

    fn read(&self) -> u32 {
        self.0.0.with(|cell| {
            // SAFETY: see `Watched`.
            unsafe { *cell }
        })
    }
}
