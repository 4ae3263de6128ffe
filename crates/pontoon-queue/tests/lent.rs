//! Bytes that two ranks use in turns: each side's session refuses what its peer could meet.
//!
//! Both ranks are in this process, with a session and devices each; the signals between them lie in
//! one table, as they do between processes. What would be a link's write is the test's own copy.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel, Region};
use pontoon_hal::{Engine, Memory};
use pontoon_queue::{
    Buffer, ChannelId, Edges, Fence, HostError, OnFailure, Patience, Refusal, Session, StreamId,
};
use pontoon_signal::{
    Bound, Ending, Publisher, Rank, Seq, SignalTable, SlotId, TableShape,
    shim::{AtomicU32, Ordering::Relaxed},
};

const LEN: usize = 256;
const READY: SlotId = SlotId::new(1, 0);
const CREDIT: SlotId = SlotId::new(0, 0);

fn device(rank: u32) -> CpuDevice {
    CpuDevice::open(Rank(rank), CpuSpec::default()).unwrap()
}

fn table(start: u64) -> SignalTable {
    SignalTable::in_process(TableShape::new(2, 1).starting_at(Seq::new(start)))
}

fn nothing() -> Kernel {
    Kernel::new(|_| {})
}

fn patient() -> Patience {
    Patience::within(Duration::from_secs(20))
}

/// A kernel that tells the peer to go on.
fn tells(table: &SignalTable, slot: SlotId) -> Kernel {
    let publisher = Mutex::new(table.publisher(slot).unwrap());
    Kernel::new(move |_| {
        publisher.lock().unwrap().pub_release(1);
    })
}

/// The receiving side.
struct Receiver<'d> {
    session: Session<'d, CpuDevice>,
    stream: StreamId,
    other: StreamId,
    channel: ChannelId,
    landing: Buffer<Region, u32>,
    signals: SignalTable,
    grant: Kernel,
    arrived: u32,
}

impl<'d> Receiver<'d> {
    fn open(device: &'d CpuDevice, edges: Edges, signals: &SignalTable) -> Self {
        let mut session = Session::new(edges).with_bound(Bound::within(Duration::from_secs(20)));
        let stream = session.stream(device, Engine::Compute, "update").unwrap();
        let other = session.stream(device, Engine::Compute, "other").unwrap();
        let channel = session.channel("gradients of rank 1");
        let landing = session.allocate(device, LEN).unwrap();
        let (signals, grant) = (signals.clone(), tells(signals, CREDIT));
        Self { session, stream, other, channel, landing, signals, grant, arrived: 0 }
    }

    fn lend(&mut self) -> Result<Fence, Refusal> {
        let all = [self.landing.write(..)];
        self.session.lend(self.stream, self.channel, "grant", &self.grant, all, [])
    }

    fn arrive(&mut self) -> Result<Fence, Refusal> {
        let slot = self.signals.slot(READY).unwrap();
        let start = self.signals.shape().start().get();
        let target = Seq::new(start.wrapping_add(u64::from(self.arrived) + 1));
        let signal = Fence::on(slot, target, "rank 1");
        let given = self.session.arrive(self.stream, self.channel, "arrival", &signal, &nothing());
        self.arrived += u32::from(given.is_ok());
        given
    }

    fn read(&mut self, stream: StreamId) -> Result<Fence, Refusal> {
        let all = [self.landing.read(..)];
        self.session.launch(stream, "read", &nothing(), all, [])
    }
}

#[test]
fn what_is_lent_is_refused_until_it_is_back() {
    for edges in [Edges::Auto, Edges::Check] {
        let (device, signals) = (device(0), table(0));
        let mut receiver = Receiver::open(&device, edges, &signals);
        let mut peer = signals.publisher(READY).unwrap();
        let lent = receiver.lend().unwrap();
        for stream in [receiver.stream, receiver.other] {
            let refused = receiver.read(stream).unwrap_err();
            let Refusal::Lent { label: "read", range, to, .. } = &refused else {
                panic!("{refused}")
            };
            assert_eq!((range.clone(), to.as_ref()), (0..LEN * 4, "gradients of rank 1"));
            assert!(refused.to_string().contains("let them arrive first"), "{refused}");
        }
        let host = receiver.session.to_vec(&receiver.landing.clone()).unwrap_err();
        assert!(matches!(host, HostError::Refused(Refusal::Lent { .. })), "{host}");
        assert!(matches!(receiver.lend(), Err(Refusal::Lent { label: "grant", .. })));
        let freed = receiver.session.free(&receiver.landing.clone()).unwrap_err();
        assert!(matches!(freed, HostError::Refused(Refusal::Lent { .. })), "{freed}");

        receiver.session.wait(&lent, patient()).unwrap();
        peer.pub_release(1);
        let back = receiver.arrive().unwrap();
        receiver.read(receiver.stream).unwrap();
        // On another stream it has to wait for the arrival, or is made to.
        let unordered = receiver.read(receiver.other);
        match edges {
            Edges::Check => {
                let refused = unordered.unwrap_err();
                assert!(
                    matches!(&refused, Refusal::Missing(edge) if edge.earlier.label == "arrival")
                );
                receiver.session.stream_wait(receiver.other, &back).unwrap();
                receiver.read(receiver.other).unwrap();
            }
            _ => drop(unordered.unwrap()),
        }
        receiver.session.drain(receiver.other, patient()).unwrap();
        assert_eq!(receiver.session.lent(receiver.channel), Ok((0, 1)));
    }
}

