//! `bench fanin`: the same batches from 1, 2 and 4 producers to one consumer.
//!
//! Every producer fills its share of the batches and the consumer checks them all. The ways differ
//! in how a batch gets across, and have as many buffers for each producer:
//!
//! - `signals`: each producer has a double buffer of its own, and the consumer serves, in turns,
//!   whichever has something;
//! - `lock`: filled buffers go through one bounded queue in a mutex and come back through the
//!   same, with a condition variable each way. Nobody holds the lock while working on a buffer.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use pontoon::signal::{
    Bound, BufferReader, BufferWriter, DoubleBuffer, Turn, Wait, WaitError, Waiter, wait_any,
};

use super::{
    BenchError, Options, Rounds, print, print_ratio, spawn,
    work::{checksum, fill},
};
use crate::figures::{Printer, Samples, Unit};

/// Enough that a run takes long beside starting its threads and finding them a CPU.
const BATCHES: usize = 8192;
const BATCH_WORDS: usize = (64 << 10) / 8;
const PRODUCERS: [usize; 3] = [1, 2, 4];
/// Buffers of each producer.
const BUFFERS: usize = 2;
/// Polls before a wait gives way, for any number of producers. Few: where threads outnumber the
/// CPUs, a wait that spins keeps from working whom it waits for.
const SPIN: u32 = 64;
/// The longest that anyone waits for a buffer.
const PATIENCE: Duration = Duration::from_secs(10);

type Batch = Box<[u64]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Signals,
    Lock,
}

const WAYS: [Way; 2] = [Way::Signals, Way::Lock];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Signals => "signals",
            Self::Lock => "lock",
        }
    }

    fn run(self, producers: usize, batches: usize) -> Result<u64, BenchError> {
        match self {
            Self::Signals => by_signals(producers, batches),
            Self::Lock => by_lock(producers, batches),
        }
    }
}

fn rounds(options: &Options) -> Rounds {
    if options.quick {
        Rounds { least: 3, most: 7, time: Duration::from_secs(3) }
    } else {
        Rounds { least: 5, most: 25, time: Duration::from_secs(9) }
    }
}

/// What `round` measures, in order: an index of [`WAYS`] and one of [`PRODUCERS`].
fn order(round: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = WAYS.len() * PRODUCERS.len();
    (0..all)
        .map(move |offset| (round + offset) % all)
        .map(|index| (index % WAYS.len(), index / WAYS.len()))
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let expected = expected(BATCHES);
    let mut samples: [[Samples; PRODUCERS.len()]; WAYS.len()] = Default::default();
    let rounds = rounds(options);
    let started = Instant::now();
    // The first round touches new memory and is not kept.
    for round in 0usize.. {
        if rounds.are_over(round.saturating_sub(1), started) {
            break;
        }
        for (way, count) in order(round) {
            let start = Instant::now();
            let found = WAYS[way].run(PRODUCERS[count], BATCHES)?;
            let ms = start.elapsed().as_secs_f64() * 1e3;
            if found != expected {
                return Err(BenchError::Checksum { what: WAYS[way].name(), expected, found });
            }
            if round > 0 {
                samples[way][count].push(ms)?;
            }
        }
    }
    for (way, samples) in WAYS.into_iter().zip(&samples) {
        for (producers, samples) in PRODUCERS.into_iter().zip(samples) {
            let name = format!("fanin/{}/{producers}", way.name());
            print(printer, name, Unit::Ms, samples)?;
        }
    }
    for (way, samples) in WAYS.into_iter().zip(&samples) {
        let [one, .., four] = samples;
        print_ratio(printer, format!("fanin/{}/growth", way.name()), four, one)?;
    }
    Ok(())
}

/// The batches of producer `producer` of `producers`.
fn share(producer: usize, producers: usize, batches: usize) -> impl Iterator<Item = u64> {
    (producer..batches).step_by(producers).map(|batch| batch as u64)
}

/// The sum over all batches, in which their order does not count.
fn expected(batches: usize) -> u64 {
    let mut words = new_batch();
    (0..batches as u64).fold(0, |sum: u64, batch| {
        fill(&mut words, batch, 0);
        sum.wrapping_add(checksum(&words))
    })
}

fn new_batch() -> Batch {
    vec![1; BATCH_WORDS].into_boxed_slice()
}

