//! L2, L5, L7 and L8 of additions that nobody waits for.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{Seq, shim::Ordering::*};

use super::{
    Checked, LinkSubject, World,
    bytes::{peek, poke, word},
    patient, rank,
};
use crate::link::{LinkError, Order};

const GUARD: u8 = 0x5C;
/// Of each rank, at least, and more while there is time: fast links meet seldom.
const ROUNDS: usize = 500;
const ROUNDS_MAX: usize = 1 << 19;
const TIME: Duration = Duration::from_millis(500);
/// Old values that are under way at once.
const WINDOW: usize = 64;

/// L2, L7: a posted addition is numbered as any operation; once it is done, what was there is in its place
/// and nothing beside it is touched. What is not a word on either side is refused, and nothing was done.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l7_a_posted_addition_brings_what_was_there<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L7", 2);
    let region = world.registered(1, 0..4096);
    let (to, local, odd) = (
        world.remote(0, 1, &region),
        world.registered(0, 0..4096),
        world.registered(0, 4100..4132),
    );
    let (link, there) = (world.link(0), word(region.block(), 64));
    poke(local.block(), 0, &[GUARD; 128]);
    there.store(u64::MAX - 1, Relaxed);

    let misaligned = |what: &str, told: Result<Seq, LinkError>, offset| {
        world.holds(what, told == Err(LinkError::Misaligned { offset }));
    };
    let outside = |what: &str, told: Result<Seq, LinkError>, rank| {
        let refused =
            matches!(told, Err(LinkError::OutOfRange { rank: whose, .. }) if whose == rank);
        world.holds(what, refused);
    };
    for offset in [1, 4, 4084] {
        misaligned(
            "a word off its place was added to",
            link.post_add(&to, offset, 1, None),
            offset,
        );
        let told = link.post_add(&to, 64, 1, Some((&local, offset)));
        misaligned("a place off a word was taken for an old value", told, offset);
    }
    let told = link.post_add(&to, 64, 1, Some((&odd, 0)));
    misaligned("a place off a word in memory was taken", told, 0);
    for offset in [4096, 4092, usize::MAX - 3, usize::MAX - 7] {
        outside("a word outside was added to", link.post_add(&to, offset, 1, None), rank(1));
        let told = link.post_add(&to, 64, 1, Some((&local, offset)));
        outside("an old value was to go outside", told, rank(0));
    }
    world.flush(0, 1);
    world.holds("a refused addition was done", there.load(Relaxed) == u64::MAX - 1);

    // The last one's bytes go on belonging to the link, though its handles are dropped.
    let (bytes, completions) =
        (local.block().clone(), world.good("completions", link.completions(rank(1))));
    let numbers: Vec<Seq> = [(3, Some(8)), (70, None), (0, Some(24)), (5, Some(120))]
        .map(|(n, at)| world.post(0, || link.post_add(&to, 64, n, at.map(|at| (&local, at)))))
        .into();
    drop((to, local));
    let counted = (1..).zip(&numbers).all(|(n, number): (u64, _)| number.get() == n);
    world.holds("posted additions are not numbered from 1, or refused ones are", counted);
    world.reached(0, &completions.waiter(), numbers[3]);
    for (at, old) in [(8, u64::MAX - 1), (24, 71), (120, 71)] {
        let found = word(&bytes, at).load(Relaxed);
        world.holds(&format!("what was there is {old} and not {found}"), found == old);
    }
    let mut beside = (0..128).filter(|at| ![8, 24, 120].contains(&(at / 8 * 8)));
    let around = peek(&bytes, 0, 128);
    world.holds("bytes beside an old value were written", beside.all(|at| around[at] == GUARD));
    world.flush(0, 1);
    world.holds("the owner does not see the sum", there.load(Relaxed) == 76);
    Checked::Yes
}

