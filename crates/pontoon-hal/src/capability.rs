//! What a device can do, as found when it was opened.

use pontoon_signal::{Load, Nanos};

/// What a device can do. Layers above choose by it; they never ask which backend it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Its atomics order memory for every other device, the host and the network, not only for
    /// itself.
    pub system_scope_atomics: bool,
    /// Its kernels can read and write other devices' regions.
    pub peer_access: bool,
    /// How it polls a counter: devices without an atomic load compare and swap.
    pub atomic_load: Load,
    /// An address means the same on the device and on the host.
    pub unified_addresses: bool,
    /// What the first touch of a page of fresh memory costs. Regions are touched when allocated,
    /// so that no kernel pays it.
    pub first_touch: Nanos,
    /// The page size of its regions, in bytes.
    pub page_bytes: usize,
    /// How many kernels can run at once.
    pub compute_units: u32,
    /// How many copies can run at once beside the kernels.
    pub copy_engines: u32,
    /// How many queues can be open at once.
    pub queues: u32,
}

impl Capabilities {
    /// The least a device can be: nothing but one unit and one queue. Backends raise what they
    /// have.
    pub const fn least(page_bytes: usize) -> Self {
        Self {
            system_scope_atomics: false,
            peer_access: false,
            atomic_load: Load::CompareSwap,
            unified_addresses: false,
            first_touch: Nanos(0),
            page_bytes,
            compute_units: 1,
            copy_engines: 0,
            queues: 1,
        }
    }
}
