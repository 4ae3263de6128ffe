//! Random accesses, releases and acquires of two windows on the same memory, against a model of each byte.

#![cfg(not(pontoon_loom))]

mod common;

use common::{Client, Pair, Plain, pair, patient};
use pontoon_hal::paging::PAGE;
use pontoon_signal::shim::yield_now;
use pontoon_smc::{Class, Extent, Pool, Settings};
use proptest::prelude::*;
use std::time::{Duration, Instant};

const PAGES: usize = 200;

#[derive(Clone, Debug)]
enum Step {
    /// A client stores to a byte of its own: `value` from `byte` on, `len` times every second byte.
    Store {
        client: usize,
        byte: usize,
        len: usize,
        value: u8,
    },
    Load {
        client: usize,
        byte: usize,
    },
    Release {
        client: usize,
        pages: (usize, usize),
    },
    Acquire {
        client: usize,
        pages: (usize, usize),
    },
    Cell {
        client: usize,
        word: usize,
        value: u64,
    },
}

fn range() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![Just((0, PAGES)), (0..PAGES, 1..20_usize)]
        .prop_map(|(start, len)| (start, (start + len).min(PAGES)))
}

fn step() -> impl Strategy<Value = Step> {
    // Bytes of a few pages, and of all.
    let byte = || prop_oneof![0..4 * PAGE, 0..PAGES * PAGE];
    let (client, any_client) = (0..2_usize, || 0..=READER);
    prop_oneof![
        6 => (client.clone(), byte(), 1..40_usize, any::<u8>())
            .prop_map(|(client, byte, len, value)| Step::Store { client, byte, len, value }),
        5 => (any_client(), byte()).prop_map(|(client, byte)| Step::Load { client, byte }),
        2 => (client.clone(), range()).prop_map(|(client, pages)| Step::Release { client, pages }),
        3 => (any_client(), range()).prop_map(|(client, pages)| Step::Acquire { client, pages }),
        1 => (client, 0..CELLS, any::<u64>())
            .prop_map(|(client, word, value)| Step::Cell { client, word, value }),
    ]
}

/// The client whose extents are read only.
const READER: usize = 2;

/// Words that are written through, by anybody; no plain store touches them.
const CELLS: usize = 64;
const CELLS_AT: usize = (PAGES - 1) * PAGE;

fn client(pair: &Pair, pages: usize, with: impl Fn(Extent) -> Extent) -> Client {
    let mut settings = Settings::for_pages(pages);
    settings.low = 0;
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let half = PAGES / 2 * PAGE;
    // Two extents, of which the second begins elsewhere at home: it is the first half there.
    let extents = vec![
        with(Extent::new(0..half, home.clone(), half)),
        with(Extent::new(half..2 * half, home, 0)),
    ];
    Client::new(pool.window(plain.clone(), extents).unwrap(), plain)
}

/// Where a byte of the windows is at home.
fn at_home(byte: usize) -> usize {
    let half = PAGES / 2 * PAGE;
    (byte + half) % (2 * half)
}

/// What may be known of a byte: who writes it, what he wrote, and what of it was released.
struct Byte {
    written: u8,
    /// What home may have: what was there at the last release, and all that was written since, for room may have
    /// to be made for other pages at any time, and then it goes home.
    home: Vec<u8>,
    /// What the other may see: what home may have had when he last acquired it, and all since.
    seen: Vec<u8>,
    /// The same of who reads only.
    read: Vec<u8>,
}

