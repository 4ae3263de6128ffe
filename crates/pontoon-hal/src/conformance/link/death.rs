//! L9 and what it means for keys: peers that end.

use std::time::Instant;

use pontoon_signal::{Ending, WaitError};

use super::{
    Checked, LinkSubject, World,
    bytes::{pattern, peek, poke},
    patient, rank,
};
use crate::link::{LinkError, Order, PeerState};

/// L9: once a peer is dead, every operation on it fails with that at once, and its completions end;
/// it stays so; and others notice nothing.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l9_the_dead_fail_at_once_and_alone<S: LinkSubject>(subject: &S) -> Checked {
    let mut world = World::new(subject, "L9", 3);
    let regions = [1, 2].map(|at| world.registered(at, 0..4096));
    let (to, other) = (world.remote(0, 1, &regions[0]), world.remote(0, 2, &regions[1]));
    let (local, key) = (world.registered(0, 0..4096), world.key(&regions[0]));
    let (mut signal, mut alive) = (world.signal(0, 1, 0), world.signal(0, 2, 0));
    let number = world.post(0, || world.link(0).write(&local, 0..4096, &to, 0));
    world.done(0, 1, number);
    let completions = world.good("completions", world.link(0).completions(rank(1)));
    let state = |world: &World<'_, S>| world.link(0).peer_state(rank(1));
    world.holds("a peer that lives is not alive", state(&world) == PeerState::Alive);

    let died = world.kill(1);
    world.until("a death is noticed", || state(&world) != PeerState::Alive);
    let first = state(&world);
    let link = world.link(0);
    let start = Instant::now();
    let dead = |what: &str, result: Result<(), LinkError>| match result {
        Err(LinkError::PeerDead { peer } | LinkError::Failed { peer, .. }) if peer == rank(1) => {}
        result => panic!("L9: {what} on a dead peer: {result:?}"),
    };
    // One that is used up only by hanging.
    let bound = patient();
    dead("write", link.write(&local, 0..8, &to, 0).map(drop));
    dead("write", link.write(&local, 0..4096, &to, 0).map(drop));
    dead("inline write", link.write_inline(&[], &to, 0).map(drop));
    dead("read", link.read(&to, 0, &local, 0..8).map(drop));
    for order in [Order::Strong, Order::Weak] {
        let told = link.write_signal(&local, 0..8, &to, 0, &mut signal, 1, order);
        dead("write-then-signal", told.map(drop));
        dead("signal", link.signal(&mut signal, 1, order).map(drop));
    }
    dead("posted add", link.post_add(&to, 0, 1, None).map(drop));
    dead("posted add", link.post_add(&to, 0, 1, Some((&local, 8))).map(drop));
    dead("add", link.add(&to, 0, 1, bound).map(drop));
    dead("compare-and-swap", link.compare_swap(&to, 0, 0, 1, bound).map(drop));
    dead("fence", link.fence(rank(1)));
    dead("flush", link.flush(rank(1), bound));
    dead("attach", link.attach(rank(1), &key).map(drop));
    dead("attach a signal", link.attach_signal(rank(1), 1).map(drop));
    let waiter = completions.waiter();
    match link.wait(&waiter, number + 100, bound) {
        Err(WaitError::PeerDead { .. } | WaitError::LinkFailed { .. }) => {}
        other => panic!("L9: the completions of a dead peer do not end: {other:?}"),
    }
    world.still_patient(start, "all fails at once");
    link.end_peer(rank(1), Ending::LinkFailed { code: 7 });
    world.holds("a dead peer's state changed", state(&world) == first);
    dead("write", link.write(&local, 0..8, &to, 0).map(drop));

    // Rank 2 is none the wiser.
    let (waiter, before) = (world.waiter(2, 0, 0), alive.value());
    poke(local.block(), 0, &pattern(9, 4096));
    let order = Order::Weak;
    world.post(0, || link.write_signal(&local, 0..4096, &other, 0, &mut alive, 1, order));
    world.reached(2, &waiter, before + 1);
    let arrived = peek(regions[1].block(), 0, 4096) == pattern(9, 4096);
    world.holds("a write to another peer is lost", arrived);
    world.flush(0, 2);
    world.flush(2, 0);
    world.holds("another peer has ended", link.peer_state(rank(2)) == PeerState::Alive);

    let nobody = rank(99);
    let unknown = |result: Result<(), LinkError>| {
        let told = matches!(result, Err(LinkError::NoSuchPeer { peer, .. }) if peer == nobody);
        world.holds("a rank that was never connected is not told as such", told);
    };
    link.end_peer(nobody, Ending::PeerDead { rank: nobody });
    unknown(link.flush(nobody, patient()));
    unknown(link.fence(nobody));
    unknown(link.attach(nobody, &key).map(drop));
    unknown(link.attach_signal(nobody, 0).map(drop));
    unknown(link.completions(nobody).map(drop));
    unknown(link.capabilities(nobody).map(drop));
    let gone = matches!(link.peer_state(nobody), PeerState::Ended(_));
    world.holds("a rank that was never connected lives", gone);
    if died { Checked::Yes } else { Checked::Partly("death that the link can be made to suffer") }
}

/// L1: a key from before its owner was started again opens nothing; a new one opens the new region;
/// and what was of the former life stays dead.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l1_keys_of_a_former_life_are_stale<S: LinkSubject>(subject: &S) -> Checked {
    let mut world = World::new(subject, "L1", 3);
    let region = world.registered(1, 0..4096);
    let (old, key, local) =
        (world.remote(0, 1, &region), world.key(&region), world.registered(0, 0..4096));
    let mut former = world.signal(1, 0, 0);
    world.post(1, || world.link(1).signal(&mut former, 1, Order::Weak));
    world.reached(0, &world.waiter(0, 1, 0), former.value());
    world.post(0, || world.link(0).write(&local, 0..8, &old, 0));
    world.flush(0, 1);
    // The dead drop nothing.
    std::mem::forget(former);
    drop(region);
    world.kill(1);
    world.until("a death is noticed", || world.link(0).peer_state(rank(1)) != PeerState::Alive);
    let subject = world.subject;
    if !subject.restart(&mut world.members, 1) {
        return Checked::No("a rank that can be started again");
    }
    world.movers[1] = Some(super::Mover::of(&world.members[1]));
    let link = world.link(0);
    world.holds("a new life is dead", link.peer_state(rank(1)) == PeerState::Alive);
    match link.attach(rank(1), &key) {
        Err(LinkError::Key { peer, .. }) if peer == rank(1) => {}
        other => panic!("L1: a key of a former life: {other:?}"),
    }
    let late = link.write(&local, 0..8, &old, 0);
    let dead = matches!(late, Err(LinkError::PeerDead { .. } | LinkError::Failed { .. }));
    world.holds(&format!("a region of a former life was written: {late:?}"), dead);

    let region = world.registered(1, 0..4096);
    let to = world.remote(0, 1, &region);
    poke(local.block(), 0, &pattern(3, 4096));
    let number = world.post(0, || link.write(&local, 0..4096, &to, 0));
    world.holds("a new life's operations are numbered from 1", number.get() == 1);
    world.flush(0, 1);
    let arrived = peek(region.block(), 0, 4096) == pattern(3, 4096);
    world.holds("a new region cannot be written", arrived);
    // Both ways: what the former life had claimed is the new one's.
    let mut signal = world.signal(1, 0, 0);
    world.post(1, || world.link(1).signal(&mut signal, 1, Order::Weak));
    world.reached(0, &world.waiter(0, 1, 0), signal.value());
    Checked::Yes
}
