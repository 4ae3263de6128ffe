//! Ranks that are processes: this binary starts itself again as the peers.

mod common;

use std::time::{Duration, Instant};

use common::{Base, Peer, Process, get, hex, patient, put, role, say, told, unhex, until};
use pontoon_hal::link::{Link, LinkError, Operation, Order, PeerState};
use pontoon_shm::ConnectError;
use pontoon_signal::{Bound, Ending, Rank, Seq, SlotId, WaitError};
use rustix::process::Signal;

const ROUNDS: u64 = 100_000;
const WORDS: usize = 8;
const BYTES: usize = 8 * WORDS;
/// Written by one that is killed meanwhile.
const LARGE: usize = 256 << 10;

/// Word `at` of round `round`.
fn expected(round: u64, at: usize) -> u64 {
    (round << 8 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A word whose halves are equal: one that is half old and half new is seen.
fn twice(value: u32) -> u64 {
    u64::from(value) << 32 | u64::from(value)
}

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Some((role, base, rank)) = role() else { return };
    let epoch = u32::from(role == "again");
    let process = Process::join(&base, rank, epoch);
    process.connect(0);
    let landing = process.registered(LARGE);
    // First, so that whoever hears of this life finds its row open.
    let mut signal = process.link.attach_signal(Rank(0), 0).unwrap();
    say(&hex(&landing));
    let target = process.attach(0, &told());
    let source = process.registered(LARGE);
    let waiter = process.segment.signals().waiter(SlotId::new(0, 0)).unwrap();
    match role.as_str() {
        "echo" | "again" => {
            for round in 1.. {
                // The end of its parent ends it.
                if waiter.wait_ge_bounded(Seq::new(round), patient()).is_err() {
                    break;
                }
                pontoon_signal::fence_system();
                for at in 0..WORDS {
                    assert_eq!(get(landing.block(), 8 * at), expected(round, at), "round {round}");
                    put(source.block(), 8 * at, expected(!round, at));
                }
                let (link, order) = (&process.link, Order::Weak);
                link.write_signal(&source, 0..BYTES, &target, 0, &mut signal, 1, order).unwrap();
                if round == ROUNDS {
                    break;
                }
            }
        }
        "write for ever" => {
            // Filled before: hardly anything but the copies takes time.
            let other = process.registered(LARGE);
            for (at, block) in (0..LARGE).step_by(8).flat_map(|at| [(at, &source), (at, &other)]) {
                let value = if std::ptr::eq(block, &source) { 1 } else { 2 };
                put(block.block(), at, twice(value));
            }
            loop {
                for from in [&source, &other] {
                    let (link, order) = (&process.link, Order::Weak);
                    link.write_signal(from, 0..LARGE, &target, 0, &mut signal, 1, order).unwrap();
                }
            }
        }
        other => panic!("no role {other}"),
    }
}

/// A peer, and what is shared with it: words come from it here, and go there.
struct Pair {
    peer: Peer,
    rank: u32,
    from: pontoon_hal::link::Registered,
    to: pontoon_hal::link::Remote,
    source: pontoon_hal::link::Registered,
    signal: pontoon_hal::link::RemoteSignal,
    rounds: u64,
}

impl Pair {
    fn start(here: &Process, role: &str, base: &Base, rank: u32) -> Self {
        let peer = Peer::start(role, &base.0, rank);
        here.connect(rank);
        Self::meet(here, peer, rank)
    }

    fn meet(here: &Process, mut peer: Peer, rank: u32) -> Self {
        let from = here.registered(LARGE);
        let to = here.attach(rank, &peer.hear());
        peer.tell(&hex(&from));
        let signal = here.link.attach_signal(Rank(rank), 0).unwrap();
        Self { peer, rank, from, to, source: here.registered(LARGE), signal, rounds: 0 }
    }

    /// A round there and back, its words checked on both sides.
    fn round(&mut self, here: &Process) {
        self.rounds += 1;
        let Self { source, to, signal, rounds: round, .. } = self;
        for at in 0..WORDS {
            put(source.block(), 8 * at, expected(*round, at));
        }
        here.link.write_signal(source, 0..BYTES, to, 0, signal, 1, Order::Weak).unwrap();
        let waiter = here.segment.signals().waiter(SlotId::new(self.rank, 0)).unwrap();
        let seen = waiter.wait_ge_bounded(signal.value(), patient()).unwrap();
        let _ = seen.acq_fence();
        for at in 0..WORDS {
            let word = get(self.from.block(), 8 * at);
            assert_eq!(word, expected(!*round, at), "word {at} of round {round}");
        }
    }
}

#[test]
fn a_hundred_thousand_rounds_arrive_whole() {
    let base = Base::new("rounds");
    let here = Process::join(&base.0, 0, 0);
    let mut pair = Pair::start(&here, "echo", &base, 1);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        pair.round(&here);
    }
    println!("{ROUNDS} rounds in {:?}", start.elapsed());
    assert_eq!(here.link.completions(Rank(1)).unwrap().value(), Seq::new(ROUNDS));
    let served = here.handover.report();
    assert_eq!((served.served, served.garbage + served.wrong_secret), (1, 0));
    pair.peer.end();
}