fn run(steps: &[Step], pages: usize, class: Class) {
    let pair = pair(PAGES);
    let writer = || client(&pair, pages, |extent| extent.class(class));
    let reader = client(&pair, pages, |extent| extent.class(class).read_only());
    let clients = [writer(), writer(), reader];
    let mut model = std::collections::HashMap::<usize, Byte>::new();
    let fresh = || Byte { written: 0, home: vec![0], seen: vec![0], read: vec![0] };
    let mut cells = [0_u64; CELLS];
    for step in steps {
        match *step {
            Step::Store { client, byte, len, value } => {
                for k in 0..len {
                    let byte = (byte & !1) + client + 2 * k;
                    if byte >= CELLS_AT {
                        break;
                    }
                    let value = value.wrapping_add(k as u8);
                    clients[client].store(byte, value);
                    let known = model.entry(byte).or_insert_with(fresh);
                    known.written = value;
                    known.home.push(value);
                    known.seen.push(value);
                    known.read.push(value);
                }
            }
            Step::Load { client, byte } => {
                if byte >= CELLS_AT {
                    continue;
                }
                let found = clients[client].load(byte);
                let known = model.entry(byte).or_insert_with(fresh);
                if client == READER {
                    assert!(known.read.contains(&found), "byte {byte}, read only: {found}");
                } else if byte % 2 == client {
                    assert_eq!(found, known.written, "its own byte {byte}");
                } else {
                    assert!(known.seen.contains(&found), "byte {byte}: {found}");
                }
            }
            Step::Release { client, pages } => {
                let bytes = pages.0 * PAGE..pages.1 * PAGE;
                clients[client].window.release(bytes.clone(), patient()).unwrap();
                for (&byte, known) in &mut model {
                    if byte % 2 == client && bytes.contains(&byte) {
                        known.home = vec![known.written];
                        assert_eq!(
                            pair.at_home(at_home(byte)),
                            known.written,
                            "byte {byte} at home"
                        );
                    }
                }
            }
            Step::Acquire { client, pages } => {
                let bytes = pages.0 * PAGE..pages.1 * PAGE;
                clients[client].window.acquire(bytes.clone(), patient()).unwrap();
                for (&byte, known) in &mut model {
                    if byte % 2 != client && bytes.contains(&byte) {
                        let seen = if client == READER { &mut known.read } else { &mut known.seen };
                        seen.clone_from(&known.home);
                        let found = clients[client].load(byte);
                        assert!(seen.contains(&found), "byte {byte} after an acquire: {found}");
                    }
                }
            }
            Step::Cell { client, word, value } => {
                let offset = CELLS_AT + word * 8;
                clients[client].touch(offset / PAGE);
                let cell = clients[client].window.cell(offset).unwrap();
                assert_eq!(cell.load_fresh(patient()), Ok(cells[word]));
                match value % 4 {
                    0 => cell.store(value, patient()).unwrap(),
                    1 => {
                        cell.post(value).unwrap();
                        cell.drain(patient()).unwrap();
                    }
                    2 => {
                        let before = cell.fetch_add(value.wrapping_sub(cells[word]), patient());
                        assert_eq!(before, Ok(cells[word]));
                    }
                    _ => {
                        let wrong = cells[word].wrapping_add(1);
                        assert_eq!(cell.compare_exchange(wrong, 7, patient()), Ok(cells[word]));
                        let before = cell.compare_exchange(cells[word], value, patient());
                        assert_eq!(before, Ok(cells[word]));
                    }
                }
                cells[word] = value;
                let here = (0..8).map(|k| clients[client].load(offset + k));
                assert_eq!(here.collect::<Vec<_>>(), value.to_ne_bytes(), "here too");
            }
        }
    }
    // In the end all is everywhere.
    for client in &clients {
        client.window.release(0..PAGES * PAGE, patient()).unwrap();
        // A page that the keeper looks at just now counts until it is known.
        let until = Instant::now() + Duration::from_secs(20);
        while !client.window.unsent().is_empty() {
            assert!(Instant::now() < until, "{:?}", client.window.unsent());
            yield_now();
        }
    }
    for client in &clients {
        client.window.acquire(0..PAGES * PAGE, patient()).unwrap();
        for (&byte, known) in &model {
            assert_eq!(client.load(byte), known.written, "byte {byte} in the end");
        }
        for (word, cell) in cells.iter().enumerate() {
            let here = (0..8).map(|k| client.load(CELLS_AT + word * 8 + k));
            assert_eq!(here.collect::<Vec<_>>(), cell.to_ne_bytes(), "cell {word}");
        }
        let statistics = client.window.statistics();
        assert_eq!((statistics.conflicts, statistics.poisoned, statistics.stray), (0, 0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_the_last_that_was_written(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, 256, Class::Small);
    }

    #[test]
    fn room_is_made_without_a_loss(steps in prop::collection::vec(step(), 1..160)) {
        run(&steps, 64, Class::Small);
    }

    #[test]
    fn pages_come_in_groups(steps in prop::collection::vec(step(), 1..80)) {
        run(&steps, 96, Class::Medium);
    }
}
