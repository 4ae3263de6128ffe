//! Tasks from one thread to another over a ring, every one of them looked at.

use std::{
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Seq,
    comm::{
        Operation, Settings, Task,
        ring::{Consumer, PushError, Ring, Taken},
    },
    signal::{
        Host, Nanos, Os,
        shim::{AtomicU64, Ordering::Relaxed, spin_loop},
    },
};

use crate::bench::{
    BenchError,
    pin::{CpuPair, pin_to},
    sides::on_a_thread,
    spawn,
};

/// Tasks that are taken at once.
const TAKEN: u32 = 32;
/// The most that are pushed at once.
const BATCH_MAX: usize = 32;
/// Pushes between two looks at the clock.
const PUSHES_A_LOOK: u64 = 1024;
/// How long the slow consumer does something else after it took some.
const PAUSE: Nanos = Nanos(5_000);
/// The longest that either side stands still.
const PATIENCE: Duration = Duration::from_secs(20);
/// The producer is not there yet.
const UNKNOWN: u64 = u64::MAX;

/// What the producer does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Pushes for so long, `batch` tasks at once.
    For { time: Duration, batch: usize },
    /// Pushes so many, one by one, to a consumer that is slower.
    Slowly { tasks: u64 },
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) pushed: u64,
    pub(super) taken: u64,
    /// How often the ring was full.
    pub(super) refused: u64,
    /// From the first push until the last task was taken.
    pub(super) took: Nanos,
}

/// Carries tasks from a thread on one CPU to one on the other.
///
/// # Errors
///
/// A task that came out of order or is missing; see [`BenchError`].
pub(super) fn carry(cpus: CpuPair, load: Load) -> Result<Carried, BenchError> {
    let settings = Settings::default();
    let (ring, mut consumer) = Ring::open(settings.depth, Seq::new(0))?;
    let total = AtomicU64::new(UNKNOWN);
    let pause = if matches!(load, Load::Slowly { .. }) { PAUSE } else { Nanos(0) };
    thread::scope(|scope| {
        let total = &total;
        let taking = spawn(scope, move || {
            pin_to(cpus.far)?;
            take_all(&mut consumer, total, pause)
        })?;
        let pushed = on_a_thread(cpus.near, || push_all(&ring, load, total));
        let taken = taking.join().map_err(|_| BenchError::Panicked)?;
        // A consumer that found a fault is the reason why a producer found no more room.
        let (taken, until) = taken?;
        let (start, pushed, refused) = pushed?;
        Ok(Carried { pushed, taken, refused, took: until.since(start) })
    })
}

/// Gives when it began, how many it pushed, and how often there was no room.
fn push_all(ring: &Ring, load: Load, total: &AtomicU64) -> Result<(Nanos, u64, u64), BenchError> {
    let (until, batch, most) = match load {
        Load::For { time, batch } => (Nanos::from(time), batch.min(BATCH_MAX), u64::MAX),
        Load::Slowly { tasks } => (Nanos(u64::MAX), 1, tasks),
    };
    let (mut number, mut pushes, mut refused) = (0_u64, 0_u64, 0);
    let mut tasks = [task(0); BATCH_MAX];
    let start = Os.now();
    while number < most {
        for (task, number) in tasks[..batch].iter_mut().zip(number..) {
            *task = self::task(number);
        }
        let push = || match tasks[..batch] {
            [ref task] => ring.push(task),
            ref tasks => ring.push_all(tasks),
        };
        let mut pushed = push();
        if let Err(PushError::Full { .. }) = pushed {
            refused += 1;
            let since = Instant::now();
            while let Err(PushError::Full { .. }) = pushed
                && since.elapsed() < PATIENCE
            {
                spin_loop();
                pushed = push();
            }
        }
        pushed?;
        number += batch as u64;
        pushes += 1;
        if pushes.is_multiple_of(PUSHES_A_LOOK) && Os.now().since(start) >= until {
            break;
        }
    }
    total.store(number, Relaxed);
    Ok((start, number, refused))
}

/// Lets producers fill the ring first, so that it is full at least once whoever has a processor.
fn fill_up(ring: &Ring, total: &AtomicU64) {
    let since = Instant::now();
    let is_full = || {
        let (head, tail) = ring.positions();
        head.ahead_of(tail) >= i64::from(ring.depth())
    };
    while !is_full() && total.load(Relaxed) == UNKNOWN && since.elapsed() < PATIENCE {
        spin_loop();
    }
}

/// Gives how many it took, and when the last one.
fn take_all(
    consumer: &mut Consumer,
    total: &AtomicU64,
    pause: Nanos,
) -> Result<(u64, Nanos), BenchError> {
    let (mut seen, mut moved_at) = (Seen::default(), None);
    if pause.0 > 0 {
        fill_up(consumer.ring(), total);
    }
    loop {
        let mut fault = None;
        let taken = consumer.drain(TAKEN, |_, task| match seen.look(task) {
            Ok(()) => Taken::Yes,
            Err(error) => {
                fault = Some(error);
                Taken::No
            }
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        if taken > 0 {
            moved_at = None;
            let since = Os.now();
            while pause.0 > 0 && Os.now().since(since) < pause {
                spin_loop();
            }
            continue;
        }
        if seen.count == total.load(Relaxed) {
            let now = Os.now();
            seen.finish()?;
            return Ok((seen.count, now));
        }
        let since = *moved_at.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            let expected = total.load(Relaxed);
            return Err(BenchError::Count { what: "tasks taken", expected, found: seen.count });
        }
        spin_loop();
    }
}

/// A task that carries its number.
fn task(number: u64) -> Task {
    let (from, to) = (number & u64::from(u32::MAX), number >> 32);
    Task { operation: Operation::Put, route: 0, strong: false, n: 0, from, to, bytes: 8 }
}

/// What the consumer has seen.
#[derive(Debug, Default)]
struct Seen {
    count: u64,
    sum: u64,
}

impl Seen {
    /// Fails unless `found` is the next task, whole.
    fn look(&mut self, found: Option<&Task>) -> Result<(), BenchError> {
        let number = found.map_or(UNKNOWN, |task| task.to << 32 | task.from);
        BenchError::unless_equal("is the number of the next task", self.count, number)?;
        if found != Some(&task(number)) {
            return Err(BenchError::Count { what: "whole tasks", expected: 1, found: 0 });
        }
        self.count += 1;
        self.sum = self.sum.wrapping_add(number);
        Ok(())
    }

    /// Fails unless the numbers are those of so many tasks.
    fn finish(&self) -> Result<(), BenchError> {
        let count = u128::from(self.count);
        let expected = (count * count.saturating_sub(1) / 2) as u64;
        BenchError::unless_equal("is the sum of the numbers", expected, self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_is_missing_twice_there_or_torn_is_noticed() {
        let first = || {
            let mut seen = Seen::default();
            seen.look(Some(&task(0))).expect("the first");
            seen
        };
        first().look(Some(&task(1))).expect("the second");
        first().look(Some(&task(2))).expect_err("one is missing");
        first().look(Some(&task(0))).expect_err("one is there twice");
        first().look(None).expect_err("no task at all");
        first().look(Some(&Task { bytes: 9, ..task(1) })).expect_err("torn");
        let mut seen = first();
        seen.finish().expect("one task");
        seen.sum += 1;
        seen.finish().expect_err("another sum");
        // Numbers that need both words.
        let mut seen = Seen { count: u64::from(u32::MAX), sum: 0 };
        for number in [u64::from(u32::MAX), 1 << 32] {
            seen.look(Some(&task(number))).expect("in order");
        }
    }
}
