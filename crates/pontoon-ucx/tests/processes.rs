//! Access to a peer's memory and messages to it, between two processes.
#![allow(missing_docs)]

mod common;

use common::{
    APPLY, ASK, Child2, DATA, LARGEST, Memory, Over, Peer, SECOND, SIGNAL, SIZES, Side, apply,
    hear, patient, pattern, role, say,
};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_ucx::{Body, Manner, OperationError, PeerState, Remote, Version};

/// What the child process does; nothing in the test's own.
#[test]
fn peer() {
    let Some((role, child)) = role() else { return };
    match role.as_str() {
        // The thread serves, while this one waits for the end.
        "serve" => {
            child.side.worker.start_thread().unwrap();
            assert_eq!(hear(), "end");
        }
        "check the order" => check_the_order(&child),
        other => panic!("no role {other}"),
    }
}

fn each(test: impl Fn(Over, Memory)) {
    for over in Over::ALL {
        for memory in Memory::ALL {
            test(over, memory);
        }
    }
}

fn serve(over: Over, memory: Memory) -> Option<(Side, Peer)> {
    Some((Side::new(over, memory)?, Peer::start("serve", over, memory)))
}

#[test]
fn puts_and_gets_of_all_sizes() {
    each(|over, memory| {
        let Some((side, mut peer)) = serve(over, memory) else { return };
        let (endpoint, remote) = peer.connect(&side);
        let back = memory.region(&side.context, DATA + LARGEST);
        for (round, bytes) in SIZES.into_iter().enumerate() {
            let sent = pattern(bytes, round as u64);
            side.region.write(DATA, &sent).unwrap();
            remote.put(DATA, &side.region, DATA, bytes).unwrap().wait(patient()).unwrap();
            endpoint.flush().unwrap().wait(patient()).unwrap();
            remote.get(DATA, &back, DATA, bytes).unwrap().wait(patient()).unwrap();
            let mut got = vec![0; bytes];
            back.read(DATA, &mut got).unwrap();
            assert!(got == sent, "{bytes} bytes over {over} of {memory:?} memory");
        }
        let sent = pattern(1000, 99);
        remote.put_copy(DATA + 7, &sent).unwrap().wait(patient()).unwrap();
        endpoint.flush().unwrap().wait(patient()).unwrap();
        remote.get(DATA + 7, &back, 9, 1000).unwrap().wait(patient()).unwrap();
        let mut got = vec![0; 1000];
        back.read(9, &mut got).unwrap();
        assert_eq!(got, sent);
        peer.end();
    });
}

/// From 1.16 on, where new protocols are the default, no atomic operation is for endpoints that
/// notice a peer's death: they are refused, and the endpoint goes on.
fn lacks_atomics(remote: &Remote) -> bool {
    let refused = remote.add(SECOND, 1).and_then(|add| add.wait(patient()));
    let version = common::library().unwrap().version();
    let is_old = version < Version { major: 1, minor: 16, release: 0 };
    assert_eq!(refused.is_ok(), is_old, "{version}: {refused:?}");
    let Err(error) = refused else { return false };
    assert!(matches!(error, OperationError::Refused { .. }), "{error}");
    assert_eq!(remote.endpoint().state(), PeerState::Up);
    remote.put_copy(SECOND, &[0; 8]).unwrap().wait(patient()).unwrap();
    remote.endpoint().flush().unwrap().wait(patient()).unwrap();
    true
}

#[test]
fn atomics_of_a_word() {
    each(|over, memory| {
        let Some((side, mut peer)) = serve(over, memory) else { return };
        let (endpoint, remote) = peer.connect(&side);
        if lacks_atomics(&remote) {
            peer.end();
            return;
        }
        for _ in 0..100 {
            remote.add(SIGNAL, u64::MAX / 50).unwrap().wait(patient()).unwrap();
        }
        endpoint.flush().unwrap().wait(patient()).unwrap();
        let sum = (u64::MAX / 50).wrapping_mul(100);
        let swap = |expected, new| {
            remote.compare_swap(SIGNAL, expected, new).unwrap().wait(patient()).unwrap()
        };
        assert_eq!(swap(sum.wrapping_add(1), 7), sum, "another value: nothing is swapped");
        assert_eq!(swap(sum, 7), sum, "the value expected: it is swapped");
        assert_eq!(swap(7, 8), 7);
        peer.end();
    });
}

