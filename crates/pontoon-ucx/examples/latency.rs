//! What a put and its signal cost, by the ways there are: half a round trip, and the bandwidth of
//! a stream. `docs/design/ucx.md` says how to read it beside `ucx_perftest`.
//!
//! `cargo run --release -p pontoon-ucx --example latency -- [tcp|posix] [rounds]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::{collections::VecDeque, env, error::Error, time::Instant};

use common::{
    APPLY, ASK, Child2, DATA, LARGEST, Memory, Over, Peer, SIGNAL, Side, apply, ask, patient,
};
use pontoon_signal::{Bound, shim::Ordering::Relaxed};
use pontoon_ucx::{Body, Endpoint, Manner, Operation, OperationError, Region, Remote};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How data and signal are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One put and nothing else, as `ucx_perftest -t ucp_put_lat`: its last word is the signal.
    Put,
    /// A put, a fence, a put of the signal.
    PutPut,
    /// A put, a fence, an atomic add to the signal.
    PutAdd,
    /// One message with the data, whose handler adds to the signal.
    Message,
    /// Stores to the memory itself, where it is mapped here.
    Stores,
}

const WAYS: [Way; 5] = [Way::Put, Way::PutPut, Way::PutAdd, Way::Message, Way::Stores];
const SIZES: [usize; 3] = [8, 4096, LARGEST];

fn bound() -> Bound {
    patient().spinning(u32::MAX)
}

fn send(
    source: &Region,
    endpoint: &Endpoint,
    remote: &Remote,
    way: Way,
    bytes: usize,
    round: u64,
) -> Result<(), Box<dyn Error>> {
    let signal = |remote: &Remote| remote.put_copy(SIGNAL, &round.to_ne_bytes())?.wait(bound());
    match way {
        Way::Put => signal(remote)?,
        Way::PutPut => {
            let data = remote.put(DATA, source, 0, bytes)?;
            endpoint.fence()?;
            signal(remote)?;
            data.wait(bound())?;
        }
        Way::PutAdd => {
            let data = remote.put(DATA, source, 0, bytes)?;
            endpoint.fence()?;
            remote.add(SIGNAL, 1)?.wait(bound())?;
            data.wait(bound())?;
        }
        Way::Stores => {
            let mapped = remote.mapped().ok_or("it is not mapped")?;
            mapped.write(DATA, source, 0, bytes)?;
            mapped.announce(SIGNAL, 1)?;
        }
        Way::Message => {
            let body = Body::Of { region: source, offset: 0, bytes };
            let header = apply(DATA, SIGNAL);
            endpoint.send(APPLY, &header, body, Manner::Auto)?.wait(bound())?;
        }
    }
    Ok(())
}

fn wait_for(side: &Side, round: u64) {
    let word = side.region.word(SIGNAL).expect("the first word");
    let seen = side.worker.wait_until(bound(), || word.load(Relaxed) >= round);
    assert!(matches!(seen, Ok(Ok(()))), "round {round}: {seen:?}");
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // Where there is one core only, so be it.
    let _ = sched_setaffinity(None, &set);
}

fn rounds_of(bytes: usize, rounds: u64) -> u64 {
    if bytes == LARGEST { (rounds / 100).max(10) } else { rounds }
}