/// L7: of posted additions that meet each other, and those that are waited for, none is lost, and each finds
/// what no other found.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l7_posted_additions_lose_nothing<S: LinkSubject>(subject: &S) -> Checked {
    const WORD: usize = 128;
    let world = World::new(subject, "L7", 3);
    let region = world.registered(0, 0..4096);
    let sum = word(region.block(), WORD);
    let sides =
        [1, 2].map(|at| (at, world.remote(at, 0, &region), world.registered(at, 0..8 * WINDOW)));
    let both = &Barrier::new(2);
    let mut seen: Vec<u64> = thread::scope(|scope| {
        let world = &world;
        let ranks = sides.map(|(at, to, local)| {
            scope.spawn(move || {
                let (link, mut found, mut last) = (world.link(at), Vec::new(), Seq::new(0));
                both.wait();
                let start = Instant::now();
                while found.len() < ROUNDS || (start.elapsed() < TIME && found.len() < ROUNDS_MAX) {
                    for place in 0..WINDOW {
                        let reply = Some((&local, 8 * place));
                        last = world.post(at, || link.post_add(&to, WORD, 1, reply));
                    }
                    found.push(world.good("add", link.add(&to, WORD, 1, patient())));
                    world.done(at, 0, last);
                    found.extend((0..WINDOW).map(|at| word(local.block(), 8 * at).load(Relaxed)));
                }
                found
            })
        });
        ranks.into_iter().flat_map(|thread| thread.join().expect("its panic was told")).collect()
    });
    seen.sort_unstable();
    let count = seen.len() as u64;
    let all: Vec<u64> = (0..count).collect();
    world.holds("of posted additions one was lost, or two found the same", seen == all);
    world.holds("the sum is not there", sum.load(Relaxed) == count);
    Checked::Yes
}

/// L5: a strong signal vouches for the additions that were posted before it.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l5_a_strong_signal_vouches_for_additions<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L5", 2);
    let region = world.registered(1, 0..4096);
    let (to, mut signal, waiter) =
        (world.remote(0, 1, &region), world.signal(0, 1, 0), world.waiter(1, 0, 0));
    let (link, start) = (world.link(0), signal.value());
    for round in 1..=200 {
        world.post(0, || link.post_add(&to, 8, 3, None));
        world.post(0, || link.signal(&mut signal, 1, Order::Strong));
        world.reached(1, &waiter, start + round);
        let sum = word(region.block(), 8).load(Relaxed);
        world.holds("a signal came before an addition", sum == 3 * u64::from(round));
    }
    Checked::Yes
}

/// L8: an addition at a peer that does not move is posted all the same, and done when the peer moves.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l8_a_posted_addition_does_not_wait<S: LinkSubject>(subject: &S) -> Checked {
    let mut world = World::new(subject, "L8", 2);
    let region = world.registered(1, 0..4096);
    let (to, local) = (world.remote(0, 1, &region), world.registered(0, 0..64));
    // Connected, and all that comes with the first operation behind it.
    world.flush(0, 1);
    let Some(held) = world.hold(1) else {
        return Checked::No("a peer that can be kept from making progress");
    };
    poke(local.block(), 0, &[GUARD; 16]);
    let start = Instant::now();
    let number =
        world.good("post an addition", world.link(0).post_add(&to, 0, 9, Some((&local, 8))));
    world.still_patient(start, "an addition was posted");
    if !world.good("capabilities", world.link(0).capabilities(rank(1))).one_sided {
        let slot = world.good("completions", world.link(0).completions(rank(1)));
        let done = slot.value().is_at_or_past(number);
        world.holds("an addition is done that its peer had no part in", !done);
        let early = peek(local.block(), 0, 16) != [GUARD; 16];
        world.holds("what was there came before the addition was done", !early);
    }
    world.let_go(1, held);
    world.done(0, 1, number);
    world.holds("what was there did not come", word(local.block(), 8).load(Relaxed) == 0);
    world.flush(0, 1);
    world.holds("the addition was lost", word(region.block(), 0).load(Relaxed) == 9);
    Checked::Yes
}
