//! Ranks of a job, each in a thread of its own.

#![allow(dead_code, reason = "each test uses its part")]

use std::{net::TcpListener, thread, time::Duration};

use pontoon::{Bound, Rank, World, job::Env, world::Options};

/// Far beyond what any of these takes: it catches a hang, not a slow machine.
pub(crate) fn bound() -> Bound {
    Bound::within(Duration::from_secs(60))
}

/// A place with one counter, and some room.
pub(crate) fn room() -> Options {
    // A thread that was given no turn is not dead.
    let options = Options::default().with_slots(1).with_lost_after(Duration::from_secs(20));
    options.with_heap(4 << 20).with_bound(bound())
}

/// Has `size` ranks of a job of that name do `work`, each with the options of its own. What each gave.
pub(crate) fn ranks<T: Send>(
    name: &str,
    size: u32,
    options: impl Fn(u32) -> Options + Sync,
    work: impl Fn(World) -> T + Sync,
) -> Vec<T> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let mut all = Env::alone().expect("random bytes");
    (all.master.port, all.world) = (free.expect("a free port").port(), size);
    all.job = name.into();
    (all.local_rank, all.local_world) = (None, None);
    let rank = |rank: u32| {
        let mut env = all.clone();
        env.rank = Rank(rank);
        work(World::open_in(&env, options(rank)).expect("joined"))
    };
    thread::scope(|scope| {
        let rank = &rank;
        let all: Vec<_> = (0..size).map(|at| scope.spawn(move || rank(at))).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}
