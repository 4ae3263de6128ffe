//! No page keeps the pattern once its home answers.
#![cfg(not(pontoon_loom))]

mod common;

use core::{ops::Range, ptr::NonNull};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, pair, patient, silent::Silent, until};
use pontoon_hal::{
    link::Link,
    paging::{PAGE, PageFault, Paging, PagingError, Served, Written},
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

/// A paging that does not always do what it is asked for, or not at once.
#[derive(Debug)]
struct Flaky {
    plain: Arc<Plain>,
    error: PagingError,
    /// A page that is not taken away, plus one, and how many times more.
    refused: AtomicU64,
    refusals: AtomicU64,
    /// Whether the next page that is taken away, or is put in place and is there, is held on to; and which that was,
    /// plus one.
    holds: AtomicU64,
    held: AtomicU64,
    /// A page that is told of as stored to, plus one.
    told: AtomicU64,
}

impl Flaky {
    fn over(plain: &Arc<Plain>, error: PagingError) -> Arc<Self> {
        let [refused, refusals, holds, held, told] = [0; 5].map(AtomicU64::new);
        Arc::new(Self { plain: Arc::clone(plain), error, refused, refusals, holds, held, told })
    }

    fn hold(&self, page: usize) {
        // The first alone: the keeper may take another one away beside it.
        let is_first = || self.held.compare_exchange(0, page as u64 + 1, Relaxed, Relaxed).is_ok();
        if self.holds.load(Relaxed) != 0 && is_first() {
            until("the page to be let go of", || self.holds.load(Relaxed) == 0);
        }
    }

    fn refuse(&self, page: usize, takes: u64) {
        self.refusals.store(takes, Relaxed);
        self.refused.store(page as u64 + 1, Relaxed);
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
        if self.plain.is_there(page) {
            self.hold(page);
        }
        self.plain.place(page, from, there)
    }

    fn written(
        &self,
        pages: Range<usize>,
        found: &mut [Range<usize>],
    ) -> Result<Written, PagingError> {
        if let Some(page) = (self.told.load(Relaxed) as usize).checked_sub(1) {
            found[0] = page..page + 1;
            return Ok(Written { ranges: 1, next: pages.end });
        }
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
        if self.refused.load(Relaxed) == page as u64 + 1 && self.refusals.load(Relaxed) > 0 {
            self.refusals.fetch_sub(1, Relaxed);
            return Err(self.error);
        }
        let taken = self.plain.take(page, last)?;
        if taken {
            self.hold(page);
        }
        Ok(taken)
    }

    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.plain.discard(pages)
    }

    fn read_only(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.plain.read_only(pages)
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
    let flaky = Flaky::over(&plain, error);
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
    flaky.refuse(0, 1);
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
    flaky.refuse(100, 2);
    silent.be_silent(false);
    client.window.release(WHOLE, patient()).unwrap();
    until("the keeper to try", || flaky.refusals.load(Relaxed) == 0);
    until("the page to be what home has", || client.load(100 * PAGE) == 7);
    until("all to be well", || client.window.check(WHOLE).is_ok());
}

/// An access that had missed it may just be at it.
#[test]
fn a_page_with_the_pattern_that_somebody_holds_while_its_home_is_back_goes_later() {
    let Scene { silent, flaky, client, pair: _pair } = scene(Duration::from_millis(50), BUSY);
    silent.be_silent(true);
    assert_ne!(client.load(0), 7);
    assert_ne!(client.load(PAGE), 7);
    flaky.holds.store(1, Relaxed);
    let fault = PageFault { page: 0, write: false };
    thread::scope(|scope| {
        let late = scope.spawn(|| client.window.pager().fault(fault));
        until("the access to be at it", || flaky.held.load(Relaxed) == 1);
        silent.be_silent(false);
        until("the other page to be what home has", || client.load(PAGE) == 7);
        flaky.holds.store(0, Relaxed);
        assert_eq!(late.join().unwrap(), Served::Again);
    });
    until("the page to be what home has", || client.load(0) == 7);
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

/// A release may find a store to the pattern of a page that is being fetched just now, and given up.
#[test]
fn a_page_whose_fetch_was_given_up_is_not_unsent() {
    let Scene { silent, flaky, client, pair: _pair } = scene(Duration::from_millis(500), BUSY);
    silent.be_silent(true);
    let before = silent.posted();
    thread::scope(|scope| {
        let load = scope.spawn(|| client.load(0));
        until("the fetch to begin", || silent.posted() > before);
        flaky.told.store(1, Relaxed);
        client.window.release(0..PAGE, patient()).unwrap();
        flaky.told.store(0, Relaxed);
        assert_ne!(load.join().unwrap(), 7);
    });
    assert_eq!(client.window.unsent(), []);
    silent.be_silent(false);
    until("the page to be what home has", || client.load(0) == 7);
    // Whatever has those slots by now.
    (0..64).for_each(|page| client.touch(page));
    assert_eq!(client.window.unsent(), []);
}

/// Whoever has hold of a page may come to no end: of a thread that gets no processor, say.
#[test]
fn an_access_to_a_page_that_somebody_holds_for_ever_ends_with_the_pattern() {
    let Scene { flaky, client, pair: _pair, .. } = scene(Duration::from_millis(50), BUSY);
    (0..64).for_each(|page| client.touch(page));
    flaky.holds.store(1, Relaxed);
    thread::scope(|scope| {
        // It makes room.
        let other = scope.spawn(|| client.load(100 * PAGE));
        until("a page to be taken away", || flaky.held.load(Relaxed) != 0);
        let byte = (flaky.held.load(Relaxed) as usize - 1) * PAGE;
        let started = Instant::now();
        assert_ne!(client.load(byte), 7);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert!(client.window.check(byte..byte + 8).is_err());
        flaky.holds.store(0, Relaxed);
        assert_eq!(other.join().unwrap(), 7);
        until("the page to be what home has", || client.load(byte) == 7);
        until("all to be well", || client.window.check(WHOLE).is_ok());
    });
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

/// A release marks the slot that it found of a page; meanwhile the page may have left it, and one that is read only have
/// come to it.
#[test]
fn a_mark_that_comes_late_is_no_store_to_a_page_that_is_read_only() {
    let pair = pair(PAGES);
    let mut settings = settings(Duration::from_secs(5));
    settings.triggers.pages = Some(1);
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let (plain, half) = (Plain::new(PAGES), PAGES / 2 * PAGE);
    let flaky = Flaky::over(&plain, BUSY);
    let stored_to = Extent::new(0..half, home.clone(), 0);
    let extents = vec![stored_to, Extent::new(half..2 * half, home, half).read_only()];
    let client = Client::new(pool.window(Arc::clone(&flaky) as _, extents).unwrap(), plain);
    client.touch(PAGES / 2);
    flaky.told.store(PAGES as u64 / 2 + 1, Relaxed);
    client.window.release(0..half, patient()).unwrap();
    assert_eq!(client.window.unsent(), []);
    // The keeper looks 20 times a second.
    thread::sleep(Duration::from_millis(300));
    let statistics = client.window.statistics();
    assert_eq!((statistics.triggered, statistics.dirty), (0, 0), "{statistics:?}");
}
