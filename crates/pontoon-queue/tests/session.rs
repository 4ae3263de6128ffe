//! Sessions over CPU devices: edges derived and checked, parked batches, deadlocks, limits.

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

#[test]
fn derived_edges_keep_two_devices_in_the_order_of_submission() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let streams = [0, 1].map(|at| compute(&mut session, &devices[at], "stream"));
    let buffer = numbers(&devices[0], 16);
    let (add, double) = (add(), double());
    let mut expected = 0_u32;
    for step in 0..40 {
        let stream = streams[step % 2];
        session.launch(stream, "add", &add, [buffer.write(..)], [3]).unwrap();
        session.launch(streams[(step + 1) % 2], "double", &double, [buffer.write(..)], []).unwrap();
        expected = expected.wrapping_add(3).wrapping_mul(2);
    }
    assert_eq!(session.to_vec(&buffer).unwrap(), [expected; 16]);
    session.write(&buffer, 0, &[7; 16]).unwrap();
    session.launch(streams[1], "add", &add, [buffer.write(..)], [1]).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 16]);
    // Every other command follows one of its own stream.
    let counts = session.counts();
    assert_eq!((counts.commands, counts.edges), (81, 40), "{counts:?}");
}

#[test]
fn a_missing_edge_is_refused_with_both_ends_and_nothing_is_queued() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 16);
    let (add, double) = (add(), double());
    let added = session.launch(first, "add", &add, [buffer.write(..)], [3]).unwrap();
    let refused = session.launch(second, "double", &double, [buffer.write(4..6)], []).unwrap_err();
    let Refusal::Missing(edge) = &refused else { panic!("{refused}") };
    assert_eq!((edge.kind, edge.range.clone()), (HazardKind::WriteAfterWrite, 16..24));
    assert_eq!((edge.earlier.label, edge.later.label), ("add", "double"));
    let said = "missing dependency add (device 0 queue a) -> double (device 1 queue b): double \
                would write bytes 16..24 of region";
    assert!(refused.to_string().starts_with(said), "{refused}");
    let host = session.to_vec(&buffer).unwrap_err();
    assert!(matches!(host, HostError::Refused(Refusal::Missing(_))), "{host}");

    session.stream_wait(second, &added).unwrap();
    let doubled = session.launch(second, "double", &double, [buffer.write(..)], []).unwrap();
    let _ = session.wait(&doubled, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [6; 16]);
    assert_eq!(session.counts().commands, 2, "a refused command was queued");
}

#[test]
fn readers_are_waited_for_by_a_writer_and_not_by_each_other() {
    let devices = [device(0), device(1), device(2)];
    let mut session = Session::auto().with_patience(patience());
    let [a, b, c] = [0, 1, 2].map(|at| compute(&mut session, &devices[at], "stream"));
    let (from, to) = (numbers(&devices[0], 8), [0, 1, 2].map(|at| numbers(&devices[at], 8)));
    session.write(&from, 0, &[5; 8]).unwrap();
    for (stream, to) in [a, b].into_iter().zip(&to) {
        session.copy(stream, "copy", from.read(..), to.write(..)).unwrap();
    }
    assert_eq!(session.counts().edges, 0, "readers waited for each other");
    session.launch(c, "add", &add(), [from.write(..)], [1]).unwrap();
    let counts = session.counts();
    assert_eq!((counts.edges, counts.execution_only), (2, 2));
    assert_eq!(session.to_vec(&to[1]).unwrap(), [5; 8]);
    assert_eq!(session.to_vec(&from).unwrap(), [6; 8]);
}

#[test]
fn an_edge_that_another_implies_is_not_made() {
    let devices = [device(0), device(1), device(2)];
    let mut session = Session::auto().with_patience(patience());
    let streams = [0, 1, 2].map(|at| compute(&mut session, &devices[at], "stream"));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let add = add();
    session.launch(streams[0], "x", &add, [x.write(..)], [1]).unwrap();
    session.launch(streams[1], "xy", &add, [y.write(..), x.read(..)], [1]).unwrap();
    session.launch(streams[2], "both", &add, [x.write(..), y.read(..)], [1]).unwrap();
    assert_eq!(session.counts().edges, 2, "the second implies the first");
    assert_eq!(session.to_vec(&x).unwrap(), [2; 8]);
}

