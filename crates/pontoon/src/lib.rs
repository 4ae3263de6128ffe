//! Hand data between devices, processes and machines in the right order, without locks and never
//! waiting for ever.
#![forbid(unsafe_code)]

pub use pontoon_cpu as cpu;
pub use pontoon_hal as hal;
pub use pontoon_queue as queue;
pub use pontoon_signal as signal;
