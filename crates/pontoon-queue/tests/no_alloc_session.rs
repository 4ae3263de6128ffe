//! In steady state a submission allocates nothing, whoever sees to the edges.

mod counting;

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{Buffer, Edges, EventId, Fence, Patience, SemaphoreId, Session, StreamId};
use pontoon_signal::{Bound, Rank};

use counting::allocations;

/// One command in steady state: given at once, or in a batch.
struct Driver<'d> {
    session: Session<'d, CpuDevice>,
    streams: [StreamId; 2],
    nothing: Kernel,
    batched: bool,
    event: EventId,
    heard: SemaphoreId,
    round: u64,
}

impl Driver<'_> {
    fn give(
        &mut self,
        at: usize,
        after: Option<&Fence>,
        accesses: [pontoon_hal::Access<pontoon_cpu::Region>; 2],
    ) -> Fence {
        let Self { session, streams, nothing, batched, event, heard, round } = self;
        if *batched {
            let mut batch = session.batch();
            if let Some(fence) = after {
                batch.wait(fence);
            }
            batch.launch("work", nothing, accesses, []);
            // The second hears of the first by what was parked before, too.
            *round += 1;
            match at {
                0 => batch.record(*event).signal(*heard, *round),
                _ => batch.wait_semaphore(*heard, *round - 1).wait_event(*event),
            };
            return session.submit(streams[at], batch.seal().unwrap()).unwrap();
        }
        if let Some(fence) = after {
            session.stream_wait(streams[at], fence).unwrap();
        }
        session.launch(streams[at], "work", nothing, accesses, []).unwrap()
    }
}

/// Rounds of two submissions each over which allocations are counted, and how often at most: how many
/// records a lane needs at a time depends on how its devices happen to run, so that the first windows
/// may still see it grow.
const WINDOW: usize = 1_000;
const WINDOWS: usize = 8;

/// The fewest allocations in a window, with something parked for all the time or nothing.
fn steady(edges: Edges, batched: bool, parked: bool) -> u64 {
    let devices = [0, 1].map(|rank| {
        CpuDevice::open(Rank(rank), CpuSpec { depth: 16, ..CpuSpec::default() }).unwrap()
    });
    let patience = Patience::within(Duration::from_secs(30));
    let mut session = Session::new(edges).with_patience(patience);
    let streams = [0, 1].map(|at| session.stream(&devices[at], Engine::Compute, "stream").unwrap());
    let [x, y] = [0, 1].map(|_| Buffer::<_, u32>::allocate(&devices[0], 64).unwrap());
    let gate = parked.then(|| {
        let [gate, unheard] = ["gate", "unheard"].map(|label| session.semaphore(label));
        let stays = session.stream(&devices[0], Engine::Compute, "stays").unwrap();
        let mut batch = session.batch();
        batch.wait_semaphore(gate, 1).signal(unheard, 1);
        session.submit(stays, batch.seal().unwrap()).unwrap();
        gate
    });
    let (event, heard) = (session.event("event"), session.semaphore("heard"));
    let mut driver =
        Driver { session, streams, nothing: Kernel::new(|_| {}), batched, event, heard, round: 0 };
    let given = edges != Edges::Auto;
    let mut read = None;
    let mut before = allocations();
    let mut least = u64::MAX;
    for round in 0..WINDOWS * WINDOW {
        if round % WINDOW == 0 && round > 0 {
            let now = allocations();
            least = least.min(now - before);
            before = now;
            if least == 0 {
                break;
            }
        }
        // Half of it is written, what was read of it before (WAR) and is read then (RAW).
        let part = if round % 2 == 0 { 0..40 } else { 30..64 };
        let wrote = driver.give(0, read.as_ref(), [x.write(part.clone()), y.read(..10)]);
        let fence = given.then_some(&wrote);
        let second = driver.give(1, fence, [x.read(part), y.read(5..)]);
        if round < 100 {
            // Waits that are left out are noted with each command, which takes the most room.
            second.wait(Bound::within(Duration::from_secs(30))).unwrap();
        }
        read = given.then_some(second);
    }
    if let Some(gate) = gate {
        driver.session.signal(gate, 1).unwrap();
    }
    let counts = driver.session.counts();
    assert!(counts.edges >= 2_000 || edges == Edges::Trust, "{counts:?}");
    driver.streams.into_iter().for_each(|stream| driver.session.drain(stream, patience).unwrap());
    least
}

#[test]
fn a_submission_allocates_nothing() {
    for edges in [Edges::Auto, Edges::Check, Edges::Trust] {
        for batched in [false, true] {
            for parked in [false, true] {
                let allocations = steady(edges, batched, parked);
                let case = format!("{edges:?}, batched {batched}, parked {parked}");
                println!("{case}: {allocations} allocations in 2,000 submissions");
                assert_eq!(allocations, 0, "{case}");
            }
        }
    }
}
