//! Threads that read and write, and what they know of each word.

use std::{
    fmt,
    sync::Mutex,
    time::{Duration, Instant},
};

use pontoon::{
    Bound,
    signal::shim::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    smc::{Window, on_this_thread},
};

use crate::{
    client::DEADLINE,
    server::{BYTES, OWN, PAGE, PAGES, WORDS, base},
};

pub(crate) const THREADS: usize = 4;
pub(crate) const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;
/// What an access may take beyond the deadline on a machine that does much else: hangs are longer.
const SLACK: Duration = Duration::from_secs(10);

/// What happened, as far as it is a reason for a word to be again what it was; and counts.
pub(crate) struct Ledger {
    over: AtomicU32,
    starts: AtomicU64,
    moves: AtomicU64,
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
    patterns: u64,
    gone_back: u64,
    of_lost: u64,
    releases: u64,
    refused: u64,
    lost_ranges: u64,
    longest: Duration,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accesses ({} stores), 0 wrong, {} patterns read, {} words gone back ({} of them reported as lost, \
             the others released to a server that was killed or had another client), {} lost ranges reported, \
             {} releases and acquires of which {} were refused; the longest access took {:?}",
            self.accesses,
            self.stores,
            self.patterns,
            self.gone_back,
            self.of_lost,
            self.lost_ranges,
            self.releases,
            self.refused,
            self.longest
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
            moves: AtomicU64::new(0),
            lost: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            reports: AtomicU64::new(0),
            collecting: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    pub(crate) fn over(&self) -> Over<'_> {
        Over(&self.over)
    }

    /// The server is about to be started again.
    pub(crate) fn starts_again(&self) {
        self.starts.fetch_add(1, SeqCst);
    }

    /// The window is about to move to another home.
    pub(crate) fn moves(&self) {
        self.moves.fetch_add(1, SeqCst);
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

    pub(crate) fn counts(&self) -> Counts {
        let counts = *self.counts.lock().expect("no panic");
        Counts { lost_ranges: self.reports.load(Relaxed), ..counts }
    }
}

/// What a thread knows of its word of a page.
#[derive(Clone, Copy, Default)]
struct Known {
    /// What it was last: the number of a store, or 0 for what the server had.
    number: u64,
    moves: u64,
    lost: u64,
}

fn value(me: usize, page: usize, number: u64) -> u64 {
    2 << 56 | (me as u64) << 52 | (page as u64) << 40 | number
}

struct Worker<'w> {
    window: &'w Window,
    ledger: &'w Ledger,
    me: usize,
    known: Vec<Known>,
    next: u64,
    counts: Counts,
}

/// Reads and writes until all is over.
pub(crate) fn work(window: &Window, ledger: &Ledger, me: usize, seed: u32) {
    let _stack = on_this_thread().expect("a stack");
    let known = vec![Known::default(); PAGES];
    let mut worker = Worker { window, ledger, me, known, next: 1, counts: Counts::default() };
    let mut random = u64::from(seed);
    let bound = Bound::within(Duration::from_millis(300));
    while ledger.over.load(Relaxed) == 0 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
        let page = (random >> 40) as usize % PAGES;
        match random >> 60 {
            0..=5 => worker.look(page),
            6..=11 => worker.store(page),
            12 | 13 => worker.look_at_the_servers(page, (random >> 20) as usize % (WORDS - OWN)),
            which if (random >> 55) & 31 < 2 => {
                let done = match which {
                    14 => window.release(0..BYTES, bound).map(drop),
                    _ => window.acquire(0..BYTES, bound).map(drop),
                };
                worker.counts.releases += 1;
                worker.counts.refused += u64::from(done.is_err());
            }
            _ => {}
        }
    }
    let mut all = ledger.counts.lock().expect("no panic");
    let own = worker.counts;
    all.accesses += own.accesses;
    all.stores += own.stores;
    all.patterns += own.patterns;
    all.gone_back += own.gone_back;
    all.of_lost += own.of_lost;
    all.releases += own.releases;
    all.refused += own.refused;
    all.longest = all.longest.max(own.longest);
}

impl Worker<'_> {
    /// Does something to a word, and looks how long it takes.
    fn access<T>(&mut self, word: usize, access: impl FnOnce(&AtomicU64) -> T) -> T {
        let place = self.window.word(word * 8).expect("mapped");
        let began = Instant::now();
        let done = access(place);
        let took = began.elapsed();
        assert!(took < DEADLINE + SLACK, "thread {}: word {word} took {took:?}", self.me);
        self.counts.longest = self.counts.longest.max(took);
        self.counts.accesses += 1;
        done
    }

    fn store(&mut self, page: usize) {
        let (moves, lost) = self.reasons(page);
        let number = self.next;
        self.next += 1;
        let value = value(self.me, page, number);
        self.access(page * WORDS + self.me, |word| word.store(value, Relaxed));
        self.counts.stores += 1;
        self.known[page] = Known { number, moves, lost };
    }

    fn look(&mut self, page: usize) {
        let word = page * WORDS + self.me;
        let starts = self.ledger.starts.load(SeqCst);
        let (moves, lost) = self.reasons(page);
        let found = self.access(word, |word| word.load(Relaxed));
        if found == PATTERN {
            self.counts.patterns += 1;
            return;
        }
        let known = self.known[page];
        if known.number != 0 && found == value(self.me, page, known.number) {
            return;
        }
        let number = self.number(page, word, found, starts);
        let (me, before) = (self.me, known.number);
        assert!(number <= before, "thread {me}, page {page}: {number} after {before}");
        if number != before {
            self.ledger.note_lost(self.window);
            let now = self.reasons(page);
            let is_lost = now.1 != known.lost;
            assert!(
                is_lost || now.0 != known.moves,
                "thread {me}, page {page}: {number} again after {before}, and no reason for it"
            );
            self.counts.gone_back += 1;
            self.counts.of_lost += u64::from(is_lost);
        }
        self.known[page] = Known { number, moves, lost };
    }

    /// The number of the store that `found` is of, or 0 for what the server had in a start of it.
    fn number(&self, page: usize, word: usize, found: u64, starts: u64) -> u64 {
        let of_server = (1..=starts + 1).any(|start| found == base(start, word));
        if of_server {
            return 0;
        }
        let number = found & ((1 << 40) - 1);
        assert_eq!(found, value(self.me, page, number), "thread {}, page {page}", self.me);
        number
    }

    fn look_at_the_servers(&mut self, page: usize, which: usize) {
        let word = page * WORDS + OWN + which;
        let found = self.access(word, |word| word.load(Relaxed));
        if found == PATTERN {
            self.counts.patterns += 1;
            return;
        }
        let starts = self.ledger.starts.load(SeqCst);
        let is_its = (1..=starts).any(|start| found == base(start, word));
        assert!(is_its, "thread {}: word {word} is {found:#x}", self.me);
    }

    /// What may be a reason for its word of a page to be again what it was: how often that happened.
    fn reasons(&self, page: usize) -> (u64, u64) {
        (self.ledger.moves.load(SeqCst), self.ledger.lost[page].load(SeqCst))
    }
}
