//! What a pool is told when it is made.

use std::time::Duration;

/// How a pool keeps pages, and how long it waits for them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Pages that are resident at most. Each takes twice its bytes: in the window, and in the pool; but see
    /// [`lock`](Self::lock).
    pub pages: usize,
    /// How long an access waits for its page. After that it reads the pattern.
    pub deadline: Duration,
    /// So many accesses that waited in vain within [`burst`](Self::burst) make a home unavailable.
    pub threshold: u32,
    /// See [`threshold`](Self::threshold); and how far apart two lines of the log about one home are, at least.
    pub burst: Duration,
    /// The most pages that are fetched ahead of an access.
    pub ahead: usize,
    /// Whether its memory is to be locked: else a miss may wait for the kernel to bring a page of the pool's own. If
    /// it cannot be, a line of the log says so and the pool goes on without. A pool whose windows are all
    /// [read only](crate::Extent::read_only), of homes that are mapped here, needs no memory for its slots, and has some all the same if it
    /// is locked.
    pub lock: bool,
    /// Below so many free pages, room is made in the background, up to twice as many.
    pub low: usize,
    /// When changes go home without a release that was asked for.
    pub triggers: Triggers,
}

/// When changes go home in the background, beside what is released: where they would else all go in one release, or wait
/// for one that is far. The pool's thread looks 20 times a second, and gives each look no longer than half of the deadline.
/// Where nothing is said here it does not look.
///
/// A release that is asked for still means all of it: when it returns, what was stored before is home, whoever sent
/// it. Between two of them others may acquire some of the changes and not yet the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// A page goes home once so many of its 4096 bytes were changed.
    pub bytes: Option<usize>,
    /// All pages of an extent that were stored to go home once there are so many.
    pub pages: Option<usize>,
}

impl Settings {
    /// For so many resident pages; the rest as it mostly does.
    pub fn for_pages(pages: usize) -> Self {
        Self {
            pages,
            deadline: Duration::from_secs(1),
            threshold: 8,
            burst: Duration::from_secs(10),
            ahead: 64,
            lock: true,
            low: (pages / 16).min(1024),
            triggers: Triggers::default(),
        }
    }
}
