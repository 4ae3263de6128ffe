//! Bytes of calls that come to nothing: they are the caller's again once nothing touches them, and no sooner.
#![cfg(not(pontoon_loom))]

mod common;
#[path = "common/held.rs"]
mod held;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Side, open, pair, patient};
use held::{Before, Gate, Held, Log, settle, until};
use pontoon_comm::{Comm, DoubleBuffer, Mode, Port, SendError, Settings, Weak};
use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkError},
};
use pontoon_signal::{
    Bound, Rank, Seq,
    shim::{AtomicU32, Ordering::Relaxed},
};

/// Settings by which a dropped ticket gives up so soon.
fn giving_up_after(patience: Duration) -> Settings {
    let mut settings = Settings::default();
    (settings.stall, settings.patience) = (Duration::from_secs(60), patience);
    settings
}

fn held(side: &Side, comm: &Comm) -> (Arc<Held>, Port) {
    let link = Held::over(side, "a", &Log::default());
    let port = link.port(side, comm, 0);
    (link, port)
}

fn until_it_is_closed(port: &Port) {
    until("the ring to be closed", || port.put_value(1, 0).is_err());
}

/// Runs `ends` beside `meanwhile`, in which it must not come to its end.
fn goes_on_beside(ends: impl FnOnce() + Send, meanwhile: impl FnOnce(), then: impl FnOnce()) {
    let over = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            ends();
            over.store(1, Relaxed);
        });
        meanwhile();
        assert_eq!(over.load(Relaxed), 0, "it did not wait");
        then();
    });
}

/// N1: a task that is refused closes its ring at once, and ends it once the link is done with the others.
#[test]
fn what_is_under_way_when_a_task_is_refused_is_waited_for() {
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(Duration::from_secs(20))));
    let (link, port) = held(&zero, &comm);
    link.before(Before::Refusal { at: 2 });
    let (first, second) = zero.words(0, 2).split_at_mut(1);
    let mut fetched = port.get(0, first).expect("room");
    let mut refused = port.get(8, second).expect("room");
    until_it_is_closed(&port);
    settle(&comm);
    assert_eq!((fetched.is_done(), refused.is_done()), (Ok(false), Ok(false)));
    link.complete(1);
    fetched.wait(patient()).expect("the link is done with it");
    let why = Err(SendError::Link(LinkError::Foreign("what a test refuses")));
    for _ in 0..2 {
        assert_eq!(
            (refused.wait(patient()), refused.is_done().map(drop)),
            (why.clone(), why.clone())
        );
    }
    assert_eq!(port.signal(1, Weak).map(drop), why);
}

/// A ring that a task ended is replaced for ports that are opened after it; what was done is still counted.
#[test]
fn a_port_that_is_opened_after_a_refused_task_goes_by_a_new_ring() {
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(Duration::from_secs(20))));
    let (link, port) = held(&zero, &comm);
    link.complete(1000);
    for round in 0..3 {
        link.before(Before::Nothing);
        let port = link.port(&zero, &comm, 1 + round);
        port.signal(1, Weak).expect("room").wait(patient()).expect("done");
        link.before(Before::Refusal { at: link.posted() + 1 });
        let told = port.signal(1, Weak).expect("room").wait(patient());
        assert!(matches!(told, Err(SendError::Link(LinkError::Foreign(_)))), "{told:?}");
    }
    assert!(port.signal(1, Weak).is_err(), "its ring has ended");
    let last = link.port(&zero, &comm, 9);
    link.before(Before::Nothing);
    last.signal(1, Weak).expect("room").wait(patient()).expect("done");
    assert_eq!((comm.report().tasks, link.posted()), (4, 4));
    // Those that nobody has any more are forgotten, but for the one of the port that is left, and the last two.
    assert!(comm.report().rings <= 3, "{:?}", comm.report());
}

