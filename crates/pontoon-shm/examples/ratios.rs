//! What the link adds to bare memory: a ping-pong of put-then-signal between two processes, in
//! turns with one of a bare copy and release store, and with one of a copy and a publish.
//!
//! `cargo run --release -p pontoon-shm --example ratios`. Figures for a look, not for the record: each
//! is the twentieth part over turns, from below, of half a round trip.

use std::{
    env,
    os::fd::{AsRawFd, OwnedFd},
    process::Command,
    time::Instant,
};

use pontoon_hal::link::{Link, Order, Registered, Remote, RemoteSignal};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{
    Block, Bound, Publisher, Rank, Segment, SegmentShape, SlotId, Waiter,
    shim::{AtomicU64, Ordering::*, spin_loop},
};

const CHILD: &str = "PONTOON_RATIOS";
const HEAP: usize = 32 << 20;
const TURNS: usize = 200;
/// Where the bare words are: on lines of their own, behind the payload.
const WORDS_AT: usize = 16 << 20;
const KEY_AT: usize = 24 << 20;
const SIZES: [(usize, u64); 3] = [(8, 1_000), (4096, 500), (4 << 20, 1)];

fn main() {
    match env::var(CHILD) {
        Ok(path) => side(1, Some(path)),
        Err(_) => side(0, None),
    }
}

struct Side {
    link: ShmLink,
    ours: Segment,
    theirs: Segment,
    _landing: Registered,
    source: Registered,
    to: Remote,
    signal: RemoteSignal,
    /// For the turns without the link.
    publisher: Publisher,
    waiters: [Waiter; 2],
    me: u32,
}

fn new_segment(me: u32) -> Segment {
    let whose = identity([0; 16], Rank(me), 2, 0);
    Segment::create(SegmentShape::new(2, 2, HEAP), whose).expect("memory for a segment")
}

fn open(path: &str) -> Segment {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    Segment::open(OwnedFd::from(file.expect("the other's file"))).expect("the other's segment")
}

fn path(segment: &Segment) -> String {
    let fd = segment.file().expect("a memfd").as_raw_fd();
    format!("/proc/{}/fd/{fd}", std::process::id())
}

/// Both know each other's file by way of the parent: its own by the environment, the child's by a
/// word in the parent's heap.
fn side(me: u32, parent: Option<String>) {
    let ours = new_segment(me);
    let (theirs, child) = match parent {
        Some(parent) => {
            let theirs = open(&parent);
            let fd = ours.file().expect("a memfd").as_raw_fd() as u64;
            let id = u64::from(std::process::id()) << 32 | fd;
            word(theirs.heap(), KEY_AT).store(id, Release);
            (theirs, None)
        }
        None => {
            let exe = env::current_exe().expect("this program");
            let child = Command::new(exe).env(CHILD, path(&ours)).spawn().expect("a child");
            let id = until(word(ours.heap(), KEY_AT), 1);
            (open(&format!("/proc/{}/fd/{}", id >> 32, id as u32)), Some(child))
        }
    };
    let link = ShmLink::new(ours.clone());
    link.connect(Rank(1 - me), theirs.clone()).expect("connect");
    let part = |from| ours.heap().part(from..from + (4 << 20)).expect("within the heap");
    let landing = link.register(&part(0)).expect("register");
    let source = link.register(&part(8 << 20)).expect("register");
    for (at, chunk) in landing.key().expect("a key").as_bytes().chunks_exact(8).enumerate() {
        let value = u64::from_ne_bytes(chunk.try_into().expect("eight"));
        word(theirs.heap(), KEY_AT + 64 + 8 * at).store(value, Relaxed);
    }
    word(theirs.heap(), KEY_AT + 32).store(1, Release);
    until(word(ours.heap(), KEY_AT + 32), 1);
    let key: Vec<u8> = (0..6)
        .flat_map(|at| word(ours.heap(), KEY_AT + 64 + 8 * at).load(Relaxed).to_ne_bytes())
        .collect();
    let key = pontoon_hal::link::RegionKey::from_bytes(key).expect("short");
    let to = link.attach(Rank(1 - me), &key).expect("attach");
    let signal = link.attach_signal(Rank(1 - me), 0).expect("a free slot");
    let publisher = theirs.signals().publisher(SlotId::new(me, 1)).expect("a free slot");
    let waiter = |slot| ours.signals().waiter(SlotId::new(1 - me, slot)).expect("a slot");
    let waiters = [waiter(0), waiter(1)];
    let _landing = landing;
    run(Side { link, ours, theirs, _landing, source, to, signal, publisher, waiters, me });
    if let Some(mut child) = child {
        child.wait().expect("the child");
    }
}

