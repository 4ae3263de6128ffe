//! Extents that are read only: what home has is read, over its own memory and over slots, and nothing is stored.
#![cfg(not(pontoon_loom))]

mod common;
mod setup;

use std::{env, fs, os::unix::process::ExitStatusExt, process::Command, sync::Arc, time::Duration};

use common::{Change, Client, Plain, patient, silent::Silent, until};
use pontoon_hal::{
    link::Link,
    paging::{PAGE, PageFault, Paging, Served},
};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_smc::{Arrival, Class, Extent, Pool, Settings, SmcError};
use pontoon_uffd::Service;
use rustix::process::Signal;
use setup::{
    BOTH,
    read_only::{PAGES, PATTERN, WHOLE, home, links, numbered, put, real},
    settings,
};

/// A client of one extent that is read only.
fn client(pool: &Pool, extent: Extent) -> Client {
    let plain = Plain::new(PAGES);
    let extent = extent.read_only().pattern(PATTERN);
    Client::new(pool.window(plain.clone(), vec![extent]).unwrap(), plain)
}

fn word(client: &Client, page: usize) -> u64 {
    u64::from_ne_bytes(core::array::from_fn(|byte| client.load(page * PAGE + byte)))
}

#[test]
fn an_acquire_sees_what_home_has_changed_and_keeps_the_rest() {
    for service in BOTH {
        let pair = numbered(0);
        for (link, plus) in links(&pair).iter().zip([1000, 2000]) {
            let pool = Pool::new(settings()).unwrap();
            let extent = Extent::new(WHOLE, home(&pool, &pair, link), 0);
            let Some((window, _serving)) = real(&pool, extent, service) else { return };
            let at = |page: usize| window.word(page * PAGE).unwrap().load(Relaxed);
            window.prefetch(0..20 * PAGE).unwrap();
            let before = [at(5), at(6)];
            put(&pair, 5, plus);
            assert_eq!([at(5), at(6)], before, "a page that is here stays as it was");
            assert_eq!(window.acquire(WHOLE, patient()).unwrap().merged, 0, "nobody said so");
            pair.publish(5 * PAGE);
            let (fetched, resident) = (window.statistics().fetched, pool.resident());
            let report = window.acquire(WHOLE, patient()).unwrap();
            assert_eq!((report.merged, pool.resident()), (1, resident - 1), "{service:?}");
            assert_eq!([at(5), at(6)], [plus, before[1]], "{service:?}");
            assert_eq!(window.statistics().fetched, fetched + 1);
            assert_eq!(window.cell(5 * PAGE).unwrap().load_fresh(patient()), Ok(plus));
            assert_eq!(window.try_read(5 * PAGE), Ok(plus));
            assert_eq!(window.release(WHOLE, patient()).unwrap().pages, 0);
            window.check(WHOLE).unwrap();
        }
    }
}

#[test]
fn pages_go_and_come_again_where_there_is_little_room() {
    for service in BOTH {
        let pair = numbered(0);
        for link in &links(&pair) {
            for class in [Class::Small, Class::Medium] {
                let pool = Pool::new(settings()).unwrap();
                let extent = Extent::new(WHOLE, home(&pool, &pair, link), 0).class(class);
                let Some((window, _serving)) = real(&pool, extent, service) else { return };
                for turn in 0..1500_usize {
                    let page = if turn < 512 { turn % PAGES } else { turn * 131 % PAGES };
                    let found = window.word(page * PAGE).unwrap().load(Relaxed);
                    assert_eq!(found, page as u64, "{service:?} {class:?} over {}", link.name());
                }
                let statistics = window.statistics();
                assert!(statistics.evicted > 400, "{statistics:?}");
                assert_eq!((statistics.poisoned, statistics.sent), (0, 0));
                // A system call finds them.
                let first = window.with_resident(3 * PAGE..9 * PAGE, patient(), |first| first);
                assert_eq!(first.unwrap().addr().get(), window.base().addr().get() + 3 * PAGE);
            }
        }
    }
}

/// A page that the table knows of and that is not in its place comes from home again; from the one that there is then.
#[test]
fn a_page_that_is_missed_again_is_not_taken_from_its_slot() {
    let (first, second) = (numbered(0), numbered(500));
    for (link, other) in links(&first).iter().zip(links(&second)) {
        let pool = Pool::new(settings()).unwrap();
        let client = client(&pool, Extent::new(WHOLE, home(&pool, &first, link), 0));
        assert_eq!(word(&client, 9), 9);
        for _ in 0..2 {
            client.plain.discard(9..10).unwrap();
            assert_eq!(word(&client, 9), 9);
            client.plain.discard(9..10).unwrap();
            let bytes = 9 * PAGE..10 * PAGE;
            client.window.with_resident(bytes, patient(), |_| ()).unwrap();
            assert!(client.plain.is_there(9));
        }
        client.window.heal(0, home(&pool, &second, &other), 0).unwrap();
        client.plain.discard(9..10).unwrap();
        assert_eq!(word(&client, 9), 509, "it was the former home's");
    }
}

