//! A proxy over a link that is full, fails, or makes it panic in the middle of a batch.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Side, open, pair, patient, settings};
use pontoon_comm::{Comm, Mode, Port, SendError, Weak};
use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkError, Order, Registered, Remote, RemoteSignal},
};
use pontoon_signal::{
    Rank, RecordKind, Seq,
    shim::{AtomicU64, Ordering::Relaxed},
};

/// What becomes of writes once `after` were made.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Full,
    Fails,
    Panics,
}

/// A link that does what another does, until it does not.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Link>,
    fault: Fault,
    left: AtomicU64,
}

impl Faulty {
    fn over(side: &Side, fault: Fault, after: u64) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(&side.link), fault, left: AtomicU64::new(after) })
    }

    /// Lets so many more pass.
    fn pass(&self, more: u64) {
        self.left.fetch_add(more, Relaxed);
    }

    fn may(&self, peer: Rank) -> Result<(), LinkError> {
        if matches!(self.fault, Fault::None) {
            return Ok(());
        }
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Ok(());
        }
        match self.fault {
            Fault::None => Ok(()),
            Fault::Full => Err(LinkError::Full { peer, depth: 1 }),
            Fault::Fails => {
                Err(LinkError::Failed { peer, link: "faulty", call: "write", code: -9 })
            }
            Fault::Panics => panic!("on purpose"),
        }
    }
}

impl Link for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    delegate_link!(inner: rank, capabilities, peer_state, end_peer, register, attach, attach_signal);
    delegate_link!(inner: owns);
    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        self.may(to.peer())?;
        self.inner.write(from, range, to, offset)
    }
    delegate_link!(inner: write_inline, read);
    fn write_signal(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
        signal: &mut RemoteSignal,
        n: u32,
        order: Order,
    ) -> Result<Seq, LinkError> {
        self.may(to.peer())?;
        self.inner.write_signal(from, range, to, offset, signal, n, order)
    }
    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        self.may(signal.peer())?;
        self.inner.signal(signal, n, order)
    }
    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        self.may(to.peer())?;
        self.inner.post_add(to, offset, n, reply)
    }
    delegate_link!(inner: add, compare_swap, fence, flush, completions, explain, report);
}

/// A port over `link` that goes by the ring, and grows the peer's slot `slot`.
fn port(side: &Side, link: &Arc<Faulty>, comm: &Comm, slot: u32) -> Port {
    let signal = side.link.attach_signal(side.peer(), slot).expect("a free slot");
    let link: Arc<dyn Link> = Arc::clone(link) as _;
    let port = comm.port(&link, side.source.clone(), side.target.clone(), Some(signal));
    port.map(|port| port.in_mode(Mode::Ring).expect("always")).expect("a port")
}

/// Y1: what the link has no room for waits in its own ring.
#[test]
fn a_full_link_holds_up_its_own_ring_and_no_other() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let (full, free) = (Faulty::over(&zero, Fault::Full, 2), Faulty::over(&zero, Fault::None, 0));
    let (held, other) = (port(&zero, &full, &comm, 0), port(&zero, &free, &comm, 1));
    let held_up: Vec<_> = (0..10).map(|_| held.signal(1, Weak).expect("room")).collect();
    for _ in 0..1_000 {
        other.signal(1, Weak).expect("room").wait(patient()).expect("goes on");
    }
    assert_eq!((one.incoming(0).value(), one.incoming(1).value()), (Seq::new(2), Seq::new(1_000)));
    assert_eq!(held_up[1].is_done(), Ok(true));
    assert_eq!(held_up[2].is_done(), Ok(false));
    full.pass(8);
    for mut ticket in held_up {
        ticket.wait(patient()).expect("there is room again");
    }
    assert_eq!(one.incoming(0).value(), Seq::new(10));
}

