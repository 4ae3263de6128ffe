//! The promises of a pool of lines.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Bound, Ending, Lease, LinePool, Os, Producer, Rank, Reason, Seq, SlotId, WaitError,
    shim::{AtomicU64, Ordering::Relaxed},
};
use std::{sync::mpsc, thread, time::Duration};

const FIRST: SlotId = SlotId::new(3, 10);

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

/// A pool of `lines` lines, its counters at both ends in turn.
fn each_start(lines: u32, test: impl Fn(LinePool, Seq)) {
    for start in [0, u64::MAX].map(Seq::new) {
        test(LinePool::on(Os, FIRST, lines, start), start);
    }
}

/// Lines, outstanding, retired.
fn counts(pool: &LinePool) -> [u32; 3] {
    [pool.lines(), pool.outstanding(), pool.retired()]
}

#[test]
fn a_line_is_handed_out_once_and_again_after_it_came_back() {
    each_start(3, |mut pool, start| {
        for round in 1..=3 {
            let leases: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
            assert!(pool.take().is_none());
            let mut lines: Vec<_> = leases.iter().map(Lease::line).collect();
            lines.sort();
            assert_eq!((lines, counts(&pool)), (vec![0, 1, 2], [3, 3, 0]));
            for lease in leases {
                assert_eq!(lease.id(), SlotId::new(3, 10 + lease.line()));
                assert_eq!((lease.slot().id(), lease.target()), (lease.id(), start + round));
                assert_eq!(lease.complete(), start + round);
            }
            assert_eq!(counts(&pool), [3, 0, 0]);
        }
    });
}

#[test]
fn an_outcome_is_of_one_use() {
    each_start(1, |mut pool, start| {
        let first = pool.take().unwrap();
        let outcome = |pool: &LinePool, use_of| pool.outcome(0, start + use_of);
        assert_eq!(outcome(&pool, 1), None);
        first.complete();
        let second = pool.take().unwrap();
        assert_eq!((outcome(&pool, 1), outcome(&pool, 2)), (Some(Ok(())), None));
        let ending = Ending::LinkFailed { code: -5 };
        assert!(second.fail(ending));
        assert_eq!((outcome(&pool, 1), outcome(&pool, 2)), (Some(Ok(())), Some(Err(ending))));
    });
}

#[test]
fn a_line_that_ended_is_not_handed_out_again() {
    each_start(3, |mut pool, start| {
        let leases: [_; 3] = [(); 3].map(|()| pool.take().unwrap());
        let slots = leases.each_ref().map(Lease::slot);
        let [dropped, failed, ended] = leases;
        drop(dropped);
        assert!(failed.fail(Ending::PeerDead { rank: Rank(9) }));
        assert!(slots[2].end(Ending::LinkFailed { code: 1 }));
        assert_eq!((ended.complete(), counts(&pool)), (start + 1, [3, 0, 2]));
        assert!(pool.take().is_none(), "all three ended");
        assert_eq!(counts(&pool), [3, 0, 3]);

        let [dropped, failed, ended] =
            slots.map(|slot| slot.waiter().wait_ge_bounded(start + 1, patient()).map(drop));
        let by = Rank(3);
        let Err(WaitError::Aborted { reason: Reason::DROPPED, by: dropper, .. }) = dropped else {
            panic!("{dropped:?}")
        };
        assert_eq!(dropper, by);
        assert!(matches!(failed, Err(WaitError::PeerDead { rank: Rank(9), .. })));
        assert_eq!(ended, Ok(()), "it was completed before anybody waited");
    });
}

#[test]
fn the_ending_of_somebody_else_stays() {
    each_start(1, |mut pool, start| {
        let lease = pool.take().unwrap();
        let (slot, ending) = (lease.slot(), Ending::LinkFailed { code: 1 });
        assert!(slot.end(ending));
        assert!(!lease.fail(Ending::PeerDead { rank: Rank(9) }));
        assert_eq!(pool.outcome(0, start + 1), Some(Err(ending)));
    });
}

#[test]
fn a_time_out_says_that_no_time_was_noted() {
    each_start(1, |mut pool, start| {
        pool.take().unwrap().complete();
        let lease = pool.take().unwrap();
        let short = Bound::within(Duration::from_millis(1));
        let error = lease.slot().waiter().wait_ge_bounded(start + 2, short).unwrap_err();
        let (at, pid) = (error.at(), std::process::id());
        assert_eq!((at.publishes, at.last_published), (1, None));
        assert_eq!(at.producer, Some(Producer { rank: Rank(3), generation: 1, pid }));
        let text = error.to_string();
        assert!(text.ends_with(&format!("published 1 time by pid {pid}, which notes no time")));
        lease.complete();
    });
}

#[test]
fn a_dropped_pool_ends_what_is_free_now_and_what_is_out_when_it_comes_back() {
    each_start(3, |mut pool, start| {
        let [free, late, forgotten] = [(); 3].map(|()| pool.take().unwrap());
        let waiters = [&free, &late, &forgotten].map(|lease| lease.slot().waiter());
        free.complete();
        drop(pool);
        let state =
            |line: usize, use_of| waiters[line].try_wait(start + use_of).map(|seen| seen.is_some());
        let is_dead = |state| matches!(state, Err(WaitError::PeerDead { rank: Rank(3), .. }));
        assert_eq!(state(0, 1), Ok(true));
        assert!(is_dead(state(0, 2)));
        assert_eq!((state(1, 1), state(2, 1)), (Ok(false), Ok(false)));
        late.complete();
        assert_eq!(state(1, 1), Ok(true));
        assert!(is_dead(state(1, 2)));
        drop(forgotten);
        assert!(matches!(state(2, 1), Err(WaitError::Aborted { .. })));
    });
}

#[test]
#[should_panic(expected = "at least one line")]
fn a_pool_of_nothing_is_refused() {
    LinePool::new(Rank(0), 0);
}

/// Threads that complete: each line is one user's at a time, its targets follow each other, and
/// none is lost.
#[test]
fn many_threads_give_back() {
    const LINES: u32 = 8;
    const USES: u64 = 20_000;
    each_start(LINES, |mut pool, start| {
        let users: Vec<_> = (0..LINES).map(|_| AtomicU64::new(0)).collect();
        let mut used = vec![0; LINES as usize];
        thread::scope(|scope| {
            let senders = [(); 3].map(|()| {
                let (sender, leases) = mpsc::channel::<Lease>();
                let users = &users;
                scope.spawn(move || {
                    for lease in leases {
                        assert_eq!(users[lease.line() as usize].swap(0, Relaxed), 1);
                        lease.complete();
                    }
                });
                sender
            });
            for number in 0..USES {
                let lease = loop {
                    match pool.take() {
                        Some(lease) => break lease,
                        None => thread::yield_now(),
                    }
                };
                let line = lease.line() as usize;
                used[line] += 1;
                assert_eq!(lease.target(), start + used[line]);
                assert_eq!(users[line].swap(1, Relaxed), 0, "line {line} has two users");
                senders[number as usize % 3].send(lease).unwrap();
            }
        });
        assert_eq!(counts(&pool), [LINES, 0, 0]);
        assert_eq!(used.into_iter().map(u64::from).sum::<u64>(), USES);
    });
}
