//! What a wait costs on this machine: its polls, its time, a sleep and the wake.

use std::{
    thread,
    time::{Duration, Instant},
};

use pontoon::signal::{Host, Nanos, Os};
use serde::Serialize;

use crate::bench::{
    BenchError,
    pin::CpuPair,
    pingpong::{Kind, Side},
    process::Task,
    sides::{between_processes, between_threads},
};

/// What was measured of one path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// Polls of a wait, the last included.
    pub(crate) tries: Quantiles,
    /// From the first poll until after the fence.
    pub(crate) wait_ns: Quantiles,
    /// From before the publish until a waiter that slept has fenced.
    pub(crate) wake_ns: Quantiles,
    /// A yield of the core that nobody takes.
    pub(crate) yield_ns: f64,
}

/// The value that half of the samples do not exceed, and the one that 99 in 100 do not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Quantiles {
    /// By nearest rank; of no samples they are zero.
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (samples.len() * percent).div_ceil(100);
            samples.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99) }
    }
}

const TRIPS: u32 = 20_000;
/// Trips that are not kept.
const WARM_UP: u32 = 2_000;
const WAKES: u32 = 300;
const YIELDS: u32 = 2_000;
/// Long enough that the other side has gone to sleep.
const ASLEEP: Duration = Duration::from_micros(300);
/// The longest that either part of a measurement goes on for, one trip beyond.
const TIME: Duration = Duration::from_secs(2);
/// Trips that a slow machine or a slow pace takes at least.
const TRIPS_MIN: u32 = 20;

/// Measures waits between threads for a producer that works for `pace` before each publish.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn threads(cpus: CpuPair, pace: Nanos) -> Result<Measured, BenchError> {
    between_threads(cpus, ping, |side| echo(side, pace))
}

/// As [`threads`], between processes.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn processes(cpus: CpuPair, pace: Nanos) -> Result<Measured, BenchError> {
    let task = Task::Tune { pace_ns: pace.0 };
    between_processes(cpus, ping, task)
}

fn ping(side: &mut Side) -> Result<Measured, BenchError> {
    // The other side may still be starting: its answer to the first block is not measured.
    side.ping(Kind::RoundTrip, 1)?;
    let (mut tries, mut waits) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for trip in 0..TRIPS {
        let last = trip + 1 >= TRIPS_MIN && start.elapsed() > TIME;
        if last {
            side.announce_last(trip);
        }
        let (polls, took) = side.ping_counting_polls()?;
        tries.push(polls as f64);
        waits.push(took.0 as f64);
        if last {
            break;
        }
    }
    let warm_up = (WARM_UP as usize).min(tries.len() / 10);
    let mut wakes = Vec::new();
    let start = Instant::now();
    for wake in TRIPS..TRIPS + WAKES {
        thread::sleep(ASLEEP);
        let last = wake >= TRIPS + TRIPS_MIN && start.elapsed() > TIME;
        if last {
            side.announce_last(wake);
        }
        wakes.push(side.ping(Kind::Wake, 1)?);
        if last {
            break;
        }
    }
    let start = Os.now();
    for _ in 0..YIELDS {
        Os.yield_now();
    }
    let yield_ns = Os.now().since(start).0 as f64 / f64::from(YIELDS);
    Ok(Measured {
        tries: Quantiles::of(tries.split_off(warm_up)),
        wait_ns: Quantiles::of(waits.split_off(warm_up)),
        wake_ns: Quantiles::of(wakes),
        yield_ns,
    })
}

/// The other side of the measurement.
///
/// # Errors
///
/// The measuring side did not come.
pub(crate) fn echo(side: &mut Side, pace: Nanos) -> Result<(), BenchError> {
    side.echo(Kind::RoundTrip, 1)?;
    for trip in 0..TRIPS {
        side.echo_at_pace(pace)?;
        if side.was_last(trip) {
            break;
        }
    }
    for wake in TRIPS..TRIPS + WAKES {
        side.echo(Kind::Wake, 1)?;
        if side.was_last(wake) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let hundred = (1..=100).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(hundred), Quantiles { p50: 50.0, p99: 99.0 });
        assert_eq!(Quantiles::of(vec![7.0]), Quantiles { p50: 7.0, p99: 7.0 });
        assert_eq!(Quantiles::of(Vec::new()), Quantiles { p50: 0.0, p99: 0.0 });
    }
}
