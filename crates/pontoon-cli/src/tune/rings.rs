//! Rings of tasks: how deep, how many, and how much is taken of one at a time; for small messages that
//! come often, and for large ones that come rarely.

use pontoon::signal::TunedRing;

use crate::bench::{
    BenchError,
    initiate::step::Step,
    pin::CpuPair,
    ranks::{What, pair::Pair},
};

const DEPTHS: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
const BATCHES: [u32; 5] = [8, 16, 32, 64, 128];
const RINGS: [u32; 3] = [1, 2, 4];
/// Where the search begins, and what is kept unless something gains on it.
const DEFAULT: TunedRing = TunedRing { depth: 512, batch: 32, rings: 1 };
/// Bytes of a small message and of a large one.
const SMALL: u32 = 8;
const LARGE: u32 = 1 << 20;
const ROUNDS: usize = 5;

/// The rings for messages that come often and for those that come rarely.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    pub(super) small: Found,
    pub(super) large: Found,
}

/// A ring, and what it gains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) ring: TunedRing,
    /// How many times as fast it is as the default, in a comparison of its own; `None` if it is that.
    pub(super) gain: Option<f64>,
    /// The part by which the same measurement differed when it was repeated.
    pub(super) spread: f64,
}

/// Measures between two ranks; the inner error says what is missing here.
///
/// # Errors
///
/// See [`BenchError`].
pub(super) fn measure(cpus: CpuPair) -> Result<Result<Rings, String>, BenchError> {
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
    Ok(Ok(Rings { small: of(SMALL)?, large: of(LARGE)? }))
}

/// One number after the other, each with what was found of those before. Then all of them together have to
/// gain on the default once more. `ns` takes so long with a ring.
fn search(mut ns: impl FnMut(TunedRing) -> Result<f64, BenchError>) -> Result<Found, BenchError> {
    let mut ring = DEFAULT;
    ring.depth = pick(&DEPTHS, DEFAULT.depth, |depth| ns(TunedRing { depth, ..ring }))?;
    ring.batch = pick(&BATCHES, DEFAULT.batch, |batch| ns(TunedRing { batch, ..ring }))?;
    ring.rings = pick(&RINGS, DEFAULT.rings, |rings| ns(TunedRing { rings, ..ring }))?;
    let took = in_turns(&[DEFAULT, ring], ns)?;
    let (default, found) = (&took[0], &took[1]);
    let spread = default.spread.max(found.spread) / default.median;
    if ring == DEFAULT || !found.gains_on(default) {
        return Ok(Found { ring: DEFAULT, gain: None, spread });
    }
    Ok(Found { ring, gain: Some(default.median / found.median), spread })
}

/// The number that is best, where it gains on `default`; else that.
fn pick(
    numbers: &[u32],
    default: u32,
    ns: impl FnMut(u32) -> Result<f64, BenchError>,
) -> Result<u32, BenchError> {
    let took = in_turns(numbers, ns)?;
    let took = || numbers.iter().copied().zip(&took);
    let of_default = took().find(|it| it.0 == default).map(|it| it.1);
    let best = took().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    Ok(match (best, of_default) {
        (Some((best, took)), Some(of_default)) if took.gains_on(of_default) => best,
        _ => default,
    })
}

/// What one choice took, in repeated measurements.
#[derive(Clone, Copy, Debug)]
struct Took {
    median: f64,
    /// From the fastest to the slowest but one: what disturbs a measurement makes it slower.
    spread: f64,
}

impl Took {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |at: usize| times.get(at).copied().unwrap_or(f64::INFINITY);
        let spread = at(times.len().saturating_sub(2)) - at(0);
        Self { median: at(times.len() / 2), spread }
    }

    /// Whether it is faster by more than either differs from itself.
    fn gains_on(&self, other: &Self) -> bool {
        other.median - self.median > self.spread.max(other.spread)
    }
}

/// Measures each choice once a round, beginning with another in each.
fn in_turns<T: Copy>(
    choices: &[T],
    mut ns: impl FnMut(T) -> Result<f64, BenchError>,
) -> Result<Vec<Took>, BenchError> {
    let mut took = vec![Vec::with_capacity(ROUNDS); choices.len()];
    for round in 0..ROUNDS {
        for turn in 0..choices.len() {
            let at = (round + turn) % choices.len();
            took[at].push(ns(choices[at])?);
        }
    }
    Ok(took.into_iter().map(Took::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that each number takes, and what the same differs by from round to round.
    fn picked(times: [f64; 4], noise: f64) -> u32 {
        let mut calls = 0;
        let time = |number: u32| {
            calls += 1;
            Ok(times[number.trailing_zeros() as usize] + noise * f64::from(calls % 3))
        };
        pick(&[1, 2, 4, 8], 2, time).expect("measured")
    }

    #[test]
    fn a_number_is_picked_only_if_it_gains_more_than_the_same_differs_by() {
        assert_eq!(picked([200.0, 100.0, 60.0, 150.0], 10.0), 4);
        assert_eq!(picked([200.0, 100.0, 95.0, 99.0], 10.0), 2, "that is noise");
        assert_eq!(picked([200.0, 100.0, 95.0, 99.0], 1.0), 4);
        assert_eq!(picked([100.0; 4], 10.0), 2);
    }

    #[test]
    fn what_is_kept_is_what_the_library_takes_by_itself() {
        let usual = pontoon::comm::Settings::default();
        let TunedRing { depth, batch, rings } = DEFAULT;
        assert_eq!((usual.depth, usual.batch, usual.rings), (depth, batch, rings));
    }

    #[test]
    fn a_round_that_was_slow_does_not_decide() {
        let mut calls = 0;
        let slow_once = |number: u32| {
            calls += 1;
            Ok(if calls == 1 { 1e9 } else { f64::from(number) })
        };
        assert_eq!(pick(&[1, 2], 2, slow_once).expect("measured"), 1);
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
        let found = found.expect("measured");
        assert_eq!(found.ring, TunedRing { depth: 4096, batch: 8, rings: 2 });
        assert!(found.gain.is_some_and(|gain| gain > 2.0), "{found:?}");
    }

    #[test]
    fn what_was_lucky_once_is_not_kept() {
        // One depth looks good while depths are compared, and is as slow as the default afterwards.
        let mut calls = 0;
        let found = search(|ring| {
            calls += 1;
            let is_lucky = ring.depth == 64 && calls <= DEPTHS.len() * ROUNDS;
            Ok(if is_lucky { 50.0 } else { 100.0 + f64::from(calls as u32 % 2) })
        });
        let found = found.expect("measured");
        assert_eq!((found.ring, found.gain), (DEFAULT, None));
        assert!(found.spread > 0.0);
    }
}
