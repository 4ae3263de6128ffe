//! What a write and its signal cost over the link, by message and in mapped memory: half a round trip.
//! `docs/design/link-ucx.md` says how to read it beside `ucx_perftest`.
//!
//! `cargo run --release -p pontoon-ucx --example link_latency -- [tcp|posix|mapped] [rounds]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::{env, error::Error, time::Instant};

use common::{MEMORY, Memory, OVER, Over, Peer, ROLE, hear, hex, patient, say, unhex};
use pontoon_hal::link::{Link, Order, RegionKey, Registered, Remote, RemoteSignal};
use pontoon_signal::{Bound, Identity, Nanos, Rank, Segment, SegmentShape, SlotId, Waiter};
use pontoon_ucx::UcxLink;
use rustix::thread::{CpuSet, sched_setaffinity};

const LARGEST: usize = 4 << 20;
const SIZES: [(usize, u64); 3] = [(8, 20_000), (4096, 20_000), (LARGEST, 200)];

type Failed = Box<dyn Error>;

fn bound() -> Bound {
    patient().spinning(u32::MAX)
}

struct Side {
    link: UcxLink,
    peer: Rank,
    source: Registered,
    landing: Registered,
}

impl Side {
    fn open(rank: u32, over: Over, memory: Memory) -> Result<Self, Failed> {
        let whose = Identity {
            job: *b"a measurement...",
            rank: Rank(rank),
            world: 2,
            epoch: 0,
            pid: std::process::id(),
            start_time: 0,
            created: Nanos(0),
        };
        let mut core = CpuSet::new();
        core.set(rank as usize);
        sched_setaffinity(None, &core)?;
        let shape = SegmentShape::new(2, 1, 4 * LARGEST);
        let link = match memory {
            Memory::Allocated => UcxLink::allocate(shape, whose, over.options())?,
            Memory::Mapped => UcxLink::open(Segment::create(shape, whose)?, over.options())?,
        };
        let [source, landing] = [(); 2].map(|()| link.segment().allocate(LARGEST));
        let (source, landing) = (link.register(&source?)?, link.register(&landing?)?);
        Ok(Self { link, peer: Rank(1 - rank), source, landing })
    }

    fn key(&self) -> String {
        hex(self.landing.key().map_or(&[], RegionKey::as_bytes))
    }

    /// The peer's landing, its signal, and what it signals here.
    fn meet(&self, key: &str) -> Result<(Remote, RemoteSignal, Waiter), Failed> {
        let key = RegionKey::from_bytes(unhex(key)).ok_or("a key that is too long")?;
        let to = self.link.attach(self.peer, &key)?;
        let slot = SlotId { producer: self.peer, slot: 0 };
        let waiter = self.link.segment().signals().slot(slot)?.uncounted_waiter();
        Ok((to, self.link.attach_signal(self.peer, 0)?, waiter))
    }

    /// Rounds there and back; this side begins or answers.
    fn rounds(
        &self,
        (to, signal, waiter): &mut (Remote, RemoteSignal, Waiter),
        (bytes, rounds): (usize, u64),
        begins: bool,
    ) -> Result<(), Failed> {
        // Each signals once a round, from 0 on.
        let mut next = signal.value() + 1;
        let done = self.link.completions(self.peer)?.into_uncounted_waiter();
        for _ in 0..rounds {
            if !begins {
                let _ = self.link.wait(waiter, next, bound())?.acq_fence();
            }
            let (link, order) = (&self.link, Order::Weak);
            let number = link.write_signal(&self.source, 0..bytes, to, 0, signal, 1, order)?;
            if begins {
                let _ = link.wait(waiter, next, bound())?.acq_fence();
            }
            next = next + 1;
            // The source is written again in the next round.
            let _ = link.wait(&done, number, bound())?.acq_fence();
        }
        Ok(())
    }
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = env::args().collect();
    if env::var_os(ROLE).is_some() {
        let over = if env::var(OVER)? == "Tcp" { Over::Tcp } else { Over::Posix };
        let mapped = env::var(MEMORY)? == "Mapped";
        let side = Side::open(1, over, if mapped { Memory::Mapped } else { Memory::Allocated })?;
        say(&hex(&side.link.card(Rank(0))?));
        side.link.connect(Rank(0), &unhex(&hear()))?;
        say(&side.key());
        let mut ends = side.meet(&hear())?;
        for _ in 0..hear().parse::<u32>()? {
            for size in SIZES {
                side.rounds(&mut ends, size, false)?;
            }
        }
        return Ok(());
    }
    let (over, memory) = match arguments.get(1).map(String::as_str) {
        Some("posix") => (Over::Posix, Memory::Mapped),
        Some("mapped") => (Over::Posix, Memory::Allocated),
        _ => (Over::Tcp, Memory::Mapped),
    };
    let repeats = arguments.get(2).map_or(Ok(5), |count| count.parse::<u32>())?;
    let side = Side::open(0, over, memory)?;
    let mut peer = Peer::start("echo", over, memory);
    let card = unhex(&peer.hear());
    peer.say(&hex(&side.link.card(Rank(1))?));
    side.link.connect(Rank(1), &card)?;
    let key = peer.hear();
    peer.say(&side.key());
    let mut ends = side.meet(&key)?;
    peer.say(&repeats.to_string());
    let mut best = [f64::INFINITY; SIZES.len()];
    for _ in 0..repeats {
        for (best, size) in best.iter_mut().zip(SIZES) {
            let start = Instant::now();
            side.rounds(&mut ends, size, true)?;
            let half = start.elapsed().as_secs_f64() * 1e6 / (2 * size.1) as f64;
            *best = best.min(half);
        }
    }
    println!("{over} {memory:?}: half a round trip in us, the best of {repeats} runs");
    for ((bytes, _), best) in SIZES.iter().zip(best) {
        println!("{bytes:>8} B {best:>10.3}");
    }
    Ok(())
}
