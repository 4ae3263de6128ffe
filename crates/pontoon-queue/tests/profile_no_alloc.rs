//! Profiling an iteration allocates nothing once each queue and each redundant wait was seen.

mod counting;

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{Buffer, Cause, Patience, Session};
use pontoon_signal::Rank;

use counting::allocations;

#[test]
fn a_profiled_iteration_allocates_nothing() {
    let devices = [0, 1].map(|rank| CpuDevice::open(Rank(rank), CpuSpec::default()).unwrap());
    let patience = Patience::within(Duration::from_secs(30));
    let mut session = Session::check().with_patience(patience);
    let [a, b] = [0, 1]
        .map(|at: usize| session.stream(&devices[at], Engine::Compute, ["a", "b"][at]).unwrap());
    let buffer = Buffer::<_, u32>::allocate(&devices[0], 8).unwrap();
    let kernel = Kernel::new(|_| {});
    let own = || allocations();
    session.begin_iteration();
    let (mut before, mut redundant) = (0, 0);
    let mut profiling = 0;
    for round in 0..3000 {
        if round == 1000 {
            (before, redundant, profiling) = (own(), 0, 0);
        }
        let fence = session.launch(a, "one", &kernel, [buffer.write(..)], []).unwrap();
        session.stream_wait(b, &fence).unwrap();
        session.stream_wait(b, &fence).unwrap();
        let fence = session.launch(b, "other", &kernel, [buffer.write(..)], []).unwrap();
        let _ = session.wait(&fence, patience).unwrap();
        let start = own();
        let iteration = session.end_iteration();
        redundant += iteration.figures.redundant;
        assert_eq!(iteration.figures.waits(Cause::Room).count(), 0);
        profiling += own() - start;
    }
    assert_eq!(redundant, 2000);
    assert_eq!(profiling, 0, "allocations while ending 2000 iterations");
    assert_eq!(own() - before, 0, "allocations in 2000 profiled iterations");
}
