//! Two ranks in one process, whose links map each other's segments.

#![allow(dead_code, reason = "each test uses its part")]

use std::{sync::Arc, time::Duration};

use pontoon_comm::{Comm, Port, Settings};
use pontoon_hal::link::{Link, Registered, Remote};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{Block, Bound, Rank, Segment, SegmentShape, SlotId, Waiter};

/// Far beyond what anything here takes.
pub(crate) fn patient() -> Bound {
    Bound::within(Duration::from_secs(60))
}

/// One rank's side.
pub(crate) struct Side {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) segment: Segment,
    /// What its ports send from, and what its peer's ports write to.
    pub(crate) source: Registered,
    pub(crate) landing: Registered,
    /// The peer's landing.
    pub(crate) target: Remote,
}

pub(crate) const BYTES: usize = 1 << 20;

/// Ranks 0 and 1.
pub(crate) fn pair() -> [Side; 2] {
    let segments = [0, 1].map(|rank| {
        let shape = SegmentShape::new(2, 64, 4 * BYTES);
        Segment::create(shape, identity([0; 16], Rank(rank), 2, 0)).expect("a segment")
    });
    let [zero, one] = [0, 1].map(|me: usize| {
        let link = ShmLink::new(segments[me].clone());
        link.connect(Rank(1 - me as u32), segments[1 - me].clone()).expect("connected");
        link
    });
    let parts = [&zero, &one].map(|link| {
        let part = |_| link.segment().allocate(BYTES).expect("room in the heap");
        [0, 1].map(|which| link.register(&part(which)).expect("registered"))
    });
    let key = |of: usize| parts[of][1].key().expect("a key").clone();
    let targets = [
        zero.attach(Rank(1), &key(1)).expect("attached"),
        one.attach(Rank(0), &key(0)).expect("attached"),
    ];
    let mut links: Vec<Option<Arc<dyn Link>>> = vec![Some(Arc::new(zero)), Some(Arc::new(one))];
    let mut targets = targets.map(Some);
    let mut parts = parts.map(Some);
    [0, 1].map(|me| {
        let [source, landing] = parts[me].take().expect("once");
        Side {
            link: links[me].take().expect("once"),
            segment: segments[me].clone(),
            source,
            landing,
            target: targets[me].take().expect("once"),
        }
    })
}

impl Side {
    pub(crate) fn peer(&self) -> Rank {
        self.target.peer()
    }

    /// A port to the peer's landing, with the peer's slot `slot`.
    pub(crate) fn port(&self, comm: &Comm, slot: u32) -> Port {
        let signal = self.link.attach_signal(self.peer(), slot).expect("a free slot");
        let (source, target) = (self.source.clone(), self.target.clone());
        comm.port(&self.link, source, target, Some(signal)).expect("a port")
    }

    /// What the peer's port with `slot` grows.
    pub(crate) fn incoming(&self, slot: u32) -> Waiter {
        self.segment.signals().waiter(SlotId { producer: self.peer(), slot }).expect("a slot")
    }

    /// Words of its own that its ports send from.
    pub(crate) fn words(&self, at: usize, len: usize) -> &mut [u64] {
        words(self.source.block(), at, len)
    }

    /// Words that its peer writes.
    pub(crate) fn landed(&self, at: usize, len: usize) -> &mut [u64] {
        words(self.landing.block(), at, len)
    }
}

/// Tests take care by themselves of who uses which words when.
#[allow(clippy::mut_from_ref, reason = "tests keep the parts apart")]
pub(crate) fn words(block: &Block, at: usize, len: usize) -> &mut [u64] {
    assert!(at.is_multiple_of(8) && at + 8 * len <= block.bytes());
    // SAFETY: within the block, as asserted.
    let first = unsafe { block.base().add(at) }.cast::<u64>();
    // SAFETY: mapped as long as the block, which outlives the borrow; aligned, for blocks begin on lines.
    unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
}

/// Settings by which nothing is given up because a busy machine has no processor for it.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    (settings.stall, settings.patience) = (Duration::from_secs(60), Duration::from_secs(20));
    settings
}

/// Settings by which a proxy that stands still is told of soon, and what it does not do is given up.
pub(crate) fn hasty() -> Settings {
    let mut settings = Settings::default();
    (settings.stall, settings.patience) = (Duration::from_secs(2), Duration::from_millis(500));
    settings
}

pub(crate) fn open(own: u32, settings: Settings) -> Comm {
    Comm::open(Rank(own), settings).expect("a proxy")
}
