//! What is stored comes home in its order, and whoever says that it is there is right, over the kernel's paging where
//! that matters.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;

use core::ops::Range;
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, pair, patient, start::Start, until};
use pontoon_hal::{conformance::part, link::Link, paging::PAGE};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_smc::{Arrival, Extent, Pool, Settings, Window};
use pontoon_uffd::{Features, Paged, Service, Serving, on_this_thread};

const PAGES: usize = 64;
const WHOLE: Range<usize> = 0..PAGES * PAGE;

fn settings(pages: usize) -> Settings {
    let mut settings = Settings::for_pages(pages);
    settings.deadline = Duration::from_secs(5);
    (settings.threshold, settings.ahead, settings.low) = (3, 1, 0);
    settings
}

fn real(pool: &Pool, home: pontoon_smc::Home) -> Option<(Window, Serving)> {
    let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, Service::InThread);
    let paged = part::needed("userfaultfd", paged)?;
    core::mem::forget(on_this_thread().unwrap());
    let window = pool.window(paged.clone(), vec![Extent::new(WHOLE, home, 0)]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    Some((window, serving))
}

/// Two threads release, one of them what it has just stored: no fault anywhere.
#[test]
fn what_was_stored_before_a_release_is_home_when_it_returns() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64)).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let Some((window, _serving)) = real(&pool, home) else { return };
    let (stop, at) = (AtomicU64::new(0), 8);
    thread::scope(|scope| {
        for other in 1..3_usize {
            let (window, stop) = (&window, &stop);
            scope.spawn(move || {
                core::mem::forget(on_this_thread().unwrap());
                let mut n = 0;
                while stop.load(Relaxed) == 0 {
                    n += 1;
                    window.word(at + 8 * other).unwrap().store(n, Relaxed);
                    window.release(WHOLE, patient()).unwrap();
                }
            });
        }
        let started = Instant::now();
        let word = window.word(at).unwrap();
        let (mut round, mut missing) = (0_u64, 0);
        while started.elapsed() < Duration::from_secs(4) && missing == 0 {
            round += 1;
            word.store(round, Relaxed);
            window.release(WHOLE, patient()).unwrap();
            let home: Vec<u8> = (at..at + 8).map(|byte| pair.at_home(byte)).collect();
            missing += u32::from(u64::from_ne_bytes(home.try_into().unwrap()) != round);
        }
        stop.store(1, Relaxed);
        assert_eq!(missing, 0, "round {round}: released, and not at home");
    });
}

/// Posted raw stores whose home is another before the drain.
#[test]
fn a_drain_tells_of_posted_stores_that_a_former_home_had() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let Some((window, _serving)) = real(&pool, one.home(&pool)) else { return };
    let through = window.write_through(0..PAGE, Arrival::Posted, patient()).unwrap();
    one.silent.be_silent(true);
    window.word(8).unwrap().store(7, Relaxed);
    one.silent.die();
    window.heal(0, other.home(&pool), 0).unwrap();
    let drained = through.drain(patient());
    let (home, lost) = (other.pair.at_home(8), window.statistics().lost);
    assert!(
        drained.is_err() || home == 7,
        "{drained:?}: home has {home}, {lost} are said to be lost"
    );
}

/// A release that ends at a home that is none any more.
#[test]
fn a_release_that_returns_is_at_the_home_that_others_acquire_from() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(WHOLE, one.home(&pool), 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    client.store(8, 1);
    one.silent.be_silent(true);
    let before = one.silent.posted();
    let released = thread::scope(|scope| {
        let release = scope.spawn(|| client.window.release(WHOLE, patient()));
        until("the release to post", || one.silent.posted() > before);
        client.window.heal(0, other.home(&pool), 0).unwrap();
        one.silent.be_silent(false);
        release.join().unwrap()
    });
    client.window.release(WHOLE, patient()).unwrap();
    let home = other.pair.at_home(8);
    client.window.acquire(WHOLE, patient()).unwrap();
    assert!(
        released.is_err() || home == 1,
        "{released:?}: home has {home}, here is {} and {:?} is lost",
        client.load(8),
        client.window.lost()
    );
}

