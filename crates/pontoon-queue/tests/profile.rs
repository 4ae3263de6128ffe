//! What a session says of its synchronisation: by cause, by queue, an iteration, with proofs.

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::{Device, Engine};
use pontoon_queue::{
    Barrier, Batch, Buffer, Cause, Edges, Fence, HostError, Implied, Moment, Patience, Refusal,
    Session, StreamId, Where,
};
use pontoon_signal::{Bound, Nanos, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape};

type Region = pontoon_cpu::Region;

fn device(rank: u32) -> CpuDevice {
    let spec = CpuSpec { start: Seq::new(u64::MAX - 2), depth: 16, ..CpuSpec::default() };
    CpuDevice::open(Rank(rank), spec).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

/// A time that is certain to run out while a gate is closed.
fn moment() -> Patience {
    let moment = Duration::from_millis(5);
    Patience::within(moment).at_most(moment)
}

fn stream<'d>(session: &mut Session<'d, CpuDevice>, on: &'d CpuDevice, label: &str) -> StreamId {
    session.stream(on, Engine::Compute, label).unwrap()
}

fn numbers(on: &CpuDevice) -> Buffer<Region, u32> {
    Buffer::allocate(on, 8).unwrap()
}

/// What holds a kernel until it is opened.
struct Gate {
    publisher: Publisher,
    slot: Slot,
}

impl Gate {
    fn new() -> Self {
        let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(Rank(900)));
        let slot = SlotId::new(900, 0);
        let publisher = table.publisher(slot).unwrap();
        Self { publisher, slot: table.slot(slot).unwrap() }
    }

    fn kernel(&self) -> Kernel {
        let (slot, opened) = (self.slot.clone(), self.publisher.value() + 1);
        Kernel::new(move |_| {
            let bound = Bound::within(Duration::from_secs(30));
            slot.waiter().wait_ge_bounded(opened, bound).unwrap().acq_fence();
        })
    }

    fn fence(&self) -> Fence {
        Fence::on(self.slot.clone(), self.publisher.value() + 1, "gate")
    }

    fn open(&mut self) {
        self.publisher.pub_release(1);
    }
}

fn noop() -> Kernel {
    Kernel::new(|_| {})
}

#[test]
fn waits_of_the_host_count_by_what_they_were_for() {
    let device = device(0);
    let mut session = Session::auto().with_patience(moment());
    let work = stream(&mut session, &device, "work");
    let (buffer, mut gate) = (numbers(&device), Gate::new());
    let fence = session.launch(work, "held", &gate.kernel(), [buffer.write(..)], []).unwrap();
    assert!(session.wait(&fence, moment()).is_err(), "the gate is closed");
    assert!(session.drain(work, moment()).is_err());
    let read = session.to_vec(&buffer).unwrap_err();
    assert!(matches!(read, HostError::Wait(_)), "{read}");
    let full = (0..17).find_map(|_| session.launch(work, "noop", &noop(), [], []).err());
    assert!(matches!(full, Some(Refusal::NoRoom(_))), "{full:?}");
    gate.open();
    let _ = session.wait(&fence, patience()).unwrap();

    let figures = session.profile().figures;
    let host = figures.waits(Cause::Host).count();
    assert!((2..=3).contains(&host), "{host}");
    for cause in [Cause::Access, Cause::Room] {
        let times = figures.waits(cause);
        assert_eq!(times.count(), 1, "{cause:?}");
        let least = moment().idle();
        assert!(times.quantile(0.99).as_duration() >= least, "{cause:?}: {times:?}");
    }
    for cause in [Cause::Dependency, Cause::Barrier, Cause::FullSync] {
        assert_eq!(figures.waits(cause).count(), 0, "{cause:?}");
    }
    assert_eq!(figures.sync_points, host + 2);
    // No queue waited, so the host is who waited longest.
    let longest = figures.longest.unwrap();
    assert_eq!(longest.waiting, Where::Host);
    assert_eq!(longest.waited_for, Where::Queue(Rank(0), "work".into()));
}