/// An addition that waits for room is made once, and one that the link refuses ends the ring.
#[test]
fn an_addition_waits_for_room_and_is_made_once() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let (full, broken) =
        (Faulty::over(&zero, Fault::Full, 1), Faulty::over(&zero, Fault::Fails, 1));
    let (held, lost) = (port(&zero, &full, &comm, 0), port(&zero, &broken, &comm, 1));
    let mut tickets: Vec<_> = zero
        .words(0, 4)
        .iter_mut()
        .map(|into| held.atomic_fetch_add(8, 1, into).expect("room"))
        .collect();
    tickets[0].wait(patient()).expect("there is room for one");
    assert_eq!(tickets[1].is_done(), Ok(false));
    full.pass(3);
    tickets.iter_mut().for_each(|ticket| ticket.wait(patient()).expect("there is room again"));
    drop(tickets);
    assert_eq!((zero.words(0, 4), one.landed(8, 1)), (&mut [0, 1, 2, 3][..], &mut [4][..]));
    lost.atomic_add(8, 1).expect("room").wait(patient()).expect("it works yet");
    let error = lost.atomic_add(8, 1).and_then(|mut ticket| ticket.wait(patient()));
    let error = error.expect_err("it fails");
    assert!(error.is_peer_lost(), "{error}");
    assert_eq!(one.landed(8, 1), [5]);
}

/// The ring of a link that fails ends at the task that failed; what was done before is told.
#[test]
fn a_link_that_fails_ends_its_ring_with_its_own_error() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    assert!(comm.record_in(&zero.segment));
    let (broken, free) =
        (Faulty::over(&zero, Fault::Fails, 3), Faulty::over(&zero, Fault::None, 0));
    let (lost, other) = (port(&zero, &broken, &comm, 0), port(&zero, &free, &comm, 1));
    let tickets: Vec<_> = (0..3).map(|_| lost.signal(1, Weak).expect("room")).collect();
    tickets.into_iter().for_each(|mut ticket| ticket.wait(patient()).expect("done before"));
    let error = lost.signal(1, Weak).and_then(|mut ticket| ticket.wait(patient()));
    let error = error.expect_err("it fails");
    assert!(error.is_peer_lost(), "{error}");
    let next = lost.signal(1, Weak).map(drop).expect_err("it has failed");
    assert!(matches!(next, SendError::Link(LinkError::Failed { code: -9, .. })), "{next}");
    assert_eq!(one.incoming(0).value(), Seq::new(3));
    // Told to who looks from outside: the code, how far it came, and how far it was asked to.
    let records = zero.segment.recorder().read();
    let failed = records.iter().find(|record| record.kind == RecordKind::LINK_FAILED);
    let failed = failed.expect("a record of it");
    assert_eq!((failed.rank, failed.data), (Rank(1), [(-9_i32).cast_unsigned().into(), 3, 4]));
    other.record(7, [1, 2, 3]);
    let records = zero.segment.recorder().read();
    let own = records.last().expect("the kernel's");
    assert_eq!((own.kind.0, own.data), (RecordKind::USER.0 + 7, [1, 2, 3]));
    other.signal(1, Weak).expect("room").wait(patient()).expect("goes on");
}

/// A proxy that dies in the middle of a batch: nothing is told to be done that was not, no credit comes
/// for what was not taken, and who waits learns of it at once.
#[test]
fn a_proxy_that_dies_in_a_batch_is_an_outcome() {
    let mut chosen = settings();
    chosen.batch = 16;
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let broken = Faulty::over(&zero, Fault::Panics, 5);
    let port = port(&zero, &broken, &comm, 0);
    comm.stop_proxy(true);
    let tickets: Vec<_> = (0..10).map(|_| port.signal(1, Weak).expect("room")).collect();
    comm.stop_proxy(false);
    let started = Instant::now();
    let ended: Vec<_> = tickets.into_iter().map(|mut ticket| ticket.wait(patient())).collect();
    assert!(started.elapsed() < Duration::from_secs(10), "it was not waited out");
    let error = ended[9].as_ref().expect_err("it never came so far").to_string();
    assert!(error.contains("the proxy's thread is gone"), "{error}");
    // Five arrived; which of them were told of depends on where in the batch it died.
    assert_eq!(one.incoming(0).value(), Seq::new(5));
    assert!(ended.iter().filter(|ended| ended.is_ok()).count() <= 5, "{ended:?}");
    let refused = port.signal(1, Weak).map(drop).expect_err("nobody takes it");
    assert!(refused.to_string().contains("the proxy's thread is gone"), "{refused}");
    let late = comm.port(&zero.link, zero.source.clone(), zero.target.clone(), None);
    // The channel over that other link is new, and nobody serves it.
    assert_eq!(
        late.expect_err("over").to_string(),
        "the proxy is gone: the Comm was dropped, or it failed"
    );
}

