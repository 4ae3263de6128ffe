//! Homes that do not answer: what accesses and calls make of it, and that nothing is lost or taken for what it
//! is not.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Client, Pair, Plain, pair, patient, silent::Silent, until};
use pontoon_hal::{
    link::Link,
    paging::{PAGE, Paging},
};
use pontoon_signal::{Bound, Rank};
use pontoon_smc::{Class, Export, Extent, OpenError, Pool, Settings, SmcError};

const PAGES: usize = 128;
const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;
const BYTE: u8 = 0x5A;

fn settings() -> Settings {
    let mut settings = Settings::for_pages(64);
    settings.deadline = Duration::from_millis(20);
    settings.threshold = 3;
    settings.ahead = 1;
    settings.low = 0;
    settings
}

struct Scene {
    pair: Pair,
    silent: Arc<Silent>,
    pool: Pool,
    client: Client,
}

fn scene() -> Scene {
    let pair = pair(PAGES);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let pool = Pool::new(settings()).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0).pattern(PATTERN);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    for byte in (0..PAGES * PAGE).step_by(PAGE) {
        pair.put_home(byte, &[7; 8]);
    }
    Scene { pair, silent, pool, client }
}

/// An access whose home is silent ends, with the pattern; and once home answers again, with what it has.
#[test]
fn an_access_ends_with_the_pattern_and_heals() {
    let Scene { pair, silent, client, .. } = scene();
    assert_eq!(client.load(0), 7);
    silent.be_silent(true);
    let started = Instant::now();
    assert_eq!(client.load(PAGE), BYTE);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(client.load(0), 7, "what is here is here");
    let whole = 0..PAGES * PAGE;
    let told = client.window.check(whole.clone()).unwrap_err();
    assert!(matches!(told, SmcError::Unavailable { home: Rank(0), poisoned: 1, .. }), "{told}");
    assert_eq!(client.window.check(0..PAGE), Ok(()));
    assert_eq!(client.window.try_read(0).map(|word| word as u8), Ok(7));
    client.window.try_read(PAGE).unwrap_err();
    // Two more and it is unavailable: then nothing is waited for.
    client.load(2 * PAGE);
    client.load(3 * PAGE);
    let started = Instant::now();
    (4..40).for_each(|page| assert_eq!(client.load(page * PAGE), BYTE));
    assert!(started.elapsed() < 36 * settings().deadline / 2, "{:?}", started.elapsed());
    let bound = Bound::within(Duration::from_secs(5));
    let refused = client.window.release(whole.clone(), bound).unwrap_err();
    assert!(matches!(refused, SmcError::Unavailable { poisoned: 39, .. }), "{refused}");
    client.window.acquire(whole.clone(), bound).unwrap_err();

    pair.put_home(5 * PAGE, &[8; 8]);
    silent.be_silent(false);
    until("the home to be found again", || client.window.check(whole.clone()).is_ok());
    assert_eq!((client.load(PAGE), client.load(5 * PAGE)), (7, 8));
    assert_eq!(client.window.statistics().poisoned, 39);
    client.window.release(whole, patient()).unwrap();
}

/// What is stored to the pattern goes nowhere, and is counted; what a late answer brings is nobody's.
#[test]
fn the_pattern_is_never_sent_and_a_late_answer_lands_nowhere() {
    let Scene { pair, silent, client, pool } = scene();
    silent.be_silent(true);
    client.store(PAGE + 100, 1);
    assert_eq!(client.load(PAGE + 101), BYTE);
    assert_eq!(client.window.release(PAGE..2 * PAGE, patient()).unwrap().bytes, 0);
    let before = pool.resident();
    // The read that was too late comes now, into a slot that nobody else has got.
    silent.be_silent(false);
    until("the slot of the late answer", || pool.resident() < before);
    until("the home to be found again", || client.window.check(PAGE..2 * PAGE).is_ok());
    assert_eq!((client.load(PAGE), client.load(PAGE + 100)), (7, 0));
    assert_eq!(client.window.lost(), vec![PAGE..2 * PAGE]);
    assert_eq!(client.window.lost(), [], "it is told once");
    assert_eq!(pair.at_home(PAGE + 100), 0);
    assert_eq!(client.window.statistics().stray, 8, "the word that was stored to");
    assert_eq!(pool.registrations(), 1);
}

