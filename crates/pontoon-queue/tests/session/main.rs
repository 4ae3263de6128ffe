//! Sessions over CPU devices: edges derived and checked, parked batches, deadlocks, limits.

mod edges;
mod host;
mod launch;
mod objects;
mod parked;
mod reached;
mod room;

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Barrier, Batch, Buffer, Completion, Edges, HostError, Kind, Patience, QueueSpec, Refusal,
    Session, StreamId, Unrecorded, WaitFailure, check::HazardKind,
};
use pontoon_signal::{Bound, Rank, Seq};

type Region = pontoon_cpu::Region;

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn compute<'d>(session: &mut Session<'d, CpuDevice>, on: &'d CpuDevice, label: &str) -> StreamId {
    session.stream(on, Engine::Compute, label).unwrap()
}

fn numbers(on: &CpuDevice, len: usize) -> Buffer<Region, u32> {
    Buffer::allocate(on, len).unwrap()
}

/// Adds argument 0 to each element of access 0.
fn add() -> Kernel {
    Kernel::new(|kernel| {
        let by = kernel.argument(0) as u32;
        kernel.write::<u32>(0).iter_mut().for_each(|x| *x = x.wrapping_add(by));
    })
}

/// Doubles each element of access 0, slowly.
fn double() -> Kernel {
    Kernel::new(|kernel| {
        std::thread::sleep(Duration::from_micros(200));
        kernel.write::<u32>(0).iter_mut().for_each(|x| *x = x.wrapping_mul(2));
    })
}

fn circle(refused: Refusal) -> String {
    let Refusal::Deadlock(deadlock) = refused else { panic!("{refused}") };
    deadlock.to_string()
}

/// A batch that waits for one semaphore and then signals another.
fn relay(
    session: &mut Session<'_, CpuDevice>,
    wait: Option<(pontoon_queue::SemaphoreId, u64)>,
    signal: Option<(pontoon_queue::SemaphoreId, u64)>,
    label: &'static str,
) -> Batch<CpuDevice, pontoon_queue::Sealed> {
    let mut batch = session.batch();
    if let Some((semaphore, value)) = wait {
        batch.wait_semaphore(semaphore, value);
    }
    batch.launch(label, &Kernel::new(|_| {}), [], []);
    if let Some((semaphore, value)) = signal {
        batch.signal(semaphore, value);
    }
    batch.seal().unwrap()
}
