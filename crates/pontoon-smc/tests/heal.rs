//! No page keeps the pattern once its home answers.
#![cfg(not(pontoon_loom))]

mod common;

use core::{ops::Range, ptr::NonNull};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, pair, patient, silent::Silent};
use pontoon_hal::{
    link::Link,
    paging::{PAGE, Paging, PagingError, Written},
};
use pontoon_signal::{
    Block,
    shim::{AtomicU64, Ordering::Relaxed, yield_now},
};
use pontoon_smc::{Extent, Pool, Settings};

const PAGES: usize = 256;
const WHOLE: Range<usize> = 0..PAGES * PAGE;

fn settings(deadline: Duration) -> Settings {
    let mut settings = Settings::for_pages(64);
    settings.deadline = deadline;
    (settings.threshold, settings.ahead, settings.low) = (1_000_000, 1, 0);
    settings
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited 20 s for {what}");
        yield_now();
    }
}

/// A paging whose next pages that are to be taken away are not.
#[derive(Debug)]
struct Flaky {
    plain: Arc<Plain>,
    refusals: AtomicU64,
    error: PagingError,
}

impl Flaky {
    fn refuse(&self, takes: u64) {
        self.refusals.store(takes, Relaxed);
    }
}

impl Paging for Flaky {
    fn pages(&self) -> usize {
        self.plain.pages()
    }

    fn base(&self) -> NonNull<u8> {
        self.plain.base()
    }

    fn asks_in_handler(&self) -> bool {
        true
    }

    fn words(&self, page: usize) -> &[AtomicU64] {
        self.plain.words(page)
    }

    fn place(
        &self,
        page: usize,
        from: &Block,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PagingError> {
        self.plain.place(page, from, there)
    }

    fn written(
        &self,
        pages: Range<usize>,
        found: &mut [Range<usize>],
    ) -> Result<Written, PagingError> {
        self.plain.written(pages, found)
    }

    fn take(
        &self,
        page: usize,
        last: &mut dyn FnMut(&[AtomicU64]) -> bool,
    ) -> Result<bool, PagingError> {
        if self.error.is_loss() {
            return match self.plain.take(page, last)? {
                // It was to be put back.
                false => self.plain.discard(page..page + 1).and(Err(self.error)),
                true => Ok(true),
            };
        }
        if self.refusals.load(Relaxed) > 0 {
            self.refusals.fetch_sub(1, Relaxed);
            return Err(self.error);
        }
        self.plain.take(page, last)
    }

    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.plain.discard(pages)
    }
}

struct Scene {
    pair: common::Pair,
    silent: Arc<Silent>,
    flaky: Arc<Flaky>,
    client: Client,
}

fn scene(deadline: Duration, error: PagingError) -> Scene {
    let pair = pair(PAGES);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let pool = Pool::new(settings(deadline)).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let refusals = AtomicU64::new(0);
    let flaky = Arc::new(Flaky { plain: Arc::clone(&plain), refusals, error });
    let extent = Extent::new(WHOLE, home, 0);
    let client = Client::new(pool.window(Arc::clone(&flaky) as _, vec![extent]).unwrap(), plain);
    (0..PAGES).for_each(|page| pair.put_home(page * PAGE, &[7; 8]));
    Scene { pair, silent, flaky, client }
}

const BUSY: PagingError = PagingError { call: "test", code: 16, remedy: "again" };

/// The kernel may refuse to take a page away just now.
#[test]
fn a_page_with_the_pattern_goes_although_it_could_not_at_once() {
    let Scene { silent, flaky, client, pair: _pair } = scene(Duration::from_millis(50), BUSY);
    silent.be_silent(true);
    assert_ne!(client.load(0), 7);
    flaky.refuse(1);
    silent.be_silent(false);
    until("the keeper to try", || flaky.refusals.load(Relaxed) == 0);
    until("the page to be what home has", || client.load(0) == 7);
    assert_eq!(client.window.check(WHOLE), Ok(()));
}

/// Pages that no table had room for are no other matter.
#[test]
fn a_stray_goes_although_it_could_not_at_once() {
    let Scene { silent, flaky, client, pair: _pair } = scene(Duration::from_millis(50), BUSY);
    // Nothing can be taken away: all slots have pages that have to go home first.
    (0..64).for_each(|page| client.store(page * PAGE, 9));
    silent.be_silent(true);
    assert_ne!(client.load(100 * PAGE), 7);
    assert!(client.window.check(100 * PAGE..101 * PAGE).is_err());
    flaky.refuse(4);
    silent.be_silent(false);
    client.window.release(WHOLE, patient()).unwrap();
    until("the keeper to try", || flaky.refusals.load(Relaxed) == 0);
    until("the page to be what home has", || client.load(100 * PAGE) == 7);
    until("all to be well", || client.window.check(WHOLE).is_ok());
}

/// Threads miss the same pages while their home stops and goes on, over and over.
#[test]
fn no_page_keeps_the_pattern_of_accesses_that_are_late_while_it_is_healed() {
    let Scene { silent, client, pair: _pair, .. } = scene(Duration::from_millis(5), BUSY);
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < Duration::from_secs(8) {
        round += 1;
        silent.be_silent(true);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| (0..4).for_each(|page| _ = client.load(page * PAGE)));
            }
            let (began, silence) = (Instant::now(), Duration::from_millis(4 + round % 7));
            while began.elapsed() < silence {
                yield_now();
            }
            silent.be_silent(false);
        });
        until("all to be well", || client.window.check(WHOLE).is_ok());
        // All go, so that they are missed again.
        (0..2).for_each(|_| (8..200).for_each(|page| _ = client.load(page * PAGE)));
    }
}

/// A page that had to make room, could not go home and could not be put back comes from home, and its stores are told of.
#[test]
fn a_page_that_could_not_be_put_back_is_told_of_and_fetched_again() {
    let loss = PagingError::loss(12);
    let Scene { pair, silent, flaky, client } = scene(Duration::from_millis(50), loss);
    assert!(flaky.error.is_loss() && loss.to_string().contains("12"));
    (0..64).for_each(|page| client.store(page * PAGE, 9));
    silent.be_full(u32::MAX);
    // The keeper makes room, and home takes nothing.
    client.load(100 * PAGE);
    let mut lost = Vec::new();
    until("the keeper to make room", || {
        lost.extend(client.window.lost());
        !lost.is_empty()
    });
    silent.be_full(0);
    let byte = lost[0].start;
    until("the page to be what home has", || client.load(byte) == 7);
    assert_eq!(pair.at_home(byte), 7);
}