/// A release that comes to no end keeps what it was to send, and the next one sends it: as it is then.
#[test]
fn what_a_release_could_not_send_is_sent_by_the_next() {
    let Scene { pair, silent, client, .. } = scene();
    client.store(10, 1);
    client.store(3 * PAGE, 2);
    silent.be_silent(true);
    let whole = 0..PAGES * PAGE;
    let bound = Bound::within(Duration::from_millis(30));
    let late = client.window.release(whole.clone(), bound).unwrap_err();
    assert!(matches!(late, SmcError::TimedOut { home: Rank(0), .. }), "{late}");
    assert_eq!(client.window.unsent(), [0..PAGE, 3 * PAGE..4 * PAGE]);
    client.store(10, 3);
    // While the first message may yet be on its way its bytes are not used for another.
    client.window.release(whole.clone(), bound).unwrap_err();
    silent.be_silent(false);
    let released = client.window.release(whole, patient()).unwrap();
    assert_eq!((released.pages, released.bytes), (2, 2));
    assert_eq!((pair.at_home(10), pair.at_home(3 * PAGE)), (3, 2));
    assert_eq!(client.window.unsent(), []);
}

/// A release whose bytes are home and not announced says so with the next one; and what home had to say to it lands
/// in no bytes that are sent meanwhile.
#[test]
fn what_a_release_could_not_announce_is_announced_by_the_next() {
    let Scene { pair, silent, client, .. } = scene();
    let home = Export::over(pair.home.block().clone()).unwrap();
    let version = |page: usize| home.version(page * PAGE).unwrap();
    let before = [version(0), version(3)];
    client.store(8, 1);
    client.store(3 * PAGE + 8, 2);
    // Both writes, and the announcement of the first page.
    silent.be_silent_after(3);
    let whole = 0..PAGES * PAGE;
    let bound = Bound::within(Duration::from_millis(30));
    let late = client.window.release(whole.clone(), bound).unwrap_err();
    assert!(matches!(late, SmcError::TimedOut { home: Rank(0), .. }), "{late}");
    assert_eq!((pair.at_home(8), pair.at_home(3 * PAGE + 8)), (1, 2));
    assert_eq!([version(0), version(3)], [before[0] + 1, before[1]]);
    assert_eq!(client.window.unsent(), [0..PAGE, 3 * PAGE..4 * PAGE]);
    client.store(8, 55);
    client.store(3 * PAGE + 8, 66);
    client.window.release(whole.clone(), bound).unwrap_err();
    silent.be_silent(false);
    assert_eq!((pair.at_home(8), pair.at_home(3 * PAGE + 8)), (1, 2), "it waited for the first");
    client.window.release(whole, patient()).unwrap();
    assert_eq!((pair.at_home(8), pair.at_home(3 * PAGE + 8)), (55, 66));
    assert!(version(0) > before[0] + 1 && version(3) > before[1] + 1, "both were announced");
    assert_eq!(client.window.unsent(), []);
}

/// Pages that follow each other come by two reads, one for their versions and one for them.
#[test]
fn pages_that_follow_each_other_take_two_reads() {
    let Scene { pair, silent, pool, .. } = scene();
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0).class(Class::Medium);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    let before = silent.posted();
    assert_eq!(client.load(16 * PAGE), 7);
    assert_eq!((silent.posted() - before, client.window.statistics().fetched), (2, 16));
}

/// So many calls that came to no end that no stage is left: an error, in time.
#[test]
fn calls_that_come_to_no_end_use_up_the_stages_and_no_more() {
    let Scene { pair, silent, client, .. } = scene();
    client.store(10, 1);
    silent.be_silent(true);
    let bound = Bound::within(Duration::from_millis(10));
    for _ in 0..10 {
        let late = client.window.release(0..PAGE, bound).unwrap_err();
        assert!(matches!(late, SmcError::TimedOut { .. }), "{late}");
    }
    silent.be_silent(false);
    client.window.release(0..PAGE, patient()).unwrap();
    assert_eq!(pair.at_home(10), 1);
}

