//! `bench ring`: how many tasks a second a ring carries, and what becomes of them when it is full.
//!
//! - `rate`: one thread pushes tasks one by one, another on another CPU takes them; `rate_batched`
//!   pushes 32 by one claim, `rate_batched/<n>` so many. The consumer looks at every task's number.
//! - `rate/proxy`: a kernel of one rank puts 8 bytes at a time, which its proxy moves to the other
//!   rank over shared memory; from the first put until the last is done.
//! - `full/lost`: tasks that are missing where the consumer is slower. One would be an error.

mod carry;

use std::{io::Write, time::Duration};

use super::{
    BenchError, Options,
    initiate::step::Step,
    pin::CpuPair,
    print,
    ranks::{What, pair::Pair},
    skip,
};
use crate::figures::{Printer, Samples, Unit};
use carry::{Load, carry};

/// How many tasks a push has, and what that is called.
const RATES: [(&str, usize); 5] = [
    ("ring/rate", 1),
    ("ring/rate_batched", 32),
    ("ring/rate_batched/4", 4),
    ("ring/rate_batched/8", 8),
    ("ring/rate_batched/16", 16),
];
/// How long tasks are pushed in a round.
const SUSTAINED: Duration = Duration::from_millis(200);
/// Tasks that the slow consumer takes in a round.
const SLOW_TASKS: u64 = 100_000;
/// What the proxy is given at first, and the most that it is given in a round.
const PUTS: [u32; 2] = [50_000, 50_000_000];

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return skip(printer, "ring", "a producer and a consumer need two CPUs; there is one");
    };
    let rounds = if options.quick { 3 } else { 9 };
    let rates = rates(cpus, rounds, SUSTAINED)?;
    for ((name, _), samples) in RATES.into_iter().zip(&rates) {
        print(printer, name, Unit::TasksPerS, samples)?;
    }
    match Pair::start(What::Stream, cpus, None)? {
        Ok(mut pair) => {
            let samples = proxied(rounds, SUSTAINED, |puts| {
                let [ns] = pair.run([Step::Puts { puts }.word()])?;
                Ok(ns)
            })?;
            print(printer, "ring/rate/proxy", Unit::TasksPerS, &samples)?;
        }
        Err(why) => skip(printer, "ring/rate/proxy", &why)?,
    }
    print(printer, "ring/full/lost", Unit::Tasks, &lost(cpus, rounds, SLOW_TASKS)?)
}

/// Tasks a second, of each way to push.
fn rates(
    cpus: CpuPair,
    rounds: usize,
    sustained: Duration,
) -> Result<[Samples; RATES.len()], BenchError> {
    let mut samples = RATES.map(|_| Samples::default());
    for round in 0..rounds {
        for turn in 0..RATES.len() {
            let which = (round + turn) % RATES.len();
            let carried = carry(cpus, Load::For { time: sustained, batch: RATES[which].1 })?;
            samples[which].push(carried.taken as f64 * 1e9 / carried.took.0 as f64)?;
        }
    }
    Ok(samples)
}

/// Tasks a second. `puts` does so many and gives the nanoseconds; as many are asked for as take a round.
fn proxied(
    rounds: usize,
    sustained: Duration,
    mut puts: impl FnMut(u32) -> Result<f64, BenchError>,
) -> Result<Samples, BenchError> {
    let [mut count, most] = PUTS;
    let mut samples = Samples::with_capacity(rounds);
    while samples.rounds() < rounds {
        let ns = puts(count)?;
        if ns >= sustained.as_nanos() as f64 || count == most {
            samples.push(f64::from(count) * 1e9 / ns)?;
        } else {
            // What would have done, and some more; a round that was too short is not kept.
            let factor = (1.2 * sustained.as_nanos() as f64 / ns.max(1.0)).clamp(1.2, 100.0);
            count = (f64::from(count) * factor).min(f64::from(most)) as u32;
        }
    }
    Ok(samples)
}

/// Tasks that were pushed and never came, of a round: none.
fn lost(cpus: CpuPair, rounds: usize, tasks: u64) -> Result<Samples, BenchError> {
    let mut samples = Samples::with_capacity(rounds);
    for _ in 0..rounds {
        let carried = carry(cpus, Load::Slowly { tasks })?;
        if carried.refused == 0 {
            return Err(BenchError::Count { what: "times full", expected: 1, found: 0 });
        }
        BenchError::unless_equal("tasks taken", carried.pushed, carried.taken)?;
        samples.push((carried.pushed - carried.taken) as f64)?;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_what_it_is_named_after() {
        let Some(cpus) = CpuPair::usable().expect("asked") else {
            println!("skipped: it needs two CPUs, and this process may use one");
            return;
        };
        let samples = rates(cpus, 2, Duration::from_millis(5)).expect("measured and checked");
        assert!(samples.iter().all(|samples| samples.rounds() == 2));
        let samples = lost(cpus, 1, 2_000).expect("measured and checked");
        let figure = samples.figure("", Unit::Tasks).expect("a round");
        assert_eq!((figure.p99, figure.rounds), (0.0, 1));
    }

    #[test]
    fn a_round_of_puts_lasts_and_one_that_did_not_is_not_kept() {
        let mut asked = Vec::new();
        // A microsecond a put.
        let samples = proxied(3, Duration::from_millis(200), |puts| {
            asked.push(puts);
            Ok(f64::from(puts) * 1e3)
        });
        let figure = samples.expect("measured").figure("", Unit::TasksPerS).expect("rounds");
        assert_eq!((figure.median, figure.rounds), (1e6, 3));
        assert_eq!(asked, [50_000, 240_000, 240_000, 240_000]);
    }
}
