//! Ranks that are processes: they are killed and stopped, and strangers knock.

mod common;

use std::{
    env,
    time::{Duration, Instant},
};

use common::{MEMORY, Memory, OVER, Over, Peer, ROLE, hear, hex, patient, say, unhex};
use pontoon_hal::{
    conformance::part,
    link::{
        Link, LinkError, Operation, Order, PeerState, RegionKey, Registered, Remote, RemoteSignal,
    },
};
use pontoon_signal::{
    Bound, Ending, Identity, Nanos, Rank, Segment, SegmentShape, Seq, SlotId, Span, WaitError,
    shim::Ordering::Relaxed,
};
use pontoon_ucx::{Body, Context, Library, Manner, UcxLink};

const ROUNDS: u64 = 3_000;
const WORDS: usize = 8;
const LARGE: usize = 1 << 20;
const HEAP: usize = 8 << 20;
/// The ways that there are: messages over each transport, and mapped memory.
const WAYS: [(Over, Memory); 3] =
    [(Over::Tcp, Memory::Mapped), (Over::Posix, Memory::Mapped), (Over::Posix, Memory::Allocated)];

/// Word `at` of round `round`.
fn expected(round: u64, at: usize) -> u64 {
    (round << 8 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn put(block: &Registered, offset: usize, value: u64) {
    Span::of(block.block(), offset..offset + 8).unwrap().word(0).unwrap().store(value, Relaxed);
}

fn get(block: &Registered, offset: usize) -> u64 {
    Span::of(block.block(), offset..offset + 8).unwrap().word(0).unwrap().load(Relaxed)
}

fn open(rank: u32, epoch: u32, (over, memory): (Over, Memory)) -> UcxLink {
    let whose = Identity {
        job: *b"a job of a test.",
        rank: Rank(rank),
        world: 3,
        epoch,
        pid: std::process::id(),
        start_time: 0,
        created: Nanos(0),
    };
    let shape = SegmentShape::new(3, 2, HEAP);
    match memory {
        Memory::Allocated => UcxLink::allocate(shape, whose, over.options()).unwrap(),
        Memory::Mapped => {
            UcxLink::open(Segment::create(shape, whose).unwrap(), over.options()).unwrap()
        }
    }
}

fn registered(link: &UcxLink) -> Registered {
    link.register(&link.segment().allocate(LARGE).unwrap()).unwrap()
}

fn attach(link: &UcxLink, peer: u32, key: &str) -> Remote {
    link.attach(Rank(peer), &RegionKey::from_bytes(unhex(key)).unwrap()).unwrap()
}

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Ok(role) = env::var(ROLE) else { return };
    let (rank, epoch) = role.split_once(' ').unwrap();
    let over = if env::var(OVER).unwrap() == "Tcp" { Over::Tcp } else { Over::Posix };
    let memory =
        if env::var(MEMORY).unwrap() == "Mapped" { Memory::Mapped } else { Memory::Allocated };
    let link = open(rank.parse().unwrap(), epoch.parse().unwrap(), (over, memory));
    say(&hex(&link.card(Rank(0)).unwrap()));
    link.connect(Rank(0), &unhex(&hear())).unwrap();
    // First, so that whoever hears of this life finds its row open.
    let mut signal = link.attach_signal(Rank(0), 0).unwrap();
    let (landing, source) = (registered(&link), registered(&link));
    say(&hex(landing.key().unwrap().as_bytes()));
    let target = attach(&link, 0, &hear());
    let waiter = link.segment().signals().waiter(SlotId::new(0, 0)).unwrap();
    for round in 1.. {
        // The end of its parent ends it.
        let Ok(seen) = link.wait(&waiter, Seq::new(round), patient()) else { break };
        let _ = seen.acq_fence();
        for at in 0..WORDS {
            assert_eq!(get(&landing, 8 * at), expected(round, at), "round {round}");
            put(&source, 8 * at, expected(!round, at));
        }
        let order = Order::Weak;
        let told = link.write_signal(&source, 0..8 * WORDS, &target, 0, &mut signal, 1, order);
        if told.is_err() {
            break;
        }
    }
}

/// A peer, and what is shared with it: words come from it here, and go there.
struct Pair {
    peer: Peer,
    rank: Rank,
    from: Registered,
    source: Registered,
    to: Remote,
    signal: RemoteSignal,
    rounds: u64,
    /// Where the counter of its answers stood when it began.
    answers: Seq,
}

impl Pair {
    fn start(link: &UcxLink, rank: u32, way: (Over, Memory)) -> Self {
        Self::start_as(link, rank, 0, way)
    }

    fn start_as(link: &UcxLink, rank: u32, epoch: u32, (over, memory): (Over, Memory)) -> Self {
        let mut peer = Peer::start(&format!("{rank} {epoch}"), over, memory);
        let card = unhex(&peer.hear());
        let ours = link.card(Rank(rank)).unwrap();
        match epoch {
            0 => link.connect(Rank(rank), &card).unwrap(),
            _ => link.reconnect(Rank(rank), &card).unwrap(),
        }
        peer.say(&hex(&ours));
        let (from, source) = (registered(link), registered(link));
        let to = attach(link, rank, &peer.hear());
        peer.say(&hex(from.key().unwrap().as_bytes()));
        let signal = link.attach_signal(Rank(rank), 0).unwrap();
        Self { peer, rank: Rank(rank), from, source, to, signal, rounds: 0, answers: Seq::new(0) }
    }

    /// A round there and back, its words checked on both sides.
    fn round(&mut self, link: &UcxLink) {
        self.rounds += 1;
        let Self { source, to, signal, rounds: round, .. } = self;
        for at in 0..WORDS {
            put(source, 8 * at, expected(*round, at));
        }
        link.write_signal(source, 0..8 * WORDS, to, 0, signal, 1, Order::Weak).unwrap();
        let waiter = link.segment().signals().waiter(SlotId::new(self.rank.0, 0)).unwrap();
        let seen = link.wait(&waiter, self.answers + *round as u32, patient()).unwrap();
        let _ = seen.acq_fence();
        for at in 0..WORDS {
            let word = get(&self.from, 8 * at);
            assert_eq!(word, expected(!*round, at), "word {at} of round {round}");
        }
    }
}

fn has_ucx() -> bool {
    part::needed("ucx", Library::open()).is_some()
}

#[test]
fn rounds_arrive_whole() {
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut pair = Pair::start(&link, 1, way);
        let mapped = link.capabilities(Rank(1)).unwrap().mapped;
        assert_eq!(mapped, way == (Over::Posix, Memory::Allocated), "{way:?}");
        let start = Instant::now();
        for _ in 0..ROUNDS {
            pair.round(&link);
        }
        println!("{way:?}: {ROUNDS} rounds in {:?}", start.elapsed());
        link.flush(Rank(1), patient()).unwrap();
        assert_eq!(link.completions(Rank(1)).unwrap().value(), Seq::new(ROUNDS));
        let report = link.report();
        assert_eq!((report.refused, report.quarantined), (0, 0), "{way:?}");
    }
}