#[test]
fn a_wait_comes_before_its_signal() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 4);
    let (add, double) = (add(), double());
    let done = session.semaphore("done");
    let mut waits = session.batch();
    waits.wait_semaphore(done, 2).launch("double", &double, [buffer.write(..)], []);
    let doubled = session.submit(second, waits.seal().unwrap()).unwrap();
    assert_eq!(doubled.is_complete(), Ok(false));
    let asked = session.wait(&doubled, patience()).unwrap_err();
    let WaitFailure::Deadlock(deadlock) = asked else { panic!("{asked}") };
    assert!(deadlock.to_string().contains("semaphore done to reach 2"), "{deadlock}");

    let mut signals = session.batch();
    signals.launch("add", &add, [buffer.write(..)], [5]).signal(done, 3);
    session.submit(first, signals.seal().unwrap()).unwrap();
    let _ = session.wait(&doubled, patience()).unwrap();
    assert_eq!(doubled.is_complete(), Ok(true));
    assert_eq!(session.to_vec(&buffer).unwrap(), [10; 4]);
}

#[test]
fn what_is_refused_does_not_depend_on_what_is_over() {
    let device = device(0);
    for over in [false, true] {
        let mut session = Session::check().with_patience(patience());
        let streams = ["a", "b", "c"].map(|label| compute(&mut session, &device, label));
        let buffer = numbers(&device, 4);
        let event = session.event("passed on");
        let slow = double();
        let first = session.launch(streams[0], "first", &slow, [buffer.write(..)], []).unwrap();
        if over {
            first.wait(Bound::within(Duration::from_secs(30))).unwrap();
        }
        let mut batch = session.batch();
        let nothing = Kernel::new(|_| {});
        batch.wait(&first).record(event).launch("other", &nothing, [], []);
        session.submit(streams[1], batch.seal().unwrap()).unwrap();
        let mut batch = session.batch();
        batch.wait_event(event).launch("last", &nothing, [buffer.read(..)], []);
        session.submit(streams[2], batch.seal().unwrap()).unwrap();
        session.drain(streams[2], patience()).unwrap();
    }
}

#[test]
fn what_was_over_is_known_from_then_on() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [first, second, third] = ["a", "b", "c"].map(|at| compute(&mut session, &device, at));
    let buffer = numbers(&device, 4);
    let (add, nothing) = (add(), Kernel::new(|_| {}));
    let added = session.launch(first, "add", &add, [buffer.write(..)], [1]).unwrap();
    added.wait(Bound::within(Duration::from_secs(30))).unwrap();
    for _ in 0..2 {
        session.launch(second, "reads", &nothing, [buffer.read(..)], []).unwrap();
    }
    let counts = session.counts();
    assert_eq!((counts.edges, counts.complete, counts.waits), (1, 1, 0), "{counts:?}");
    // Nothing follows in its batch that could know it: so it is given to the device.
    session.stream_wait(third, &added).unwrap();
    session.launch(third, "reads", &nothing, [buffer.read(..)], []).unwrap();
    let counts = session.counts();
    assert_eq!((counts.edges, counts.complete, counts.waits), (2, 1, 1), "{counts:?}");
    session.drain(third, patience()).unwrap();
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

#[test]
fn a_wait_before_the_signal_of_its_own_queue_is_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "own");
    let semaphore = session.semaphore("s");
    let waits = relay(&mut session, Some((semaphore, 1)), None, "waits");
    session.submit(stream, waits).unwrap();
    let signals = relay(&mut session, None, Some((semaphore, 1)), "signals");
    let refused = session.submit(stream, signals).unwrap_err();
    assert_eq!(refused.batch.commands(), 1, "the batch comes back");
    let said = circle(refused.why);
    assert!(said.contains("signals (stream own) is behind waits (stream own)"), "{said}");
    // Another stream may still signal.
    let other = compute(&mut session, &device, "other");
    session.submit(other, refused.batch).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn two_streams_that_wait_for_each_other_are_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let one = relay(&mut session, Some((y, 1)), Some((x, 1)), "one");
    session.submit(first, one).unwrap();
    let two = relay(&mut session, Some((x, 1)), Some((y, 1)), "two");
    let said = circle(session.submit(second, two).unwrap_err().why);
    assert!(said.contains("one (stream a) waits for semaphore y"), "{said}");
    assert!(said.contains("two (stream b) waits for semaphore x"), "{said}");
}