/// Pages that are to make room stay if what was stored to them cannot go home.
#[test]
fn what_cannot_go_home_is_not_evicted() {
    let Scene { pair, silent, client, .. } = scene();
    (0..60).for_each(|page| client.store(page * PAGE + 1, 9));
    silent.be_silent(true);
    for page in 60..PAGES {
        client.load(page * PAGE);
    }
    (0..60).for_each(|page| assert_eq!(client.load(page * PAGE + 1), 9, "page {page}"));
    silent.be_silent(false);
    until("the home to be found again", || client.window.check(0..PAGES * PAGE).is_ok());
    client.window.release(0..PAGES * PAGE, patient()).unwrap();
    (0..60).for_each(|page| assert_eq!(pair.at_home(page * PAGE + 1), 9, "page {page}"));
    (60..PAGES).for_each(|page| assert_eq!(client.load(page * PAGE), 7, "page {page}"));
}

/// A pool whose every page has to go home first has no room for the pattern either: it is taken away all the same.
#[test]
fn a_pattern_without_room_is_told_and_heals() {
    let Scene { pair, silent, client, .. } = scene();
    (0..64).for_each(|page| client.store(page * PAGE + 1, 9));
    silent.be_silent(true);
    (64..80).for_each(|page| client.store(page * PAGE + 1, 9));
    let told = client.window.check(64 * PAGE..80 * PAGE).unwrap_err();
    assert!(matches!(told, SmcError::Unavailable { poisoned: 16, .. }), "{told}");
    assert_eq!(client.window.check(0..64 * PAGE).unwrap_err().to_string().lines().count(), 1);
    silent.be_silent(false);
    until("the home to be found again", || client.window.check(0..PAGES * PAGE).is_ok());
    (64..80).for_each(|page| assert_eq!(client.load(page * PAGE), 7, "page {page}"));
    assert_eq!(client.window.lost(), vec![64 * PAGE..80 * PAGE]);
    client.window.release(0..PAGES * PAGE, patient()).unwrap();
    (0..64).for_each(|page| assert_eq!(pair.at_home(page * PAGE + 1), 9, "page {page}"));
}

/// A home with a replica: accesses go on there, and what was not released goes there too.
#[test]
fn a_replica_takes_over() {
    let [first, second] = [pair(PAGES), pair(PAGES)];
    let silent = Silent::over(&first.link);
    let pool = Pool::new(settings()).unwrap();
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let home = pool.home(&link, first.region.clone()).unwrap().unwrap();
    let replica = pool.home(&second.link, second.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extent = Extent::new(0..PAGES * PAGE, home, 0).or(replica, 0);
    let client = Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain);
    second.put_home(9 * PAGE, &[4]);
    client.store(8, 1);
    silent.die();
    assert_eq!(client.load(9 * PAGE), 4, "a dead home is not waited for");
    client.window.check(0..PAGES * PAGE).unwrap();
    client.window.release(0..PAGES * PAGE, patient()).unwrap();
    assert_eq!((first.at_home(8), second.at_home(8)), (0, 1));
    assert_eq!(client.window.statistics().poisoned, 0);
    assert_eq!(pool.registrations(), 2);
}

/// A link that has no room is asked again, within the bound.
#[test]
fn a_full_link_is_asked_again() {
    let Scene { pair, silent, client, .. } = scene();
    client.store(10, 1);
    silent.be_full(5);
    client.window.release(0..PAGE, patient()).unwrap();
    assert_eq!(pair.at_home(10), 1);
    // A miss that meets a full link has a deadline too, and is over within it.
    silent.be_full(3);
    assert_eq!(client.load(50 * PAGE), 7);
    silent.be_full(3);
    client.window.acquire(0..PAGES * PAGE, patient()).unwrap();
}

/// Pages that a system call works on stay, whatever else is done.
#[test]
fn pages_stay_while_they_are_worked_on() {
    let Scene { pair, client, .. } = scene();
    (0..4).for_each(|page| client.touch(page));
    let base = client.window.base().addr();
    let bound = Bound::within(Duration::from_millis(50));
    let done = client.window.with_resident(100..3 * PAGE, patient(), |first| {
        assert_eq!(first.addr().get(), base.get() + 100);
        (4..PAGES).for_each(|page| client.touch(page));
        client.store(PAGE, 1);
        let kept = client.window.release(0..2 * PAGE, bound).unwrap_err();
        assert!(matches!(kept, SmcError::Occupied { .. }), "{kept}");
        // They were never away.
        (0..3).all(|page| client.plain.is_there(page))
    });
    assert_eq!(done, Ok(true));
    client.window.release(0..2 * PAGE, patient()).unwrap();
    assert_eq!(pair.at_home(PAGE), 1);
    let most = client.window.with_resident(0..33 * PAGE, patient(), |_| ()).unwrap_err();
    assert_eq!(most, SmcError::TooMany { pages: 33, most: 32 });
    client.window.with_resident(0..PAGES * PAGE + 1, patient(), |_| ()).unwrap_err();
    let late = client.window.with_resident(0..32 * PAGE, bound, |_| ()).unwrap_err();
    assert!(matches!(late, SmcError::TimedOut { .. }), "an access by hand brings none: {late}");
}