#[test]
fn a_killed_peer_is_noticed_and_others_go_on() {
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut pair = Pair::start(&link, 1, way);
        let mut other = Pair::start(&link, 2, way);
        for _ in 0..100 {
            pair.round(&link);
            other.round(&link);
        }
        let waiter = link.segment().signals().waiter(SlotId::new(1, 0)).unwrap();
        let completions = link.completions(Rank(1)).unwrap().waiter();
        pair.peer.kill();
        let killed = Instant::now();
        // Nobody tells the link: UCX does.
        let gone = link.wait(&waiter, pair.signal.value() + 1, patient()).unwrap_err();
        println!("{way:?}: noticed after {:?}", killed.elapsed());
        assert!(matches!(gone, WaitError::PeerDead { rank: Rank(1), .. }), "{way:?}: {gone}");
        let state = link.peer_state(Rank(1));
        assert_eq!(state, PeerState::Ended(Ending::PeerDead { rank: Rank(1) }), "{way:?}");
        let dead = LinkError::PeerDead { peer: Rank(1) };
        let (source, to, signal) = (&pair.source, &pair.to, &mut pair.signal);
        let started = Instant::now();
        assert_eq!(link.write(source, 0..8, to, 0), Err(dead.clone()));
        assert_eq!(link.read(to, 0, source, 0..8), Err(dead.clone()));
        assert_eq!(link.signal(signal, 1, Order::Strong), Err(dead.clone()));
        assert_eq!(link.add(to, 0, 1, patient()), Err(dead.clone()));
        assert_eq!(link.flush(Rank(1), patient()), Err(dead.clone()));
        assert!(link.attach_signal(Rank(1), 1).is_err_and(|error| error == dead));
        let ended = link.wait(&completions, Seq::new(1 << 40), patient()).unwrap_err();
        assert!(matches!(ended, WaitError::PeerDead { rank: Rank(1), .. }), "{way:?}: {ended}");
        assert!(started.elapsed() < Duration::from_secs(5), "{way:?}: {:?}", started.elapsed());
        for _ in 0..100 {
            other.round(&link);
        }
        assert_eq!(link.peer_state(Rank(2)), PeerState::Alive);
    }
}

