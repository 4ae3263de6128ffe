//! The loom models: small programs that loom runs through every interleaving and every value
//! that the memory model allows a load to return. `loom_*.rs` run them one a test; `weakened.rs`
//! runs them all against each ordering taken away.
//!
//! A wait here spins (every miss lets others run) or sleeps at once. loom has no time, so a
//! sleeper that nobody wakes is a deadlock, which it reports.

mod claim;
mod group;
mod line;
#[path = "../harness/model.rs"]
mod model;
mod order;
mod park;
mod pool;
mod sheet;

use model::{Memory, Model, check};
use pontoon_signal::{Bound, SignalTable, SlotId, TableShape};

/// Every model.
#[allow(dead_code, reason = "each loom_*.rs runs only its own")]
pub(crate) fn all() -> impl Iterator<Item = &'static Model> {
    let line = [line::MODELS, claim::MODELS, park::MODELS, group::MODELS];
    let rest = [pool::MODELS, sheet::MODELS, order::MODELS];
    line.into_iter().chain(rest).flatten()
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