#[test]
fn a_writer_that_is_killed_leaves_whole_words_and_others_alone() {
    const DEATHS: u32 = 40;
    let base = Base::new("killed");
    let here = Process::join(&base.0, 0, 0);
    let mut other = Pair::start(&here, "echo", &base, 2);
    let mut seed = Instant::now().elapsed().as_nanos() as u64 ^ u64::from(std::process::id());
    println!("seed {seed}");
    let (mut between, mut longest) = (0, Duration::ZERO);
    // Registered once: what each of the dead wrote lies here.
    let landing = here.registered(LARGE);
    for death in 0..DEATHS {
        let mut peer = Peer::start("write for ever", &base.0, 1);
        let segment = loop {
            // Until the socket is the one of this process, not of the one before.
            let segment = here.fetched(1);
            if segment.identity().pid == peer.id().as_raw_nonzero().get().cast_unsigned() {
                break segment;
            }
        };
        // They are all of one start, and no rank is started twice so: as after a restart here.
        let link = pontoon_shm::ShmLink::new(here.segment.clone());
        link.connect(Rank(1), segment).unwrap();
        let to = link.attach(Rank(1), &unhex(&peer.hear())).unwrap();
        let source = link.register(landing.block()).unwrap();
        let waiter = here.segment.signals().waiter(SlotId::new(1, 0)).unwrap();
        let before = waiter.value();
        peer.tell(&hex(&landing));
        let _ = waiter.wait_ge_bounded(before + 2, patient()).unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = Instant::now() + Duration::from_nanos((seed >> 33) % 300_000);
        while Instant::now() < moment {}
        peer.kill();
        let killed = Instant::now();
        // Its row ends, by the link that watched over it; nobody waits for the bound.
        let ended = waiter.wait_ge_bounded(waiter.value() + (1 << 30), patient()).unwrap_err();
        assert!(matches!(ended, WaitError::PeerDead { rank: Rank(1), .. }), "{ended}");
        longest = longest.max(killed.elapsed());
        let dead = Err(LinkError::PeerDead { peer: Rank(1) });
        assert_eq!(link.peer_state(Rank(1)), PeerState::Ended(Ending::PeerDead { rank: Rank(1) }));
        assert_eq!(link.write(&source, 0..8, &to, 0).map(drop), dead);
        assert_eq!(link.flush(Rank(1), patient()), dead);
        assert_eq!(link.add(&to, 0, 1, patient()).map(drop), dead);

        let words: Vec<_> = (0..LARGE).step_by(8).map(|at| get(landing.block(), at)).collect();
        let torn = words.iter().filter(|word| (**word >> 32) as u32 != **word as u32).count();
        assert_eq!(torn, 0, "torn words after death {death}");
        between += u32::from(words.iter().any(|word| *word != words[0]));
        other.round(&here);
    }
    println!("{DEATHS} deaths, {between} in the middle of a write; noticed after {longest:?}");
    assert!(between > 0, "no death met a write: nothing was tested");
    assert!(longest < Duration::from_secs(5), "{longest:?} until a death was noticed");
}

