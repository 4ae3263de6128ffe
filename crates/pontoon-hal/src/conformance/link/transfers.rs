//! L2: numbers, completions, and whose the bytes are meanwhile.

use std::thread;

use super::{
    Checked, LinkSubject, World,
    bytes::{pattern, peek, poke},
    rank,
};
use crate::link::{LinkError, Order};

const LARGE: usize = 4 << 20;

/// L2: operations on a peer are numbered from 1, and those on another peer apart; completions reach
/// every number, and none that was not posted. Of threads that post at once each has numbers of its
/// own.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l2_operations_are_numbered<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L2", 3);
    let (link, local) = (world.link(0), world.registered(0, 0..4096));
    let regions = [1, 2].map(|at| world.registered(at, 0..4096));
    let (near, far) = (world.remote(0, 1, &regions[0]), world.remote(0, 2, &regions[1]));
    let mut signal = world.signal(0, 1, 0);
    let mut numbers = Vec::new();
    for _ in 0..10 {
        numbers.push(world.post(0, || link.write(&local, 0..8, &near, 0)));
        numbers.push(world.post(0, || link.read(&near, 8, &local, 8..16)));
        numbers.push(world.post(0, || link.write_inline(&[], &near, 0)));
        numbers.push(world.post(0, || link.signal(&mut signal, 1, Order::Weak)));
    }
    let counted = (1..).zip(&numbers).all(|(n, number): (u64, _)| number.get() == n);
    world.holds("operations are not numbered from 1 in their order", counted);
    let first = world.post(0, || link.write(&local, 0..8, &far, 0));
    world.holds("another peer's operations are numbered apart", first.get() == 1);
    for number in numbers {
        world.done(0, 1, number);
    }
    let slot = world.good("completions", link.completions(rank(1)));
    world.holds("completions are past what was posted", slot.value().get() == 40);

    let post = |_| world.post(0, || link.write(&local, 0..8, &near, 0)).get();
    let mut all: Vec<u64> = thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(|| (0..200).map(&post).collect::<Vec<_>>()));
        let lists = threads.map(|thread| thread.join().expect("its panic was told"));
        let ascend = lists.iter().all(|list| list.is_sorted());
        world.holds("a thread's operations are not numbered in their order", ascend);
        lists.into_iter().flatten().collect()
    });
    all.sort_unstable();
    world.holds("threads share numbers, or leave some out", all == (41..=640).collect::<Vec<_>>());
    world.done(0, 1, pontoon_signal::Seq::new(640));
    let report = link.report();
    world.holds(
        "the report counts what was posted",
        report.posted >= 641 && report.bytes >= 8 * 621,
    );
    Checked::Yes
}

/// L2: once an operation is done, what was read is there and what was written from may be used
/// again; of every size, from and to every alignment, and no byte beside it.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l2_what_is_done_is_there_and_its_buffer_free<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L2", 2);
    let room = LARGE + 256;
    let (link, local) = (world.link(0), world.registered(0, 0..2 * room));
    let region = world.registered(1, 0..room);
    let to = world.remote(0, 1, &region);
    let guard = 0xEE;
    for (round, len) in [0, 1, 3, 8, 64, 100, 4096, LARGE].into_iter().enumerate() {
        for (at, onto) in [(0, 0), (8, 16), (1, 0), (0, 3), (5, 7), (64, 128)] {
            let bytes = pattern((round * 64 + at * 8 + onto) as u64, len);
            poke(region.block(), 0, &vec![guard; len + 256]);
            poke(local.block(), at, &bytes);
            let number = world.post(0, || link.write(&local, at..at + len, &to, onto));
            world.done(0, 1, number);
            // It is ours again: what is written there now must not arrive.
            poke(local.block(), at, &vec![0x11; len]);
            world.flush(0, 1);
            let there = peek(region.block(), 0, len + 256);
            let named = format!("{len} bytes from {at} to {onto}");
            let arrived = there[onto..onto + len] == bytes;
            world.holds(&format!("{named} are not what was written"), arrived);
            let mut beside = there[..onto].iter().chain(&there[onto + len..]);
            world.holds(&format!("{named} changed others"), beside.all(|&byte| byte == guard));

            poke(local.block(), room, &vec![guard; len + 256]);
            let into = room + at..room + at + len;
            let number = world.post(0, || link.read(&to, onto, &local, into.clone()));
            world.done(0, 1, number);
            let here = peek(local.block(), room, len + 256);
            world.holds(&format!("{named} are not what was read"), here[at..at + len] == bytes);
            let mut beside = here[..at].iter().chain(&here[at + len..]);
            let kept = beside.all(|&byte| byte == guard);
            world.holds(&format!("{named}, read, changed others"), kept);
        }
    }
    Checked::Yes
}

/// L2: what is under way ends as it would have, though its handles are dropped.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l2_what_is_under_way_outlives_its_handles<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L2", 2);
    let (link, region) = (world.link(0), world.registered(1, 0..LARGE));
    let completions = world.good("completions", link.completions(rank(1))).waiter();
    for (seed, at) in [(1, 0), (2, LARGE)] {
        let (local, to) = (world.registered(0, at..at + LARGE), world.remote(0, 1, &region));
        let (block, bytes) = (local.block().clone(), pattern(seed, LARGE));
        poke(&block, 0, &bytes);
        let written = world.post(0, || link.write(&local, 0..LARGE, &to, 0));
        drop(local);
        world.reached(0, &completions, written);
        world.flush(0, 1);
        let there = peek(region.block(), 0, LARGE) == bytes;
        world.holds("a write ended with the handle of what it wrote from", there);

        let local = world.registered(0, at..at + LARGE);
        poke(&block, 0, &vec![0x33; LARGE]);
        let read = world.post(0, || link.read(&to, 0, &local, 0..LARGE));
        drop((local, to));
        world.reached(0, &completions, read);
        let here = peek(&block, 0, LARGE) == bytes;
        world.holds("a read ended with the handle of what it read into", here);
    }
    Checked::Yes
}

/// L2: an inline write has taken its bytes over when it returns, up to the link's limit; one past it
/// is refused.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l2_what_was_taken_over_may_change<S: LinkSubject>(subject: &S) -> Checked {
    const MOST: usize = 64 << 10;
    let world = World::new(subject, "L2", 2);
    let region = world.registered(1, 0..2 * MOST);
    let (link, to) = (world.link(0), world.remote(0, 1, &region));
    let limit = world.good("capabilities", link.capabilities(rank(1))).inline_bytes;
    let lengths = [0, 1, 7, 8, 9, 64, 4096, MOST, limit].into_iter().filter(|&len| len <= limit);
    for (seed, len) in lengths.filter(|&len| len <= MOST).enumerate() {
        for onto in [0, 3, 8] {
            let bytes = pattern(seed as u64, len);
            let mut buffer = bytes.clone();
            world.post(0, || link.write_inline(&buffer, &to, onto));
            buffer.fill(0x77);
            world.flush(0, 1);
            let arrived = peek(region.block(), onto, len) == bytes;
            world.holds(&format!("{len} inline bytes are not what they were"), arrived);
        }
    }
    if limit < MOST {
        let refused = link.write_inline(&vec![0; limit + 1], &to, 0);
        let told = refused == Err(LinkError::TooLong { bytes: limit + 1, most: limit });
        world.holds("an inline write past the limit was not refused as such", told);
        return Checked::Yes;
    }
    Checked::Partly("limit of inline writes")
}
