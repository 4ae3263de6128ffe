//! `bench submit`: what a session costs over the queues by themselves.
//!
//! The submission that is measured waits for two of eight queues and makes four accesses: it reads
//! what each of the two wrote last, and writes two buffers of its own. It is recorded, submitted
//! and its fence dropped, on the host. The eight queues are held back by a signal meanwhile, or a
//! device that is ahead would make waits superfluous; afterwards the signal is given, everything
//! runs, and what was computed is checked. The ways differ in who sees to the waits:
//!
//! - `auto`: the session derives them;
//! - `check`: they are given with the launch, and the session proves that none is missing;
//! - `trust`: the same, and nobody looks;
//! - `bare`: no session, two wait commands and a launch given to the queue by hand.
//!
//! `auto/parked` is `auto` beside 64 parked batches, so with the search for circles. While nothing is
//! parked a session asks only whether that is so, which cannot be timed apart from a submission.
//! `deadlock_check` is therefore no submission: it is the graph of what is parked by itself, to
//! which a batch that waits for two others is added, and taken out again.
//!
//! `tracker` is the same over queues that only count: the session's own part. A ratio `x/ratio/y` is
//! `x` over `y`.
//!
//! The devices' threads are on one CPU, and the submissions are made on another.

mod bare;
mod null;
mod parts;
mod pipe;
mod roundtrip;

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use pontoon::{CpuDevice, CpuSpec, Edges, Rank};

use super::{
    BenchError, Options, Rounds,
    pin::{CpuPair, pin_to},
    print, print_ratio,
    sides::on_a_thread,
    skip, spawn,
};
use crate::figures::{Printer, Samples, Unit};
use bare::Bare;
pub(super) use null::{NullDevice, NullMemory};
use parts::{Circles, Elided, Fences, PARKED};
use pipe::Pipe;

/// Commands that a queue holds: what a round has, and no more, so that they stay in the cache.
const DEPTH: u32 = 256;
/// The longest that anything here may take before the measurement gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds whose figures are not kept: first touches, and a processor that wakes up.
const WARM_UP: usize = 10;

fn rounds_of(options: &Options, most: usize, time: Duration) -> Rounds {
    if options.quick {
        Rounds { least: 10, most: most / 3, time: time / 3 }
    } else {
        Rounds { least: 30, most, time }
    }
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let cpus = CpuPair::usable()?;
    let limits = rounds_of(options, 1500, Duration::from_millis(5250));
    let [auto, check, trust, bare, auto_parked, auto_tracker, check_tracker] =
        apart(cpus, || submissions(cpus, limits))?;
    print(printer, "submit/auto", Unit::Ns, &auto)?;
    print(printer, "submit/check", Unit::Ns, &check)?;
    print(printer, "submit/trust", Unit::Ns, &trust)?;
    print(printer, "submit/bare", Unit::Ns, &bare)?;
    print_ratio(printer, "submit/auto/ratio/bare", &auto, &bare)?;
    print_ratio(printer, "submit/check/ratio/bare", &check, &bare)?;
    print(printer, "submit/auto/parked", Unit::Ns, &auto_parked)?;
    print(printer, "submit/auto/tracker", Unit::Ns, &auto_tracker)?;
    print(printer, "submit/check/tracker", Unit::Ns, &check_tracker)?;

    let limits = rounds_of(options, 1500, Duration::from_millis(1200));
    let [elided, nothing, parked, fence, named] = apart(cpus, || parts(limits))?;
    print(printer, "submit/elided_wait", Unit::Ns, &elided)?;
    print(printer, "submit/deadlock_check", Unit::Ns, &nothing)?;
    print(printer, "submit/deadlock_check/parked", Unit::Ns, &parked)?;
    print(printer, "submit/fence_cycle", Unit::Ns, &fence)?;
    print(printer, "submit/fence_cycle/named", Unit::Ns, &named)?;

    let Some(cpus) = cpus else {
        let why = "a round trip needs two CPUs; this process may use one";
        return skip(printer, "submit/roundtrip", why);
    };
    let limits = rounds_of(options, 1500, Duration::from_millis(2400));
    let [ours, condvar, channel] = on_a_thread(cpus.near, || roundtrip::measure(cpus, limits))?;
    print(printer, "submit/roundtrip", Unit::Ns, &ours)?;
    print(printer, "submit/roundtrip/condvar", Unit::Ns, &condvar)?;
    print(printer, "submit/roundtrip/channel", Unit::Ns, &channel)?;
    print_ratio(printer, "submit/roundtrip/ratio/condvar", &ours, &condvar)?;
    print_ratio(printer, "submit/roundtrip/ratio/channel", &ours, &channel)
}