#[test]
fn waits_of_devices_count_by_what_they_were_for() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let a = stream(&mut session, &devices[0], "a");
    let b = stream(&mut session, &devices[1], "b");
    let c = stream(&mut session, &devices[1], "c");
    let (buffer, mut gate) = (numbers(&devices[0]), Gate::new());
    session.launch(a, "held", &gate.kernel(), [buffer.write(..)], []).unwrap();
    session.launch(b, "use", &noop(), [buffer.write(..)], []).unwrap();
    let mut light = Batch::new();
    light.barrier(Barrier::Streams(vec![a])).launch("light", &noop(), [], []);
    session.submit(c, light.seal().unwrap()).unwrap();
    let mut heavy = Batch::new();
    heavy.barrier(Barrier::Device).launch("heavy", &noop(), [], []);
    session.submit(b, heavy.seal().unwrap()).unwrap();
    // A device that stands still is opened only after it was seen to.
    while session.profile().figures.stalled < Nanos(2_000_000) {
        std::thread::yield_now();
    }
    gate.open();
    for stream in [a, b, c] {
        session.drain(stream, patience()).unwrap();
    }
    let figures = session.profile().figures;
    for cause in [Cause::Dependency, Cause::Barrier, Cause::FullSync] {
        assert_eq!(figures.waits(cause).count(), 1, "{cause:?}: {:?}", figures.waits(cause));
    }
    assert!(figures.waits(Cause::Dependency).total() > Nanos(0));
    let longest = figures.longest.as_ref().unwrap();
    assert!(matches!(&longest.waiting, Where::Queue(Rank(1), _)), "{longest:?}");
    assert_eq!(longest.waited_for, Where::Queue(Rank(0), "a".into()));
    let share = figures.sync_share().unwrap();
    assert!(share > 0.0 && share <= 1.0, "{share}");
    assert_eq!(figures.device_time.0, 2 * figures.time.0);
}

#[test]
fn a_redundant_wait_is_told_once_with_its_proof() {
    let devices = [device(0), device(1), device(2)];
    let mut session = Session::new(Edges::Check).with_patience(patience());
    let [a, b, c] = [("a", 0), ("b", 1), ("c", 2)]
        .map(|(label, at): (_, usize)| stream(&mut session, &devices[at], label));
    let known = session.launch(a, "known", &noop(), [], []).unwrap();
    let _ = session.wait(&known, patience()).unwrap();
    session.stream_wait(b, &known).unwrap();

    let mut gate = Gate::new();
    let first = session.launch(a, "first", &gate.kernel(), [], []).unwrap();
    let second = session.launch(a, "second", &noop(), [], []).unwrap();
    session.stream_wait(a, &first).unwrap();
    session.stream_wait(b, &second).unwrap();
    let third = session.launch(b, "third", &noop(), [], []).unwrap();
    session.stream_wait(b, &first).unwrap();
    session.stream_wait(b, &first).unwrap();
    // One batch: what is planned proves what comes after it.
    let mut batch = Batch::new();
    batch.wait(&third).wait(&second).launch("fourth", &noop(), [], []);
    session.submit(c, batch.seal().unwrap()).unwrap();
    gate.open();
    for stream in [a, b, c] {
        session.drain(stream, patience()).unwrap();
    }

    let profile = session.profile();
    let told: Vec<_> = profile.redundant.iter().map(ToString::to_string).collect();
    let expected = [
        "device 1 queue b need not wait for known (device 0 queue a): the host knew it to be over",
        "device 0 queue a need not wait for first (device 0 queue a): it is earlier in the same \
         queue",
        "device 1 queue b need not wait for first (device 0 queue a): the wait for second (device \
         0 queue a) implies it (2 times)",
        "device 2 queue c need not wait for second (device 0 queue a): the wait for third (device \
         1 queue b) implies it",
    ];
    assert_eq!(told, expected);
    assert!(matches!(profile.redundant[0].why, Implied::ByHost));
    assert_eq!((profile.figures.redundant, profile.untold), (5, 0));
}

#[test]
fn different_redundant_waits_beyond_the_list_are_counted() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let streams: Vec<_> =
        (0..12).map(|at| stream(&mut session, &device, &format!("s{at}"))).collect();
    let mut fences = Vec::new();
    for &stream in &streams {
        fences.push(session.launch(stream, "work", &noop(), [], []).unwrap());
        session.drain(stream, patience()).unwrap();
    }
    for &stream in &streams {
        for fence in &fences {
            session.stream_wait(stream, fence).unwrap();
        }
    }
    let profile = session.profile();
    let told: u64 = profile.redundant.iter().map(|edge| edge.count).sum();
    assert_eq!((profile.redundant.len(), told, profile.untold), (64, 64, 144 - 64));
}

