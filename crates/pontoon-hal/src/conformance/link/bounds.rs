//! L8 and L10: how long, and how many at once.

use std::time::Instant;

use pontoon_signal::{Bound, Nanos};

use super::{
    Checked, LinkSubject, World,
    bytes::{pattern, peek, poke},
    rank,
};
use crate::{
    conformance::{MOMENT, PATIENCE},
    link::{LinkError, Operation},
};

/// L8: a flush, and an atomic operation, of a peer that does not move end with their bound and say
/// how far they got; what was posted goes on when the peer does. Of a peer that takes no part, they
/// succeed all the same.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l8_a_bound_ends_a_flush<S: LinkSubject>(subject: &S) -> Checked {
    const BYTES: usize = 1 << 20;
    let mut world = World::new(subject, "L8", 3);
    let Some(held) = world.hold(1) else {
        return Checked::No("a peer that can be kept from making progress");
    };
    let region = world.registered(1, 0..BYTES);
    let (to, local) = (world.remote(0, 1, &region), world.registered(0, 0..BYTES));
    let bytes = pattern(8, BYTES);
    poke(local.block(), 0, &bytes);
    let number = world.post(0, || world.link(0).write(&local, 0..BYTES, &to, 0));
    let can = world.good("capabilities", world.link(0).capabilities(rank(1)));
    let start = Instant::now();
    let flushed = world.link(0).flush(rank(1), Bound::within(MOMENT));
    let took = start.elapsed();
    if can.one_sided {
        world.holds("a one-sided link needs its peer", flushed.is_ok());
    } else {
        world.holds("a flush outlasts its bound", took < PATIENCE);
        match flushed {
            Err(LinkError::TimedOut {
                peer,
                operation: Operation::Flush,
                waited,
                done,
                posted,
            }) => {
                let full = waited >= Nanos::from(MOMENT);
                world.holds("a time-out comes before its time", full);
                let named = peer == rank(1) && posted.is_at_or_past(number);
                world.holds("a time-out names another peer or count", named);
                world.holds("more is done than was posted", posted.is_at_or_past(done));
            }
            other => panic!("L8: a flush of a peer that does not move: {other:?}"),
        }
        let added = world.link(0).add(&to, 0, 0, Bound::within(MOMENT));
        let late = matches!(added, Err(LinkError::TimedOut { operation: Operation::Add, .. }));
        world.holds("an addition at a peer that does not move did not time out", late);
        world.holds("an addition outlasts its bound", start.elapsed() < PATIENCE);
    }
    // Others notice nothing.
    world.flush(0, 2);
    world.let_go(1, held);
    world.flush(0, 1);
    world.done(0, 1, number);
    world.holds("what was under way is lost", peek(region.block(), 0, BYTES) == bytes);
    Checked::Yes
}

/// L10: at most as many operations as the link says are under way; one more is refused, nothing of
/// it is done, and there is room again once some are.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l10_no_more_than_the_depth_is_under_way<S: LinkSubject>(subject: &S) -> Checked {
    const REACHABLE: u32 = 1 << 16;
    let mut world = World::new(subject, "L10", 2);
    let depth = world.good("capabilities", world.link(0).capabilities(rank(1))).depth;
    world.holds("a link without room", depth > 0);
    if depth > REACHABLE {
        return Checked::No("a depth that can be reached");
    }
    let region = world.registered(1, 0..8192);
    let (to, local) = (world.remote(0, 1, &region), world.registered(0, 0..8192));
    let held = world.hold(1);
    let full = LinkError::Full { peer: rank(1), depth };
    let (mut posted, mut refused) = (0, 0);
    for _ in 0..4 * depth {
        match world.link(0).write(&local, 0..4096, &to, 0) {
            Ok(number) => {
                posted += 1;
                world.holds("a refused operation has a number", number.get() == posted);
                let done = world.good("completions", world.link(0).completions(rank(1))).value();
                let under_way = posted - done.get().min(posted);
                world.holds("more is under way than the depth", under_way <= u64::from(depth));
            }
            Err(error) if error == full => {
                refused += 1;
                world.link(0).progress();
            }
            Err(error) => panic!("L10: a full link refused with something else: {error}"),
        }
    }
    let stood_still = held.is_some();
    if let Some(held) = held {
        world.let_go(1, held);
    }
    world.flush(0, 1);
    world.post(0, || world.link(0).write(&local, 0..8, &to, 0));
    world.flush(0, 1);
    match refused {
        0 if stood_still => Checked::Partly("operation that stays under way"),
        0 => Checked::Partly("peer that can be kept from making progress"),
        _ => Checked::Yes,
    }
}
