//! L3, L4, L5: what comes before what.

use std::{sync::mpsc, thread, time::Instant};

use pontoon_signal::{Seq, Waiter, fence_system, shim::Ordering::*};

use super::{
    Checked, LinkSubject, World,
    bytes::{pattern, peek, poke, word},
    rank,
};
use crate::link::Order;

const ROUNDS: u64 = 2_000;
/// What takes so long to copy that a signal that comes too early is seen before its end.
const LONG: usize = 256 << 10;
/// Pieces of a round that one strong signal vouches for.
const PIECES: usize = 8;

/// L3: of a write before a fence and one after it, who sees the second sees the first.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l3_a_fence_keeps_what_follows_behind<S: LinkSubject>(subject: &S) -> Checked {
    const APART: usize = 2048;
    let world = World::new(subject, "L3", 2);
    let region = world.registered(1, 0..4096);
    let (link, to) = (world.link(0), world.remote(0, 1, &region));
    let local = world.registered(0, 0..16 * ROUNDS as usize);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (first, second) = (word(region.block(), 0), word(region.block(), APART));
            let start = Instant::now();
            loop {
                let later = second.load(Relaxed);
                fence_system();
                let earlier = first.load(Relaxed);
                assert!(earlier >= later, "L3: write {later} overtook a fence: {earlier} is there");
                if later == ROUNDS {
                    break;
                }
                world.still_patient(start, "what follows a fence arrives");
            }
        });
        for round in 1..=ROUNDS {
            let at = 8 * round as usize - 8;
            poke(local.block(), at, &round.to_ne_bytes());
            world.post(0, || link.write(&local, at..at + 8, &to, 0));
            world.good("fence", link.fence(rank(1)));
            world.post(0, || link.write(&local, at..at + 8, &to, APART));
        }
        world.flush(0, 1);
    });
    Checked::Yes
}

/// L4: after a flush all that was posted before is there, and done.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l4_a_flush_says_that_all_is_there<S: LinkSubject>(subject: &S) -> Checked {
    const BYTES: usize = 1 << 20;
    let world = World::new(subject, "L4", 2);
    let region = world.registered(1, 0..BYTES);
    let (link, to) = (world.link(0), world.remote(0, 1, &region));
    let local = world.registered(0, 0..BYTES);
    world.flush(0, 1);
    for round in 0..20 {
        let bytes = pattern(round, BYTES);
        poke(local.block(), 0, &bytes);
        let mut last = Seq::new(0);
        for at in (0..BYTES).step_by(16 << 10) {
            last = world.post(0, || link.write(&local, at..at + (16 << 10), &to, at));
        }
        world.flush(0, 1);
        let there = peek(region.block(), 0, BYTES) == bytes;
        world.holds("a flush came before what was to be flushed", there);
        world.done(0, 1, last);
    }
    Checked::Yes
}

/// L5: a weak signal vouches for the write it goes with, of any size.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l5_a_weak_signal_vouches_for_its_write<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L5", 2);
    for len in [8, 256, 8192, LONG] {
        rounds(&world, len, |post| {
            let Post { world, local, to, signal, round, len, half } = post;
            poke(local.block(), half, &pattern(round, len));
            world.post(0, || {
                let (link, part) = (world.link(0), half..half + len);
                link.write_signal(local, part, to, half, signal, 1, Order::Weak)
            });
        });
    }
    Checked::Yes
}