fn serve(child: &Child2) -> Result<(), Box<dyn Error>> {
    pin(0);
    let Child2 { side, endpoint, remote } = child;
    let source = side.context.allocate(LARGEST)?;
    loop {
        // Between two jobs the thread serves, as at a peer that waits for nothing.
        side.worker.start_thread()?;
        let line = common::hear();
        side.worker.stop_thread();
        let Some((way, rest)) = line.split_once(' ') else { return Ok(()) };
        let (bytes, last) = rest.split_once(' ').ok_or("a job has three words")?;
        let way = WAYS[way.parse::<usize>()?];
        let (bytes, last) = (bytes.parse()?, last.parse::<u64>()?);
        side.region.word(SIGNAL)?.store(0, Relaxed);
        common::say("go");
        for round in 1..=last {
            wait_for(side, round);
            send(&source, endpoint, remote, way, bytes, round)?;
        }
        endpoint.flush()?.wait(bound())?;
        common::say("done");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some((_, child)) = common::role() {
        return serve(&child);
    }
    pin(1);
    let arguments: Vec<String> = env::args().collect();
    let over = match arguments.get(1).map(String::as_str) {
        Some("posix") => Over::Posix,
        _ => Over::Tcp,
    };
    let rounds = arguments.get(2).map_or(Ok(20_000), |rounds| rounds.parse())?;
    let Some(side) = Side::new(over, Memory::Allocated) else { return Ok(()) };
    // Not the bytes that the peer writes: those would first have to come from its cache.
    let source = side.context.allocate(LARGEST)?;
    let mut peer = Peer::start("serve", over, Memory::Allocated);
    let (endpoint, remote) = peer.connect(&side);
    for (index, way) in WAYS.into_iter().enumerate() {
        for bytes in SIZES {
            let lacks = way == Way::PutAdd && !side.context.has_atomics()
                || way == Way::Stores && remote.mapped().is_none();
            if lacks || way == Way::Put && bytes != 8 {
                continue;
            }
            let rounds = rounds_of(bytes, rounds);
            let warm = rounds / 5;
            side.region.word(SIGNAL)?.store(0, Relaxed);
            peer.say(&format!("{index} {bytes} {}", warm + rounds));
            peer.hear();
            let mut start = Instant::now();
            for round in 1..=warm + rounds {
                if round == warm + 1 {
                    start = Instant::now();
                }
                send(&source, &endpoint, &remote, way, bytes, round)?;
                wait_for(&side, round);
            }
            let half = start.elapsed().as_secs_f64() / rounds as f64 / 2.0;
            // The peer flushes; it is answered here.
            side.worker.start_thread()?;
            peer.hear();
            side.worker.stop_thread();
            println!("{over} {way:?} {bytes}: {:.3} us", half * 1e6);
        }
    }
    streams(&source, &endpoint, &remote)?;
    served(&side, &source, &endpoint, &remote)?;
    peer.say("");
    Ok(())
}

/// Large pieces one after the other, some under way at a time, to a peer whose thread serves.
fn streams(source: &Region, endpoint: &Endpoint, remote: &Remote) -> Result<(), Box<dyn Error>> {
    const WINDOW: usize = 8;
    for (bytes, count) in [(1 << 16, 4000), (LARGEST, 100)] {
        let puts = run(endpoint, bytes, count, WINDOW, || remote.put(DATA, source, 0, bytes))?;
        let header = apply(DATA, common::SECOND);
        let messages = run(endpoint, bytes, count, WINDOW, || {
            endpoint.send(
                APPLY,
                &header,
                Body::Of { region: source, offset: 0, bytes },
                Manner::Auto,
            )
        })?;
        println!("stream {bytes}: puts {puts:.0} MB/s, messages {messages:.0} MB/s");
    }
    Ok(())
}

/// Begins `count` operations, `window` under way at a time, and flushes: MB a second.
fn run<'e>(
    endpoint: &Endpoint,
    bytes: usize,
    count: u32,
    window: usize,
    begin: impl Fn() -> Result<Operation<'e>, OperationError>,
) -> Result<f64, OperationError> {
    let mut under_way = VecDeque::new();
    let start = Instant::now();
    for _ in 0..count {
        if under_way.len() == window
            && let Some(first) = under_way.pop_front()
        {
            Operation::wait(first, bound())?;
        }
        under_way.push_back(begin()?);
    }
    for last in under_way {
        last.wait(bound())?;
    }
    endpoint.flush()?.wait(bound())?;
    Ok(bytes as f64 * f64::from(count) / start.elapsed().as_secs_f64() / 1e6)
}

/// What one operation takes with a peer whose thread sleeps until it comes.
fn served(
    side: &Side,
    source: &Region,
    endpoint: &Endpoint,
    remote: &Remote,
) -> Result<(), Box<dyn Error>> {
    const COUNT: u64 = 200;
    let time = |what: &str, one: &dyn Fn(u64) -> Result<(), OperationError>| {
        let start = Instant::now();
        for round in 1..=COUNT {
            one(round)?;
        }
        println!("served, {what}: {:.1} us", start.elapsed().as_secs_f64() / COUNT as f64 * 1e6);
        Ok::<(), OperationError>(())
    };
    time("put of 64 and flush", &|_| {
        remote.put(DATA, source, 0, 64)?.wait(bound())?;
        endpoint.flush()?.wait(bound())
    })?;
    time("get of 4096", &|_| remote.get(DATA, source, 0, 4096)?.wait(bound()))?;
    side.region.word(SIGNAL)?.store(0, Relaxed);
    time("message that asks for 4096, and the answer", &|round| {
        let asking = endpoint.send(ASK, &ask(DATA, 4096, 0, 0), Body::Nothing, Manner::Auto)?;
        asking.wait(bound())?;
        wait_for(side, round);
        Ok(())
    })?;
    Ok(())
}
