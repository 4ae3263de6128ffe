//! What a rank that has no file descriptor left thinks of its peers.

mod common;

use std::fs::File;

use common::{Base, Peer, Process, role, say, told, until};
use pontoon_hal::link::{Link, PeerState};
use pontoon_shm::ConnectError;
use pontoon_signal::{Ending, Life, ProcessId, Rank, SlotId};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Some((_, base, rank)) = role() else { return };
    let process = Process::join(&base, rank, 0);
    process.connect(0);
    let _signal = process.link.attach_signal(Rank(0), 0).unwrap();
    say("here");
    assert_eq!(told(), "leave");
}

/// All descriptors of this process, taken.
fn take_all() -> Vec<File> {
    let most = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, most).unwrap();
    let mut all = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => all.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
                return all;
            }
        }
    }
}

/// A look that cannot be made kills nobody: of two peers the one that dies is dead, and no other.
#[test]
fn nobody_dies_of_a_lack_of_descriptors() {
    let base = Base::new("descriptors");
    let here = Process::join(&base.0, 0, 0);
    let [mut dies, mut stays] = [1, 2].map(|rank| Peer::start("stay", &base.0, rank));
    for (rank, peer) in [(1, &mut dies), (2, &mut stays)] {
        assert_eq!(peer.hear(), "here");
        here.connect(rank);
    }
    let third = here.fetched(2);
    let pid = third.identity().pid;

    let taken = take_all();
    let Life::Unknown(why) = third.identity().process().look() else { panic!("a look was made") };
    assert_eq!((why.call, why.code), ("open", Errno::MFILE.raw_os_error()));
    assert!(ProcessId::of(pid).is_err());
    let other = pontoon_shm::ShmLink::new(here.segment.clone());
    let refused = other.connect(Rank(2), third.clone()).unwrap_err();
    assert_eq!(refused, ConnectError::System(why));

    dies.kill();
    let dead = PeerState::Ended(Ending::PeerDead { rank: Rank(1) });
    until("a death is noticed", || here.link.peer_state(Rank(1)) == dead);
    // Its end had the watch look at all.
    assert_eq!(here.link.peer_state(Rank(2)), PeerState::Alive);
    let signals = here.segment.signals();
    // Its claims go after it is said to be dead, on the same thread.
    until("the dead keeps nothing", || signals.publisher(SlotId::new(1, 0)).is_ok());
    assert!(signals.publisher(SlotId::new(2, 0)).is_err(), "who lives keeps its claims");
    here.link.end_peer(Rank(2), Ending::PeerDead { rank: Rank(2) });
    assert!(signals.publisher(SlotId::new(2, 0)).is_err(), "as far as anybody can see it lives");

    drop(taken);
    other.connect(Rank(2), third).unwrap();
    stays.tell("leave");
    stays.end();
}