#[test]
fn nothing_comes_back_that_was_not_lent() {
    let (device, signals) = (device(0), table(0));
    let mut receiver = Receiver::open(&device, Edges::Check, &signals);
    let refused = receiver.arrive().unwrap_err();
    assert!(matches!(refused, Refusal::NothingLent { label: "arrival", .. }), "{refused}");
    let (stream, channel) = (receiver.stream, receiver.channel);
    // What a kernel only reads is not lent.
    let read_only = [receiver.landing.read(..)];
    receiver.session.lend(stream, channel, "tell", &nothing(), read_only, []).unwrap();
    receiver.read(receiver.other).unwrap();
    let mut other = Session::<CpuDevice>::check();
    let foreign = other.channel("another session's");
    let all = [receiver.landing.write(..)];
    let refused = receiver.session.lend(stream, foreign, "grant", &nothing(), all, []);
    assert!(matches!(refused, Err(Refusal::Foreign(_))));
}

#[test]
fn a_reader_that_the_grant_does_not_wait_for_is_refused() {
    let (device, signals) = (device(0), table(0));
    let mut receiver = Receiver::open(&device, Edges::Check, &signals);
    let write = [receiver.landing.write(..)];
    let other = receiver.other;
    let fill = receiver.session.launch(other, "fill", &nothing(), write, []).unwrap();
    let refused = receiver.lend().unwrap_err();
    assert!(matches!(&refused, Refusal::Missing(edge) if edge.later.label == "grant"), "{refused}");
    assert_eq!(
        receiver.session.lent(receiver.channel),
        Ok((0, 0)),
        "a refused grant lends nothing"
    );
    receiver.session.stream_wait(receiver.stream, &fill).unwrap();
    receiver.lend().unwrap();
}

/// A parked batch is in no order yet, so nothing would find that it uses what a peer has by then.
#[test]
fn what_a_parked_batch_is_to_use_is_not_lent() {
    for edges in [Edges::Auto, Edges::Check] {
        let (device, signals) = (device(0), table(0));
        let mut receiver = Receiver::open(&device, edges, &signals);
        let go = receiver.session.semaphore("go");
        let mut waits = receiver.session.batch();
        let read = [receiver.landing.read(..8)];
        waits.wait_semaphore(go, 1).launch("read", &nothing(), read, []);
        let parked = receiver.session.submit(receiver.other, waits.seal().unwrap()).unwrap();
        let refused = receiver.lend().unwrap_err();
        assert!(matches!(refused, Refusal::Wanted { label: "grant", .. }), "{refused}");
        assert!(refused.to_string().contains("read (stream other) is parked"), "{refused}");
        let all = [receiver.landing.write(..)];
        let refused = receiver.session.lend_at_start(receiver.channel, all).unwrap_err();
        assert!(matches!(refused, Refusal::Wanted { label: "a lending", .. }), "{refused}");
        assert_eq!(receiver.session.lent(receiver.channel), Ok((0, 0)));
        // Other bytes, and a command that follows the batch.
        let rest = [receiver.landing.write(8..)];
        let (stream, channel) = (receiver.stream, receiver.channel);
        receiver.session.lend(stream, channel, "rest", &nothing(), rest, []).unwrap();
        let first = [receiver.landing.write(..8)];
        receiver.session.stream_wait(stream, &parked).unwrap();
        receiver.session.lend(stream, channel, "first", &nothing(), first, []).unwrap();
        receiver.session.signal(go, 1).unwrap();
        receiver.session.drain(stream, patient()).unwrap();
        assert_eq!(receiver.session.lent(channel), Ok((2, 0)));
    }
}