/// A link as the contract lets it be: what no fence or flush comes between is performed in any order.
struct Loose {
    inner: Arc<dyn Link>,
    held: std::sync::Mutex<Vec<(Vec<u8>, pontoon_hal::link::Remote, usize)>>,
}

impl Loose {
    fn perform(&self, last_first: bool) {
        let mut held = std::mem::take(&mut *self.held.lock().unwrap());
        if last_first {
            held.reverse();
        }
        for (bytes, to, offset) in held {
            let _ = self.inner.write_inline(&bytes, &to, offset).unwrap();
        }
    }
}

impl std::fmt::Debug for Loose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loose")
    }
}

impl Link for Loose {
    pontoon_hal::conformance::link::delegate_link!(inner: name, rank, capabilities, peer_state, end_peer, register, attach);
    pontoon_hal::conformance::link::delegate_link!(inner: attach_signal, owns, read, write, write_signal, signal, post_add, add, compare_swap);
    pontoon_hal::conformance::link::delegate_link!(inner: completions, moves_by_itself, progress, wait, explain, report);
    fn write_inline(
        &self,
        bytes: &[u8],
        to: &pontoon_hal::link::Remote,
        offset: usize,
    ) -> Result<pontoon_signal::Seq, pontoon_hal::link::LinkError> {
        self.held.lock().unwrap().push((bytes.to_vec(), to.clone(), offset));
        Ok(self.inner.completions(pontoon_signal::Rank(0))?.value())
    }
    fn fence(&self, peer: pontoon_signal::Rank) -> Result<(), pontoon_hal::link::LinkError> {
        self.perform(false);
        self.inner.fence(peer)
    }
    fn flush(
        &self,
        peer: pontoon_signal::Rank,
        bound: Bound,
    ) -> Result<(), pontoon_hal::link::LinkError> {
        self.perform(true);
        self.inner.flush(peer, bound)
    }
}

/// Two stores of one thread to one word: the last is the last.
#[test]
fn posted_stores_to_one_word_come_in_their_order() {
    let pair = pair(PAGES);
    let link: Arc<dyn Link> =
        Arc::new(Loose { inner: Arc::clone(&pair.link), held: Default::default() });
    let pool = Pool::new(settings(64)).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let Some((window, _serving)) = real(&pool, home) else { return };
    let cell = window.cell(PAGE).unwrap();
    cell.post(1).unwrap();
    cell.post(2).unwrap();
    cell.drain(patient()).unwrap();
    let by_cell = pair.at_home(PAGE);
    let through = window.write_through(0..PAGE, Arrival::Posted, patient()).unwrap();
    window.word(8).unwrap().store(1, Relaxed);
    window.word(8).unwrap().store(2, Relaxed);
    through.drain(patient()).unwrap();
    let (by_store, here) = (pair.at_home(8), window.word(8).unwrap().load(Relaxed));
    assert_eq!((by_cell, by_store), (2, 2), "here is {here}");
}

/// Two threads of a process write through one cell: what is here afterwards is what home has, or newer.
#[test]
fn what_is_here_does_not_fall_behind_the_last_store_of_this_process() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings(64)).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let window = pool.window(plain.clone(), vec![Extent::new(WHOLE, home, 0)]).unwrap();
    let client = Client::new(window, plain);
    client.touch(0);
    let barrier = std::sync::Barrier::new(2);
    let mut behind = 0;
    for _round in 0..2_000 {
        thread::scope(|scope| {
            for value in [1, 2_u64] {
                let (client, barrier) = (&client, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    client.window.cell(8).unwrap().store(value, patient()).unwrap();
                });
            }
        });
        behind += u32::from(client.load(8) != pair.at_home(8));
        if behind > 0 {
            break;
        }
    }
    assert_eq!(behind, 0, "both stores are over, and here is not what home has");
}
