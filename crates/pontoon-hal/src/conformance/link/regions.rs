//! L1: what of a peer's memory can be reached.

use super::{
    Checked, LinkSubject, World,
    bytes::{pattern, peek, poke},
    patient, rank,
};
use crate::link::{LinkError, Order, RegionKey, Remote};

/// Bytes on both sides of a region that must stay as they are.
const GUARD: usize = 128;
const BYTES: usize = 4096;

/// L1: a range outside of a region, at either end, is refused, and nothing was done.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l1_ranges_outside_are_refused<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L1", 2);
    let (before, all) = (pattern(1, 2 * GUARD + BYTES), world.part(1, 0..2 * GUARD + BYTES));
    poke(&all, 0, &before);
    let region = world.registered(1, GUARD..GUARD + BYTES);
    let (to, local) = (world.remote(0, 1, &region), world.registered(0, 0..BYTES));
    let mut signal = world.signal(0, 1, 0);
    let (link, start) = (world.link(0), signal.value());
    let outside = |what: &str, result: Result<(), LinkError>| {
        let refused = matches!(result, Err(LinkError::OutOfRange { .. }));
        assert!(refused, "L1: {what} was not refused as outside: {result:?}");
    };
    world.holds("a region is as large as what was registered", to.bytes() == BYTES);
    for (offset, len) in [(BYTES - 7, 8), (BYTES, 1), (BYTES + 1, 0), (usize::MAX, 8), (1, BYTES)] {
        let (named, buffer) = (format!("{len} bytes at {offset}"), vec![0xAB; len]);
        outside(&named, link.write(&local, 0..len, &to, offset).map(drop));
        outside(&named, link.read(&to, offset, &local, 0..len).map(drop));
        let order = Order::Strong;
        let told = link.write_signal(&local, 0..len, &to, offset, &mut signal, 1, order);
        outside(&named, told.map(drop));
        if len <= link.capabilities(rank(1)).map_or(0, |can| can.inline_bytes) {
            outside(&named, link.write_inline(&buffer, &to, offset).map(drop));
        }
    }
    let backwards = std::ops::Range { start: 8, end: 4 };
    for range in [BYTES - 3..BYTES + 1, BYTES + 1..BYTES + 1, 0..usize::MAX, backwards] {
        outside("a local range", link.write(&local, range.clone(), &to, 0).map(drop));
        outside("a local range", link.read(&to, 0, &local, range).map(drop));
    }
    for offset in [BYTES, BYTES - 4, usize::MAX - 3] {
        outside("a word", link.add(&to, offset, 1, patient()).map(drop));
        outside("a word", link.compare_swap(&to, offset, 0, 1, patient()).map(drop));
    }
    world.flush(0, 1);
    let waiter = world.waiter(1, 0, 0);
    world.holds("a refused signal grew", waiter.value() == start && signal.value() == start);
    world.holds("a refused operation wrote", peek(&all, 0, before.len()) == before);

    // All of it can be reached, and the numbers go on as if nothing had been asked.
    poke(local.block(), 0, &pattern(2, BYTES));
    let number = world.post(0, || link.write(&local, 0..BYTES, &to, 0));
    world.holds("a refused operation has a number", number.get() == 1);
    world.flush(0, 1);
    world.holds("all of a region was written", peek(&all, GUARD, BYTES) == pattern(2, BYTES));
    let around = [peek(&all, 0, GUARD), peek(&all, GUARD + BYTES, GUARD)].concat();
    let kept = [&before[..GUARD], &before[GUARD + BYTES..]].concat();
    world.holds("bytes beside a region were written", around == kept);
    Checked::Yes
}

/// L1: a key opens its region, and nothing else opens anything: not noise, not a part of a key, not
/// one with a bit changed, not two in one, not another rank's.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l1_keys_that_open_nothing<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L1", 3);
    let [first, second] = [0, BYTES].map(|at| world.registered(1, at..at + BYTES));
    let elsewhere = world.registered(2, 0..BYTES);
    let link = world.link(0);
    let refused = |what: &str, bytes: Vec<u8>| {
        let len = bytes.len();
        let Some(key) = RegionKey::from_bytes(bytes) else { return };
        match link.attach(rank(1), &key) {
            Err(LinkError::Key { peer, .. }) if peer == rank(1) => {}
            other => panic!("L1: {what} ({len} bytes) was not refused as a key: {other:?}"),
        }
    };
    let [key, other, third] = [&first, &second, &elsewhere].map(|region| {
        let key = world.key(region);
        key.as_bytes().to_vec()
    });
    world.holds("two regions have one key", key != other);
    for len in (0..key.len()).chain([key.len() + 1, 2 * key.len()]) {
        let part: Vec<u8> = key.iter().chain(&key).copied().chain([7]).take(len).collect();
        refused("a part of a key, or more", part);
    }
    for (seed, len) in (0..=RegionKey::BYTES_MAX).enumerate() {
        refused("noise", pattern(seed as u64, len));
    }
    refused("a key of zeros", vec![0; key.len()]);
    for bit in 0..8 * key.len() {
        let mut changed = key.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        refused("a key with a bit changed", changed);
    }
    for cut in 1..key.len().min(other.len()) {
        let mixed = [&key[..cut], &other[cut..]].concat();
        if mixed != key && mixed != other {
            refused("a key that is half another", mixed);
        }
    }
    refused("another rank's key", third);
    for (region, seed) in [(&first, 5), (&second, 6)] {
        let (to, local) = (world.remote(0, 1, region), world.registered(0, 0..BYTES));
        poke(local.block(), 0, &pattern(seed, BYTES));
        world.post(0, || link.write(&local, 0..BYTES, &to, 0));
        world.flush(0, 1);
        world.holds(
            "a key opens its region",
            peek(region.block(), 0, BYTES) == pattern(seed, BYTES),
        );
    }
    Checked::Yes
}

/// L1: once its region is registered no more, a key is worth nothing, and neither is what it opened
/// before.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l1_a_deregistered_region_is_out_of_reach<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L1", 2);
    let (link, local) = (world.link(0), world.registered(0, 0..64));
    let region = world.registered(1, 0..BYTES);
    let block = region.block().clone();
    let (key, opened, clone) = (world.key(&region), world.remote(0, 1, &region), region.clone());
    poke(local.block(), 0, &pattern(1, 64));
    drop(region);
    world.post(0, || link.write(&local, 0..64, &opened, 0));
    world.flush(0, 1);
    world.holds("a registration ends with its last handle", peek(&block, 0, 64) == pattern(1, 64));
    drop(clone);
    poke(local.block(), 0, &pattern(2, 64));
    // Who cannot know at once may find out on the way; but nothing is written.
    let try_to_write =
        |to: &Remote| link.write(&local, 0..64, to, 0).and_then(|_| link.flush(rank(1), patient()));
    if let Ok(late) = link.attach(rank(1), &key) {
        let _ = try_to_write(&late);
    }
    let _ = try_to_write(&opened);
    let _ = link.post_add(&opened, 0, 1, None).and_then(|_| link.flush(rank(1), patient()));
    world.holds("a deregistered region was written", peek(&block, 0, 64) == pattern(1, 64));

    // Who registers the bytes again gives them another key, and the old one opens that neither.
    let again = world.registered(1, 0..BYTES);
    world.holds("a registration has the key of one before", world.key(&again) != key);
    if let Ok(late) = link.attach(rank(1), &key) {
        let _ = try_to_write(&late);
    }
    world.holds("an old key opened a new region", peek(&block, 0, 64) == pattern(1, 64));
    Checked::Yes
}