/// What comes after a batch that may run again comes after its end: it cannot run again under a peer.
#[test]
fn a_batch_that_runs_again_does_so_before_its_bytes_are_lent() {
    let both = |edges| [(edges, false), (edges, true)];
    for (edges, has_failed) in [Edges::Auto, Edges::Check].into_iter().flat_map(both) {
        let (device, signals) = (device(0), table(0));
        let mut receiver = Receiver::open(&device, edges, &signals);
        let (stream, other) = (receiver.stream, receiver.other);
        let left = AtomicU32::new(1);
        let told = signals.slot(CREDIT).unwrap();
        let start = told.value();
        let read = Kernel::new({
            let told = told.clone();
            move |_| {
                assert_eq!(told.value(), start, "the peer has it");
                assert_eq!(left.swap(0, Relaxed), 0, "not yet");
            }
        });
        let mut batch = receiver.session.batch();
        batch.launch("read", &read, [receiver.landing.read(..)], []);
        batch.on_failure(OnFailure::Retry(2)).idempotent();
        let first = receiver.session.submit(other, batch.seal().unwrap()).unwrap();
        if has_failed {
            // The session has not seen it.
            assert!(first.wait(Bound::within(Duration::from_secs(20))).is_err());
        }
        // It fails with the attempt that it was to come after, or follows the next.
        let ordered = receiver.session.stream_wait(stream, &first);
        let lent = ordered.and_then(|_| receiver.lend());
        assert_eq!(receiver.session.wait(&first, patient()).unwrap().retries, 1);
        match lent.map(|fence| receiver.session.wait(&fence, patient())) {
            Ok(Ok(_)) => assert_eq!(told.value(), start + 1),
            _ => {
                assert_eq!(told.value(), start);
                receiver.session.reopen(stream).unwrap();
                receiver.lend().unwrap();
            }
        }
    }
}

#[test]
fn what_a_command_was_to_lend_that_failed_is_not_lent() {
    for edges in [Edges::Auto, Edges::Check] {
        let (device, signals) = (device(0), table(0));
        let mut receiver = Receiver::open(&device, edges, &signals);
        let fails = Kernel::new(|_| panic!("no way to the peer"));
        let grant = std::mem::replace(&mut receiver.grant, fails);
        for at_a_look in [true, false] {
            let failed = receiver.lend().unwrap();
            assert!(receiver.session.wait(&failed, patient()).is_err());
            assert_eq!(receiver.session.lent(receiver.channel), Ok((0, 0)));
            if !at_a_look {
                let refused = receiver.arrive().unwrap_err();
                assert!(matches!(refused, Refusal::Failed(_)), "{refused}");
                assert!(refused.to_string().contains("no way to the peer"), "{refused}");
                let refused = receiver.arrive().unwrap_err();
                assert!(matches!(refused, Refusal::NothingLent { .. }), "{refused}");
            }
            receiver.session.reopen(receiver.stream).unwrap();
            receiver.read(receiver.stream).unwrap();
            receiver.session.drain(receiver.stream, patient()).unwrap();
        }
        receiver.grant = grant;
        receiver.lend().unwrap();
        assert!(receiver.read(receiver.stream).is_err());
    }
}

#[test]
fn what_is_lent_at_the_start_is_in_nobodys_use_and_comes_back_written() {
    for edges in [Edges::Auto, Edges::Check] {
        let (device, signals) = (device(0), table(0));
        let mut receiver = Receiver::open(&device, edges, &signals);
        let (stream, other, channel) = (receiver.stream, receiver.other, receiver.channel);
        let read = receiver.read(other).unwrap();
        // Declared as read: what the peer does there is to write.
        let all = [receiver.landing.read(..)];
        let refused = receiver.session.lend_at_start(channel, all.clone()).unwrap_err();
        let Refusal::Missing(edge) = &refused else { panic!("{refused}") };
        assert_eq!((edge.earlier.label, edge.later.label), ("read", "a lending"));
        receiver.session.wait(&read, patient()).unwrap();
        receiver.session.lend_at_start(channel, all).unwrap();
        signals.publisher(READY).unwrap().pub_release(1);
        let arrived = receiver.arrive().unwrap();
        let unordered = receiver.read(other);
        if edges == Edges::Check {
            let refused = unordered.unwrap_err();
            assert!(matches!(&refused, Refusal::Missing(edge) if edge.earlier.label == "arrival"));
            receiver.session.stream_wait(other, &arrived).unwrap();
            receiver.read(other).unwrap();
        }
        receiver.session.drain(stream, patient()).unwrap();
        receiver.session.drain(other, patient()).unwrap();
        assert_eq!(receiver.session.counts().edges, 1, "the read comes after the arrival");
    }
}