#[test]
fn two_streams_over_one_queue_share_its_order() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let queue = session.queue(&device, QueueSpec::new(Kind::Compute), "hardware").unwrap();
    let [first, second] = ["a", "b"].map(|label| session.stream_over(queue, label).unwrap());
    let semaphore = session.semaphore("s");
    let waits = relay(&mut session, Some((semaphore, 1)), None, "waits");
    session.submit(first, waits).unwrap();
    let signals = relay(&mut session, None, Some((semaphore, 1)), "signals");
    let said = circle(session.submit(second, signals).unwrap_err().why);
    assert!(said.contains("behind waits (stream a) in queue hardware"), "{said}");
}

#[test]
fn collectives_in_opposite_order_are_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.collective("x", 2), session.collective("y", 2));
    let member = |session: &mut Session<'_, CpuDevice>, id, label| {
        let mut batch = session.batch();
        batch.collective(id).launch(label, &Kernel::new(|_| {}), [], []);
        batch.seal().unwrap()
    };
    let batch = member(&mut session, x, "ax");
    session.submit(first, batch).unwrap();
    let batch = member(&mut session, y, "ay");
    let last = session.submit(first, batch).unwrap();
    let batch = member(&mut session, y, "by");
    session.submit(second, batch).unwrap();
    let batch = member(&mut session, x, "bx");
    let said = circle(session.submit(second, batch).unwrap_err().why);
    assert!(said.contains("by (stream b) waits for collective y"), "{said}");
    let third = compute(&mut session, &device, "c");
    let batch = member(&mut session, x, "cx");
    session.submit(third, batch).unwrap();
    let _ = session.wait(&last, patience()).unwrap();
}

#[test]
fn a_collective_orders_its_members_both_ways() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let streams = ["a", "b", "c"].map(|label| compute(&mut session, &device, label));
    let buffers = [0, 1, 2].map(|_| numbers(&device, 4));
    let all = session.collective("all", 3);
    let double = double();
    for (stream, own) in streams.iter().zip(&buffers) {
        session.launch(*stream, "before", &double, [own.write(..)], []).unwrap();
    }
    let mut fences = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        let mut batch = session.batch();
        // Reads what another wrote before.
        let from = buffers[(at + 1) % 3].read(..);
        batch.collective(all).launch("after", &Kernel::new(|_| {}), [from], []);
        fences.push(session.submit(*stream, batch.seal().unwrap()).unwrap());
    }
    for fence in &fences {
        let _ = session.wait(fence, patience()).unwrap();
    }
}

#[test]
fn a_closed_semaphore_fails_who_waits_at_once() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let one = relay(&mut session, Some((x, 1)), Some((y, 1)), "one");
    let one = session.submit(first, one).unwrap();
    let two = relay(&mut session, Some((y, 1)), None, "two");
    let two = session.submit(second, two).unwrap();
    session.close(x).unwrap();
    for fence in [one, two] {
        let failed = session.wait(&fence, patience()).unwrap_err();
        assert!(failed.to_string().contains("semaphore x got to 0"), "{failed}");
        assert!(fence.wait(Bound::within(Duration::from_secs(30))).is_err());
    }
    let refused = relay(&mut session, None, None, "later");
    let refused = session.submit(first, refused).unwrap_err();
    assert!(matches!(refused.why, Refusal::Abandoned(_)), "{refused}");
}