#[test]
fn messages_of_all_sizes_and_manners() {
    each(|over, memory| {
        let Some((side, mut peer)) = serve(over, memory) else { return };
        let (_endpoint, remote) = peer.connect(&side);
        let back = memory.region(&side.context, DATA + LARGEST);
        let mut count = 0;
        for manner in [Manner::Auto, Manner::Eager, Manner::Rendezvous] {
            for bytes in SIZES {
                count += 1;
                let sent = pattern(bytes, count);
                side.region.write(DATA, &sent).unwrap();
                let body = Body::Of { region: &side.region, offset: DATA, bytes };
                let header = apply(DATA, SIGNAL);
                let sending = remote.endpoint().send(APPLY, &header, body, manner).unwrap();
                sending.wait(patient()).unwrap();
                // The signal says that the data have landed.
                let seen = || {
                    remote.get(SIGNAL, &back, SIGNAL, 8).unwrap().wait(patient()).unwrap();
                    back.word(SIGNAL).unwrap().load(Relaxed)
                };
                let start = std::time::Instant::now();
                while seen() < count {
                    assert!(start.elapsed().as_secs() < 30, "message {count} has not landed");
                }
                remote.get(DATA, &back, DATA, bytes).unwrap().wait(patient()).unwrap();
                let mut got = vec![0; bytes];
                back.read(DATA, &mut got).unwrap();
                assert!(got == sent, "{bytes} bytes {manner:?} over {over} of {memory:?} memory");
            }
        }
        peer.end();
    });
}

/// What the handler of a message sends back, as where UCX has no atomics, or no reads that the
/// peer's side could refuse.
#[test]
fn questions_are_answered() {
    each(|over, memory| {
        let Some((side, mut peer)) = serve(over, memory) else { return };
        let (endpoint, remote) = peer.connect(&side);
        let mut answers = 0;
        let mut ask = |header: &[u8]| {
            answers += 1;
            let asking = endpoint.send(ASK, header, Body::Nothing, Manner::Auto).unwrap();
            asking.wait(patient()).unwrap();
            side.wait_for(answers);
            let mut found = [0; 8];
            side.region.read(DATA, &mut found).unwrap();
            u64::from_le_bytes(found)
        };
        assert_eq!(ask(&common::ask(SECOND, 0, 5, 6)), 0, "another value");
        assert_eq!(ask(&common::ask(SECOND, 0, 0, 6)), 0, "the value expected");
        assert_eq!(ask(&common::ask(SECOND, 0, 6, 7)), 6);
        for bytes in SIZES.into_iter().filter(|&bytes| bytes > 0) {
            let sent = pattern(bytes, bytes as u64);
            remote.put_copy(DATA, &sent).unwrap().wait(patient()).unwrap();
            endpoint.flush().unwrap().wait(patient()).unwrap();
            ask(&common::ask(DATA, bytes, 0, 0));
            let mut got = vec![0; bytes];
            side.region.read(DATA, &mut got).unwrap();
            assert!(got == sent, "{bytes} bytes over {over} of {memory:?} memory");
        }
        peer.end();
    });
}

/// Memory that UCX allocated is mapped into the processes of one host, and no other is.
#[test]
fn mapped_memory_is_written_by_stores() {
    each(|over, memory| {
        let Some((side, mut peer)) = serve(over, memory) else { return };
        let (endpoint, remote) = peer.connect(&side);
        let is_mapped = over != Over::Tcp && memory == Memory::Allocated;
        let Some(mapped) = remote.mapped() else {
            assert!(!is_mapped, "over {over} of {memory:?} memory");
            peer.end();
            return;
        };
        assert!(is_mapped, "over {over} of {memory:?} memory");
        let sent = pattern(100_000, 3);
        side.region.write(0, &sent).unwrap();
        mapped.write(DATA, &side.region, 0, sent.len()).unwrap();
        mapped.write_copy(DATA + 7, b"pontoon").unwrap();
        mapped.announce(SECOND, 5).unwrap();
        assert!(mapped.write_copy(remote.bytes() - 3, b"pontoon").is_err());
        assert!(mapped.announce(SECOND + 4, 5).is_err() && mapped.word(remote.bytes()).is_err());
        let back = memory.region(&side.context, DATA + LARGEST);
        remote.get(0, &back, 0, DATA + sent.len()).unwrap().wait(patient()).unwrap();
        let mut got = vec![0; sent.len()];
        back.read(DATA, &mut got).unwrap();
        assert_eq!(
            (&got[..7], &got[7..14], &got[14..]),
            (&sent[..7], &b"pontoon"[..], &sent[14..])
        );
        assert_eq!(back.word(SECOND).unwrap().load(Relaxed), 5);
        peer.kill();
        let start = std::time::Instant::now();
        while mapped.write_copy(DATA, b"anybody?").is_ok() {
            let _ = side.worker.progress().unwrap();
            assert!(start.elapsed().as_secs() < 5, "nothing is noticed");
        }
        assert!(matches!(endpoint.state(), PeerState::Failed(_)));
    });
}

