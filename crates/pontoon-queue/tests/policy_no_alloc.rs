//! What keeping batches costs: nothing for those that ask for nothing, and no growth for the others.

mod counting;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel, Region};
use pontoon_hal::{Engine, Memory};
use pontoon_queue::{Buffer, OnFailure, Patience, Session, StreamId};
use pontoon_signal::{Bound, Rank};
use std::time::Duration;

use counting::{allocations, held};

/// Submits a batch with that policy and waits for it.
fn cycle(
    session: &mut Session<'_, CpuDevice>,
    stream: StreamId,
    (kernel, buffer): (&Kernel, &Buffer<Region, u32>),
    policy: OnFailure<Region>,
) {
    let mut batch = session.batch();
    batch.launch("fill", kernel, [buffer.write(..)], []).idempotent().on_failure(policy);
    let fence = session.submit(stream, batch.seal().unwrap()).unwrap();
    session.progress();
    let _ = session.wait(&fence, Patience::within(Duration::from_secs(30))).unwrap();
}

/// One test, for regions are numbered over the whole process.
#[test]
fn a_steady_state_neither_allocates_nor_grows() {
    let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
    let mut session = Session::auto();
    let stream = session.stream(&device, Engine::Compute, "a").unwrap();
    let buffer = Buffer::<_, u32>::allocate(&device, 8).unwrap();
    let kernel = Kernel::new(|kernel| kernel.write::<u32>(0).fill(1));
    let what = (&kernel, &buffer);
    (0..2000).for_each(|_| cycle(&mut session, stream, what, OnFailure::Error));
    let before = allocations();
    (0..500).for_each(|_| cycle(&mut session, stream, what, OnFailure::Error));
    assert_eq!(allocations() - before, 0);

    let rollback = || OnFailure::Rollback(vec![buffer.write(0..8)]);
    let kept = |session: &mut Session<'_, _>| {
        cycle(session, stream, what, rollback());
        cycle(session, stream, what, OnFailure::Retry(3));
    };
    let silent = |session: &mut Session<'_, _>| {
        let mut batch = session.batch();
        batch.launch("fill", &kernel, [buffer.write(..)], []).on_failure(rollback());
        let fence = session.submit(stream, batch.seal().unwrap()).unwrap();
        // The session does not see it.
        fence.wait(Bound::within(Duration::from_secs(30))).unwrap();
    };
    let region = || Buffer::<_, u32>::allocate(&device, 1).unwrap().memory().id().0;
    let some = |session: &mut Session<'_, _>| {
        (0..100).for_each(|_| kept(session));
        (0..100).for_each(|_| silent(session));
    };
    some(&mut session);
    let (first, before) = (region(), held());
    (0..5).for_each(|_| some(&mut session));
    assert_eq!(held() - before, 0, "it grows");
    assert_eq!(region() - first, 1, "snapshots are allocated anew");
}