fn by_signals(producers: usize, batches: usize) -> Result<u64, BenchError> {
    let bound = Bound::within(PATIENCE).spinning(SPIN);
    let pairs = (0..producers).map(|_| DoubleBuffer::new((0..BUFFERS).map(|_| new_batch())));
    let (writers, readers): (Vec<_>, Vec<_>) = pairs.unzip();
    thread::scope(|scope| {
        let threads: Result<Vec<_>, _> = writers
            .into_iter()
            .enumerate()
            .map(|(producer, writer)| {
                spawn(scope, move || produce(writer, share(producer, producers, batches), bound))
            })
            .collect();
        // Without them the readers are dropped, which ends the waits of those that started.
        let threads = threads?;
        let sum = consume(readers, batches, bound);
        for thread in threads {
            // If the consumer gave up, the producers did so for that reason.
            let produced = thread.join().map_err(|_| BenchError::Panicked)?;
            if sum.is_ok() {
                produced?;
            }
        }
        Ok(sum?)
    })
}

fn produce(
    mut writer: BufferWriter<Batch>,
    batches: impl Iterator<Item = u64>,
    bound: Bound,
) -> Result<(), WaitError> {
    for batch in batches {
        let mut buffer = writer.fill(bound)?;
        fill(&mut buffer, batch, 0);
        buffer.publish();
    }
    Ok(())
}

fn consume(
    mut readers: Vec<BufferReader<Batch>>,
    batches: usize,
    bound: Bound,
) -> Result<u64, WaitError> {
    let waiters: Vec<Waiter> = readers.iter().map(|reader| reader.pending().0.waiter()).collect();
    let mut waits: Vec<Wait<'_>> =
        readers.iter().zip(&waiters).map(|(r, waiter)| Wait::new(waiter, r.pending().1)).collect();
    let (mut turn, mut sum) = (Turn::default(), 0u64);
    for _ in 0..batches {
        let (index, observed) = wait_any(&waits, &mut turn, bound)?;
        observed.acq_fence();
        sum = sum.wrapping_add(checksum(&readers[index].next(bound)?));
        waits[index].target = readers[index].pending().1;
    }
    Ok(sum)
}

/// The queue of the `lock` way.
struct Bounded {
    state: Mutex<State>,
    filled: Condvar,
    freed: Condvar,
}

struct State {
    filled: VecDeque<Batch>,
    free: Vec<Batch>,
}

impl Bounded {
    fn new(buffers: usize) -> Self {
        let filled = VecDeque::with_capacity(buffers);
        let free = (0..buffers).map(|_| new_batch()).collect();
        let state = Mutex::new(State { filled, free });
        Self { state, filled: Condvar::new(), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_free(&self) -> Option<Batch> {
        self.when(&self.freed, |state| state.free.pop())
    }

    fn put_filled(&self, batch: Batch) {
        self.lock().filled.push_back(batch);
        self.filled.notify_one();
    }

    fn take_filled(&self) -> Option<Batch> {
        self.when(&self.filled, |state| state.filled.pop_front())
    }

    fn put_free(&self, batch: Batch) {
        self.lock().free.push(batch);
        self.freed.notify_one();
    }

    /// What `take` finds, once it finds something; `None` if it does not in time.
    fn when(
        &self,
        changed: &Condvar,
        mut take: impl FnMut(&mut State) -> Option<Batch>,
    ) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = take(&mut state) {
                return Some(batch);
            }
            let waited = changed.wait_timeout(state, PATIENCE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return None;
            }
            state = again;
        }
    }
}

fn by_lock(producers: usize, batches: usize) -> Result<u64, BenchError> {
    let queue = &Bounded::new(BUFFERS * producers);
    thread::scope(|scope| {
        let threads: Result<Vec<_>, _> = (0..producers)
            .map(|producer| {
                spawn(scope, move || {
                    for number in share(producer, producers, batches) {
                        let mut batch = queue.take_free()?;
                        fill(&mut batch, number, 0);
                        queue.put_filled(batch);
                    }
                    Some(())
                })
            })
            .collect();
        let threads = threads?;
        let mut sum = Some(0u64);
        for _ in 0..batches {
            let batch = queue.take_filled();
            sum = sum.zip(batch.as_ref()).map(|(sum, batch)| sum.wrapping_add(checksum(batch)));
            let Some(batch) = batch else { break };
            queue.put_free(batch);
        }
        for thread in threads {
            let produced = thread.join().map_err(|_| BenchError::Panicked)?;
            sum = sum.filter(|_| produced.is_some());
        }
        sum.ok_or(BenchError::LockSilent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_one_producers() {
        for producers in PRODUCERS {
            let mut all: Vec<u64> = (0..producers).flat_map(|p| share(p, producers, 37)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..37).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_round_measures_everything() {
        for round in 0..7 {
            let mut all: Vec<_> = order(round).collect();
            all.sort_unstable();
            assert_eq!(all, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        }
    }

    #[test]
    fn both_ways_deliver_every_batch_once() {
        for producers in PRODUCERS {
            for way in WAYS {
                assert_eq!(way.run(producers, 37).expect("delivered"), expected(37));
            }
        }
    }
}
