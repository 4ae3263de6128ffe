//! What all threads know: which start of its home a window is at, and of which pages stores were reported as lost; and
//! what they counted.

use std::{fmt, ops::AddAssign, sync::Mutex, time::Duration};

use pontoon::{
    signal::shim::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    smc::Window,
};

use crate::server::{PAGE, PAGES};

pub(crate) struct Ledger {
    over: AtomicU32,
    starts: AtomicU64,
    home: AtomicU64,
    /// How often stores to a page were reported as lost.
    lost: Vec<AtomicU64>,
    reports: AtomicU64,
    collecting: Mutex<()>,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accesses: u64,
    pub(crate) stores: u64,
    /// Stores of which it is certain that they were not made to the pattern.
    pub(crate) sure: u64,
    pub(crate) patterns: u64,
    pub(crate) to_start: u64,
    pub(crate) to_kept: u64,
    pub(crate) releases: u64,
    pub(crate) refused: u64,
    lost_ranges: u64,
    pub(crate) longest: Duration,
    /// The longest that one waited for a processor.
    pub(crate) delayed: Duration,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, own: Self) {
        self.accesses += own.accesses;
        self.stores += own.stores;
        self.sure += own.sure;
        self.patterns += own.patterns;
        self.to_start += own.to_start;
        self.to_kept += own.to_kept;
        self.releases += own.releases;
        self.refused += own.refused;
        self.longest = self.longest.max(own.longest);
        self.delayed = self.delayed.max(own.delayed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accesses ({} stores, {} of them surely not to the pattern), 0 wrong, {} patterns read, words gone \
             back: {} to what a server was started with, {} to what was before stores that were reported as lost; \
             {} lost ranges reported, {} releases and acquires of which {} were refused; the longest access took {:?} \
             beside waiting for a processor, for which one waited {:?}",
            self.accesses,
            self.stores,
            self.sure,
            self.patterns,
            self.to_start,
            self.to_kept,
            self.lost_ranges,
            self.releases,
            self.refused,
            self.longest,
            self.delayed
        )
    }
}

/// Ends the work, also when a test fails.
pub(crate) struct Over<'l>(&'l AtomicU32);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(1, Relaxed);
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            over: AtomicU32::new(0),
            starts: AtomicU64::new(1),
            home: AtomicU64::new(1),
            lost: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            reports: AtomicU64::new(0),
            collecting: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    pub(crate) fn over(&self) -> Over<'_> {
        Over(&self.over)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed) != 0
    }

    /// The server is about to be started again.
    pub(crate) fn starts_again(&self) {
        self.starts.fetch_add(1, SeqCst);
    }

    /// How many starts of the server there were, or one more.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(SeqCst)
    }

    /// The window is at that start of its home.
    pub(crate) fn is_at(&self, start: u64) {
        self.home.store(start, SeqCst);
    }

    /// At which start of its home the window is, or was a moment ago.
    pub(crate) fn home(&self) -> u64 {
        self.home.load(SeqCst)
    }

    /// Notes what the window says is lost.
    pub(crate) fn note_lost(&self, window: &Window) {
        let _one = self.collecting.lock().expect("no panic");
        for range in window.lost() {
            self.reports.fetch_add(1, Relaxed);
            for page in range.start / PAGE..range.end / PAGE {
                self.lost[page].fetch_add(1, SeqCst);
            }
        }
    }

    /// How often stores to a page were reported as lost, up to now.
    pub(crate) fn lost(&self, window: &Window, page: usize) -> u64 {
        self.note_lost(window);
        self.lost[page].load(SeqCst)
    }

    pub(crate) fn add(&self, own: Counts) {
        *self.counts.lock().expect("no panic") += own;
    }

    pub(crate) fn counts(&self) -> Counts {
        let counts = *self.counts.lock().expect("no panic");
        Counts { lost_ranges: self.reports.load(Relaxed), ..counts }
    }
}