#[test]
fn a_dead_peer_fails_the_arrival_and_says_who() {
    let (device, signals) = (device(0), table(0));
    let mut receiver = Receiver::open(&device, Edges::Auto, &signals);
    let _peer = signals.publisher(READY).unwrap();
    receiver.lend().unwrap();
    let arrival = receiver.arrive().unwrap();
    signals.end_producer(Rank(1), Ending::PeerDead { rank: Rank(1) }).unwrap();
    let failed = receiver.session.wait(&arrival, patient()).unwrap_err().to_string();
    assert!(failed.contains("producer 1 is dead"), "{failed}");
}

/// Both sides, in step: what is read is what was sent for that round, with edges derived and checked,
/// from counters that wrap.
#[test]
fn two_sides_hand_over_in_turns() {
    const ROUNDS: u32 = 300;
    for (edges, start) in [(Edges::Auto, 0), (Edges::Check, u64::MAX - 20)] {
        let (here, there) = (device(0), device(1));
        let signals = table(start);
        let mut receiver = Receiver::open(&here, edges, &signals);
        let memory = receiver.landing.memory().clone();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sender = std::thread::spawn({
            let signals = signals.clone();
            move || send(&there, edges, &signals, &memory, start, ROUNDS)
        });
        for _ in 0..ROUNDS {
            receiver.lend().unwrap();
            receiver.arrive().unwrap();
            let seen = Arc::clone(&seen);
            let look = Kernel::new(move |kernel| {
                let numbers = kernel.read::<u32>(0);
                assert!(numbers.iter().all(|number| *number == numbers[0]), "half a message");
                seen.lock().unwrap().push(numbers[0]);
            });
            let all = [receiver.landing.read(..)];
            receiver.session.launch(receiver.stream, "look", &look, all, []).unwrap();
        }
        receiver.session.drain(receiver.stream, patient()).unwrap();
        sender.join().unwrap();
        assert_eq!(*seen.lock().unwrap(), (1..=ROUNDS).collect::<Vec<_>>());
    }
}

fn send(
    device: &CpuDevice,
    edges: Edges,
    signals: &SignalTable,
    landing: &Region,
    start: u64,
    rounds: u32,
) {
    let mut session = Session::new(edges).with_bound(Bound::within(Duration::from_secs(20)));
    let compute = session.stream(device, Engine::Compute, "compute").unwrap();
    let source = session.allocate::<u32>(device, LEN).unwrap();
    let there = Buffer::<_, u32>::over(device.stand_in(landing.bytes()).unwrap());
    let channel = session.channel("landing of rank 0");
    session.lend_at_start(channel, [there.write(..)]).unwrap();
    let ready = Mutex::new(signals.publisher(READY).unwrap());
    let base = landing.block().base().as_ptr().addr();
    // What a link does: past the borrows of the other rank's region.
    let put = Kernel::new(move |kernel| {
        let bytes = kernel.read::<u8>(1);
        copy_to(base, bytes);
        announce(&ready);
    });
    for round in 1..=rounds {
        let refused =
            session.lend(compute, channel, "put", &put, [there.write(..), source.read(..)], []);
        assert!(matches!(refused, Err(Refusal::Lent { label: "put", .. })), "a put without credit");
        let fill = Kernel::new(move |kernel| kernel.write::<u32>(0).fill(round));
        session.launch(compute, "fill", &fill, [source.write(..)], []).unwrap();
        let credit = Seq::new(start.wrapping_add(u64::from(round)));
        let credit = Fence::on(signals.slot(CREDIT).unwrap(), credit, "rank 0");
        session.arrive(compute, channel, "credit", &credit, &nothing()).unwrap();
        session
            .lend(compute, channel, "put", &put, [there.write(..), source.read(..)], [])
            .unwrap();
    }
    session.drain(compute, patient()).unwrap();
    std::mem::forget(put);
}

fn announce(ready: &Mutex<Publisher>) {
    ready.lock().unwrap().pub_release(1);
}

#[allow(unsafe_code, reason = "stands for a link")]
fn copy_to(base: usize, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(base);
    // SAFETY: the landing region is as long as the source and lives as long as the test; its owner
    // lent it, which is what the test is about.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
