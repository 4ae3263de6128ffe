//! `bench signal`: what one signal costs, next to a bare cache line that is bounced.
//!
//! The signals go by the public calls with all that they check: a deadline, the abort word, who
//! published last and when. The rival is a release store and acquire loads of a bare word. It is
//! measured both with a bare spin and with the processor's spin hint, and the one with the lower
//! median there and back is taken for the whole run.
//!
//! A ratio below one is no mistake. What a signal notes in its line after a publish takes the
//! cache line back while nobody polls it, and the next publish finds it at hand: between CPUs that
//! share no core this can outweigh the checks. `roundtrip/raw/again` is a bare ping-pong that does as
//! much by a second store. It is shown for what the machine can do and not compared with, for
//! nobody writes a ping-pong like that.
//!
//! One way is the time from a clock read before the publish to a clock read after the fence, with
//! the first of them as the payload; one reading of the clock is part of it, for the rival too.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use super::{
    BenchError, Options, Rounds,
    pin::CpuPair,
    pingpong::{Kind, Raw, Side},
    print, print_ratio,
    process::Task,
    sides::{between_processes, between_threads},
    skip,
};
use crate::figures::{Printer, Samples, Unit};

/// What a round measures, beginning one further on in each.
const KINDS: [Kind; 8] = [
    Kind::RoundTrip,
    Kind::RawRoundTrip(Raw::Spin),
    Kind::RawRoundTrip(Raw::Hint),
    Kind::RawRoundTrip(Raw::Again),
    Kind::OneWay,
    Kind::RawOneWay(Raw::Spin),
    Kind::RawOneWay(Raw::Hint),
    Kind::RawOneWay(Raw::Again),
];
/// Round trips in a block.
const TRIPS: u32 = 100;
/// Rounds whose figures are not kept: first touches, and a processor that wakes up.
const WARM_UP: u32 = 12;

/// The rounds to keep.
fn rounds(options: &Options) -> Rounds {
    if options.quick {
        Rounds { least: 10, most: 1500, time: Duration::from_millis(800) }
    } else {
        Rounds { least: 20, most: 4500, time: Duration::from_millis(2400) }
    }
}

/// The kinds of `round`, in order. A round that begins with the rival tells nothing of it.
fn order(round: u32) -> impl Iterator<Item = usize> {
    let kinds = KINDS.len();
    (0..kinds).map(move |offset| (round as usize + offset) % kinds)
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return skip(printer, "signal", "a ping-pong needs two CPUs; this process may use one");
    };
    let rounds = rounds(options);
    let pinging = |side: &mut Side| ping(side, rounds, TRIPS);
    let threads = between_threads(cpus, pinging, |side| echo(side, TRIPS))?;
    report(printer, "thread", &threads)?;
    let task = Task::Signal { trips: TRIPS };
    report(printer, "process", &between_processes(cpus, pinging, task)?)
}

/// Begins the trips; the samples of each kind in nanoseconds a trip.
fn ping(side: &mut Side, rounds: Rounds, trips: u32) -> Result<Vec<Samples>, BenchError> {
    let mut samples = vec![Samples::with_capacity(rounds.most); KINDS.len()];
    let start = Instant::now();
    for round in 0u32.. {
        let kept = (round + 1).saturating_sub(WARM_UP) as usize;
        let last = rounds.are_over(kept, start);
        if last {
            side.announce_last(round);
        }
        for kind in order(round) {
            let ns = side.ping(KINDS[kind], trips)?;
            if kept > 0 {
                samples[kind].push(ns)?;
            }
        }
        if last {
            break;
        }
    }
    Ok(samples)
}

/// Answers the trips until the other side has announced the last round.
///
/// # Errors
///
/// The other side did not come.
pub(super) fn echo(side: &mut Side, trips: u32) -> Result<(), BenchError> {
    for round in 0u32.. {
        for kind in order(round) {
            side.echo(KINDS[kind], trips)?;
        }
        if side.was_last(round) {
            break;
        }
    }
    Ok(())
}

fn report<W: Write>(
    printer: &mut Printer<W>,
    path: &str,
    samples: &[Samples],
) -> Result<(), BenchError> {
    let of = |wanted| {
        let index = KINDS.iter().position(|&kind| kind == wanted);
        &samples[index.expect("every kind is in the plan")]
    };
    let raw = faster(of(Kind::RawRoundTrip(Raw::Spin)), of(Kind::RawRoundTrip(Raw::Hint)));
    let (ours, theirs) = (of(Kind::RoundTrip), of(Kind::RawRoundTrip(raw)));
    print(printer, format!("signal/{path}/roundtrip"), Unit::Ns, ours)?;
    print(printer, format!("signal/{path}/roundtrip/raw"), Unit::Ns, theirs)?;
    let again = of(Kind::RawRoundTrip(Raw::Again));
    print(printer, format!("signal/{path}/roundtrip/raw/again"), Unit::Ns, again)?;
    print(printer, format!("signal/{path}/oneway"), Unit::Ns, of(Kind::OneWay))?;
    print(printer, format!("signal/{path}/oneway/raw"), Unit::Ns, of(Kind::RawOneWay(raw)))?;
    print_ratio(printer, format!("signal/{path}/ratio/raw"), ours, theirs)
}

/// Which rival is the better one.
fn faster(spin: &Samples, hint: &Samples) -> Raw {
    let median = |samples: &Samples| samples.figure("", Unit::Ns).map(|figure| figure.median);
    if median(hint) < median(spin) { Raw::Hint } else { Raw::Spin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_measures_every_kind_and_begins_with_another() {
        for round in 0..20 {
            let mut kinds: Vec<usize> = order(round).collect();
            assert_eq!(kinds[0], round as usize % KINDS.len());
            kinds.sort_unstable();
            assert_eq!(kinds, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        // The first wait of all is a bounded one: the other side may still be starting.
        assert_eq!(KINDS[0], Kind::RoundTrip);
    }

    #[test]
    fn the_better_rival_is_taken() {
        let of = |values: &[f64]| {
            let mut samples = Samples::default();
            for &value in values {
                samples.push(value).expect("finite");
            }
            samples
        };
        assert_eq!(faster(&of(&[5.0, 1.0, 1.0]), &of(&[2.0, 2.0, 2.0])), Raw::Spin);
        assert_eq!(faster(&of(&[3.0, 3.0, 1.0]), &of(&[2.0, 2.0, 9.0])), Raw::Hint);
    }

    #[test]
    fn both_sides_follow_one_plan() {
        // On one CPU the bare rival would spin a whole time slice for every trip.
        let Some(cpus) = CpuPair::usable().expect("asked") else {
            println!("skipped: it needs two CPUs, and this process may use one");
            return;
        };
        let rounds = Rounds { least: 3, most: 3, time: Duration::ZERO };
        let samples = between_threads(cpus, |side| ping(side, rounds, 2), |side| echo(side, 2));
        let samples = samples.expect("measured");
        assert_eq!(samples.len(), KINDS.len());
        assert!(samples.iter().all(|samples| samples.rounds() == 3));
    }
}