#[test]
fn a_peer_that_stands_still_is_reached_and_waits_for_it_end() {
    let base = Base::new("stopped");
    let here = Process::join(&base.0, 0, 0);
    let mut pair = Pair::start(&here, "echo", &base, 1);
    pair.round(&here);
    pair.peer.signal(Signal::STOP);
    let can = here.link.capabilities(Rank(1)).unwrap();
    assert!(can.one_sided && can.mapped && can.notices_death);
    // One-sided: nothing needs the peer.
    here.link.write_inline(&[7; 16], &pair.to, 1024).unwrap();
    here.link.flush(Rank(1), patient()).unwrap();
    assert_eq!(here.link.add(&pair.to, 1024, 1, patient()), Ok(u64::from_ne_bytes([7; 8])));
    let waiter = here.segment.signals().waiter(SlotId::new(1, 0)).unwrap();
    let late = waiter.wait_ge_bounded(Seq::new(2), Bound::within(Duration::from_millis(30)));
    let Err(WaitError::TimedOut { at, .. }) = late else { panic!("{late:?}") };
    let pid = pair.peer.id().as_raw_nonzero().get().cast_unsigned();
    assert_eq!(at.producer.map(|producer| (producer.rank, producer.pid)), Some((Rank(1), pid)));
    assert_eq!(here.link.peer_state(Rank(1)), PeerState::Alive);
    pair.peer.signal(Signal::CONT);
    pair.round(&here);
    pair.peer.kill();
    until("a death is noticed", || here.link.peer_state(Rank(1)) != PeerState::Alive);
}

#[test]
fn a_rank_that_is_started_again_takes_its_place() {
    let base = Base::new("again");
    let here = Process::join(&base.0, 0, 0);
    let mut former = Pair::start(&here, "echo", &base, 1);
    former.round(&here);
    let stale = here.fetched(1);
    former.peer.kill();
    until("a death is noticed", || here.link.peer_state(Rank(1)) != PeerState::Alive);
    let refused = here.link.connect(Rank(1), stale.clone()).unwrap_err();
    assert!(matches!(refused, ConnectError::NotRunning { peer: Rank(1), .. }), "{refused}");

    let peer = Peer::start("again", &base.0, 1);
    let mut segment = None;
    until("its successor hands over", || {
        let found = here.fetched(1);
        let new = found.identity().epoch == 1;
        segment = Some(found);
        new
    });
    let segment = segment.unwrap();
    let refused = here.link.connect(Rank(1), segment.clone()).unwrap_err();
    assert_eq!(refused, ConnectError::Connected { peer: Rank(1) });
    here.link.reconnect(Rank(1), segment.clone()).unwrap();
    let refused = here.link.reconnect(Rank(1), segment).unwrap_err();
    assert_eq!(refused, ConnectError::Epoch { peer: Rank(1), connected: 1, offered: 1 });

    // It has the slot that its predecessor never gave up, and goes on where the counter is.
    let before = here.segment.signals().waiter(SlotId::new(1, 0)).unwrap().value();
    let mut pair = Pair::meet(&here, peer, 1);
    let Pair { source, to, signal, .. } = &mut pair;
    for at in 0..WORDS {
        put(source.block(), 8 * at, expected(1, at));
    }
    here.link.write_signal(source, 0..BYTES, to, 0, signal, 1, Order::Strong).unwrap();
    let waiter = here.segment.signals().waiter(SlotId::new(1, 0)).unwrap();
    waiter.wait_ge_bounded(before + 1, patient()).unwrap().acq_fence();
    assert_eq!(get(pair.from.block(), 0), expected(!1, 0));
    // What was of the former life stays dead.
    let late = here.link.write(&former.source, 0..8, &former.to, 0);
    assert_eq!(late, Err(LinkError::PeerDead { peer: Rank(1) }));
    let late = here.link.signal(&mut former.signal, 1, Order::Weak);
    assert_eq!(late, Err(LinkError::PeerDead { peer: Rank(1) }));
    let told = here.link.explain(Rank(1), Operation::Flush).unwrap().to_string();
    assert!(told.contains("rank 1 over shm"), "{told}");
}
