//! The devices of `bench handoff`, their kernels, and one batch handed over.

use std::{
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use pontoon::{
    cpu::{CpuDevice, CpuQueue, CpuSpec, Kernel, Region},
    hal::{Access, Accesses, Command, CommandOf, Device, Engine, Memory, Queue, SubmitError},
    signal::{Bound, Host, Nanos, Os, Rank, Seq},
};

use super::{CHUNKS, Way};
use crate::bench::{
    BenchError,
    work::{checksum, fill},
};

const CHUNK_WORDS: usize = (1 << 20) / 8;
const CHUNK_BYTES: usize = CHUNK_WORDS * 8;
const BATCH_BYTES: usize = CHUNKS * CHUNK_BYTES;
const CHECKSUM_BYTES: usize = 8;
/// The kernels in which the unrelated queue spends that time.
const UNRELATED_KERNELS: u32 = 4;
/// Different contents, so that a batch left over from a round before is noticed.
const SEEDS: u64 = 5;
/// The longest that anything here may take before the measurement gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the mutex of the `lock` way has: chunks written in this run.
type Written = usize;

/// Two devices, their queues and what they work on.
pub(super) struct Rig {
    a: CpuDevice,
    /// Kept open: its queue is.
    _b: CpuDevice,
    producer: CpuQueue,
    unrelated: CpuQueue,
    consumer: CpuQueue,
    batch: Region,
    /// What B consumes while A produces `batch`, in the measurement of the loaded parts.
    other: Region,
    other_seed: u64,
    checksums: Region,
    locked: Arc<(Mutex<Written>, Condvar)>,
    kernels: Kernels,
    /// By seed, then by chunk.
    expected: Vec<Vec<u64>>,
    runs: u64,
}

struct Kernels {
    produce: Kernel,
    consume: Kernel,
    produce_locked: Kernel,
    announce_locked: Kernel,
    await_locked: Kernel,
    consume_locked: Kernel,
    sleep: Kernel,
}

impl Rig {
    pub(super) fn open() -> Result<Self, BenchError> {
        let a = CpuDevice::open(Rank(0), CpuSpec { units: 2, depth: 256, ..CpuSpec::default() })?;
        let b = CpuDevice::open(Rank(1), CpuSpec { units: 1, depth: 256, ..CpuSpec::default() })?;
        let producer = a.open_queue(Engine::Compute, "producer")?;
        let unrelated = a.open_queue(Engine::Compute, "unrelated")?;
        let consumer = b.open_queue(Engine::Compute, "consumer")?;
        let (batch, other) = (a.allocate(BATCH_BYTES)?, a.allocate(BATCH_BYTES)?);
        let checksums = b.allocate(CHUNKS * CHECKSUM_BYTES)?;
        let locked = Arc::new((Mutex::new(0), Condvar::new()));
        let kernels = Kernels::over(&locked);
        let mut rig = Self {
            a,
            _b: b,
            producer,
            unrelated,
            consumer,
            batch,
            other,
            other_seed: 0,
            checksums,
            locked,
            kernels,
            expected: expected(),
            runs: 0,
        };
        let other = rig.other.clone();
        let done = rig.submit_producing(&other, 0)?;
        wait(&rig.producer, done)?;
        Ok(rig)
    }

    /// One batch handed over: milliseconds from the first command until all is consumed.
    pub(super) fn hand_over(&mut self, way: Way, unrelated: Duration) -> Result<f64, BenchError> {
        let seed = self.next_seed();
        *lock(&self.locked.0) = 0;
        let batch = self.batch.clone();
        let mut busy = None;
        if !unrelated.is_zero() {
            for _ in 0..UNRELATED_KERNELS {
                let ns = (unrelated / UNRELATED_KERNELS).as_nanos() as u64;
                let sleep = launch("unrelated", &self.kernels.sleep, [], [ns]);
                busy = Some(submit(&mut self.unrelated, sleep)?);
            }
        }
        let start = Os.now();
        match way {
            Way::Device => {
                self.submit_producing(&batch, seed)?;
                self.a.synchronize(Bound::within(PATIENCE))?;
                let done = self.submit_consuming(&batch, None)?;
                wait(&self.consumer, done)?;
            }
            Way::Lock => {
                let done = self.submit_locked(&batch, seed)?;
                wait(&self.consumer, done)?;
            }
            Way::Signals => {
                let first = self.producer.submitted() + 1;
                self.submit_producing(&batch, seed)?;
                let done = self.submit_consuming(&batch, Some(first))?;
                wait(&self.consumer, done)?;
            }
        }
        let ms = ms(Os.now().since(start));
        self.check(way.name(), seed)?;
        if let Some(busy) = busy {
            wait(&self.unrelated, busy)?;
        }
        Ok(ms)
    }

    /// The producing alone, in milliseconds.
    pub(super) fn produce(&mut self) -> Result<f64, BenchError> {
        let seed = self.next_seed();
        let batch = self.batch.clone();
        let start = Os.now();
        let done = self.submit_producing(&batch, seed)?;
        wait(&self.producer, done)?;
        Ok(ms(Os.now().since(start)))
    }

    /// The consuming alone of what was produced last, in milliseconds.
    pub(super) fn consume(&mut self) -> Result<f64, BenchError> {
        let batch = self.batch.clone();
        let start = Os.now();
        let done = self.submit_consuming(&batch, None)?;
        wait(&self.consumer, done)?;
        let ms = ms(Os.now().since(start));
        self.check("consuming alone", self.runs % SEEDS)?;
        Ok(ms)
    }

    /// Producing and consuming at once, of regions that have nothing to do with each other: the
    /// milliseconds of each.
    pub(super) fn both(&mut self) -> Result<(f64, f64), BenchError> {
        let seed = self.next_seed();
        let (batch, other) = (self.batch.clone(), self.other.clone());
        let start = Os.now();
        let produced = self.submit_producing(&batch, seed)?;
        let consumed = self.submit_consuming(&other, None)?;
        wait(&self.producer, produced)?;
        wait(&self.consumer, consumed)?;
        self.check("consuming beside", self.other_seed)?;
        let took =
            |queue: &CpuQueue| ms(queue.completions().last_publish().unwrap_or(start).since(start));
        Ok((took(&self.producer), took(&self.consumer)))
    }

    fn next_seed(&mut self) -> u64 {
        self.runs += 1;
        self.runs % SEEDS
    }

    fn submit_producing(&mut self, batch: &Region, seed: u64) -> Result<Seq, BenchError> {
        let mut done = self.producer.submitted();
        for chunk in 0..CHUNKS {
            let access = Access::write(batch, bytes(chunk));
            let command = launch("produce", &self.kernels.produce, [access], [seed, chunk as u64]);
            done = submit(&mut self.producer, command)?;
        }
        Ok(done)
    }

    /// With `after`, chunk i is consumed once the producer's completions are at `after` + i.
    fn submit_consuming(&mut self, batch: &Region, after: Option<Seq>) -> Result<Seq, BenchError> {
        let mut done = self.consumer.submitted();
        for chunk in 0..CHUNKS {
            if let Some(after) = after {
                let slot = self.producer.completions().clone();
                let target = after + chunk as u32;
                let bound = Bound::within(PATIENCE);
                submit(&mut self.consumer, Command::Wait { label: "chunk", slot, target, bound })?;
            }
            let accesses = [Access::read(batch, bytes(chunk)), self.checksum_of(chunk)];
            done =
                submit(&mut self.consumer, launch("consume", &self.kernels.consume, accesses, []))?;
        }
        Ok(done)
    }

    fn submit_locked(&mut self, batch: &Region, seed: u64) -> Result<Seq, BenchError> {
        let mut done = self.consumer.submitted();
        for chunk in 0..CHUNKS {
            let access = Access::write(batch, bytes(chunk));
            let kernel = &self.kernels.produce_locked;
            submit(&mut self.producer, launch("produce", kernel, [access], [seed, chunk as u64]))?;
            let announce = launch("announce", &self.kernels.announce_locked, [], [chunk as u64]);
            submit(&mut self.producer, announce)?;
        }
        for chunk in 0..CHUNKS {
            let wait = launch("await", &self.kernels.await_locked, [], [chunk as u64]);
            submit(&mut self.consumer, wait)?;
            let accesses = [Access::read(batch, bytes(chunk)), self.checksum_of(chunk)];
            let consume = launch("consume", &self.kernels.consume_locked, accesses, []);
            done = submit(&mut self.consumer, consume)?;
        }
        Ok(done)
    }

    fn checksum_of(&self, chunk: usize) -> Access<Region> {
        let at = chunk * CHECKSUM_BYTES;
        Access::write(&self.checksums, at..at + CHECKSUM_BYTES)
    }

    /// Compares what was consumed and wipes it, so that no later run can pass by it.
    fn check(&self, what: &'static str, seed: u64) -> Result<(), BenchError> {
        for (chunk, &expected) in self.expected[seed as usize].iter().enumerate() {
            let (at, mut found) = (chunk * CHECKSUM_BYTES, [0; CHECKSUM_BYTES]);
            self.checksums.host_read(at, &mut found)?;
            let found = u64::from_ne_bytes(found);
            if found != expected {
                return Err(BenchError::Checksum { what, expected, found });
            }
        }
        Ok(self.checksums.host_write(0, &[0; CHUNKS * CHECKSUM_BYTES])?)
    }
}

impl Kernels {
    fn over(locked: &Arc<(Mutex<Written>, Condvar)>) -> Self {
        let produce = Kernel::new(|context| {
            let (seed, chunk) = (context.argument(0), context.argument(1));
            fill(context.write(0), seed, chunk * CHUNK_WORDS as u64);
        });
        let consume = Kernel::new(|context| {
            let sum = checksum(context.read(0));
            context.write(1)[0] = sum;
        });
        let shared = Arc::clone(locked);
        let produce_locked = Kernel::new(move |context| {
            let (seed, chunk) = (context.argument(0), context.argument(1));
            let held = lock(&shared.0);
            fill(context.write(0), seed, chunk * CHUNK_WORDS as u64);
            drop(held);
        });
        let shared = Arc::clone(locked);
        let announce_locked = Kernel::new(move |context| {
            *lock(&shared.0) = context.argument(0) as usize + 1;
            shared.1.notify_one();
        });
        let shared = Arc::clone(locked);
        let await_locked = Kernel::new(move |context| {
            let chunk = context.argument(0) as usize;
            let missing = |written: &mut Written| *written <= chunk;
            let written = shared.1.wait_timeout_while(lock(&shared.0), PATIENCE, missing);
            let waited = written.unwrap_or_else(PoisonError::into_inner).1;
            assert!(!waited.timed_out(), "chunk {chunk} was not written in {PATIENCE:?}");
        });
        let shared = Arc::clone(locked);
        let consume_locked = Kernel::new(move |context| {
            let held = lock(&shared.0);
            let sum = checksum(context.read(0));
            drop(held);
            context.write(1)[0] = sum;
        });
        let sleep = Kernel::new(|context| thread::sleep(Duration::from_nanos(context.argument(0))));
        Self {
            produce,
            consume,
            produce_locked,
            announce_locked,
            await_locked,
            consume_locked,
            sleep,
        }
    }
}

fn expected() -> Vec<Vec<u64>> {
    let mut words = vec![0; CHUNK_WORDS];
    let mut of = |seed, chunk: usize| {
        fill(&mut words, seed, (chunk * CHUNK_WORDS) as u64);
        checksum(&words)
    };
    (0..SEEDS).map(|seed| (0..CHUNKS).map(|chunk| of(seed, chunk)).collect()).collect()
}

fn bytes(chunk: usize) -> Range<usize> {
    chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES
}

fn launch<const A: usize, const N: usize>(
    label: &'static str,
    kernel: &Kernel,
    accesses: [Access<Region>; A],
    arguments: [u64; N],
) -> CommandOf<CpuQueue> {
    let accesses: Accesses<Region> = accesses.into_iter().collect();
    let arguments = arguments.into_iter().collect();
    Command::Launch { label, kernel: kernel.clone(), accesses, arguments }
}

fn submit(queue: &mut CpuQueue, command: CommandOf<CpuQueue>) -> Result<Seq, BenchError> {
    queue.submit(command).map_err(|error| match error {
        SubmitError::Full(_) => BenchError::Submit("it is full"),
        SubmitError::Malformed(why) => BenchError::Submit(why),
        SubmitError::Faulted(fault) => BenchError::Fault(fault),
        _ => BenchError::Submit("for a reason this program does not know"),
    })
}

/// Waits until the queue has completed `target`; if it stopped, the error is why.
fn wait(queue: &CpuQueue, target: Seq) -> Result<(), BenchError> {
    let waiter = queue.completions().waiter();
    match waiter.wait_ge_bounded(target, Bound::within(PATIENCE)) {
        Ok(observed) => {
            observed.acq_fence();
            Ok(())
        }
        Err(error) => Err(queue.fault().map_or(BenchError::Wait(error), BenchError::Fault)),
    }
}

fn ms(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

/// A kernel that panicked in the lock has faulted its queue, which is reported.
fn lock(mutex: &Mutex<Written>) -> MutexGuard<'_, Written> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::WAYS;
    use super::*;

    #[test]
    fn every_way_delivers_what_was_produced() {
        let mut rig = Rig::open().expect("two devices");
        for way in WAYS {
            rig.hand_over(way, Duration::from_millis(1)).expect("checked");
        }
        rig.produce().expect("produced");
        rig.consume().expect("checked");
        rig.both().expect("checked");
    }

    #[test]
    fn wrong_bytes_are_noticed() {
        let mut rig = Rig::open().expect("two devices");
        rig.produce().expect("produced");
        let byte = BATCH_BYTES - 1;
        let mut last = [0];
        rig.batch.host_read(byte, &mut last).expect("idle");
        rig.batch.host_write(byte, &[!last[0]]).expect("idle");
        let error = rig.consume().expect_err("a flipped byte");
        assert!(matches!(error, BenchError::Checksum { .. }), "{error}");
    }
}