/// One that is in its place is as its home had it when it came, whatever that has become since.
#[test]
fn a_page_that_is_here_stays_when_its_home_is_gone() {
    let (first, second) = (numbered(0), numbered(500));
    for other in links(&second) {
        let silent = Silent::over(&first.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let pool = Pool::new(settings()).unwrap();
        let client = client(&pool, Extent::new(WHOLE, home(&pool, &first, &link), 0));
        assert_eq!(word(&client, 9), 9);
        silent.die();
        for healed in [false, true] {
            if healed {
                client.window.heal(0, home(&pool, &second, &other), 0).unwrap();
            }
            // As by a thread that missed it with another, which was quicker.
            let missed = PageFault { page: 9, write: false };
            assert_eq!(client.window.pager().fault(missed), Served::Again);
            assert!(client.plain.is_there(9), "healed: {healed}");
            let bytes = 9 * PAGE..10 * PAGE;
            client.window.with_resident(bytes, patient(), |_| ()).unwrap();
            assert!(client.plain.is_there(9), "healed: {healed}");
            assert_eq!(word(&client, 9), 9, "healed: {healed}");
        }
    }
}

/// Between what it said of a page and its memory, in which the page is.
#[test]
fn a_home_that_dies_while_a_page_is_put_in_place_is_noticed() {
    let (first, second) = (numbered(0), numbered(500));
    for next in [None, Some(0), Some(1)] {
        let silent = Silent::over(&first.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let mut settings = settings();
        (settings.ahead, settings.threshold) = (1, 1);
        let pool = Pool::new(settings).unwrap();
        let mut extent = Extent::new(WHOLE, home(&pool, &first, &link), 0);
        if let Some(next) = next {
            extent = extent.or(home(&pool, &second, &links(&second)[next]), 0);
        }
        let client = client(&pool, extent);
        assert_eq!(word(&client, 9), 9);
        silent.die_after(1);
        let expected = if next.is_some() { 507 } else { PATTERN };
        assert_eq!(word(&client, 7), expected);
        let told = client.window.check(0..PAGE);
        assert_eq!(told.is_ok(), next.is_some(), "of a page that was never asked for: {told:?}");
    }
}

/// Who waits for a page in vain that another thread is putting in its place once more is given the pattern: it does not stay.
#[test]
fn a_page_that_is_put_back_late_is_no_pattern() {
    let pair = numbered(0);
    for link in links(&pair) {
        let mut settings = settings();
        settings.deadline = Duration::from_millis(10);
        let pool = Pool::new(settings).unwrap();
        let client = client(&pool, Extent::new(WHOLE, home(&pool, &pair, &link), 0));
        assert_eq!(word(&client, 9), 9);
        for turn in 0..2 {
            client.plain.discard(9..10).unwrap();
            let (pager, words) = (client.window.pager(), Arc::clone(&client.plain));
            client.plain.before(Change::Place, 9, move || {
                assert_eq!(pager.fault(PageFault { page: 9, write: false }), Served::Again);
                assert_eq!(words.words(9)[0].load(Relaxed), PATTERN, "in vain");
            });
            if turn == 0 {
                assert_eq!(word(&client, 9), 9);
            } else {
                let bytes = 9 * PAGE..10 * PAGE;
                client.window.with_resident(bytes, patient(), |_| ()).unwrap();
                assert!(client.plain.is_there(9));
                assert_eq!(word(&client, 9), 9);
            }
            client.window.check(WHOLE).unwrap();
        }
        assert_eq!(client.window.statistics().poisoned, 2);
    }
}

#[test]
fn a_home_that_dies_leaves_the_pattern_and_heals() {
    let (first, second, third) = (numbered(0), numbered(500), numbered(700));
    let silent = Silent::over(&first.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = Settings::for_pages(64);
    settings.deadline = Duration::from_millis(20);
    (settings.threshold, settings.ahead, settings.low) = (1_000_000, 1, 0);
    let pool = Pool::new(settings).unwrap();
    let client = client(&pool, Extent::new(WHOLE, home(&pool, &first, &link), 0));
    assert_eq!((word(&client, 1), word(&client, 2)), (1, 2));
    silent.be_silent(true);
    assert_eq!((word(&client, 1), word(&client, 3)), (1, PATTERN));
    client.window.check(WHOLE).unwrap_err();
    assert!(client.window.try_read(3 * PAGE).is_err());
    silent.be_silent(false);
    until("the pattern to go", || word(&client, 3) == 3);
    client.window.check(WHOLE).unwrap();
    silent.die();
    assert_eq!((word(&client, 2), word(&client, 4)), (2, PATTERN));
    client.window.check(WHOLE).unwrap_err();
    // Not mapped here, as far as its link says; and then one that is.
    for (pair, link, plus) in [(&second, &links(&second)[1], 500), (&third, &links(&third)[0], 700)]
    {
        client.window.heal(0, home(&pool, pair, link), 0).unwrap();
        client.window.check(WHOLE).unwrap();
        assert_eq!(
            word(&client, 4),
            504,
            "a page that came from a home before stays until an acquire"
        );
        assert!(client.window.acquire(WHOLE, patient()).unwrap().merged > 0);
        for page in [1, 2, 3, 4, 200] {
            assert_eq!(word(&client, page), page as u64 + plus);
        }
    }
    assert!(client.window.lost().is_empty() && client.window.unsent().is_empty());
}

#[test]
fn one_that_falls_back_reads_its_next_home() {
    // Replicas are alike; these tell which of them was read.
    let (first, second) = (numbered(0), numbered(500));
    for next in links(&second) {
        let silent = Silent::over(&first.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let mut settings = settings();
        settings.ahead = 1;
        let pool = Pool::new(settings).unwrap();
        let extent = Extent::new(WHOLE, home(&pool, &first, &link), 0);
        let client = client(&pool, extent.or(home(&pool, &second, &next), 0));
        assert_eq!(word(&client, 1), 1);
        silent.die();
        for page in 0..PAGES {
            let from = if page == 1 { 0 } else { 500 };
            assert_eq!(word(&client, page), page as u64 + from);
        }
        client.window.check(WHOLE).unwrap();
        put(&second, 1, 77);
        second.publish(PAGE);
        client.window.acquire(WHOLE, patient()).unwrap();
        assert_eq!(word(&client, 1), 77);
    }
}

#[test]
fn what_writes_is_refused_and_names_the_extent() {
    let pair = numbered(0);
    let pool = Pool::new(settings()).unwrap();
    let home = home(&pool, &pair, &pair.link);
    let half = PAGES / 2 * PAGE;
    let extents = vec![
        Extent::new(0..half, home.clone(), 0),
        Extent::new(half..2 * half, home, half).read_only(),
    ];
    let window = pool.window(Plain::new(PAGES), extents).unwrap();
    let (cell, slice) = (window.cell(half).unwrap(), window.slice::<u16>(half, 9000).unwrap());
    let small = window.cell_of::<u32>(half + 4).unwrap();
    let refusal = SmcError::ReadOnly { bytes: half..2 * half };
    let version = pair.version(PAGES / 2);
    for refused in [
        cell.store(1, patient()),
        cell.post(1),
        cell.fetch_add(1, patient()).map(drop),
        cell.compare_exchange(0, 1, patient()).map(drop),
        small.store(1, patient()),
        small.fetch_add(1, patient()).map(drop),
        small.compare_exchange(0, 1, patient()).map(drop),
        slice.write(7, &[1], patient()),
        slice.post(8999, &[1]),
        window.put(half - 8, &[1; 9]),
        window.write_through(half - 8..half + 1, Arrival::AtHome, patient()).map(drop),
        window.publish(0..PAGE, half, 1, patient()).map(drop),
    ] {
        assert_eq!(refused, Err(refusal.clone()));
    }
    cell.drain(patient()).unwrap();
    slice.drain(patient()).unwrap();
    let text = refusal.to_string();
    assert!(text.contains("read_only") && !text.contains('\n'), "{text}");
    assert_eq!(cell.load_fresh(patient()), Ok(PAGES as u64 / 2), "home is as it was");
    assert_eq!(pair.version(PAGES / 2), version, "nobody is told of a change");
    assert_eq!(window.unsent(), vec![], "nothing is owed");
    let pager = window.pager();
    assert_eq!(pager.fault(PageFault { page: PAGES / 2, write: false }), Served::Again);
    window.release(WHOLE, patient()).unwrap();
    window.put(half - 8, &[1; 8]).unwrap();
}

/// Bytes of the largest of this process's mappings of words that are in memory: a pool's, if it is a large one.
fn resident_words() -> usize {
    let (mut is_its, mut found) = (false, Vec::new());
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut fields = line.split_whitespace();
        let first = fields.next().unwrap_or_default();
        let kilobytes = || line.split_whitespace().nth(1)?.parse::<usize>().ok();
        match first {
            "Size:" if is_its => found.push((kilobytes().unwrap(), 0)),
            "Rss:" if is_its => found.last_mut().unwrap().1 = kilobytes().unwrap(),
            _ if first.ends_with(':') => {}
            _ => is_its = line.contains("pontoon-words"),
        }
    }
    found.into_iter().max().unwrap().1 << 10
}

#[test]
fn no_slot_has_memory_where_pages_come_from_homes_own() {
    const LARGE: usize = 8192;
    let (pair, mut settings) = (numbered(0), settings());
    (settings.pages, settings.lock) = (LARGE, false);
    let [direct, indirect] = links(&pair);
    for (heals, value) in [(false, 4), (true, 5)] {
        let pool = Pool::new(settings.clone()).unwrap();
        let extent = Extent::new(WHOLE, home(&pool, &pair, &direct), 0);
        let opened = real(&pool, extent.clone(), Service::InThread);
        let Some((window, _serving)) = opened else { return };
        let before = resident_words();
        window.prefetch(WHOLE).unwrap();
        put(&pair, 3, value);
        pair.publish(3 * PAGE);
        window.acquire(WHOLE, patient()).unwrap();
        assert_eq!(window.word(3 * PAGE).unwrap().load(Relaxed), value);
        assert_eq!(pool.resident(), PAGES);
        assert_eq!(resident_words(), before, "a slot was touched");
        assert!(before < LARGE * PAGE / 2, "{before} bytes");
        // Pages that are stored to land there, and so do those of a home that is not mapped here, as far as its link says:
        // no miss is to wait for it.
        if heals {
            window.heal(0, home(&pool, &pair, &indirect), 0).unwrap();
        } else {
            let _ = pool.window(Plain::new(PAGES), vec![extent]).unwrap();
        }
        assert!(resident_words() >= LARGE * PAGE, "healed: {heals}");
        assert_eq!(window.word(3 * PAGE).unwrap().load(Relaxed), value);
    }
}

/// Tells a process of its own what to store to.
const CASE: &str = "PONTOON_TEST_STORE_TO";
const CASES: [&str; 5] = ["away", "here", "again", "pattern", "healed"];

#[test]
fn a_store_raises_sigsegv() {
    if let Ok(case) = env::var(CASE) {
        let (case, service) = case.split_once(' ').unwrap();
        return store_to(case, if service == "0" { BOTH[0] } else { BOTH[1] });
    }
    for case in CASES {
        for service in 0..2 {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", "a_store_raises_sigsegv", "--nocapture"]);
            let output = command.env(CASE, format!("{case} {service}")).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            if told.contains("skipped") {
                return;
            }
            let signal = output.status.signal();
            assert_eq!(signal, Some(Signal::SEGV.as_raw()), "{case}, {service}: {output:?}");
            assert!(told.contains("storing"), "{case}, {service}: too early: {told}");
        }
    }
}

fn store_to(case: &str, service: Service) {
    let (first, second) = (numbered(0), numbered(500));
    let silent = Silent::over(&first.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = settings();
    settings.deadline = Duration::from_millis(500);
    let pool = Pool::new(settings).unwrap();
    let extent = Extent::new(WHOLE, home(&pool, &first, &link), 0);
    let Some((window, _serving)) = real(&pool, extent, service) else { return };
    let word = window.word(0).unwrap();
    let expected = match case {
        "here" => 0,
        "again" => {
            assert_eq!(word.load(Relaxed), 0);
            put(&first, 0, 8);
            first.publish(0);
            window.acquire(WHOLE, patient()).unwrap();
            8
        }
        "pattern" | "healed" => {
            silent.die();
            assert_eq!(word.load(Relaxed), PATTERN);
            if case == "pattern" {
                PATTERN
            } else {
                window.heal(0, home(&pool, &second, &second.link), 0).unwrap();
                until("the pattern to go", || word.load(Relaxed) != PATTERN);
                500
            }
        }
        _ => {
            eprintln!("storing");
            return word.store(1, Relaxed);
        }
    };
    assert_eq!(word.load(Relaxed), expected);
    eprintln!("storing");
    word.store(1, Relaxed);
}
