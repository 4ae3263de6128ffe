//! What a device can do, as found when it was opened.

use pontoon_signal::{Load, Nanos};

/// What a device can do. Layers above choose by it; they never ask which backend it is.
///
/// What it says can be had, and stays as it is while the device is open:
///
/// - C1: if `system_scope_atomics`, whoever acquires a completion of the device, the host and
///   every other device included, sees what its commands wrote before.
/// - C2: if `peer_access`, its kernels read and write the regions of every device of its kind.
/// - C3: whatever of the device polls a counter, polls it by `atomic_load`.
/// - C4: if `unified_addresses`, a region has one address, the same on the device, on every other
///   with this capability, and on the host.
/// - C5: `first_touch` was measured, and is more than nothing.
/// - C6: `page_bytes` is a power of two.
/// - C7: `compute_units`, one at least, are how many kernels run at once, given as many queues.
/// - C8: `copy_engines` run copies and no kernels. A device with none opens no queue on one.
/// - C9: `queues`, one at least, can be open at once, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// C1: its atomics order memory for every other device, the host and the network, not only for
    /// itself.
    pub system_scope_atomics: bool,
    /// C2: its kernels can read and write other devices' regions.
    pub peer_access: bool,
    /// C3: how it polls a counter: devices without an atomic load compare and swap.
    pub atomic_load: Load,
    /// C4: an address means the same on the device and on the host.
    pub unified_addresses: bool,
    /// C5: what the first touch of a page of fresh memory costs. Regions are touched when allocated,
    /// so that no kernel pays it.
    pub first_touch: Nanos,
    /// C6: the page size of its regions, in bytes.
    pub page_bytes: usize,
    /// C7: how many kernels can run at once.
    pub compute_units: u32,
    /// C8: how many copies can run at once beside the kernels.
    pub copy_engines: u32,
    /// C9: how many queues can be open at once.
    pub queues: u32,
}

impl Capabilities {
    /// The least a device can be: nothing but one unit and one queue. Backends raise what they
    /// have, and set `first_touch` to what they measured (C5).
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