/// L5: a strong signal vouches for all that was posted to the peer before, by this thread or by one
/// that handed over to it, whether it goes with a write or alone.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l5_a_strong_signal_vouches_for_all<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L5", 2);
    for len in [64, 8192, LONG] {
        // Each piece by a write of its own; the last with the signal, or before it.
        for alone in [true, false] {
            rounds(&world, len, |post| {
                let Post { world, local, to, signal, round, len, half } = post;
                let (link, piece) = (world.link(0), len / PIECES);
                poke(local.block(), half, &pattern(round, len));
                let with = if alone { PIECES } else { PIECES - 1 };
                for at in (0..with).map(|n| half + n * piece) {
                    world.post(0, || link.write(local, at..at + piece, to, at));
                }
                let last = half + (PIECES - 1) * piece;
                world.post(0, || match alone {
                    true => link.signal(signal, 1, Order::Strong),
                    false => {
                        let part = last..last + piece;
                        link.write_signal(local, part, to, last, signal, 1, Order::Strong)
                    }
                });
            });
        }
    }
    // The pieces by another thread, which then tells this one.
    let (ask, asked) = mpsc::channel::<(u64, usize)>();
    let (tell, told) = mpsc::channel::<()>();
    let len = 4096;
    let region = world.registered(1, OTHER..OTHER + 2 * len);
    let (local, to) = (world.registered(0, OTHER..OTHER + 2 * len), world.remote(0, 1, &region));
    thread::scope(|scope| {
        let (world, local, to) = (&world, &local, &to);
        scope.spawn(move || {
            for (round, half) in asked {
                poke(local.block(), half, &pattern(round, len));
                for at in (0..PIECES).map(|n| half + n * len / PIECES) {
                    let part = at..at + len / PIECES;
                    world.post(0, || world.link(0).write(local, part.clone(), to, at));
                }
                let _ = tell.send(());
            }
        });
        rounds_of(world, region.block(), local, to, len, |post| {
            let _ = ask.send((post.round, post.half));
            world.holds("the other thread is there", told.recv().is_ok());
            world.post(0, || world.link(0).signal(post.signal, 1, Order::Strong));
        });
        drop(ask);
    });
    Checked::Yes
}

/// Where the regions of the last part are: not where those of the first were.
const OTHER: usize = 1 << 20;

/// A round to be posted: `len` bytes from `half` on, then a signal by 1.
struct Post<'a, 's, S: LinkSubject> {
    world: &'a World<'s, S>,
    local: &'a crate::link::Registered,
    to: &'a crate::link::Remote,
    signal: &'a mut crate::link::RemoteSignal,
    round: u64,
    len: usize,
    half: usize,
}

fn rounds<S: LinkSubject>(world: &World<'_, S>, len: usize, post: impl FnMut(Post<'_, '_, S>)) {
    let region = world.registered(1, 0..2 * len);
    let (local, to) = (world.registered(0, 0..2 * len), world.remote(0, 1, &region));
    rounds_of(world, region.block(), &local, &to, len, post);
}

/// Rank 0 posts rounds into two halves in turn, rank 1 checks each once it is announced, and
/// announces that its half is free again.
fn rounds_of<S: LinkSubject>(
    world: &World<'_, S>,
    region: &pontoon_signal::Block,
    local: &crate::link::Registered,
    to: &crate::link::Remote,
    len: usize,
    mut post: impl FnMut(Post<'_, '_, S>),
) {
    let (mut signal, mut credit) = (world.signal(0, 1, 0), world.signal(1, 0, 0));
    let (start, credits) = (signal.value(), credit.value());
    let half = |round: u64| len * (round % 2) as usize;
    let count = ROUNDS.min((64 << 20) / len as u64);
    thread::scope(|scope| {
        scope.spawn(move || {
            let waiter: Waiter = world.waiter(1, 0, 0);
            for round in 1..=count {
                world.reached(1, &waiter, start + round as u32);
                // First where a copy comes late, before this takes any time itself.
                let middle = (half(round) + len / 2) & !7;
                let early = word(region, middle).load(Relaxed).to_ne_bytes();
                let there = peek(region, half(round), len);
                let whole =
                    there == pattern(round, len) && there[middle - half(round)..][..8] == early;
                world.holds("a signal came before what it vouches for", whole);
                world.post(1, || world.link(1).signal(&mut credit, 1, Order::Weak));
            }
            world.flush(1, 0);
        });
        let waiter = world.waiter(0, 1, 0);
        for round in 1..=count {
            if round > 2 {
                world.reached(0, &waiter, credits + (round as u32 - 2));
            }
            let half = half(round);
            post(Post { world, local, to, signal: &mut signal, round, len, half });
        }
        world.reached(0, &waiter, credits + count as u32);
    });
}