/// What was fired waits for room on the link, though nobody has the trigger any more.
#[test]
fn a_trigger_that_is_dropped_is_kept_while_its_link_is_full() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let full = Faulty::over(&zero, Fault::Full, 0);
    let port = port(&zero, &full, &comm, 0);
    let trigger = port.prepare().signal(1).expect("it has one").arm().expect("a proxy");
    let [.., last] = [trigger.fire(), trigger.fire()].map(|ticket| ticket.expect("open").detach());
    drop(trigger);
    let rounds = || comm.report().busy_rounds + comm.report().idle_rounds;
    let (before, started) = (rounds(), Instant::now());
    while rounds() < before + 20 {
        assert!(started.elapsed() < Duration::from_secs(30), "the proxy goes round");
        thread::yield_now();
    }
    assert_eq!((comm.report().lanes, one.incoming(0).value()), (2, Seq::new(0)));
    full.pass(2);
    let waiter = last.slot.uncounted_waiter();
    waiter.wait_ge_bounded(last.seq, patient()).expect("there is room").acq_fence();
    assert_eq!(one.incoming(0).value(), Seq::new(2));
}

/// Y1: a link that has no room for long costs its proxy no processor, and others no time.
#[test]
fn a_proxy_sleeps_while_a_link_stays_full() {
    const HELD_UP: Duration = Duration::from_secs(2);
    let mut chosen = settings();
    // Each turn in vain is followed by a sleep.
    (chosen.spins, chosen.yields) = (0, 0);
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let (full, free) = (Faulty::over(&zero, Fault::Full, 0), Faulty::over(&zero, Fault::None, 0));
    let (held, other) = (port(&zero, &full, &comm, 0), port(&zero, &free, &comm, 1));
    for _ in 0..10 {
        drop(held.signal(1, Weak).expect("room").detach());
    }
    let rounds = || comm.report().busy_rounds + comm.report().idle_rounds;
    let (before, started, mut quickest) = (rounds(), Instant::now(), Duration::MAX);
    while started.elapsed() < HELD_UP {
        let asked = Instant::now();
        other.signal(1, Weak).expect("room").wait(patient()).expect("goes on");
        quickest = quickest.min(asked.elapsed());
        thread::sleep(Duration::from_millis(100));
    }
    let (rounds, took) = (rounds() - before, started.elapsed());
    // Its sleeps last 50 us at most; one that does not sleep makes some millions in a second.
    assert!(rounds < 25_000 * (took.as_secs() + 1), "{rounds} rounds in {took:?}");
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
    assert_eq!(one.incoming(0).value(), Seq::new(0));
    full.pass(10);
    held.quiet(patient()).expect("there is room again");
    assert_eq!(one.incoming(0).value(), Seq::new(10));
}

/// A `Comm` that is dropped waits for room, too, as long as its patience.
#[test]
fn dropping_waits_for_room() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let full = Faulty::over(&zero, Fault::Full, 0);
    let held = port(&zero, &full, &comm, 0);
    drop(held.signal(1, Weak).expect("room").detach());
    thread::scope(|scope| {
        scope.spawn(|| drop(comm));
        // Mostly it is told to end before there is room.
        thread::sleep(Duration::from_millis(50));
        full.pass(1);
    });
    assert_eq!(one.incoming(0).value(), Seq::new(1));
}

/// C2: tasks of a port that is gone go by its route, while there are others; then it is given back.
#[test]
fn what_a_port_left_in_its_ring_goes_by_it_and_then_it_is_given_back() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let full = Faulty::over(&zero, Fault::Full, 1);
    let gone = port(&zero, &full, &comm, 0);
    // Known to the proxy; then what it does not get rid of.
    gone.signal(1, Weak).expect("room").wait(patient()).expect("room for one");
    (0..10).for_each(|_| drop(gone.signal(1, Weak).expect("room").detach()));
    drop(gone);
    let taken = zero.link.attach_signal(zero.peer(), 0).expect_err("it is in use");
    assert!(matches!(taken, LinkError::Slot { .. }), "{taken}");
    let next = port(&zero, &full, &comm, 1);
    let mut last = next.signal(1, Weak).expect("room");
    full.pass(11);
    last.wait(patient()).expect("there is room again");
    let found = [0, 1].map(|slot| one.incoming(slot).value());
    assert_eq!(found, [Seq::new(11), Seq::new(1)]);
    let started = Instant::now();
    while zero.link.attach_signal(zero.peer(), 0).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "it is not given back");
        thread::yield_now();
    }
}
