//! What becomes of batches that fail, and who is told: over CPU devices whose kernels panic.

mod callback;
mod reopen;
mod retry;
mod rollback;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pontoon_cpu::{Context, CpuDevice, CpuSpec, Kernel};
use pontoon_hal::{Engine, Memory};
use pontoon_queue::{
    Barrier, Batch, Buffer, Edges, FenceError, FullSync, HostError, Kind, Malformed, Obstacle,
    OnFailure, Patience, QueueSpec, Recovery, Refusal, Root, Session, StreamId, WaitFailure,
};
use pontoon_signal::{
    Bound, Rank, Reason, Seq, WaitError,
    shim::{AtomicU32, Ordering::Relaxed},
};

type Region = pontoon_cpu::Region;

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn bound() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn compute<'d>(session: &mut Session<'d, CpuDevice>, on: &'d CpuDevice, label: &str) -> StreamId {
    session.stream(on, Engine::Compute, label).unwrap()
}

fn numbers(on: &CpuDevice, len: usize) -> Buffer<Region, u32> {
    Buffer::allocate(on, len).unwrap()
}

/// Writes argument 0 to the first half of access 0, panics the first `times` times, and writes the
/// rest.
fn fill(times: u32) -> Kernel {
    Kernel::new(filling_kernel(times))
}

fn filling_kernel(times: u32) -> impl Fn(&mut Context<'_>) + Send + Sync + 'static {
    let left = AtomicU32::new(times);
    move |kernel| {
        let with = kernel.argument(0) as u32;
        let to = kernel.write::<u32>(0);
        let half = to.len() / 2;
        to[..half].fill(with);
        if left.load(Relaxed) > 0 {
            left.fetch_sub(1, Relaxed);
            panic!("half way");
        }
        to[half..].fill(with);
    }
}

fn add() -> Kernel {
    Kernel::new(|kernel| {
        let by = kernel.argument(0) as u32;
        kernel.write::<u32>(0).iter_mut().for_each(|x| *x = x.wrapping_add(by));
    })
}

/// Holds kernels until it is opened, or dropped: a test that fails must not hang.
struct Gate(Arc<AtomicU32>);

impl Gate {
    fn shut() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }

    fn open(&self) {
        self.0.store(1, Relaxed);
    }

    /// A kernel that waits for the gate.
    fn held(&self) -> Kernel {
        self.before(|_| {})
    }

    /// As [`fill`], once the gate is open: what is submitted before that finds nothing failed.
    fn fill(&self, times: u32) -> Kernel {
        self.before(filling_kernel(times))
    }

    fn before(&self, then: impl Fn(&mut Context<'_>) + Send + Sync + 'static) -> Kernel {
        let gate = Arc::clone(&self.0);
        Kernel::new(move |kernel| {
            while gate.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            then(kernel);
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn filling(
    session: &mut Session<'_, CpuDevice>,
    kernel: &Kernel,
    buffer: &Buffer<Region, u32>,
    policy: OnFailure<Region>,
) -> Batch<CpuDevice> {
    let mut batch = session.batch();
    batch.launch("fill", kernel, [buffer.write(..)], [7]).on_failure(policy).idempotent();
    batch
}

fn submit(
    session: &mut Session<'_, CpuDevice>,
    stream: StreamId,
    batch: Batch<CpuDevice>,
) -> pontoon_queue::Fence {
    session.submit(stream, batch.seal().unwrap()).unwrap()
}

fn error_of(failure: WaitFailure) -> FenceError {
    match failure {
        WaitFailure::Fence(error) => error,
        other => panic!("{other}"),
    }
}

fn sessions<'d>() -> [Session<'d, CpuDevice>; 2] {
    [Session::auto(), Session::check()].map(|session| session.with_patience(patience()))
}

/// What callbacks said, in order.
type Said = Arc<Mutex<Vec<(&'static str, String)>>>;

fn tell(said: &Said, name: &'static str) -> impl FnOnce(Result<(), &FenceError>) + Send + 'static {
    let said = Arc::clone(said);
    move |outcome| {
        let outcome = outcome.map_or_else(ToString::to_string, |()| "ok".to_string());
        said.lock().unwrap().push((name, outcome));
    }
}

fn names(said: &Said) -> Vec<&'static str> {
    said.lock().unwrap().iter().map(|(name, _)| *name).collect()
}