/// A dropped ticket gives up, and then waits for what the link has of it, and others of that ring do so too.
#[test]
fn what_was_begun_is_waited_for_after_it_was_given_up() {
    let patience = Duration::from_secs(2);
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(patience)));
    let (link, port) = held(&zero, &comm);
    let (first, second) = zero.words(0, 2).split_at_mut(1);
    let given_up = port.get(0, first).expect("room");
    let mut other = port.get(8, second).expect("room");
    until("both posts", || link.posted() == 2);
    let started = Instant::now();
    goes_on_beside(
        || drop(given_up),
        || {
            until_it_is_closed(&port);
            assert!(started.elapsed() >= patience, "it was given up too soon");
            settle(&comm);
            assert_eq!(other.is_done(), Ok(false));
        },
        || link.complete(2),
    );
    other.wait(patient()).expect("it was begun, and is done");
    assert!(started.elapsed() < patience * 2, "the link was ended");
}

/// A link that never lets go is ended, by which it does.
#[test]
fn a_link_that_does_not_get_on_is_ended_for_a_dropped_ticket() {
    let patience = Duration::from_millis(500);
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(patience)));
    let (link, port) = held(&zero, &comm);
    let [first, second] = [0, 1].map(|at| &mut zero.words(at * 8, 1)[0]);
    let tickets = [(0, first), (8, second)]
        .map(|(from, to)| port.get(from, std::slice::from_mut(to)).expect("room"));
    until("both posts", || link.posted() == 2);
    let started = Instant::now();
    drop(tickets);
    assert!(started.elapsed() >= patience * 2, "{:?}", started.elapsed());
    assert!(link.has_ended());
    assert!(port.signal(1, Weak).is_err());
}

/// A lane that was closed long ago gives no less time to who lets go of his bytes only now.
#[test]
fn dropped_long_after_the_close() {
    let patience = Duration::from_millis(500);
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(patience)));
    let (link, port) = held(&zero, &comm);
    link.before(Before::Refusal { at: 3 });
    let [first, second] = [0, 1].map(|at| &mut zero.words(at * 8, 1)[0]);
    let [mut dropped, other] = [(0, first), (8, second)]
        .map(|(from, to)| port.get(from, std::slice::from_mut(to)).expect("room"));
    drop(port.signal(1, Weak).expect("room").detach());
    until_it_is_closed(&port);
    let waited = dropped.wait(Bound::within(patience * 3));
    assert!(matches!(waited, Err(SendError::TimedOut { .. })), "{waited:?}");
    assert_eq!((link.has_ended(), other.is_done()), (false, Ok(false)));
    drop(dropped);
    assert!(link.has_ended(), "its bytes were left to a link that had them yet");
    assert!(other.is_done().is_err(), "it did not wait for the end");
}

/// Where the proxy stands still nobody can say what becomes of the bytes: it is waited for, and not for ever.
#[test]
fn a_proxy_that_stands_still_is_waited_for_once_by_all_dropped_tickets() {
    let patience = Duration::from_millis(500);
    let ([zero, one], comm) = (pair(), open(0, giving_up_after(patience)));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    comm.stop_proxy(true);
    zero.words(0, 20).fill(7);
    let bytes = &*zero.words(0, 20);
    let tickets: Vec<_> =
        bytes.iter().map(|word| port.put(std::slice::from_ref(word), 0).expect("room")).collect();
    let started = Instant::now();
    drop(tickets);
    let took = started.elapsed();
    assert!(took >= patience * 3 && took < patience * 15, "{took:?}");
    comm.stop_proxy(false);
    let waited = port.quiet(patient());
    assert!(matches!(waited, Err(SendError::Ended { .. })), "{waited:?}");
    assert_eq!(one.landed(0, 1), [0], "what was given up was begun");
    assert_eq!(zero.link.peer_state(zero.peer()), pontoon_hal::link::PeerState::Alive);
}