#[test]
fn a_peer_that_is_started_again_takes_the_place_of_the_dead() {
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut former = Pair::start(&link, 1, way);
        for _ in 0..10 {
            former.round(&link);
        }
        former.peer.kill();
        // What the dead had claimed here it could not give up.
        let mut again = Pair::start_as(&link, 1, 1, way);
        assert_eq!(again.signal.value(), Seq::new(0), "{way:?}: its table is new");
        let waiter = link.segment().signals().waiter(SlotId::new(1, 0)).unwrap();
        let before = waiter.value();
        link.signal(&mut again.signal, 0, Order::Weak).unwrap();
        assert_eq!(link.peer_state(Rank(1)), PeerState::Alive, "{way:?}");
        let dead = LinkError::PeerDead { peer: Rank(1) };
        assert_eq!(link.write(&former.source, 0..8, &former.to, 0), Err(dead), "{way:?}");
        again.rounds = 0;
        again.answers = before;
        for _ in 0..100 {
            again.round(&link);
        }
        let card = link.card(Rank(1)).unwrap();
        assert!(link.connect(Rank(1), &card).is_err(), "{way:?}: a card of this rank itself");
    }
}

#[test]
fn a_stopped_peer_costs_the_bound_and_loses_nothing() {
    const SHORT: Duration = Duration::from_millis(200);
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut pair = Pair::start(&link, 1, way);
        pair.round(&link);
        link.flush(Rank(1), patient()).unwrap();
        pair.peer.stop();
        let mapped = link.capabilities(Rank(1)).unwrap().mapped;
        let Pair { source, to, .. } = &pair;
        for at in (0..LARGE).step_by(8) {
            put(source, at, at as u64 + 1);
        }
        let tail = LARGE / 2;
        let number = link.write(source, tail..LARGE, to, tail).unwrap();
        let flushed = link.flush(Rank(1), Bound::within(SHORT));
        let added = link.add(to, tail, 5, Bound::within(SHORT));
        if mapped {
            assert_eq!((flushed, added), (Ok(()), Ok(tail as u64 + 1)), "{way:?}");
        } else {
            let late = |result: &LinkError, wanted| matches!(result, LinkError::TimedOut { peer: Rank(1), operation, .. } if *operation == wanted);
            let flushed = flushed.unwrap_err();
            assert!(late(&flushed, Operation::Flush), "{way:?}: {flushed}");
            let added = added.unwrap_err();
            assert!(late(&added, Operation::Add), "{way:?}: {added}");
        }
        pair.peer.go_on();
        link.flush(Rank(1), patient()).unwrap();
        let done = link.completions(Rank(1)).unwrap().waiter();
        let _ = link.wait(&done, number, patient()).unwrap().acq_fence();
        // What was given up was done all the same, once.
        link.read(to, tail, &pair.from, 0..LARGE - tail).unwrap();
        link.flush(Rank(1), patient()).unwrap();
        assert_eq!(get(&pair.from, 0), tail as u64 + 6, "{way:?}");
        for at in (8..LARGE - tail).step_by(8) {
            assert_eq!(get(&pair.from, at), (tail + at) as u64 + 1, "{way:?}: byte {at}");
        }
        pair.round(&link);
        // A peer that is given up while it stands still: its buffers stay until UCX is done with them.
        pair.peer.stop();
        let posts = (0..64).map(|_| link.write(&pair.source, 0..LARGE, &pair.to, 0).unwrap());
        let last = posts.last().unwrap();
        let is_done = link.completions(Rank(1)).unwrap().value().is_at_or_past(last);
        assert_eq!(is_done, mapped, "{way:?}: 64 MiB that nobody takes");
        link.end_peer(Rank(1), Ending::PeerDead { rank: Rank(1) });
        let dead = link.flush(Rank(1), patient());
        assert_eq!(dead, Err(LinkError::PeerDead { peer: Rank(1) }), "{way:?}");
        let start = Instant::now();
        while link.report().quarantined > 0 {
            link.progress();
            assert!(start.elapsed() < Duration::from_secs(30), "{way:?}: {:?}", link.report());
        }
    }
}

