//! What a session did, in numbers.

use pontoon_signal::Nanos;

use crate::tracker::Maintenance;

/// What a session did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Commands submitted, waits apart.
    pub commands: u64,
    /// Dependencies between lanes: derived ones, or those given that were needed.
    pub edges: u64,
    /// Of these, those that only keep a write from overtaking a read.
    pub execution_only: u64,
    /// Waits that devices were given.
    pub waits: u64,
    /// Dependencies given that others imply already.
    pub redundant: u64,
    /// Dependencies that were complete when they were submitted.
    pub complete: u64,
    /// Flushes of a cache towards memory, merged.
    pub flushes: u64,
    /// Invalidations of a cache, merged.
    pub invalidations: u64,
    /// Flushes and invalidations before they were merged.
    pub maintenance_asked: u64,
    /// Flushes and invalidations that earlier ones had done.
    pub maintenance_elided: u64,
    /// Batches that were held back for a signal that nobody had submitted.
    pub parked: u64,
    /// Waits of the host that did not end at once.
    pub host_waits: u64,
    /// How long they took, all together.
    pub host_waited: Nanos,
    /// Batches that were submitted again after a failure.
    pub retries: u64,
    /// Batches of which the bytes were given back what they held before.
    pub rollbacks: u64,
    /// Callbacks that panicked.
    pub callback_panics: u64,
}

impl Counts {
    pub(super) fn maintained(&mut self, did: &Maintenance) {
        self.flushes += u64::from(did.flush.count_ones());
        self.invalidations += u64::from(did.invalidate);
        self.maintenance_asked += u64::from(did.asked);
        self.maintenance_elided += u64::from(did.elided);
    }
}