/// What was given up is not begun, also where the proxy stood in the middle of a batch.
#[test]
fn what_is_given_up_within_a_batch_is_not_begun() {
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(Duration::from_millis(500))));
    let (link, gate) = (Held::over(&zero, "a", &Log::default()), Arc::<Gate>::default());
    let port = link.port(&zero, &comm, 0);
    link.before(Before::Gate { at: 1, gate: Arc::clone(&gate), panics: false });
    let words = &*zero.words(0, 3);
    let [first, second, third] = [0, 1, 2].map(|at| port.put(&words[at..=at], 0).expect("room"));
    gate.reached();
    thread::scope(|scope| {
        scope.spawn(|| drop(second));
        until_it_is_closed(&port);
        gate.open();
        link.complete(1);
    });
    assert_eq!((link.posted(), first.is_done()), (1, Ok(true)));
    assert!(third.is_done().is_err());
}

/// What is fetched is waited for by who hands its ticket on: whoever looked would see it change.
#[test]
fn a_fetch_that_is_detached_is_waited_for() {
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(Duration::from_secs(20))));
    let (link, port) = held(&zero, &comm);
    let ticket = port.get(0, zero.words(0, 1)).expect("room");
    until("the post", || link.posted() == 1);
    goes_on_beside(|| drop(ticket.detach()), || settle(&comm), || link.complete(1));
}

/// Halves are waited for when the whole is dropped or finished.
#[test]
fn halves_that_are_under_way_are_waited_for() {
    let ([zero, _one], comm) = (pair(), open(0, giving_up_after(Duration::from_secs(20))));
    let (link, port) = held(&zero, &comm);
    for finishes in [false, true] {
        let mut buffer = DoubleBuffer::over(&port, zero.words(0, 4));
        let before = link.posted();
        for _ in 0..2 {
            buffer.fill(patient()).expect("free").send(0).expect("room");
        }
        until("the posts", || link.posted() == before + 2);
        link.complete(1);
        let ends =
            move || if finishes { buffer.finish(patient()).expect("done") } else { drop(buffer) };
        goes_on_beside(ends, || settle(&comm), || link.complete(1));
    }
}

/// A link that a proxy has to move, and that keeps it the first time until a gate is open.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Link>,
    gate: Gate,
}

impl Link for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    delegate_link!(inner: rank, capabilities, peer_state, end_peer, register, attach, attach_signal);
    delegate_link!(inner: owns, write, write_inline, read, write_signal, signal, post_add, add);
    delegate_link!(inner: compare_swap, fence, flush, completions, wait, explain, report);
    fn moves_by_itself(&self, _: Rank) -> bool {
        false
    }
    fn progress(&self) -> bool {
        self.gate.pass();
        false
    }
}

/// What is pushed after a round has passed its ring, and before the order to end, is found by the next round.
#[test]
fn what_was_pushed_just_before_the_end_is_done() {
    let ([zero, one], comm) = (pair(), open(0, giving_up_after(Duration::from_secs(20))));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    port.signal(1, Weak).expect("room").wait(patient()).expect("its ring is found");
    let slow = Arc::new(Slow { inner: Arc::clone(&zero.link), gate: Gate::default() });
    let link: Arc<dyn Link> = Arc::clone(&slow) as _;
    let _behind = comm.port(&link, zero.source.clone(), zero.target.clone(), None).expect("a port");
    // Past the first ring, and before the end of its round.
    slow.gate.reached();
    drop(port.signal(1, Weak).expect("room"));
    thread::scope(|scope| {
        scope.spawn(|| drop(comm));
        // Mostly it is told to end before it goes on.
        thread::sleep(Duration::from_millis(50));
        slow.gate.open();
    });
    assert_eq!(one.incoming(0).value(), Seq::new(2));
}

/// What was pushed is done, however soon the `Comm` is dropped after it.
#[test]
fn nothing_that_was_pushed_before_the_end_is_lost() {
    let [zero, one] = pair();
    let heard = one.incoming(0);
    for round in 1..=200 {
        let comm = open(0, giving_up_after(Duration::from_secs(20)));
        let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
        drop(port.signal(1, Weak).expect("room"));
        drop(comm);
        assert_eq!(heard.value(), Seq::new(round), "after {round} rounds");
        drop(port);
    }
}