#[test]
fn credits_hold_back_and_one_more_unblocks() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let spec = QueueSpec { credits: Some(2), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "small").unwrap();
    let stream = session.stream_over(queue, "small").unwrap();
    let other = compute(&mut session, &device, "other");
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    for _ in 0..2 {
        let waits = relay(&mut session, Some((x, 1)), None, "waits");
        session.submit(stream, waits).unwrap();
    }
    let third = relay(&mut session, None, None, "third");
    let full = session.try_submit(stream, third).unwrap_err();
    assert!(matches!(full.why, Refusal::Full { holds: 2, .. }), "{full}");
    // Waiting for a credit would be for ever: only the host could let the first go.
    let deadlock = session.submit(stream, full.batch).unwrap_err();
    let said = circle(deadlock.why);
    assert!(said.contains("one of the 2 credits of queue small"), "{said}");
    // What another parked batch waits for gets in beyond the credits.
    let waits = relay(&mut session, Some((y, 1)), Some((x, 1)), "other");
    session.submit(other, waits).unwrap();
    let circle_closed = relay(&mut session, None, Some((y, 1)), "signals");
    let said = circle(session.submit(stream, circle_closed).unwrap_err().why);
    assert!(said.contains("behind"), "{said}");
    session.signal(y, 1).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn a_full_queue_gives_the_batch_back() {
    let device = CpuDevice::open(Rank(0), CpuSpec { depth: 2, ..CpuSpec::default() }).unwrap();
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "deep");
    let buffer = numbers(&device, 1);
    let (add, double) = (add(), double());
    let mut refused = 0;
    for _ in 0..50 {
        let mut batch = session.batch();
        batch.launch("double", &double, [buffer.write(..)], []);
        batch.launch("add", &add, [buffer.write(..)], [1]);
        let batch = batch.seal().unwrap();
        if let Err(full) = session.try_submit(stream, batch) {
            assert!(matches!(full.why, Refusal::Full { holds: 2, .. }), "{full}");
            refused += 1;
            session.submit(stream, full.batch).unwrap();
        }
    }
    assert!(refused > 0, "a queue of two commands was never full");
    let expected = (0..50).fold(0_u32, |x, _| x.wrapping_mul(2).wrapping_add(1));
    assert_eq!(session.to_vec(&buffer).unwrap(), [expected]);
    let mut batch = session.batch();
    for _ in 0..3 {
        batch.launch("add", &add, [buffer.write(..)], [1]);
    }
    let long = session.submit(stream, batch.seal().unwrap()).unwrap_err();
    assert!(matches!(long.why, Refusal::TooLong { commands: 3, depth: 2, .. }), "{long}");
}

#[test]
fn an_event_stands_for_what_was_recorded_last() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (numbers(&device, 4), numbers(&device, 4));
    let event = session.event("ready");
    let add = add();
    let waiting = |session: &mut Session<'_, CpuDevice>, buffer: &Buffer<Region, u32>| {
        let mut batch = session.batch();
        batch.wait_event(event).launch("after", &add, [buffer.write(..)], [1]);
        session.submit(second, batch.seal().unwrap()).map_err(|refused| refused.why)
    };
    let never = waiting(&mut session, &x).unwrap_err();
    assert!(matches!(never, Refusal::NeverRecorded { .. }), "{never}");
    let mut batch = session.batch();
    batch.launch("x", &add, [x.write(..)], [1]).record(event);
    batch.launch("y", &add, [y.write(..)], [1]);
    session.submit(first, batch.seal().unwrap()).unwrap();
    let later = waiting(&mut session, &y).unwrap_err();
    assert!(matches!(later, Refusal::Missing(_)), "y came after the record: {later}");
    waiting(&mut session, &x).unwrap();
    session.drain(second, patience()).unwrap();

    let mut lenient = Session::check().with_unrecorded(Unrecorded::Pass);
    let stream = compute(&mut lenient, &device, "c");
    let event = lenient.event("never");
    let mut batch = lenient.batch();
    batch.wait_event(event).launch("after", &add, [x.write(..)], [1]);
    lenient.submit(stream, batch.seal().unwrap()).unwrap();
    lenient.drain(stream, patience()).unwrap();
}

#[test]
fn a_launch_queue_needs_a_barrier_between_its_lanes() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let spec =
        QueueSpec { completion: Completion::Launch { lanes: 2 }, ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "wide").unwrap();
    let stream = session.stream_over(queue, "wide").unwrap();
    let buffer = numbers(&device, 4);
    let (add, double) = (add(), double());
    session.launch(stream, "double", &double, [buffer.write(..)], []).unwrap();
    let refused = session.launch(stream, "add", &add, [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
    for barrier in [Barrier::Streams(vec![stream]), Barrier::Device] {
        for _ in 0..2 {
            let mut batch = session.batch();
            batch.barrier(barrier.clone()).launch("add", &add, [buffer.write(..)], [1]);
            session.submit(stream, batch.seal().unwrap()).unwrap();
        }
    }
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [4; 4]);
}

