//! Calls that are under way at the same time, of one pool: none takes from another what it has stored, or what it needs.
#![cfg(not(pontoon_loom))]

mod common;

use core::{ops::Range, ptr::NonNull};
use std::{sync::Arc, thread, time::Duration};

use common::{Client, Plain, patient, start::Start, until};
use pontoon_hal::paging::{PAGE, Paging, PagingError, Written};
use pontoon_signal::{
    Block, Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_smc::{Class, Extent, Pool, Settings, SmcError};

const PAGES: usize = 64;
const WHOLE: Range<usize> = 0..PAGES * PAGE;
const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;

fn settings(pages: usize) -> Settings {
    let mut settings = Settings::for_pages(pages);
    settings.deadline = Duration::from_millis(200);
    (settings.threshold, settings.ahead, settings.low) = (3, 1, 0);
    settings
}

fn client(start: &Start, pool: &Pool, class: Class) -> Client {
    let plain = Plain::new(PAGES);
    let extent = Extent::new(WHOLE, start.home(pool), 0).class(class).pattern(PATTERN);
    Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain)
}

fn short(ms: u64) -> Bound {
    Bound::within(Duration::from_millis(ms))
}

/// Whoever waits for a page that a call keeps is told so, and no home is blamed for it.
#[test]
fn what_a_call_keeps_is_nobody_elses_and_no_home_is_blamed() {
    let start = Start::new(PAGES);
    let pool = Pool::new(settings(64)).unwrap();
    let [client, reader] = [false, true].map(|is_read_only| {
        let plain = Plain::new(PAGES);
        let extent = Extent::new(WHOLE, start.home(&pool), 0);
        let extent = if is_read_only { extent.read_only() } else { extent };
        Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain)
    });
    client.store(2 * PAGE + 8, 7);
    reader.touch(2);
    start.pair.publish(2 * PAGE);
    let kept = 2 * PAGE..3 * PAGE;
    let told = |result: Result<(), SmcError>| match result {
        Err(SmcError::Occupied { bytes, waited }) => {
            assert_eq!((bytes, waited >= Duration::from_millis(4)), (kept.clone(), true));
        }
        other => panic!("{other:?}"),
    };
    let (window, at) = (&client.window, 2 * PAGE);
    let (cell, slice) = (window.cell(at).unwrap(), window.slice::<u8>(at, PAGE).unwrap());
    let work = |_| {
        told(window.release(WHOLE, short(5)).map(drop));
        told(window.acquire(WHOLE, short(5)).map(drop));
        told(window.with_resident(kept.clone(), short(5), |_| ()));
        told(cell.store(1, short(5)));
        told(slice.write(0, &[1], short(5)));
    };
    window.with_resident(kept.clone(), patient(), work).unwrap();
    let (read, work) = (&reader.window, |_| told(reader.window.acquire(WHOLE, short(5)).map(drop)));
    read.with_resident(kept.clone(), patient(), work).unwrap();
    // And nothing is left of it.
    window.release(WHOLE, patient()).unwrap();
    assert_eq!(start.pair.at_home(2 * PAGE + 8), 7);
    assert_eq!(window.acquire(WHOLE, patient()).unwrap().checked, 1);
    assert_eq!(read.acquire(WHOLE, patient()).unwrap().merged, 1);
}

/// A release that ends forgets a store that another release has found meanwhile.
#[test]
fn a_store_found_by_a_release_that_gave_up_is_sent_by_the_next() {
    let first = Start::new(PAGES);
    let pool = Pool::new(settings(64)).unwrap();
    let client = client(&first, &pool, Class::Small);
    client.store(8, 1);
    first.silent.be_silent(true);
    let before = first.silent.posted();
    thread::scope(|scope| {
        let one = scope.spawn(|| client.window.release(WHOLE, patient()));
        until("the first release to post", || first.silent.posted() > before);
        client.store(16, 2);
        let other = client.window.release(WHOLE, short(50)).unwrap_err();
        assert!(matches!(other, SmcError::TimedOut { .. }), "{other}: kept, release it again");
        first.silent.be_silent(false);
        one.join().unwrap().unwrap();
    });
    let unsent = client.window.unsent();
    let again = client.window.release(WHOLE, patient()).unwrap();
    assert_eq!(first.pair.at_home(8), 1);
    assert_eq!(first.pair.at_home(16), 2, "unsent said {unsent:?}, and the release {again:?}");
}

