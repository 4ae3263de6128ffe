//! Data-parallel training of a small network, the job pontoon is shown and measured by.

mod data;
mod model;
mod reference;
mod rng;
