//! A rank that only stands still, and is taken for dead: what it claimed stays its own.

mod common;

use common::{Base, Peer, Process, patient, role, say, told, until};
use pontoon_hal::link::{Link, LinkError, Order, PeerState};
use pontoon_shm::ConnectError;
use pontoon_signal::{Ending, Rank, Seq, SlotId, WaitError};
use rustix::process::Signal;

const SLOT: SlotId = SlotId::new(1, 0);

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Some((role, base, rank)) = role() else { return };
    let process = Process::join(&base, rank, u32::from(role == "again"));
    process.connect(0);
    // A successor's is refused as long as its predecessor has the slot.
    let mut signal = None;
    until("the slot is free", || {
        match process.link.attach_signal(Rank(0), SLOT.slot) {
            Ok(attached) => signal = Some(attached),
            Err(LinkError::Slot { .. }) if role == "again" => {}
            Err(other) => panic!("{other}"),
        }
        signal.is_some() || role == "again"
    });
    say("here");
    while told() == "signal" {
        let attached =
            signal.get_or_insert_with(|| process.link.attach_signal(Rank(0), SLOT.slot).unwrap());
        process.link.signal(attached, 1, Order::Weak).unwrap();
        say("signalled");
    }
}

#[test]
fn who_only_stood_still_keeps_its_claims_until_it_is_gone() {
    let base = Base::new("still");
    let here = Process::join(&base.0, 0, 0);
    let mut former = Peer::start("echo", &base.0, 1);
    assert_eq!(former.hear(), "here");
    here.connect(1);
    former.tell("signal");
    assert_eq!(former.hear(), "signalled");
    let waiter = here.segment.signals().waiter(SLOT).unwrap();
    let _ = waiter.wait_ge_bounded(Seq::new(1), patient()).unwrap();

    // Its heart is not heard: somebody says that it is dead.
    former.signal(Signal::STOP);
    let dead = Ending::PeerDead { rank: Rank(1) };
    here.link.end_peer(Rank(1), dead);
    assert_eq!(here.link.peer_state(Rank(1)), PeerState::Ended(dead));
    let ended = waiter.wait_ge_bounded(Seq::new(2), patient()).unwrap_err();
    assert!(matches!(ended, WaitError::PeerDead { rank: Rank(1), .. }), "{ended}");

    let mut successor = Peer::start("again", &base.0, 1);
    assert_eq!(successor.hear(), "here");
    let mut segment = None;
    until("its successor hands over", || {
        let found = here.fetched(1);
        let new = found.identity().epoch == 1;
        segment = Some(found);
        new
    });
    let segment = segment.unwrap();
    let pid = former.id().as_raw_nonzero().get().cast_unsigned();
    let refused = here.link.reconnect(Rank(1), segment.clone()).unwrap_err();
    assert_eq!(refused, ConnectError::StillRuns { peer: Rank(1), pid });
    assert!(refused.to_string().contains(&format!("pid {pid}, still runs")), "{refused}");
    assert!(here.segment.signals().publisher(SLOT).is_err(), "the slot is its own");

    // It goes on and grows its own counter, of which nobody else has a part.
    former.signal(Signal::CONT);
    former.tell("signal");
    assert_eq!(former.hear(), "signalled");
    assert_eq!(waiter.value(), Seq::new(2));

    former.kill();
    until("its successor takes its place", || {
        match here.link.reconnect(Rank(1), segment.clone()) {
            Ok(()) => true,
            Err(ConnectError::StillRuns { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    });
    // Its claims are free when that returns, and its end is not its successor's.
    successor.tell("signal");
    assert_eq!(successor.hear(), "signalled");
    let _ = waiter.wait_ge_bounded(Seq::new(3), patient()).unwrap();
    successor.tell("leave");
    successor.end();
}
