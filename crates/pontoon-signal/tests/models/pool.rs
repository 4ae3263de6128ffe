//! Lines that are handed out and come back.

use super::{Memory, Model, asleep, check, spinning};
use loom::thread;
use pontoon_signal::{
    Ending, Host, Lease, LinePool, Nanos, Os, Rank, Reason, Seq, Sleeper, SlotId, WaitError,
};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[
    ("a_lease_hands_over_to_its_waiter", a_lease_hands_over_to_its_waiter),
    ("a_lease_hands_over_to_the_next_user", a_lease_hands_over_to_the_next_user),
    ("two_that_complete_race_with_a_take", two_that_complete_race_with_a_take),
    ("a_line_comes_back_under_a_push", a_line_comes_back_under_a_push),
    ("a_dropped_lease_fails_its_waiter", a_dropped_lease_fails_its_waiter),
    ("a_failed_lease_shows_its_fault", a_failed_lease_shows_its_fault),
    ("a_pool_dropped_amid_completion", a_pool_dropped_amid_completion),
];

/// Takes a line as soon as one is free.
fn take<H: Host>(pool: &mut LinePool<H>) -> Lease<H> {
    loop {
        match pool.take() {
            Some(lease) => return lease,
            None => thread::yield_now(),
        }
    }
}

/// SYNC(slot-publish), SYNC(slot-park): completing a lease announces as any publish does.
fn a_lease_hands_over_to_its_waiter() {
    check(3, || {
        let (mut pool, memory) = (LinePool::new(Rank(0), 1), Memory::new());
        let lease = pool.take().unwrap();
        let (waiter, target) = (lease.slot().waiter(), lease.target());
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                lease.complete()
            }
        });
        let acquired = waiter.wait_ge_bounded(target, asleep()).unwrap().acq_fence();
        assert_eq!((acquired.value(), memory.read()), (Seq::new(1), 7));
        assert_eq!(producer.join().unwrap(), Seq::new(1));
    });
}

/// SYNC(pool-return): who takes the line next finds its counter where the one before left it,
/// and may reuse the memory that the one before wrote to. Nobody waits, so nothing else orders.
fn a_lease_hands_over_to_the_next_user() {
    check(3, || {
        let (mut pool, memory) = (LinePool::new(Rank(0), 1), Memory::new());
        let lease = pool.take().unwrap();
        let before = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                lease.complete()
            }
        });
        let next = take(&mut pool);
        assert_eq!((next.target(), memory.read()), (Seq::new(2), 7));
        memory.write(8);
        assert_eq!(next.complete(), Seq::new(2));
        before.join().unwrap();
    });
}

/// SYNC(pool-return): of two that give back at once, neither is lost, and the owner sees what
/// both left, though it reads only the last push.
fn two_that_complete_race_with_a_take() {
    check(2, || {
        let mut pool = LinePool::new(Rank(0), 2);
        let memory = [Memory::new(), Memory::new()];
        let producers = memory.clone().map(|memory| {
            let lease = pool.take().unwrap();
            let line = lease.line();
            let producer = thread::spawn(move || {
                memory.write(7);
                lease.complete();
            });
            (line, producer)
        });
        assert_eq!(producers.each_ref().map(|(line, _)| *line), [0, 1]);
        let leases = [take(&mut pool), take(&mut pool)];
        assert_ne!(leases[0].line(), leases[1].line());
        for lease in leases {
            assert_eq!((lease.target(), memory[lease.line() as usize].read()), (Seq::new(2), 7));
            lease.complete();
        }
        for (_, producer) in producers {
            producer.join().unwrap();
        }
        assert_eq!(pool.outstanding(), 0);
    });
}

/// SYNC(pool-return): a push that was about to come on top of a line still does when that line
/// was taken and is back, and when it was taken and is not.
fn a_line_comes_back_under_a_push() {
    check(3, || {
        let mut pool = LinePool::new(Rank(0), 2);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let other = thread::spawn(move || second.complete());
        first.complete();
        let again = take(&mut pool);
        again.complete();
        let leases = [take(&mut pool), take(&mut pool)];
        let lines = leases.each_ref().map(Lease::line);
        assert!(lines == [0, 1] || lines == [1, 0], "{lines:?}");
        let targets = leases.map(|lease| lease.complete().get());
        assert_eq!(targets.iter().sum::<u64>(), 5, "one line was used twice, one three times");
        other.join().unwrap();
        assert_eq!(pool.outstanding(), 0);
    });
}

/// SYNC(slot-abort), SYNC(slot-park): a lease dropped without completing wakes its waiter, and
/// its line does not come back.
fn a_dropped_lease_fails_its_waiter() {
    check(3, || {
        let mut pool = LinePool::new(Rank(0), 1);
        let lease = pool.take().unwrap();
        let (waiter, target) = (lease.slot().waiter(), lease.target());
        let producer = thread::spawn(move || drop(lease));
        let error = waiter.wait_ge_bounded(target, asleep()).unwrap_err();
        assert!(matches!(error, WaitError::Aborted { reason: Reason::DROPPED, .. }), "{error}");
        assert!(pool.take().is_none());
        producer.join().unwrap();
        assert_eq!((pool.retired(), pool.outstanding()), (1, 0));
    });
}

/// SYNC(slot-abort): what was recorded before a failure is there for whoever sees it.
fn a_failed_lease_shows_its_fault() {
    check(3, || {
        let (mut pool, memory) = (LinePool::new(Rank(0), 1), Memory::new());
        let lease = pool.take().unwrap();
        let (waiter, target) = (lease.slot().waiter(), lease.target());
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                lease.fail(Ending::LinkFailed { code: -5 })
            }
        });
        let error = waiter.wait_ge_bounded(target, spinning()).unwrap_err();
        assert!(matches!(error, WaitError::LinkFailed { code: -5, .. }), "{error}");
        assert_eq!(memory.read(), 7);
        assert!(producer.join().unwrap());
    });
}

/// SYNC(pool-return): a pool that is dropped while its lines come back leaves none behind: each
/// is ended by whoever has it, and the last one frees the memory.
fn a_pool_dropped_amid_completion() {
    check(3, || {
        let token = Arc::new(());
        let host = Counted(Arc::clone(&token));
        let mut pool = LinePool::on(host, SlotId::new(0, 0), 2, Seq::new(0));
        let lease = pool.take().unwrap();
        let (waiter, target) = (lease.slot().waiter(), lease.target());
        let producer = thread::spawn(move || lease.complete());
        drop(pool);
        let _now = waiter.wait_ge_bounded(target, spinning()).unwrap().acq_fence();
        producer.join().unwrap();
        let error = waiter.try_wait(target + 1).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        drop(waiter);
        assert_eq!(Arc::strong_count(&token), 1, "all that the pool had is freed");
    });
}

/// A host that counts who still has it.
#[derive(Clone, Debug)]
struct Counted(#[allow(dead_code, reason = "it is the count that matters")] Arc<()>);

impl Host for Counted {
    fn now(&self) -> Nanos {
        Os.now()
    }

    fn pause(&self, time: Nanos) {
        Os.pause(time);
    }

    fn yield_now(&self) {
        Os.yield_now();
    }

    fn sleep(&self, sleeper: Sleeper<'_>, at_most: Nanos) {
        Os.sleep(sleeper, at_most);
    }

    fn sleep_any<'a>(&self, sleepers: impl Iterator<Item = Sleeper<'a>>, at_most: Nanos) {
        Os.sleep_any(sleepers, at_most);
    }
}