/// On a thread of its own, which has a CPU to itself if there are two.
pub(super) fn apart<T: Send>(
    cpus: Option<CpuPair>,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    match cpus {
        Some(cpus) => on_a_thread(cpus.near, work),
        None => {
            thread::scope(|scope| spawn(scope, work)?.join().map_err(|_| BenchError::Panicked)?)
        }
    }
}

/// Calls `measure` with the number of each round and whether it is kept.
pub(super) fn rounds(
    limits: Rounds,
    mut measure: impl FnMut(usize, bool) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let start = Instant::now();
    for round in 0usize.. {
        if limits.are_over(round.saturating_sub(WARM_UP), start) {
            break;
        }
        measure(round, round >= WARM_UP)?;
    }
    Ok(())
}

/// Samples of `N` quantities, of which each round measures every one and begins with another.
pub(super) fn in_turns<const N: usize>(
    limits: Rounds,
    mut measure: impl FnMut(usize) -> Result<f64, BenchError>,
) -> Result<[Samples; N], BenchError> {
    let mut samples = std::array::from_fn(|_| Samples::with_capacity(limits.most));
    rounds(limits, |round, kept| {
        for offset in 0..N {
            let which = (round + offset) % N;
            let value = measure(which)?;
            if kept {
                samples[which].push(value)?;
            }
        }
        Ok(())
    })?;
    Ok(samples)
}

fn submissions(cpus: Option<CpuPair>, limits: Rounds) -> Result<[Samples; 7], BenchError> {
    // A thread starts where the one is that started it.
    cpus.map_or(Ok(()), |cpus| pin_to(cpus.far))?;
    let spec = CpuSpec { units: 1, depth: DEPTH, ..CpuSpec::default() };
    let pair = |first| -> Result<[CpuDevice; 2], BenchError> {
        Ok([CpuDevice::open(Rank(first), spec)?, CpuDevice::open(Rank(first + 1), spec)?])
    };
    let (auto, check, trust, bare) = (pair(0)?, pair(2)?, pair(4)?, pair(6)?);
    let beside = pair(12)?;
    cpus.map_or(Ok(()), |cpus| pin_to(cpus.near))?;
    let nulls = [8, 10].map(|first| [first, first + 1].map(|rank| NullDevice::new(Rank(rank))));
    let mut auto = Pipe::open(&auto, Edges::Auto)?;
    let mut check = Pipe::open(&check, Edges::Check)?;
    let mut trust = Pipe::open(&trust, Edges::Trust)?;
    let mut bare = Bare::open(&bare)?;
    let mut auto_parked = Pipe::open(&beside, Edges::Auto)?.beside_parked(PARKED)?;
    let mut auto_tracker = Pipe::open(&nulls[0], Edges::Auto)?;
    let mut check_tracker = Pipe::open(&nulls[1], Edges::Check)?;
    in_turns(limits, |way| match way {
        0 => auto.submission(),
        1 => check.submission(),
        2 => trust.submission(),
        3 => bare.submission(),
        4 => auto_parked.submission(),
        5 => auto_tracker.submission(),
        _ => check_tracker.submission(),
    })
}

fn parts(limits: Rounds) -> Result<[Samples; 5], BenchError> {
    let device = NullDevice::new(Rank(0));
    let mut elided = Elided::open(&device)?;
    let mut circles = [Circles::with_nothing_parked(), Circles::with_many_parked()?];
    let mut fences = Fences::new();
    in_turns(limits, |part| match part {
        0 => elided.wait(),
        1 | 2 => circles[part - 1].look(),
        3 => fences.bare(),
        _ => fences.named(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Rounds = Rounds { least: 3, most: 3, time: Duration::ZERO };

    #[test]
    fn every_way_does_what_it_is_named_after() {
        let samples = submissions(None, FEW).expect("measured and checked");
        assert!(samples.iter().all(|samples| samples.rounds() == 3));
        let samples = parts(FEW).expect("measured and checked");
        assert!(samples.iter().all(|samples| samples.rounds() == 3));
    }

    #[test]
    fn a_round_trip_brings_back_what_was_sent() {
        let Some(cpus) = CpuPair::usable().expect("asked") else {
            println!("skipped: it needs two CPUs, and this process may use one");
            return;
        };
        let samples = on_a_thread(cpus.near, || roundtrip::measure(cpus, FEW));
        assert!(samples.expect("measured").iter().all(|samples| samples.rounds() == 3));
    }

    #[test]
    fn a_measurement_that_waits_for_nothing_is_void() {
        let error = BenchError::unless_equal("waits", 64, 63).expect_err("one is missing");
        assert_eq!(error.to_string(), "the measurement is void: 63 waits, not 64");
    }
}
