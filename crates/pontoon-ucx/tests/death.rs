//! A peer that dies, and one that stands still.
#![allow(missing_docs)]

mod common;

use common::{APPLY, DATA, LARGEST, Memory, Over, Peer, SIGNAL, Side, apply, hear, patient, role};
use pontoon_signal::{Bound, SharedMap};
use pontoon_ucx::{Backing, Body, Endpoint, Manner, OperationError, PeerState, Region, Remote};
use std::{
    ptr::NonNull,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Within this a death is to be noticed, as the job's bound for it is.
const NOTICED: Duration = Duration::from_secs(5);

#[test]
fn peer() {
    let Some((role, child)) = role() else { return };
    match role.as_str() {
        "serve" => {
            child.side.worker.start_thread().unwrap();
            assert_eq!(hear(), "end");
        }
        other => panic!("no role {other}"),
    }
}

/// A pair that has exchanged something: connected, both ways.
fn connected(over: Over) -> Option<(Side, Peer, Endpoint, Remote)> {
    let side = Side::new(over, Memory::Allocated)?;
    let mut peer = Peer::start("serve", over, Memory::Allocated);
    let (endpoint, remote) = peer.connect(&side);
    exchange(&endpoint, &remote).unwrap();
    Some((side, peer, endpoint, remote))
}

/// A message, and an answer to it: a flush of it.
fn exchange(endpoint: &Endpoint, remote: &Remote) -> Result<(), OperationError> {
    remote.put_copy(DATA, &[1; 64])?.wait(patient())?;
    endpoint.send(APPLY, &apply(DATA, SIGNAL), Body::Nothing, Manner::Auto)?.wait(patient())?;
    endpoint.flush()?.wait(patient())
}

fn assert_dead(error: &OperationError, peer: &Peer, over: Over) {
    let OperationError::PeerFailed { peer: named, .. } = error else {
        panic!("over {over}: {error}")
    };
    assert_eq!(**named, format!("pid {}", peer.pid()));
    assert!(error.to_string().contains("dead"), "{error}");
}

#[test]
fn a_killed_peer_ends_what_waits_for_it() {
    for over in Over::ALL {
        let Some((_side, mut peer, endpoint, remote)) = connected(over) else { return };
        peer.kill();
        let start = Instant::now();
        let error = loop {
            match exchange(&endpoint, &remote) {
                Ok(()) => assert!(start.elapsed() < NOTICED, "over {over}: nothing is noticed"),
                Err(error) => break error,
            }
        };
        let took = start.elapsed();
        println!("over {over}: a killed peer is noticed after {took:?} by who sends");
        assert!(took < NOTICED, "over {over}: {took:?}");
        assert_dead(&error, &peer, over);
        // From now on nothing reaches UCX: openucx/ucx#11629 crashes there.
        let start = Instant::now();
        for _ in 0..1000 {
            assert_dead(&exchange(&endpoint, &remote).unwrap_err(), &peer, over);
            assert!(remote.get(DATA, &region_of(&_side), DATA, 8).is_err());
            assert!(endpoint.flush().is_err() && endpoint.fence().is_err());
        }
        assert!(start.elapsed() < NOTICED);
        drop(remote);
        endpoint.close(patient()).unwrap();
    }
}

fn region_of(side: &Side) -> Region {
    side.region.clone()
}

/// Nobody sends anything: the progress thread and UCX's keep-alive notice it.
#[test]
fn a_killed_peer_is_noticed_by_who_does_nothing() {
    for over in Over::ALL {
        let Some((side, mut peer, endpoint, _remote)) = connected(over) else { return };
        side.worker.start_thread().unwrap();
        peer.kill();
        let start = Instant::now();
        while endpoint.state() == PeerState::Up {
            assert!(start.elapsed() < NOTICED, "over {over}: nothing is noticed");
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("over {over}: a killed peer is noticed after {:?} by who waits", start.elapsed());
    }
}

/// What it waits for never comes; it says so in time, and keeps the memory for as long as UCX may.
#[test]
fn a_peer_that_stands_still_costs_the_bound_and_no_memory() {
    for over in Over::ALL {
        let Some((side, mut peer, endpoint, remote)) = connected(over) else { return };
        let (map, alive) = Watched::map();
        let region = side.context.map(map).unwrap();
        peer.stop();
        let start = Instant::now();
        let body = Body::Of { region: &region, offset: 0, bytes: LARGEST };
        let sending = endpoint.send(APPLY, &apply(DATA, SIGNAL), body, Manner::Rendezvous).unwrap();
        let bound = Bound::within(Duration::from_millis(300));
        let error = sending.wait(bound).unwrap_err();
        let took = start.elapsed();
        let OperationError::TimedOut { quarantined, peer: named, waited, .. } = &error else {
            panic!("over {over}: {error}")
        };
        assert_eq!((*quarantined, endpoint.quarantined()), (1, 1));
        assert_eq!(**named, format!("pid {}", peer.pid()));
        assert!(took >= Duration::from_millis(300) && took < NOTICED, "{took:?}, {waited}");
        assert!(error.to_string().contains(&waited.to_string()), "{error}");
        // An operation that is dropped unwaited is kept as well.
        drop(endpoint.send(APPLY, &apply(DATA, SIGNAL), body, Manner::Rendezvous).unwrap());
        assert_eq!(endpoint.quarantined(), 2);
        drop(region);
        assert!(alive.upgrade().is_some(), "the peer may fetch these bytes yet");
        drop(remote);
        endpoint.close(patient()).unwrap();
        assert!(alive.upgrade().is_none(), "nobody can any more");
        peer.kill();
    }
}

#[test]
fn a_peer_that_goes_on_finds_everything_as_it_was() {
    for over in Over::ALL {
        let Some((_side, peer, endpoint, remote)) = connected(over) else { return };
        peer.stop();
        let bound = Bound::within(Duration::from_millis(50));
        let flushed = remote.put_copy(DATA, &[2; 64]).unwrap();
        let waited = flushed.wait(bound).and_then(|()| endpoint.flush()?.wait(bound));
        // Over shared memory nobody is needed at the other end.
        assert_eq!(waited.is_ok(), over != Over::Tcp, "over {over}: {waited:?}");
        peer.go_on();
        exchange(&endpoint, &remote).unwrap();
        assert_eq!(endpoint.state(), PeerState::Up);
        peer.end();
    }
}

/// A map whose end can be seen.
struct Watched(SharedMap);

impl Watched {
    fn map() -> (Arc<dyn Backing>, Weak<dyn Backing>) {
        let watched: Arc<dyn Backing> =
            Arc::new(Self(SharedMap::create("ucx-quarantine", LARGEST).unwrap()));
        let alive = Arc::downgrade(&watched);
        (watched, alive)
    }
}

#[allow(unsafe_code)]
// SAFETY: as of the map that it is.
unsafe impl Backing for Watched {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