/// An acquire that gives up while its reads are under way leaves its stage to others.
#[test]
fn what_a_given_up_acquire_asked_for_lands_in_nobody_elses_stage() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let a = client(&one, &pool, Class::Small);
    let b = client(&other, &pool, Class::Small);
    a.touch(0);
    a.touch(1);
    (0..14).for_each(|page| b.touch(page));
    one.pair.put_home(0, &[0xEE; PAGE]);
    one.pair.publish(0);
    one.pair.publish(PAGE);
    // Another call has page 1, and the link answers the versions and then nothing.
    a.window
        .with_resident(PAGE..2 * PAGE, patient(), |_| {
            one.silent.be_silent_after(1);
            a.window.acquire(0..2 * PAGE, short(50)).unwrap_err();
        })
        .unwrap();
    // Whoever releases now gets that stage.
    for byte in 0..14 * PAGE {
        b.store(byte, 1 + (byte / PAGE) as u8);
    }
    other.silent.be_silent(true);
    let before = other.silent.posted();
    thread::scope(|scope| {
        let release = scope.spawn(|| b.window.release(WHOLE, patient()));
        until("the release to post", || other.silent.posted() >= before + 13);
        thread::sleep(Duration::from_millis(100));
        one.silent.be_silent(false); // the late answer comes
        other.silent.be_silent(false);
        release.join().unwrap().unwrap();
    });
    let wrong: Vec<_> = (0..14 * PAGE)
        .filter(|&byte| other.pair.at_home(byte) != 1 + (byte / PAGE) as u8)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} bytes at another home are wrong, from {} on: {:#x}",
        wrong.len(),
        wrong[0],
        other.pair.at_home(wrong[0])
    );
}

/// Calls on one home that is silent take the stages of all others.
#[test]
fn a_silent_home_does_not_keep_another_from_being_released() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let a = client(&one, &pool, Class::Small);
    let b = client(&other, &pool, Class::Small);
    a.touch(0);
    b.touch(0);
    one.silent.be_silent(true);
    for _ in 0..4 {
        a.window.acquire(WHOLE, short(20)).unwrap_err();
    }
    b.store(0, 1);
    let released = b.window.release(WHOLE, short(2000));
    let fresh = b.window.cell(8).unwrap().load_fresh(short(500));
    one.silent.be_silent(false);
    assert!(released.is_ok() && fresh.is_ok(), "{released:?} {fresh:?}");
}

/// Misses on a home that is silent take the whole pool, and others read the pattern.
#[test]
fn a_silent_home_does_not_take_the_pool_of_another() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let a = client(&one, &pool, Class::Large);
    let b = client(&other, &pool, Class::Small);
    (0..PAGES).for_each(|page| other.pair.put_home(page * PAGE, &[7; 8]));
    one.silent.be_silent(true);
    // By four threads at once, as each waits for its own.
    thread::scope(|scope| {
        for page in [0, 16, 32, 48] {
            let a = &a;
            scope.spawn(move || a.load(page * PAGE));
        }
    });
    let found: Vec<u8> = (0..4).map(|page| b.load(page * PAGE)).collect();
    let check = b.window.check(WHOLE);
    one.silent.be_silent(false);
    assert_eq!((found, check), (vec![7; 4], Ok(())));
}

/// A pool that is full makes a home that answers unavailable.
#[test]
fn a_full_pool_is_no_failure_of_a_home() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let a = client(&one, &pool, Class::Small);
    let plain = Plain::new(PAGES);
    let extent = Extent::new(WHOLE, one.home(&pool), 0).or(other.home(&pool), 0).pattern(PATTERN);
    let b = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    (0..PAGES).for_each(|page| one.pair.put_home(page * PAGE, &[7; 8]));
    (0..PAGES).for_each(|page| other.pair.put_home(page * PAGE, &[9; 8]));
    (0..PAGES).for_each(|page| a.touch(page));
    // Half of the pool may be kept here, by all that do together.
    let found = a.window.with_resident(0..32 * PAGE, patient(), |_| {
        let more = a.window.with_resident(32 * PAGE..33 * PAGE, patient(), |_| ()).unwrap_err();
        assert_eq!(more, SmcError::TooMany { pages: 1, most: 0 });
        (0..5).map(|page| b.load(page * PAGE)).collect::<Vec<u8>>()
    });
    assert_eq!((found.unwrap(), b.load(10 * PAGE)), (vec![7; 5], 7), "9 is the other home's");
    (32..64).for_each(|page| a.touch(page));
    a.window.with_resident(32 * PAGE..64 * PAGE, patient(), |_| ()).unwrap();
    // All of it has to go home, and none of it can.
    (0..PAGES).for_each(|page| a.store(page * PAGE, 1));
    one.silent.be_silent(true);
    let healthy = Start::new(PAGES);
    healthy.pair.put_home(0, &[7; 8]);
    let c = client(&healthy, &pool, Class::Small);
    (0..5).for_each(|page| c.touch(page));
    one.silent.be_silent(false);
    until("the pool to have room", || c.load(0) == 7);
    assert_eq!(c.window.check(0..PAGE), Ok(()));
}