const ROUNDS: u64 = 200;
const PAYLOAD: usize = 40_000;

/// Whenever the signal has grown, the payload of that round is there; then the answer goes back.
fn check_the_order(child: &Child2) {
    let mut got = vec![0; PAYLOAD];
    for round in 1..=2 * ROUNDS {
        child.side.wait_for(round);
        child.side.region.read(DATA, &mut got).unwrap();
        if got != pattern(PAYLOAD, round) {
            say(&format!("the payload of round {round} is not there"));
            return;
        }
        child.remote.put_copy(SIGNAL, &round.to_ne_bytes()).unwrap().wait(patient()).unwrap();
        child.endpoint.flush().unwrap().wait(patient()).unwrap();
    }
    say("in order");
    assert_eq!(hear(), "end");
}

#[test]
fn a_fence_orders_a_signal_after_the_data() {
    each(|over, memory| {
        let Some(side) = Side::new(over, memory) else { return };
        // The peer's last flush needs an answer when nobody here waits any more.
        side.worker.start_thread().unwrap();
        let mut peer = Peer::start("check the order", over, memory);
        let (endpoint, remote) = peer.connect(&side);
        let adds = !lacks_atomics(&remote);
        for round in 1..=2 * ROUNDS {
            side.region.write(DATA, &pattern(PAYLOAD, round)).unwrap();
            let data = remote.put(DATA, &side.region, DATA, PAYLOAD).unwrap();
            endpoint.fence().unwrap();
            // Puts of a signal and adds to it, in turn.
            let signal = if adds && round % 2 == 0 {
                remote.add(SIGNAL, 1).unwrap()
            } else {
                remote.put_copy(SIGNAL, &round.to_ne_bytes()).unwrap()
            };
            data.wait(patient()).unwrap();
            signal.wait(patient()).unwrap();
            side.wait_for(round);
        }
        assert_eq!(peer.hear(), "in order", "over {over} of {memory:?} memory");
        peer.end();
    });
}

#[test]
fn bytes_outside_a_region_are_refused() {
    let Some((side, mut peer)) = serve(Over::Tcp, Memory::Mapped) else { return };
    let (endpoint, remote) = peer.connect(&side);
    let size = remote.bytes();
    assert_eq!(size, DATA + LARGEST);
    let refused = remote.put(size - 7, &side.region, 0, 8).unwrap_err();
    let OperationError::OutOfRange(range) = &refused else { panic!("{refused}") };
    assert_eq!((range.asked.clone(), range.bytes), (size - 7..size + 1, size));
    assert!(remote.put(0, &side.region, size - 7, 8).is_err());
    assert!(remote.get(usize::MAX, &side.region, 0, 8).is_err());
    assert!(remote.put_copy(size, &[1]).is_err());
    assert!(remote.add(4, 1).is_err() && remote.add(size - 4, 1).is_err());
    assert!(side.region.word(SIGNAL + 4).is_err() && side.region.word(size).is_err());
    // A message whose place is too small does not land, and the next one does.
    let send = |offset| {
        let body = Body::Copied(&[7; 8]);
        endpoint.send(APPLY, &apply(offset, SECOND), body, Manner::Auto).unwrap()
    };
    send(size - 4).wait(patient()).unwrap();
    send(DATA).wait(patient()).unwrap();
    // Nobody takes messages of this kind, and nobody minds.
    endpoint.send(77, &[], Body::Nothing, Manner::Auto).unwrap().wait(patient()).unwrap();
    endpoint.flush().unwrap().wait(patient()).unwrap();
    let start = std::time::Instant::now();
    loop {
        remote.get(SECOND, &side.region, SECOND, 8).unwrap().wait(patient()).unwrap();
        if side.region.word(SECOND).unwrap().load(Relaxed) == 1 {
            break;
        }
        assert!(start.elapsed().as_secs() < 30, "the second message has not landed");
    }
    assert_eq!(endpoint.state(), PeerState::Up);
    peer.end();
}
