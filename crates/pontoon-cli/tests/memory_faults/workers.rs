//! Threads that read and write, and what they know of each word.

use std::time::{Duration, Instant};

use pontoon::{
    Bound,
    signal::shim::{AtomicU64, Ordering::Relaxed},
    smc::{Window, on_this_thread},
};

use crate::{
    client::DEADLINE,
    delay::Delay,
    ledger::{Counts, Ledger},
    server::{BYTES, OWN, PAGES, WORDS, start_of},
};

pub(crate) const THREADS: usize = 4;
pub(crate) const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;
/// What an access may take: its deadline, as much again as half of it if its page is held, and what the threads that
/// see to it may have to wait for a processor on a machine that does much else.
const LONGEST: Duration =
    Duration::from_millis(DEADLINE.as_millis() as u64 * 3 / 2).saturating_add(SLACK);
const SLACK: Duration = Duration::from_secs(2);

/// What a thread knows of its word of a page.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// What it was last: the number of a store, or 0 for what the server had.
    number: u64,
    /// The last store that was surely not made to the pattern, or 0; at which start of its home the window was before it,
    /// and how many reports of lost stores there were after it.
    sure: u64,
    start: u64,
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
    /// The latest start of the server of which it saw a word, of each word.
    seen: Vec<u64>,
    next: u64,
    counts: Counts,
    delay: Delay,
}

/// Reads and writes until all is over.
pub(crate) fn work(window: &Window, ledger: &Ledger, me: usize, seed: u32) {
    let _stack = on_this_thread().expect("a stack");
    let known = vec![Known { number: 0, sure: 0, start: 1, lost: 0 }; PAGES];
    let (seen, counts) = (vec![1; BYTES / 8], Counts::default());
    let delay = Delay::of_this_thread();
    let mut worker = Worker { window, ledger, me, known, seen, next: 1, counts, delay };
    let mut random = u64::from(seed);
    let bound = Bound::within(Duration::from_millis(300));
    while !ledger.is_over() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
        let page = (random >> 40) as usize % PAGES;
        match random >> 60 {
            0..=5 => worker.look(page),
            6..=11 => worker.store(page),
            12 | 13 => {
                worker.look_at_the_servers(page, (random >> 20) as usize % (WORDS - OWN));
            }
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
    // Home answers, and nothing holds the pattern any more.
    let patterns = worker.counts.patterns;
    (0..PAGES).for_each(|page| worker.look(page));
    assert_eq!(worker.counts.patterns, patterns, "thread {me}: a pattern in the end");
    ledger.add(worker.counts);
}

impl Worker<'_> {
    /// Does something to a word, and looks how long it takes.
    fn access<T>(&mut self, word: usize, access: impl FnOnce(&AtomicU64) -> T) -> T {
        let place = self.window.word(word * 8).expect("mapped");
        let delayed = self.delay.so_far();
        let began = Instant::now();
        let done = access(place);
        let took = began.elapsed();
        let delayed = self.delay.so_far().saturating_sub(delayed);
        let took = took.saturating_sub(delayed);
        assert!(took < LONGEST, "thread {}: word {word} took {took:?}, and {delayed:?}", self.me);
        self.counts.longest = self.counts.longest.max(took);
        self.counts.delayed = self.counts.delayed.max(delayed);
        self.counts.accesses += 1;
        done
    }

    fn store(&mut self, page: usize) {
        let home = self.ledger.home().max(self.seen[page * WORDS + self.me]);
        let (start, reports) = (home, self.ledger.lost(self.window, page));
        let number = self.next;
        self.next += 1;
        let value = value(self.me, page, number);
        // It may be the pattern before and after, and another page between: then it was reported.
        let is_real = self.look_at_the_servers(page, 0);
        self.access(page * WORDS + self.me, |word| word.store(value, Relaxed));
        let is_sure = self.look_at_the_servers(page, 0) && is_real;
        let lost = self.ledger.lost(self.window, page);
        self.counts.stores += 1;
        let known = &mut self.known[page];
        known.number = number;
        if is_sure && lost == reports {
            self.counts.sure += 1;
            *known = Known { number, sure: number, start, lost };
        }
    }

    fn look(&mut self, page: usize) {
        let word = page * WORDS + self.me;
        let home = self.ledger.home();
        let found = self.access(word, |word| word.load(Relaxed));
        let (me, known) = (self.me, self.known[page]);
        if found == PATTERN {
            self.counts.patterns += 1;
            return;
        }
        if known.number != 0 && found == value(me, page, known.number) {
            return;
        }
        let lost = self.ledger.lost(self.window, page);
        let of_start = start_of(word, found);
        let number = of_start.map_or(found & ((1 << 40) - 1), |_| 0);
        let what = || {
            format!(
                "thread {me}, page {page}: {found:#x}, number {number} of start {of_start:?}, with the window at \
                 start {home} of {}, {lost} reports, and {known:?}",
                self.ledger.starts()
            )
        };
        match of_start {
            Some(start) => {
                assert!(start <= self.ledger.starts() && start >= self.seen[word], "{}", what());
                self.seen[word] = start;
                let is_anew = start > known.start;
                let is_before = known.sure == 0 && (known.number == 0 || lost != known.lost);
                assert!(is_anew || is_before && start == known.start, "no reason: {}", what());
                self.counts.to_start += u64::from(known.number != 0);
                self.known[page] = Known { number: 0, sure: 0, start, lost };
            }
            None => {
                assert_eq!(found, value(me, page, number), "wrong: {}", what());
                let is_kept = (known.sure..known.number).contains(&number) && number > 0;
                assert!(is_kept && lost != known.lost, "no reason: {}", what());
                self.counts.to_kept += 1;
                let start = if number == known.sure { known.start } else { home };
                self.known[page] = Known { number, sure: number, start, lost };
            }
        }
    }

    /// Looks at a word that nobody writes. Whether it is what a server was started with, and no pattern.
    fn look_at_the_servers(&mut self, page: usize, which: usize) -> bool {
        let word = page * WORDS + OWN + which;
        let found = self.access(word, |word| word.load(Relaxed));
        if found == PATTERN {
            self.counts.patterns += 1;
            return false;
        }
        let (starts, seen) = (self.ledger.starts(), self.seen[word]);
        let start = start_of(word, found).unwrap_or(0);
        assert!(
            (seen..=starts).contains(&start),
            "thread {}: word {word} is {found:#x}, and was of start {seen} of {starts}",
            self.me
        );
        self.seen[word] = start;
        true
    }
}
