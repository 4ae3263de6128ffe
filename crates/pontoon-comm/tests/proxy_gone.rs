//! Proxies that end while links have what they were given: who waits is told no more than what is known.
#![cfg(not(pontoon_loom))]

mod common;
#[path = "common/held.rs"]
mod held;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Side, open, pair};
use held::{Before, Gate, Held, Log, settle, until};
use pontoon_comm::{Comm, Port, SendError, Settings, Ticket, Weak};
use pontoon_hal::link::LinkError;
use pontoon_signal::{Bound, Ending, Seq};

/// How long these proxies wait for links.
const PATIENCE: Duration = Duration::from_millis(500);

fn in_time() -> Bound {
    Bound::within(Duration::from_secs(20))
}

fn settings(patience: Duration) -> Settings {
    let mut settings = Settings::default();
    (settings.stall, settings.patience) = (Duration::from_secs(60), patience);
    settings
}

fn held(side: &Side, comm: &Comm) -> (Arc<Held>, Port) {
    let link = Held::over(side, "a", &Log::default());
    let port = link.port(side, comm, 0);
    (link, port)
}

/// Two fetches that are under way.
fn two_gets<'t>(zero: &'t Side, link: &Held, port: &'t Port) -> [Ticket<'t>; 2] {
    let before = link.posted();
    let tickets = [0, 1].map(|at| port.get(8 * at, zero.words(at * 8, 1)).expect("room"));
    until("both posts", || link.posted() == before + 2);
    tickets
}

/// Lets the proxy panic within a call of a link of its own. Its gate is to be opened.
fn about_to_panic(zero: &Side, comm: &Comm) -> Arc<Gate> {
    let (link, gate) = (Held::over(zero, "gate", &Log::default()), Arc::<Gate>::default());
    link.before(Before::Gate { at: 1, gate: Arc::clone(&gate), panics: true });
    let port = link.port(zero, comm, 63);
    drop(port.signal(1, Weak).expect("room").detach());
    gate.reached();
    gate
}

/// What nobody looks after is neither done nor over, until its link has ended.
fn is_open_until_the_link_ends(link: &Held, [mut first, second]: [Ticket<'_>; 2]) {
    let waited = first.wait(Bound::within(PATIENCE * 3));
    assert!(matches!(waited, Err(SendError::TimedOut { .. })), "{waited:?}");
    assert_eq!((first.is_done(), second.is_done()), (Ok(false), Ok(false)));
    assert!(!link.has_ended(), "nobody wanted his bytes back");
    let started = Instant::now();
    drop(first);
    assert!(link.has_ended(), "it has the bytes yet");
    // The link says so itself where there is no proxy to tell of it.
    let told = second.is_done();
    assert!(matches!(told, Err(SendError::Ended { .. })), "{told:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// N1: a proxy whose patience is over says nothing of bytes that a link has yet.
#[test]
fn a_comm_that_is_dropped_leaves_open_what_is_under_way() {
    let ([zero, _one], comm) = (pair(), open(0, settings(PATIENCE)));
    let (link, port) = held(&zero, &comm);
    let tickets = two_gets(&zero, &link, &port);
    drop(comm);
    assert!(port.signal(1, Weak).is_err(), "it is closed");
    is_open_until_the_link_ends(&link, tickets);
}

/// The same of one that panicked.
#[test]
fn a_proxy_that_panics_leaves_open_what_is_under_way() {
    let ([zero, _one], comm) = (pair(), open(0, settings(PATIENCE)));
    let (link, port) = held(&zero, &comm);
    let tickets = two_gets(&zero, &link, &port);
    about_to_panic(&zero, &comm).open();
    is_open_until_the_link_ends(&link, tickets);
}

/// Y3: one that panicked still waits for links, as long as its patience.
#[test]
fn what_a_link_does_after_a_panic_is_told() {
    let ([zero, _one], comm) = (pair(), open(0, settings(Duration::from_secs(20))));
    let (link, port) = held(&zero, &comm);
    let mut tickets = two_gets(&zero, &link, &port);
    about_to_panic(&zero, &comm).open();
    until("its rings to be closed", || port.signal(1, Weak).is_err());
    assert_eq!(tickets.each_ref().map(Ticket::is_done), [Ok(false), Ok(false)]);
    link.complete(1);
    tickets[0].wait(in_time()).expect("the link is done with it");
    link.complete(1);
    tickets[1].wait(in_time()).expect("the link is done with it");
}

/// What was done before the link ended is done, though the ring was closed and nothing was told yet.
#[test]
fn what_was_done_before_the_end_is_told_of_a_closed_ring() {
    let ([zero, _one], comm) = (pair(), open(0, settings(PATIENCE)));
    let (link, port) = held(&zero, &comm);
    let [mut first, mut second] = two_gets(&zero, &link, &port);
    link.before(Before::Refusal { at: 3 });
    let mut refused = port.signal(1, Weak).expect("room");
    until("its ring to be closed", || port.signal(1, Weak).is_err());
    settle(&comm);
    let (gate_link, gate) = (Held::over(&zero, "gate", &Log::default()), Arc::<Gate>::default());
    gate_link.before(Before::Gate { at: 1, gate: Arc::clone(&gate), panics: false });
    gate_link.complete(1);
    let other = gate_link.port(&zero, &comm, 63);
    drop(other.signal(1, Weak).expect("room").detach());
    gate.reached();
    // Both while the proxy is elsewhere.
    link.complete(1);
    link.end(Ending::LinkFailed { code: -5 });
    gate.open();
    first.wait(in_time()).expect("it was done");
    for ticket in [&mut second, &mut refused] {
        let told = ticket.wait(in_time());
        assert!(matches!(told, Err(SendError::Link(LinkError::Foreign(_)))), "{told:?}");
    }
    assert_eq!(port.progress().done, Seq::new(1));
}

/// A dropped `Comm` does not wait for what is done, whatever its patience.
#[test]
fn a_comm_whose_links_are_done_is_dropped_at_once() {
    let ([zero, _one], comm) = (pair(), open(0, settings(Duration::from_secs(60))));
    let (link, port) = held(&zero, &comm);
    let mut tickets = two_gets(&zero, &link, &port);
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| drop(comm));
        link.complete(2);
    });
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    tickets.iter_mut().for_each(|ticket| ticket.wait(in_time()).expect("done"));
}