#[test]
fn freed_memory_is_not_used_and_not_freed_under_a_command() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = session.allocate::<u32>(&device, 4).unwrap();
    let doubled = session.launch(stream, "double", &double(), [buffer.write(..)], []).unwrap();
    let early = session.free(&buffer).unwrap_err();
    assert!(matches!(early, HostError::Refused(Refusal::Missing(_))), "{early}");
    let _ = session.wait(&doubled, patience()).unwrap();
    session.free(&buffer).unwrap();
    let used = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(used, Refusal::Freed { label: "add", .. }), "{used}");
    assert!(session.to_vec(&buffer).is_err());
}

#[test]
fn a_handle_of_another_session_is_refused_by_name() {
    let device = device(0);
    let (mut one, mut other) = (Session::auto(), Session::<CpuDevice>::auto());
    let stream = compute(&mut one, &device, "a");
    let refused = other.launch(stream, "add", &add(), [], [1]).unwrap_err();
    assert!(refused.to_string().starts_with("stream 0 is of session "), "{refused}");
    let semaphore = other.semaphore("s");
    let batch = relay(&mut one, None, Some((semaphore, 1)), "signals");
    assert!(matches!(one.submit(stream, batch).unwrap_err().why, Refusal::Foreign(_)));
}

#[test]
fn what_could_run_nowhere_is_refused_and_bytes_beyond_are_named() {
    let device = device(0);
    for edges in [Edges::Auto, Edges::Check, Edges::Trust] {
        let mut session = Session::new(edges);
        let stream = compute(&mut session, &device, "a");
        let copies = session.stream(&device, Engine::Copy, "copies").unwrap();
        let buffer = numbers(&device, 4);
        let region = pontoon_hal::Memory::id(buffer.memory());
        let said =
            format!("add cannot be submitted: bytes 8..20 are not within {region} of 16 bytes");
        let beyond = session.launch(stream, "add", &add(), [buffer.write(2..5)], [1]).unwrap_err();
        assert_eq!(beyond.to_string(), said);
        let mut batch = session.batch();
        batch.launch("add", &add(), [buffer.write(2..5)], [1]);
        assert_eq!(batch.seal().unwrap_err().to_string(), said);
        let twice = [buffer.write(..2), buffer.read(1..)];
        let refused = [
            session.launch(copies, "add", &add(), [buffer.write(..)], [1]),
            session.launch(stream, "twice", &add(), twice, []),
            session.launch(stream, "many", &add(), (0..9).map(|_| buffer.read(..)), []),
            session.copy(stream, "uneven", buffer.read(..2), buffer.write(3..)),
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
        }
        assert_eq!(session.counts().commands, 0);
    }
}

#[test]
fn a_wait_that_times_out_names_the_chain_to_its_root() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto();
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 4);
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(300)));
    session.launch(first, "slow", &slow, [buffer.write(..)], []).unwrap();
    let fence = session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let short = Patience::within(Duration::from_millis(20));
    let failed = session.wait(&fence, short).unwrap_err().to_string();
    for part in ["device 1 queue b at 0 of 2, waiting", "device 0 queue a at 0 of 1, in slow"] {
        assert!(failed.contains(part), "{failed}");
    }
    let _ = session.wait(&fence, patience()).unwrap();
}

#[test]
fn progress_starts_the_time_anew_up_to_the_cap() {
    let device = device(0);
    let mut session = Session::auto();
    let stream = compute(&mut session, &device, "a");
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(10)));
    let mut last = None;
    for _ in 0..20 {
        last = Some(session.launch(stream, "slow", &slow, [], []).unwrap());
    }
    let last = last.unwrap();
    let idle = Patience::within(Duration::from_millis(80));
    let capped = session.wait(&last, idle.at_most(Duration::from_millis(100)));
    assert!(capped.is_err(), "200 ms of work were over in 100");
    let _ = session.wait(&last, idle.at_most(Duration::from_secs(60))).unwrap();
}

#[test]
fn trust_looks_at_nothing() {
    let devices = [device(0), device(1)];
    let mut session = Session::new(Edges::Trust);
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], "stream"));
    let buffer = numbers(&devices[0], 16);
    let nothing = Kernel::new(|_| {});
    session.launch(first, "a", &nothing, [buffer.read(..)], []).unwrap();
    session.launch(second, "b", &nothing, [buffer.read(..)], []).unwrap();
    session.drain(first, patience()).unwrap();
    session.drain(second, patience()).unwrap();
    assert_eq!(session.counts().edges, 0);
}
