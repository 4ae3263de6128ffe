//! L7: atomic operations.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::shim::Ordering::*;

use super::{Checked, LinkSubject, World, bytes::word, patient, rank};
use crate::link::LinkError;

/// At least so many rounds, and more while there is time: fast links meet seldom.
const ROUNDS: u64 = 1_000;
const ROUNDS_MAX: u64 = 100_000;
const TIME: Duration = Duration::from_millis(500);
const ADDED: usize = 0;
const SWAPPED: usize = 8;
const ALONE: usize = 64;

/// L7: additions and swaps give what was there before, and of those that meet none is lost: from
/// every rank, and, where the link says so, against the owner's own.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l7_atomic_operations_lose_nothing<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L7", 3);
    let region = world.registered(0, 0..4096);
    let mine = world.remote(1, 0, &region);
    let link = world.link(1);
    let alone = word(region.block(), ALONE);
    alone.store(u64::MAX - 1, Relaxed);
    let add = |n| world.good("add", link.add(&mine, ALONE, n, patient()));
    let swap = |expected, new| {
        world.good("swap", link.compare_swap(&mine, ALONE, expected, new, patient()))
    };
    world.holds("an addition gives what was there", add(3) == u64::MAX - 1);
    world.holds("an addition wraps", add(0) == 1);
    world.holds("a swap gives what was there", swap(1, 70) == 1);
    world.holds("a swap of something else was done", swap(1, 80) == 70 && add(0) == 70);
    world.holds("the owner does not see it", alone.load(Relaxed) == 70);
    for offset in [1, 4, 4084] {
        let refused = LinkError::Misaligned { offset };
        let added = link.add(&mine, offset, 1, patient());
        world.holds("a word that is not aligned was added to", added == Err(refused.clone()));
        let swapped = link.compare_swap(&mine, offset, 0, 1, patient());
        world.holds("a word that is not aligned was swapped", swapped == Err(refused));
    }
    world.holds("a refused addition was done", word(region.block(), 0).load(Relaxed) == 0);

    let everywhere = [1, 2].map(|at| {
        let can = world.good("capabilities", world.link(at).capabilities(rank(0)));
        can.system_atomics
    });
    let owner_too = everywhere == [true; 2];
    let (added, swapped) = (word(region.block(), ADDED), word(region.block(), SWAPPED));
    let all = &Barrier::new(if owner_too { 3 } else { 2 });
    // Before the threads: one that fails here would leave the others waiting for it.
    let sides = [1, 2].map(|at| (world.link(at), world.remote(at, 0, &region)));
    let mut seen: Vec<u64> = thread::scope(|scope| {
        let world = &world;
        let ranks = sides.map(|(link, to)| {
            scope.spawn(move || {
                let mut expected = 0;
                let round = |_| {
                    let before = world.good("add", link.add(&to, ADDED, 1, patient()));
                    // Until it is this one that adds to the other word.
                    loop {
                        let swap =
                            link.compare_swap(&to, SWAPPED, expected, expected + 1, patient());
                        let found = world.good("swap", swap);
                        if found == expected {
                            expected += 1;
                            return before;
                        }
                        expected = found;
                    }
                };
                all.wait();
                rounds().map(round).collect::<Vec<_>>()
            })
        });
        let owner = scope.spawn(|| {
            if !owner_too {
                return Vec::new();
            }
            let round = |_| {
                swapped.fetch_add(1, Relaxed);
                added.fetch_add(1, Relaxed)
            };
            all.wait();
            rounds().map(round).collect()
        });
        let ranks = ranks.into_iter().chain([owner]);
        ranks.flat_map(|thread| thread.join().expect("its panic was told")).collect()
    });
    seen.sort_unstable();
    let count = seen.len() as u64;
    let all: Vec<u64> = (0..count).collect();
    world.holds("of additions that met, one was lost or seen twice", seen == all);
    world.holds("the sum is not there", added.load(Relaxed) == count);
    world.holds("of swaps that met, one was lost", swapped.load(Relaxed) == count);
    if owner_too { Checked::Yes } else { Checked::Partly("atomic operations with the owner's own") }
}

fn rounds() -> impl Iterator<Item = u64> {
    let start = Instant::now();
    (0..ROUNDS_MAX).take_while(move |round| *round < ROUNDS || start.elapsed() < TIME)
}
