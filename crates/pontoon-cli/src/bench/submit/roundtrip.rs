//! One empty command to another thread and back: a queue of a device, and what people write.
//!
//! Each has a thread on one CPU that does what comes, and the other CPU waits for it. The rivals are
//! a queue in a mutex with a condition variable each way, and two channels of the standard library.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Instant,
};

use pontoon::{Bound, CpuDevice, CpuSpec, Edges, Kernel, Rank, Session, StreamId, hal::Engine};

use super::PATIENCE;
use crate::{
    bench::{
        BenchError, Rounds,
        pin::{CpuPair, pin_to},
        spawn,
    },
    figures::Samples,
};

/// Round trips in a block.
const TRIPS: u64 = 50;

/// Samples of a session's queue, of the locked queue and of the channels, in nanoseconds.
pub(super) type Measured = [Samples; 3];

/// Measures from the CPU `near`, on which the caller is, with what works on `far`.
pub(super) fn measure(cpus: CpuPair, rounds: Rounds) -> Result<Measured, BenchError> {
    let locked = Locked::default();
    let (jobs, inbox) = mpsc::channel();
    let (outbox, results) = mpsc::channel();
    // A thread starts where the one is that started it.
    pin_to(cpus.far)?;
    let device = CpuDevice::open(Rank(0), CpuSpec { units: 1, ..CpuSpec::default() })?;
    thread::scope(|scope| {
        let serving = spawn(scope, || locked.serve())?;
        let relaying = spawn(scope, move || inbox.iter().try_for_each(|job| outbox.send(job)))?;
        let measured = pin_to(cpus.near).and_then(|()| {
            let mut ours = Ours::open(&device)?;
            let mut channel = |job: u64| {
                jobs.send(job).map_err(|_| BenchError::Panicked)?;
                results.recv_timeout(PATIENCE).map_err(|_| BenchError::LockSilent)
            };
            interleaved(rounds, |way| match way {
                0 => block(|job| ours.trip(job)),
                1 => block(|job| locked.trip(job)),
                _ => block(&mut channel),
            })
        });
        locked.close();
        drop(jobs);
        let served = serving.join().is_ok() && relaying.join().is_ok();
        if served { measured } else { Err(BenchError::Panicked) }
    })
}

fn interleaved(
    rounds: Rounds,
    mut measure: impl FnMut(usize) -> Result<f64, BenchError>,
) -> Result<Measured, BenchError> {
    let mut samples = Measured::default();
    super::rounds(rounds, |round, kept| {
        for offset in 0..samples.len() {
            let way = (round + offset) % samples.len();
            let ns = measure(way)?;
            if kept {
                samples[way].push(ns)?;
            }
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Nanoseconds of a trip. Each brings back what was sent.
fn block(mut trip: impl FnMut(u64) -> Result<u64, BenchError>) -> Result<f64, BenchError> {
    let start = Instant::now();
    for job in 0..TRIPS {
        let found = trip(job)?;
        BenchError::unless_equal("came back", job, found)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / TRIPS as f64)
}

/// A queue of a device with one unit.
struct Ours<'d> {
    session: Session<'d, CpuDevice>,
    stream: StreamId,
    kernel: Kernel,
    trips: u64,
}

impl<'d> Ours<'d> {
    fn open(device: &'d CpuDevice) -> Result<Self, BenchError> {
        let mut session = Session::new(Edges::Auto);
        let stream = session.stream(device, Engine::Compute, "trip")?;
        Ok(Self { session, stream, kernel: Kernel::new(|_| {}), trips: 0 })
    }

    fn trip(&mut self, job: u64) -> Result<u64, BenchError> {
        let fence = self.session.launch(self.stream, "nothing", &self.kernel, [], [])?;
        fence.wait(Bound::within(PATIENCE).spinning(u32::MAX))?;
        self.trips += 1;
        // The queue is at this trip, and not at a later one.
        let at = fence.target().map_or(0, |target| target.get());
        Ok(if at == self.trips { job } else { at })
    }
}

/// The rival: jobs in a mutex, results in another.
#[derive(Default)]
struct Locked {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    results: Mutex<VecDeque<u64>>,
    done: Condvar,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<u64>,
    closed: bool,
}

impl Locked {
    fn trip(&self, job: u64) -> Result<u64, BenchError> {
        lock(&self.jobs).queue.push_back(job);
        self.arrived.notify_one();
        let results = lock(&self.results);
        let empty = |results: &mut VecDeque<u64>| results.is_empty();
        let waited = self.done.wait_timeout_while(results, PATIENCE, empty);
        let (mut results, _) = waited.unwrap_or_else(PoisonError::into_inner);
        results.pop_front().ok_or(BenchError::LockSilent)
    }

    /// Brings jobs back until it is closed.
    fn serve(&self) {
        loop {
            let waiting = |jobs: &mut Jobs| jobs.queue.is_empty() && !jobs.closed;
            let waited = self.arrived.wait_while(lock(&self.jobs), waiting);
            let job = waited.unwrap_or_else(PoisonError::into_inner).queue.pop_front();
            let Some(job) = job else { return };
            lock(&self.results).push_back(job);
            self.done.notify_one();
        }
    }

    fn close(&self) {
        lock(&self.jobs).closed = true;
        self.arrived.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