/// Bytes go in and out at any place.
#[test]
fn bytes_are_put_and_got() {
    let Scene { client, pair: _pair, .. } = scene();
    client.touch(0);
    client.touch(1);
    let bytes: Vec<u8> = (0..=255).collect();
    for (at, len) in [(0, 8), (3, 2), (5, 20), (PAGE - 7, 30), (PAGE, 256), (17, 0)] {
        let mut around = vec![0; len + 20];
        let start = at.saturating_sub(10);
        client.window.get(start, &mut around).unwrap();
        client.window.put(at, &bytes[..len]).unwrap();
        around[at - start..at - start + len].copy_from_slice(&bytes[..len]);
        let mut found = vec![0; len + 20];
        client.window.get(start, &mut found).unwrap();
        assert_eq!(found, around, "{len} bytes at {at}");
    }
    client.window.get(PAGES * PAGE - 3, &mut [0; 4]).unwrap_err();
    client.window.put(usize::MAX, &[0; 4]).unwrap_err();
}

/// What cannot be a pool or a window is refused by name.
#[test]
fn what_cannot_be_is_refused() {
    let pair = pair(PAGES);
    let pool = Pool::new(settings()).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    for pages in [0, 63, usize::MAX] {
        let refused = Pool::new(Settings::for_pages(pages)).map(drop).unwrap_err();
        assert_eq!(refused, OpenError::Pages { asked: pages });
    }
    let extent = |bytes, from| Extent::new(bytes, home.clone(), from).class(Class::Large);
    let open = |extents| pool.window(Plain::new(PAGES), extents).map(drop).unwrap_err();
    let bytes = PAGES * PAGE;
    for asked in [0..0, 0..100, 5..PAGE, 0..bytes + PAGE, bytes..bytes + PAGE] {
        assert_eq!(open(vec![extent(asked.clone(), 0)]), OpenError::Extent { asked, bytes });
    }
    let past = open(vec![extent(0..2 * PAGE, bytes - PAGE)]);
    let asked = bytes - PAGE..bytes + PAGE;
    assert_eq!(past, OpenError::Short { home: Rank(0), asked, bytes });
    let both = open(vec![extent(PAGE..3 * PAGE, 0), extent(0..2 * PAGE, 0)]);
    assert_eq!(both, OpenError::Overlap { one: 0..2 * PAGE, other: PAGE..3 * PAGE });
    let plain = Plain::new(PAGES);
    let _window = pool.window(plain.clone(), vec![extent(0..PAGE, 0)]).unwrap();
    let twice = pool.window(plain, vec![extent(PAGE..2 * PAGE, 0)]).map(drop).unwrap_err();
    let OpenError::Twice { new, other } = &twice else { panic!("{twice}") };
    assert_eq!((new, new.len()), (other, bytes));
    assert!(twice.to_string().contains("pages have one window"), "{twice}");
    for error in [past, both, twice, OpenError::Windows, OpenError::InHandler { home: Rank(3) }] {
        assert!(!error.to_string().contains('\n'));
    }
    let window = pool.window(Plain::new(PAGES), vec![extent(0..PAGE, 0)]).unwrap();
    for offset in [PAGE, bytes, usize::MAX - 8, PAGE - 4] {
        let refused = window.word(offset).unwrap_err();
        assert!(matches!(refused, SmcError::OutOfRange { .. }), "{offset}: {refused}");
    }
    assert_eq!(window.word(4).unwrap_err(), SmcError::Misaligned { offset: 4 });
    window.release(0..2 * PAGE, patient()).unwrap_err();
    let odd = pair.region.bytes() - PAGE;
    assert!(pontoon_smc::Layout::of_region(odd).is_some_and(|layout| layout.pages() == PAGES - 1));
}