#[test]
fn an_iteration_has_what_came_since_the_one_before() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [a, b] = [0, 1].map(|at| stream(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0]);
    let step = |session: &mut Session<'_, CpuDevice>| {
        session.launch(a, "one", &noop(), [buffer.write(..)], []).unwrap();
        session.launch(b, "other", &noop(), [buffer.write(..)], []).unwrap();
        session.to_vec(&buffer).unwrap();
    };
    step(&mut session);
    session.begin_iteration();
    let (mut points, mut time) = (0, Nanos(0));
    for number in 0..3 {
        step(&mut session);
        let iteration = session.end_iteration();
        assert_eq!(iteration.number, number);
        let figures = iteration.figures;
        // b finds what a wrote, and the host what b wrote; then a what the host had flushed.
        assert_eq!((figures.flushes, figures.invalidations), (2, 3), "{figures:?}");
        assert_eq!(figures.fence_allocations, 0);
        points += figures.sync_points;
        time = time.saturating_add(figures.time);
    }
    let profile = session.profile();
    assert_eq!((profile.iterations, profile.figures.sync_points), (3, points));
    assert!(profile.figures.time >= time);

    // A parked batch needs a fence that is made.
    let semaphore = session.semaphore("go");
    let mut parked = Batch::new();
    parked.wait_semaphore(semaphore, 1).launch("later", &noop(), [], []);
    session.submit(a, parked.seal().unwrap()).unwrap();
    session.signal(semaphore, 1).unwrap();
    assert_eq!(session.end_iteration().figures.fence_allocations, 1);
}

#[test]
fn merged_and_elided_maintenance_is_told_apart() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [a, b] = [0, 1].map(|at| stream(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0]), numbers(&devices[0]));
    session.launch(a, "write", &noop(), [x.write(..), y.write(..)], []).unwrap();
    for _ in 0..2 {
        session.launch(b, "read", &noop(), [x.read(..), y.read(..)], []).unwrap();
    }
    let figures = session.profile().figures;
    // Two flushes and two invalidations asked for, one of each due; the second read finds them done.
    assert_eq!((figures.maintenance_asked, figures.maintenance_merged), (4, 2));
    assert_eq!((figures.flushes, figures.invalidations, figures.maintenance_elided), (1, 1, 4));
    session.drain(b, patience()).unwrap();
}

#[test]
fn a_timeline_has_the_hosts_waits_accesses_and_submissions() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience()).with_timeline(100);
    let [a, b] = [0, 1].map(|at| stream(&mut session, &devices[at], ["a", "b"][at]));
    let (buffer, gate) = (numbers(&devices[0]), Gate::new());
    session.stream_wait(a, &gate.fence()).unwrap();
    let fence = session.launch(a, "held", &noop(), [buffer.write(..)], []).unwrap();
    assert!(session.wait(&fence, moment()).is_err());
    let mut gate = gate;
    gate.open();
    let _ = session.wait(&fence, patience()).unwrap();
    session.to_vec(&buffer).unwrap();
    session.launch(b, "free", &noop(), [], []).unwrap();
    session.drain(b, patience()).unwrap();

    let timeline = session.take_timeline();
    assert_eq!(timeline.dropped, 0);
    let submitted = timeline.moments.iter().filter(|it| matches!(it, Moment::Submitted { .. }));
    assert_eq!(submitted.count(), 3);
    let Some(Moment::Waited { cause, target, start, end, .. }) =
        timeline.moments.iter().find(|it| matches!(it, Moment::Waited { .. }))
    else {
        panic!("no wait in {timeline:?}")
    };
    assert_eq!((*cause, Some(*target)), (Cause::Host, fence.target()));
    assert!(end.since(*start).as_duration() >= moment().idle());
    let accessed = timeline.moments.iter().find_map(|it| match it {
        Moment::Accessed { label, start, end } => Some((*label, start <= end)),
        _ => None,
    });
    assert_eq!(accessed, Some(("a host read", true)));
    assert!(session.take_timeline().moments.is_empty(), "it was taken twice");

    let mut short = Session::auto().with_timeline(2);
    let a = stream(&mut short, &devices[0], "short");
    for _ in 0..5 {
        short.launch(a, "noop", &noop(), [], []).unwrap();
    }
    let timeline = short.take_timeline();
    assert_eq!((timeline.moments.len(), timeline.dropped), (2, 3));
}

#[test]
fn a_device_that_stood_still_before_the_session_is_not_held_against_it() {
    let device = device(0);
    {
        let mut earlier = Session::auto();
        let a = stream(&mut earlier, &device, "earlier");
        let mut gate = Gate::new();
        earlier.stream_wait(a, &gate.fence()).unwrap();
        while device.report().unwrap().stalled < Nanos(2_000_000) {
            std::thread::yield_now();
        }
        gate.open();
        earlier.drain(a, patience()).unwrap();
    }
    let mut session = Session::auto();
    stream(&mut session, &device, "idle");
    let figures = session.profile().figures;
    assert_eq!((figures.stalled, figures.warning()), (Nanos(0), None));
}
