//! Four threads on each of two ranks store bytes of their own in one page of a third, millions of them, over each link: in
//! the end each byte is what its thread stored last, at home and in both windows.

mod common;

use std::{env, thread, time::Duration};

use common::{bound, ranks, room};
use pontoon::{
    Rank, World,
    hal::conformance::part,
    signal::shim::{AtomicU64, Ordering::Relaxed},
    smc::{Extent, Faults, Mapped, Pool, Settings, on_this_thread},
    ucx::Library,
    world::{Options, Transport},
};

const PAGE: usize = 4096;
const THREADS: usize = 4;
const WRITERS: usize = 2 * THREADS;
/// Bytes of a writer: each eighth of the page.
const OWN: usize = PAGE / WRITERS;

/// Stores of each thread; `PONTOON_STORES` says how many in thousands.
fn stores() -> u64 {
    let given = env::var("PONTOON_STORES").ok().map(|text| text.parse().expect("thousands"));
    given.unwrap_or(400_u64) * 1000
}

#[test]
fn writers_of_one_page_lose_nothing_over_shm() {
    write("writers-shm", room(), Faults::InThread, 1000);
}

#[test]
fn writers_of_one_page_lose_nothing_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    write("writers-ucx", room().with_transport(Transport::Ucx), Faults::Auto, 10_000);
}

/// The bytes that a writer stores to, one after the other: which of its own, and what.
fn steps(writer: usize) -> impl Iterator<Item = (usize, u8)> {
    let mut random = writer as u64 + 1;
    (0..stores()).map(move |step| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12345);
        ((random >> 40) as usize % OWN, (step * 31 + writer as u64) as u8)
    })
}

/// What the page is in the end.
fn expected() -> Vec<u8> {
    let mut page = vec![0; PAGE];
    for writer in 0..WRITERS {
        for (own, value) in steps(writer) {
            page[own * WRITERS + writer] = value;
        }
    }
    page
}

fn write(name: &str, options: Options, faults: Faults, every: u64) {
    let found = ranks(
        name,
        3,
        |_| options,
        |world| {
            let found = match world.rank() {
                Rank(0) => {
                    let export = world.export("memory", PAGE, bound()).unwrap();
                    world.barrier("there", bound()).unwrap();
                    world.barrier("released", bound()).unwrap();
                    let mut page = vec![0; PAGE];
                    assert!(export.read(0, &mut page));
                    world.barrier("end", bound()).unwrap();
                    page
                }
                node => node_of(&world, node.0 as usize - 1, faults, every),
            };
            world.leave(bound()).unwrap();
            found
        },
    );
    let expected = expected();
    for (rank, found) in found.iter().enumerate() {
        let wrong = (0..PAGE).filter(|&at| found[at] != expected[at]);
        let wrong: Vec<_> = wrong.map(|at| (at, found[at], expected[at])).collect();
        assert_eq!(wrong, [], "rank {rank}: bytes that are another than was stored last");
    }
    println!("{name}: {} stores, {PAGE} bytes compared in 3 places", stores() * WRITERS as u64);
}

fn node_of(world: &World, node: usize, faults: Faults, every: u64) -> Vec<u8> {
    world.barrier("there", bound()).unwrap();
    let mut settings = Settings::for_pages(64);
    // A loaded machine is no dead home.
    settings.deadline = Duration::from_secs(20);
    let pool = Pool::new(settings).unwrap();
    let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
    let window = Mapped::open(&pool, vec![Extent::new(0..PAGE, home, 0)], faults).unwrap();
    let (window, over) = (&window, &AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || store_all(window, node * THREADS + thread, every)))
            .collect();
        scope.spawn(move || {
            let _stack = on_this_thread().unwrap();
            while over.load(Relaxed) == 0 {
                window.acquire(0..PAGE, bound()).unwrap();
                thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(1, Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let _stack = on_this_thread().unwrap();
    world.barrier("released", bound()).unwrap();
    window.acquire(0..PAGE, bound()).unwrap();
    let mut page = vec![0; PAGE];
    window.get(0, &mut page).unwrap();
    let statistics = window.statistics();
    assert_eq!((statistics.conflicts, statistics.poisoned), (0, 0), "{statistics:?}");
    world.barrier("end", bound()).unwrap();
    page
}

/// Makes all stores of a writer, and looks before each whether the one before it is there.
fn store_all(window: &Mapped, writer: usize, every: u64) {
    let _stack = on_this_thread().unwrap();
    let (mut own, mut step) = ([0_u8; OWN], 0);
    for (at, value) in steps(writer) {
        let byte = at * WRITERS + writer;
        let (word, shift) = (window.word(byte / 8 * 8).unwrap(), byte % 8 * 8);
        let shift = if cfg!(target_endian = "big") { 56 - shift } else { shift };
        // A store of one byte: others store to those beside it, and merges come.
        let mut seen = word.load(Relaxed);
        loop {
            let found = (seen >> shift) as u8;
            assert_eq!(found, own[at], "writer {writer} lost what it stored to byte {byte}");
            let new = seen & !(0xFF << shift) | u64::from(value) << shift;
            match word.compare_exchange_weak(seen, new, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        own[at] = value;
        step += 1;
        if step % every == 0 {
            window.release(0..PAGE, bound()).unwrap();
        }
    }
    window.release(0..PAGE, bound()).unwrap();
}
