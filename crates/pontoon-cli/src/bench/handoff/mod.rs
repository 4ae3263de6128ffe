//! `bench handoff`: a batch from device A to device B while A is busy with other work too.
//!
//! A produces 64 MiB in chunks and B consumes them; an unrelated queue of A is busy for 0, 1, 2
//! and 4 times the producing time, with kernels that sleep, so that it holds its queue and no host
//! core. The ways differ in nothing but how the hand-over is ordered:
//!
//! - `device`: B gets its commands after `synchronize` of A, which waits for the unrelated queue;
//! - `lock`: a kernel holds one mutex over the batch while it writes or reads a chunk, and the
//!   consumer waits for its chunk by a condition variable;
//! - `signals`: B's queue waits, chunk by chunk, for the completions of A's.
//!
//! One lock over the batch is what `lock` means; with a lock a chunk it would be a hand-made
//! signal. All ways work on the same region. A command holds the bytes that it declares from its
//! start to its end, so with the lock a chunk is announced and awaited by kernels of their own, as
//! with signals it is awaited by a command of its own: a kernel that waited with its chunk
//! declared would keep the producer from writing it.
//!
//! `ideal` is full overlap and one chunk that cannot overlap: max(P, C) + min(P, C) / chunks. P
//! and C, the producing and the consuming by themselves, are measured in the same rounds twice:
//! `alone`, with the other device idle, and `loaded`, with the other device at its own part on
//! another region at the same time and nothing between the two ordered. The ratio is to `alone`:
//! it is the stricter one, for it counts against pontoon what two busy cores of one machine take
//! from each other.

mod rig;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use super::{BenchError, Options, Rounds, pin::CpuPair, print, print_ratio, skip};
use crate::figures::{Printer, Samples, Unit};
use rig::Rig;

const CHUNKS: usize = 64;
/// How long the unrelated queue is busy, in producing times.
const UNRELATED: [u32; 4] = [0, 1, 2, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Device,
    Lock,
    Signals,
}

const WAYS: [Way; 3] = [Way::Device, Way::Lock, Way::Signals];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Lock => "lock",
            Self::Signals => "signals",
        }
    }
}

/// The ways in the order of `round`: each is first, second and last equally often.
fn order(round: usize) -> impl Iterator<Item = usize> {
    (0..WAYS.len()).map(move |offset| (round + offset) % WAYS.len())
}

fn rounds(options: &Options) -> Rounds {
    if options.quick {
        Rounds { least: 3, most: 5, time: Duration::from_secs(6) }
    } else {
        Rounds { least: 7, most: 21, time: Duration::from_secs(18) }
    }
}

/// Milliseconds of `chunks` chunks handed over with full overlap, of parts in milliseconds.
fn ideal(produce: f64, consume: f64, chunks: usize) -> f64 {
    produce.max(consume) + produce.min(consume) / chunks as f64
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let mut rig = Rig::open()?;
    let measured = measure(&mut rig, &rounds(options))?;
    for (index, unrelated) in UNRELATED.into_iter().enumerate() {
        for (way, samples) in WAYS.into_iter().zip(&measured.ways[index]) {
            let name = format!("handoff/{}/unrelated{unrelated}", way.name());
            print(printer, name, Unit::Ms, samples)?;
        }
    }
    print(printer, "handoff/produce/alone", Unit::Ms, &measured.produce_alone)?;
    print(printer, "handoff/consume/alone", Unit::Ms, &measured.consume_alone)?;
    print(printer, "handoff/ideal/alone", Unit::Ms, &measured.ideal_alone)?;
    print(printer, "handoff/ideal/loaded", Unit::Ms, &measured.ideal_loaded)?;
    if CpuPair::usable()?.is_none() {
        let why = "producing and consuming overlap on two CPUs only; this process may use one";
        return skip(printer, "handoff/ratio", why);
    }
    let [quiet, _, twice, _] = &measured.ways;
    let [_, lock, signals] = quiet;
    print_ratio(printer, "handoff/ratio/ideal", signals, &measured.ideal_alone)?;
    print_ratio(printer, "handoff/ratio/ideal/loaded", signals, &measured.ideal_loaded)?;
    print_ratio(printer, "handoff/ratio/lock", lock, signals)?;
    let [device, _, signals] = twice;
    print_ratio(printer, "handoff/ratio/device", device, signals)
}

/// Milliseconds of every round.
#[derive(Default)]
struct Measured {
    /// By the index in [`UNRELATED`], then by that in [`WAYS`].
    ways: [[Samples; WAYS.len()]; UNRELATED.len()],
    produce_alone: Samples,
    consume_alone: Samples,
    ideal_alone: Samples,
    ideal_loaded: Samples,
}

fn measure(rig: &mut Rig, rounds: &Rounds) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    // The first run of each way touches what is new; the parts tell how long to be busy for.
    for way in WAYS {
        rig.hand_over(way, Duration::ZERO)?;
    }
    // What producing takes, as far as is known: how long to be busy for.
    let mut producing = Samples::default();
    for _ in 0..3 {
        producing.push(rig.produce()?)?;
        rig.consume()?;
    }
    let started = Instant::now();
    for round in 0.. {
        if rounds.are_over(round, started) {
            break;
        }
        let (p, c) = (rig.produce()?, rig.consume()?);
        measured.produce_alone.push(p)?;
        producing.push(p)?;
        let produce = producing.figure("", Unit::Ms).map_or(1.0, |figure| figure.median);
        let produce = Duration::from_secs_f64(produce / 1e3);
        measured.consume_alone.push(c)?;
        measured.ideal_alone.push(ideal(p, c, CHUNKS))?;
        let (p, c) = rig.both()?;
        measured.ideal_loaded.push(ideal(p, c, CHUNKS))?;
        for (index, unrelated) in UNRELATED.into_iter().enumerate() {
            for way in order(round) {
                let ms = rig.hand_over(WAYS[way], produce * unrelated)?;
                measured.ways[index][way].push(ms)?;
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_the_longer_part_and_one_chunk_of_the_shorter() {
        assert_eq!(ideal(64.0, 32.0, 64), 64.5);
        assert_eq!(ideal(32.0, 64.0, 64), 64.5);
        assert_eq!(ideal(10.0, 10.0, 1), 20.0, "one chunk cannot overlap");
    }

    #[test]
    fn each_way_has_each_place_equally_often() {
        for place in 0..WAYS.len() {
            let mut ways: Vec<usize> =
                (0..WAYS.len()).map(|round| order(round).nth(place).expect("a way")).collect();
            ways.sort_unstable();
            assert_eq!(ways, [0, 1, 2]);
        }
    }
}