fn run(mut side: Side) {
    let mut at = 0;
    if side.me == 0 {
        println!(
            "{:>9} {:>12} {:>12} {:>12} {:>7}",
            "bytes", "bare ns", "signal ns", "link ns", "ratio"
        );
    }
    for (bytes, rounds) in SIZES {
        let mut times = [(); 3].map(|()| Vec::with_capacity(TURNS));
        for _ in 0..TURNS {
            times[0].push(turn(rounds, |_| side.bare(bytes, &mut at)));
            times[1].push(turn(rounds, |_| side.signal(bytes)));
            times[2].push(turn(rounds, |_| side.put(bytes)));
        }
        let [bare, signal, link] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 20]
        });
        if side.me == 0 {
            println!("{bytes:>9} {bare:>12.1} {signal:>12.1} {link:>12.1} {:>7.3}", link / bare);
        }
    }
}

/// Half of what one of `rounds` rounds takes, in nanoseconds.
fn turn(rounds: u64, mut round: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(&mut round);
    start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
}

impl Side {
    fn bare(&self, bytes: usize, at: &mut u64) {
        *at += 1;
        let (mine, yours) = (word(self.ours.heap(), WORDS_AT), word(self.theirs.heap(), WORDS_AT));
        let answer = |at: u64| {
            copy(self.source.block(), self.theirs.heap(), bytes);
            yours.store(at, Release);
        };
        if self.me == 0 {
            answer(*at);
            until(mine, *at);
        } else {
            until(mine, *at);
            answer(*at);
        }
    }

    /// As the link does it, without the link.
    fn signal(&mut self, bytes: usize) {
        let Self { source, theirs, publisher, waiters: [_, waiter], me, .. } = self;
        let target = publisher.value() + 1;
        let bound = Bound::default().spinning(1 << 24);
        let mut answer = || {
            copy(source.block(), theirs.heap(), bytes);
            publisher.pub_release(1);
        };
        if *me == 0 {
            answer();
        }
        let _ = waiter.wait_ge_bounded(target, bound).expect("an answer").acq_fence();
        if *me == 1 {
            answer();
        }
    }

    fn put(&mut self, bytes: usize) {
        let Self { link, source, to, signal, waiters: [waiter, _], me, .. } = self;
        let order = Order::Weak;
        let target = signal.value() + 1;
        let bound = Bound::default().spinning(1 << 24);
        let mut answer = || link.write_signal(source, 0..bytes, to, 0, signal, 1, order);
        if *me == 0 {
            answer().expect("a live peer");
        }
        let _ = waiter.wait_ge_bounded(target, bound).expect("an answer").acq_fence();
        if *me == 1 {
            answer().expect("a live peer");
        }
    }
}

fn until(word: &AtomicU64, target: u64) -> u64 {
    loop {
        let found = word.load(Acquire);
        if found >= target {
            return found;
        }
        spin_loop();
    }
}

fn word(block: &Block, at: usize) -> &AtomicU64 {
    assert!(at + 8 <= block.bytes() && at.is_multiple_of(8));
    // SAFETY: within the block, as asserted.
    let word = unsafe { block.base().add(at) }.cast::<AtomicU64>();
    // SAFETY: aligned, for heaps begin on pages; an atomic of any bytes is valid.
    unsafe { word.as_ref() }
}

fn copy(from: &Block, to: &Block, bytes: usize) {
    assert!(bytes <= from.bytes() && bytes <= to.bytes());
    // SAFETY: within both, as asserted; the other side reads only what was announced.
    unsafe { to.base().copy_from_nonoverlapping(from.base(), bytes) };
}
