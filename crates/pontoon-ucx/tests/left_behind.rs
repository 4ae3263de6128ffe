//! What is asked of a peer and kept by nobody but the link, when the peer goes.

mod common;

use std::{
    env,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{MEMORY, Memory, OVER, Over, Peer, ROLE, hear, hex, say, unhex};
use pontoon_hal::{
    conformance::part,
    link::{Link, PeerState, RegionKey},
};
use pontoon_signal::{Ending, Identity, Nanos, Rank, Segment, SegmentShape};
use pontoon_ucx::{Library, UcxLink};

const BYTES: usize = 1 << 20;

fn open(rank: u32, over: Over) -> UcxLink {
    let whose = Identity {
        job: *b"a job of a test.",
        rank: Rank(rank),
        world: 2,
        epoch: 0,
        pid: std::process::id(),
        start_time: 0,
        created: Nanos(0),
    };
    let segment = Segment::create(SegmentShape::new(2, 2, 4 * BYTES), whose).unwrap();
    UcxLink::open(segment, over.options()).unwrap()
}

/// What the child process does, until it is killed; nothing in the parent.
#[test]
fn peer() {
    if env::var(ROLE).is_err() {
        return;
    }
    assert_eq!(env::var(MEMORY).unwrap(), "Mapped");
    let over = if env::var(OVER).unwrap() == "Tcp" { Over::Tcp } else { Over::Posix };
    let link = open(1, over);
    say(&hex(&link.card(Rank(0)).unwrap()));
    link.connect(Rank(0), &unhex(&hear())).unwrap();
    let landing = link.register(&link.segment().allocate(BYTES).unwrap()).unwrap();
    say(&hex(landing.key().unwrap().as_bytes()));
    hear();
}

/// The end of a peer is told from within UCX. What it drops there, the last handle of memory that a read was to
/// land in, asks for the worker, which this thread has in hand already.
#[test]
fn a_read_whose_memory_nobody_else_keeps_ends_with_its_peer() {
    if part::needed("ucx", Library::open()).is_none() {
        return;
    }
    for over in [Over::Tcp, Over::Posix] {
        let link = open(0, over);
        let mut peer = Peer::start("1", over, Memory::Mapped);
        let (card, theirs) = (link.card(Rank(1)).unwrap(), unhex(&peer.hear()));
        link.connect(Rank(1), &theirs).unwrap();
        peer.say(&hex(&card));
        let key = RegionKey::from_bytes(unhex(&peer.hear())).unwrap();
        let from = link.attach(Rank(1), &key).unwrap();
        let into = link.register(&link.segment().allocate(BYTES).unwrap()).unwrap();
        // Connected for good, both ways.
        link.read(&from, 0, &into, 0..BYTES).unwrap();
        link.flush(Rank(1), common::patient()).unwrap();
        link.set_thread(false).unwrap();
        peer.stop();
        let number = link.read(&from, 0, &into, 0..BYTES).unwrap();
        let done = link.completions(Rank(1)).unwrap();
        drop(into);
        link.progress();
        assert!(!done.value().is_at_or_past(number), "over {over}: it stands still");
        peer.kill();
        let (link, started) = (Arc::new(link), Instant::now());
        let (tell, told) = mpsc::channel();
        thread::spawn({
            let link = Arc::clone(&link);
            move || {
                while link.peer_state(Rank(1)) == PeerState::Alive
                    && started.elapsed() < Duration::from_secs(30)
                {
                    link.progress();
                }
                let _ = tell.send(link.peer_state(Rank(1)));
            }
        });
        // One that hangs is left alone, and so is its link.
        let state = told.recv_timeout(Duration::from_secs(60));
        let dead = Ending::PeerDead { rank: Rank(1) };
        assert_eq!(state, Ok(PeerState::Ended(dead)), "over {over}: progress does not return");
        assert_eq!(done.ending(), Some(dead), "over {over}: nothing is in hand");
    }
}