/// Additions to a peer that stands still are posted all the same. They are made in their order once it goes on,
/// each brings what it found, and none that was given up touches its bytes any more.
#[test]
fn additions_wait_for_their_peer_and_nobody_for_them() {
    const ADDS: usize = 100;
    const UNTOUCHED: u64 = 0xEEEE;
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut pair = Pair::start(&link, 1, way);
        pair.round(&link);
        link.flush(Rank(1), patient()).unwrap();
        let mapped = link.capabilities(Rank(1)).unwrap().mapped;
        let word = LARGE / 2;
        let post = |pair: &Pair| {
            let Pair { source, to, .. } = pair;
            (0..ADDS).for_each(|at| put(source, 8 * at, UNTOUCHED));
            let add = |at| link.post_add(to, word, 3, Some((source, 8 * at))).unwrap();
            (0..ADDS).map(add).last().unwrap()
        };
        let brought =
            |pair: &Pair| (0..ADDS).map(|at| get(&pair.source, 8 * at)).collect::<Vec<_>>();
        let completions = link.completions(Rank(1)).unwrap();

        pair.peer.stop();
        let last = post(&pair);
        let none = link.post_add(&pair.to, word, 1, None).unwrap();
        assert_eq!(completions.value().is_at_or_past(last), mapped, "{way:?}: nobody makes them");
        assert_eq!(brought(&pair) == [UNTOUCHED; ADDS], !mapped, "{way:?}");
        pair.peer.go_on();
        let _ = link.wait(&completions.waiter(), none, patient()).unwrap().acq_fence();
        let olds: Vec<u64> = (0..ADDS as u64).map(|at| 3 * at).collect();
        assert_eq!(brought(&pair), olds, "{way:?}");
        let sum = 3 * ADDS as u64 + 1;
        assert_eq!(link.add(&pair.to, word, 0, patient()), Ok(sum), "{way:?}");
        pair.round(&link);

        pair.peer.stop();
        post(&pair);
        link.end_peer(Rank(1), Ending::PeerDead { rank: Rank(1) });
        let start = Instant::now();
        while link.report().quarantined > 0 {
            link.progress();
            assert!(start.elapsed() < Duration::from_secs(30), "{way:?}: {:?}", link.report());
        }
        let given_up = brought(&pair);
        assert_eq!(given_up == [UNTOUCHED; ADDS], !mapped, "{way:?}");
        pair.peer.go_on();
        // Another's rounds are progress, within which an answer would come.
        let mut other = Pair::start(&link, 2, way);
        (0..100).for_each(|_| other.round(&link));
        assert_eq!(brought(&pair), given_up, "{way:?}: written after it was given up");
        let dead = LinkError::PeerDead { peer: Rank(1) };
        assert_eq!(link.post_add(&pair.to, word, 1, None), Err(dead), "{way:?}");
    }
}

/// Where things are in a card, for one who stole it: see `link/card.rs`, and `envelope.rs`.
const ENVELOPE: usize = 24;
const COOKIE: usize = ENVELOPE + 8;
const LENGTH: usize = ENVELOPE + 20;
const ADDRESS: usize = ENVELOPE + 24;
/// Where the number of a region is in its key: see `link/key.rs`.
const NONCE: usize = ENVELOPE + 8;
/// The message that links send.
const MESSAGE: u16 = 0x706c;

