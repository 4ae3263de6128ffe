//! Rings of tasks: how deep, how many, and how much is taken of one at a time; for small messages that
//! come often, and for large ones that come rarely.

use pontoon::signal::{TunedRing, TunedRings};

use crate::{
    bench::{
        BenchError,
        initiate::step::Step,
        pin::CpuPair,
        ranks::{What, pair::Pair},
    },
    figures::{Samples, Unit},
};

const DEPTHS: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
const BATCHES: [u32; 5] = [8, 16, 32, 64, 128];
const RINGS: [u32; 3] = [1, 2, 4];
/// Where the search begins.
const START: TunedRing = TunedRing { depth: 512, batch: 32, rings: 1 };
/// Bytes of a small message and of a large one.
const SMALL: u32 = 8;
const LARGE: u32 = 1 << 20;
const ROUNDS: usize = 5;
/// A number that is larger than another has to be better than it by this factor.
const WORTH: f64 = 1.03;

/// Measures between two ranks; the inner error says what is missing here.
///
/// # Errors
///
/// See [`BenchError`].
pub(super) fn measure(cpus: CpuPair) -> Result<Result<TunedRings, String>, BenchError> {
    let mut pair = match Pair::start(What::Stream, cpus, None)? {
        Ok(pair) => pair,
        Err(why) => return Ok(Err(why)),
    };
    let mut of = |bytes| {
        search(|ring| {
            let [ns] = pair.run([Step::Rings { ring, bytes }.word()])?;
            Ok(ns)
        })
    };
    Ok(Ok(TunedRings { small: of(SMALL)?, large: of(LARGE)? }))
}

/// One number after the other, each with what was found of those before. `ns` takes so long with a ring.
fn search(
    mut ns: impl FnMut(TunedRing) -> Result<f64, BenchError>,
) -> Result<TunedRing, BenchError> {
    let mut ring = START;
    ring.depth = pick(&DEPTHS, |depth| ns(TunedRing { depth, ..ring }))?;
    ring.batch = pick(&BATCHES, |batch| ns(TunedRing { batch, ..ring }))?;
    ring.rings = pick(&RINGS, |rings| ns(TunedRing { rings, ..ring }))?;
    Ok(ring)
}

/// The least of `numbers`, which rise, that is as good as the best.
fn pick(
    numbers: &[u32],
    mut ns: impl FnMut(u32) -> Result<f64, BenchError>,
) -> Result<u32, BenchError> {
    let mut took = vec![Samples::default(); numbers.len()];
    for round in 0..ROUNDS {
        for turn in 0..numbers.len() {
            let at = (round + turn) % numbers.len();
            took[at].push(ns(numbers[at])?)?;
        }
    }
    let median = |samples: &Samples| {
        samples.figure("", Unit::Ns).map_or(f64::INFINITY, |figure| figure.median)
    };
    let medians: Vec<f64> = took.iter().map(median).collect();
    let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let found = medians.iter().position(|&median| median <= best * WORTH);
    Ok(numbers[found.unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_number_that_is_as_good_as_the_best_is_picked() {
        let of = |times: [f64; 4]| {
            let numbers = [1, 2, 4, 8];
            let time = |number: u32| Ok(times[number.trailing_zeros() as usize]);
            pick(&numbers, time).expect("finite")
        };
        assert_eq!(of([200.0, 100.0, 99.0, 150.0]), 2);
        assert_eq!(of([200.0, 100.0, 90.0, 150.0]), 4);
        assert_eq!(of([100.0; 4]), 1);
        assert_eq!(of([4.0, 3.0, 2.0, 1.0]), 8);
    }

    #[test]
    fn a_round_that_was_slow_does_not_decide() {
        let mut calls = 0;
        let slow_once = |number: u32| {
            calls += 1;
            Ok(if calls == 1 { 1e9 } else { f64::from(number) })
        };
        assert_eq!(pick(&[1, 2], slow_once).expect("finite"), 1);
    }

    #[test]
    fn each_number_is_sought_with_those_that_were_found() {
        // A small batch is good with a deep ring alone, and two rings with a small batch alone.
        let found = search(|TunedRing { depth, batch, rings }| {
            let of_depth = 1e5 / f64::from(depth);
            let of_batch = if depth == 4096 { f64::from(batch) } else { 1e3 / f64::from(batch) };
            let of_rings = if batch == 8 && rings != 2 { 5.0 } else { 0.0 };
            Ok(of_depth + of_batch + of_rings)
        });
        assert_eq!(found.expect("finite"), TunedRing { depth: 4096, batch: 8, rings: 2 });
    }
}
