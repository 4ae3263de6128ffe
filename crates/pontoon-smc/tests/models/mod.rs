//! The loom models of this crate; see those of `pontoon-signal`, whose harness they share.

mod ever;
mod marks;
#[path = "../../../pontoon-signal/tests/harness/model.rs"]
mod model;
mod table;

use model::{Memory, Model, check};

/// Every model.
pub(crate) fn all() -> impl Iterator<Item = &'static Model> {
    ever::MODELS.iter().chain(marks::MODELS).chain(table::MODELS)
}

/// Runs the model `name` of this process's list.
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