/// A header as `link/header.rs` draws it.
fn header(kind: u8, slot: u32, words: [u64; 6]) -> Vec<u8> {
    let mut bytes = b"lnk1".to_vec();
    bytes.extend([kind, u8::from(kind == 1), 0, 0]);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(slot.to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

#[test]
fn strangers_change_nothing_and_are_counted() {
    if !has_ucx() {
        return;
    }
    for way in WAYS {
        let link = open(0, 0, way);
        let mut pair = Pair::start(&link, 2, way);
        pair.round(&link);
        // A card for a rank that never comes, in the hands of somebody else.
        let card = link.card(Rank(1)).unwrap();
        let length = u32::from_le_bytes(card[LENGTH..ADDRESS].try_into().unwrap()) as usize;
        let cookie = u64::from_le_bytes(card[COOKIE..COOKIE + 8].try_into().unwrap());
        let context = Context::open(Library::open().unwrap(), way.0.options()).unwrap();
        let worker = context.worker().unwrap();
        let stranger = worker.connect("the victim", &card[ADDRESS..ADDRESS + length]).unwrap();
        let secret = registered(&link);
        for at in (0..LARGE).step_by(8) {
            put(&secret, at, 7);
        }
        let send = |header: &[u8], data: &[u8]| {
            let sent = stranger.send(MESSAGE, header, Body::Copied(data), Manner::Auto);
            sent.unwrap().wait(patient()).unwrap();
        };
        let mut refused = 0;
        let mut expect = |what: &str, count: u64| {
            refused += count;
            let start = Instant::now();
            while link.report().refused < refused {
                let _ = worker.progress();
                assert!(
                    start.elapsed() < Duration::from_secs(10),
                    "{way:?}: {what} was not counted"
                );
            }
            assert_eq!(link.report().refused, refused, "{way:?}: {what}");
        };
        // Noise of every length, and a header with a bit changed, but for those of its numbers.
        for length in 0..130 {
            send(&common::pattern(length, length as u64 + 1), b"payload!");
        }
        expect("noise", 130);
        let known = header(1, 0, [cookie ^ 1, 1, 2, 0, 1, 0]);
        send(&known, b"payload!");
        expect("another cookie", 1);
        for bit in 0..64 {
            let mut changed = known.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            send(&changed, b"payload!");
        }
        expect("a changed header", 64);
        // With the cookie, but no key: writes, reads and words of regions that are none.
        for (kind, number) in [(1, 1), (3, 2), (4, 3), (5, 4), (2, 5)] {
            send(&header(kind, 0, [cookie, number, 2, 0, 8, 9]), b"payload!");
        }
        expect("no such region or signal", 5);
        // With the cookie and a key: what lies beside its region.
        let part = secret.block().part(4096..8192).unwrap();
        let part = link.register(&part).unwrap();
        let nonce = part.key().unwrap().as_bytes()[NONCE..NONCE + 8].try_into().unwrap();
        let nonce = u64::from_le_bytes(nonce);
        let outside = [(1, 4089), (1, 4096), (1, u64::MAX), (3, 4089), (4, 4089), (5, 4096)];
        for ((kind, offset), number) in outside.into_iter().zip(6..) {
            send(&header(kind, 0, [cookie, number, nonce, offset, 8, 9]), b"payload!");
        }
        expect("bytes beside a region", 6);
        // The region itself: the key was good. The slot for the signal is none.
        send(&header(1, 0, [cookie, 12, nonce, 4088, 1, 0]), b"payload!");
        expect("a signal without a slot", 1);
        assert_eq!(get(&secret, 8184), u64::from_ne_bytes(*b"payload!"), "{way:?}");
        put(&secret, 8184, 7);
        // Answers to what nobody asked are nobody's.
        for kind in [9, 10] {
            send(&header(kind, 0, [cookie, 13, 0, 0, 8, 9]), b"payload!");
        }
        // A message out of turn ends that life and no other.
        send(&header(1, 0, [cookie, 99, 2, 0, 8, 9]), b"payload!");
        for _ in 0..100 {
            pair.round(&link);
        }
        assert_eq!(link.peer_state(Rank(2)), PeerState::Alive, "{way:?}");
        for at in (0..LARGE).step_by(8) {
            assert_eq!(get(&secret, at), 7, "{way:?}: byte {at}");
        }
        expect("what came after", 0);
    }
}