/// A paging that fails now and then, as P1 to P6 let it.
#[derive(Debug)]
struct Flaky {
    plain: Arc<Plain>,
    places: AtomicU64,
}

const FAILED: PagingError = PagingError { call: "test", code: 16, remedy: "again" };

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
        if from.bytes() > PAGE && self.places.load(Relaxed) > 0 {
            self.places.fetch_sub(1, Relaxed);
            // All but the last are in place.
            let some = from.part(0..from.bytes() - PAGE).unwrap();
            self.plain.place(page, &some, there)?;
            // Another thread uses one at once.
            self.words(page + 1)[1].store(0x77, Relaxed);
            return Err(FAILED);
        }
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
        self.plain.take(page, last)
    }
    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.plain.discard(pages)
    }
}

fn flaky(start: &Start, pool: &Pool, class: Class) -> (Arc<Flaky>, Client) {
    let plain = Plain::new(PAGES);
    let flaky = Arc::new(Flaky { plain: plain.clone(), places: AtomicU64::new(0) });
    let extent = Extent::new(WHOLE, start.home(pool), 0).class(class).pattern(PATTERN);
    let window = pool.window(flaky.clone(), vec![extent]).unwrap();
    (flaky, Client::new(window, plain))
}

/// Where some pages of a fetch could not be placed, a store to those that were is lost.
#[test]
fn a_store_to_a_page_that_was_placed_is_kept_if_another_could_not_be() {
    let one = Start::new(PAGES);
    let pool = Pool::new(settings(64)).unwrap();
    let (flaky, client) = flaky(&one, &pool, Class::Medium);
    flaky.places.store(1, Relaxed);
    client.touch(0);
    let kept = client.load(PAGE + 8);
    assert_eq!((kept, client.window.lost()), (0x77, vec![]));
}

/// What was posted to a cell of a former home is lost, and the drain says that it is there.
#[test]
fn a_drain_says_that_what_was_posted_to_a_former_home_is_not_there() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let client = client(&one, &pool, Class::Small);
    client.touch(0);
    let cell = client.window.cell(8).unwrap();
    one.silent.be_silent(true);
    cell.post(7).unwrap();
    one.silent.die();
    client.window.heal(0, other.home(&pool), 0).unwrap();
    let drained = cell.drain(patient());
    let released = client.window.release(WHOLE, patient());
    let (home, here) = (other.pair.at_home(8), client.load(8));
    assert!(
        drained.is_err() || home == 7,
        "{drained:?}, {released:?}: home has {home}, here is {here}"
    );
}

/// Two ranks, one word, and a replica that goes on where home is gone.
#[test]
fn bytes_of_two_ranks_survive_the_move_to_a_replica() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pools = [0, 1].map(|_| Pool::new(settings(64)).unwrap());
    let [a, b] = [0, 1].map(|k| {
        let plain = Plain::new(PAGES);
        let extent = Extent::new(WHOLE, one.home(&pools[k]), 0).or(other.home(&pools[k]), 0);
        Client::new(pools[k].window(plain.clone(), vec![extent]).unwrap(), plain)
    });
    [&a, &b].into_iter().for_each(|client| client.touch(0));
    one.silent.die();
    // It is met here, and the window goes on at the replica.
    [&a, &b].into_iter().for_each(|client| client.touch(1));
    b.store(9, 5);
    b.window.release(WHOLE, patient()).unwrap();
    assert_eq!(other.pair.at_home(9), 5);
    a.store(8, 3);
    a.window.acquire(WHOLE, patient()).unwrap();
    a.window.release(WHOLE, patient()).unwrap();
    let home = (other.pair.at_home(8), other.pair.at_home(9));
    assert_eq!(home, (3, 5), "b's byte was released to this very home");
}

/// What an acquire brings is of the home that others released to by then.
#[test]
fn an_acquire_under_way_while_home_moves_brings_what_the_next_has() {
    let (one, other) = (Start::new(PAGES), Start::new(PAGES));
    let pool = Pool::new(settings(64)).unwrap();
    let client = client(&one, &pool, Class::Small);
    client.touch(0);
    other.pair.put_home(8, &[9]);
    one.silent.be_silent(true);
    let before = one.silent.posted();
    thread::scope(|scope| {
        let acquire = scope.spawn(|| client.window.acquire(WHOLE, patient()));
        until("the acquire to ask", || one.silent.posted() > before);
        client.window.heal(0, other.home(&pool), 0).unwrap();
        one.silent.be_silent(false);
        acquire.join().unwrap().unwrap();
    });
    assert_eq!(client.load(8), 9);
}
