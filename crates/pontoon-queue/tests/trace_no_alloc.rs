//! Without a listener for its events a session allocates nothing for them.
//!
//! In a process of its own: what one thread listens to, `tracing` may take to be wanted by others.

mod counting;

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{Buffer, Patience, Session};
use pontoon_signal::{Rank, Seq};

use counting::allocations;

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

#[test]
fn without_a_listener_a_submission_allocates_nothing() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let streams = [0, 1].map(|at| session.stream(&devices[at], Engine::Compute, "a").unwrap());
    let buffer = Buffer::<_, u32>::allocate(&devices[0], 4).unwrap();
    let nothing = Kernel::new(|_| {});
    let mut turn = || {
        for stream in streams {
            session.launch(stream, "work", &nothing, [buffer.write(..)], []).unwrap();
        }
        let fence = session.launch(streams[0], "work", &nothing, [buffer.write(..)], []).unwrap();
        let _ = session.wait(&fence, patience()).unwrap();
    };
    (0..200).for_each(|_| turn());
    let before = allocations();
    (0..200).for_each(|_| turn());
    assert_eq!(allocations(), before);
}
