//! `bench link`: a put and its signal from rank to rank, beside what the machine and UCX take for it.
//!
//! Two processes of one job play ping-pong by the public calls: a put and a signal there, the same
//! back; half of that is one way. Over shared memory the rivals run in the same processes: 8 bytes
//! and a release store to another line with a bare spin, and, for larger payloads, the bare copy of
//! as many bytes added to half a round trip of a bare flag. Over UCX the rival is `ucx_perftest`
//! with the same variables, started anew in each round; both spin, and both give the median of single
//! trips. There its put is its own signal, and ours is followed by one.
//!
//! `side.rs` is what the two ranks do, `step.rs` the word for it, `perftest.rs` the rival.

mod perftest;
pub(super) mod side;
mod step;

use std::{
    env,
    io::Write,
    time::{Duration, Instant},
};

use super::{
    BenchError, Options, Rounds,
    pin::CpuPair,
    print, print_ratio,
    ranks::{What, pair::Pair},
    skip,
};
use crate::figures::{Printer, Samples, Unit};
use perftest::{Refused, Test};
use step::Step;

/// The largest payload.
const LARGEST: usize = 4 << 20;
/// Payloads by name and bytes.
const SIZES: [(&str, u32); 3] = [("8B", 8), ("4KiB", 4096), ("4MiB", LARGEST as u32)];
/// How long a wait of the idle lasts, and how many there are.
const IDLE_MS: u32 = 2000;
const IDLE_ROUNDS: usize = 3;

/// A way over UCX.
pub(crate) struct Ucx {
    pub(super) name: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// Trips a round, by size; puts of a stream.
    trips: [u32; 3],
    puts: u32,
}

pub(crate) const TCP: Ucx = Ucx {
    name: "ucx-tcp",
    variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")],
    trips: [500, 500, 20],
    puts: 60,
};
const SHM: Ucx = Ucx {
    name: "ucx-shm",
    variables: &[("UCX_TLS", "posix,self")],
    trips: [10_000, 5_000, 50],
    puts: 200,
};

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return skip(printer, "link", "a ping-pong needs two CPUs; this process may use one");
    };
    shm(cpus, options, printer)?;
    for way in [&TCP, &SHM] {
        ucx(way, cpus, options, printer)?;
    }
    Ok(())
}

/// What a round over shared memory measures of each size, ours beside its rivals.
const fn shm_steps(bytes: u32, trips: u32) -> [Step; 4] {
    [
        Step::Put { bytes, trips },
        Step::Raw { bytes, trips },
        Step::Flag { trips: SHM_TRIPS[0] },
        Step::Copy { bytes, times: trips },
    ]
}

/// Trips a round, by size.
const SHM_TRIPS: [u32; 3] = [100, 100, 5];
/// Pairs of ranks.
const SITTINGS: usize = 6;
/// Rounds whose figures are not kept.
const WARM_UP: usize = 2;

fn shm<W: Write>(
    cpus: CpuPair,
    options: &Options,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    let rounds = if options.quick {
        Rounds { least: 3, most: 60, time: Duration::from_millis(500) }
    } else {
        Rounds { least: 5, most: 250, time: Duration::from_secs(2) }
    };
    let mut series = [(); 3].map(|()| [(); 3].map(|()| Samples::default()));
    // How far a line is from both CPUs depends on where it lies: so the ranks are started anew, and
    // have other memory, a few times.
    for _ in 0..SITTINGS {
        let mut pair = match Pair::start(What::Link, cpus, None)? {
            Ok(pair) => pair,
            Err(why) => return skip(printer, "link/shm", &why),
        };
        verify(&mut pair)?;
        sit(&mut pair, rounds, &mut series)?;
    }
    for ((size, bytes), [ours, raw, memcpy]) in SIZES.iter().zip(&series) {
        let name = format!("link/shm/put_signal/{size}");
        print(printer, &name, Unit::Ns, ours)?;
        print(printer, format!("{name}/raw"), Unit::Ns, raw)?;
        print_ratio(printer, format!("{name}/ratio/raw"), ours, raw)?;
        // A word is no copy to speak of.
        if *bytes > 8 {
            print(printer, format!("{name}/memcpy"), Unit::Ns, memcpy)?;
            print_ratio(printer, format!("{name}/ratio/memcpy"), ours, memcpy)?;
        }
    }
    match Pair::start(What::Link, cpus, None)? {
        Ok(mut pair) => idle(&mut pair, "link/idle/cpu/shm", printer),
        Err(why) => skip(printer, "link/idle/cpu/shm", &why),
    }
}

/// The rounds of one pair of ranks: of each size ours, and both rivals.
fn sit(pair: &mut Pair, rounds: Rounds, series: &mut [[Samples; 3]; 3]) -> Result<(), BenchError> {
    let start = Instant::now();
    for round in 0.. {
        let kept = (round + 1usize).saturating_sub(WARM_UP);
        for (at, [ours, raw, memcpy]) in series.iter_mut().enumerate() {
            let steps = shm_steps(SIZES[at].1, SHM_TRIPS[at]);
            let [put, bare, flag, copy] = pair.run(steps.map(Step::word))?;
            if kept > 0 {
                ours.push(put)?;
                raw.push(bare)?;
                memcpy.push(flag + copy)?;
            }
        }
        if rounds.are_over(kept, start) {
            return Ok(());
        }
    }
    Ok(())
}

fn ucx<W: Write>(
    way: &Ucx,
    cpus: CpuPair,
    options: &Options,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    let name = format!("link/{}", way.name);
    let mut pair = match Pair::start(What::Link, cpus, Some(way.variables))? {
        Ok(pair) => pair,
        Err(why) => {
            skip(printer, &name, &why)?;
            return if way.name == TCP.name { skip(printer, IDLE, &why) } else { Ok(()) };
        }
    };
    verify(&mut pair)?;
    let rounds = if options.quick { 3 } else { 9 };
    for ((size, bytes), trips) in SIZES.into_iter().zip(way.trips) {
        let name = format!("{name}/put_signal/{size}");
        let test = Test { name: "ucp_put_lat", bytes, iterations: trips };
        let mut ours = || Ok(pair.run([Step::PutEach { bytes, trips }.word()])?[0]);
        let theirs = || Ok(perftest::run(test, cpus, way.variables)?.median_us * 1e3);
        let series = by_turns(rounds, &mut ours, theirs)?;
        print(printer, &name, Unit::Ns, &series.ours)?;
        series.print(printer, &name, Unit::Ns)?;
    }
    let (bytes, puts, name) = (LARGEST as u32, way.puts, format!("{name}/put/4MiB/bandwidth"));
    let test = Test { name: "ucp_put_bw", bytes, iterations: puts };
    let mut ours =
        || Ok(1e3 * f64::from(bytes) / pair.run([Step::Stream { bytes, puts }.word()])?[0]);
    let theirs = || Ok(f64::from(bytes) / perftest::run(test, cpus, way.variables)?.overall_us);
    let series = by_turns(rounds, &mut ours, theirs)?;
    print(printer, &name, Unit::MbPerS, &series.ours)?;
    series.print(printer, &name, Unit::MbPerS)?;
    if way.name == TCP.name { idle(&mut pair, IDLE, printer) } else { Ok(()) }
}

const IDLE: &str = "link/idle/cpu";

/// The rank that takes more, of both.
fn idle<W: Write>(pair: &mut Pair, name: &str, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let mut samples = Samples::default();
    for _ in 0..IDLE_ROUNDS {
        samples.push(pair.run([Step::Idle { ms: IDLE_MS }.word()])?[0])?;
    }
    print(printer, name, Unit::Percent, &samples)
}

/// Every size arrives whole, both ways, once.
fn verify(pair: &mut Pair) -> Result<(), BenchError> {
    pair.run(SIZES.map(|(_, bytes)| Step::Verify { bytes }.word())).map(|_| ())
}

/// Ours, and the rival's round by round, unless it gave none.
struct Series {
    ours: Samples,
    theirs: Result<Samples, Refused>,
}

/// So many rounds of both, which take turns in beginning.
fn by_turns(
    rounds: usize,
    ours: &mut dyn FnMut() -> Result<f64, BenchError>,
    theirs: impl Fn() -> Result<f64, Refused>,
) -> Result<Series, BenchError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let theirs_or_why = perftest::installed_in(&path).map(|()| Samples::default());
    let mut series = Series { ours: Samples::default(), theirs: theirs_or_why };
    take_turns(&mut series, rounds, ours, theirs)?;
    Ok(series)
}

fn take_turns(
    series: &mut Series,
    rounds: usize,
    ours: &mut dyn FnMut() -> Result<f64, BenchError>,
    theirs: impl Fn() -> Result<f64, Refused>,
) -> Result<(), BenchError> {
    for round in 0..rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                series.ours.push(ours()?)?;
            } else if let Ok(samples) = &mut series.theirs {
                match theirs() {
                    Ok(value) => samples.push(value)?,
                    Err(refused) => series.theirs = Err(refused),
                }
            }
        }
    }
    Ok(())
}

impl Series {
    /// Prints the rival's, and the ratio.
    fn print<W: Write>(
        &self,
        printer: &mut Printer<W>,
        name: &str,
        unit: Unit,
    ) -> Result<(), BenchError> {
        let ratio = format!("{name}/ratio/ucx_perftest");
        match &self.theirs {
            Err(refused) => skip(printer, &ratio, &refused.to_string()),
            Ok(theirs) => {
                print(printer, format!("{name}/ucx_perftest"), unit, theirs)?;
                print_ratio(printer, ratio, &self.ours, theirs)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, ffi::OsStr};

    use super::*;
    use crate::figures::Format;

    fn printed(series: &Series) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, Format::Json);
        series.print(&mut printer, "link/x", Unit::Ns).expect("written");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_rival_that_is_not_there_is_told_with_its_package() {
        let absent = perftest::installed_in(OsStr::new("")).expect_err("nowhere");
        let series = Series { ours: Samples::default(), theirs: Err(absent) };
        assert_eq!(
            printed(&series),
            "{\"name\": \"link/x/ratio/ucx_perftest\", \"skipped\": \"ucx_perftest is not installed: \
             apt install ucx-utils\"}\n"
        );
    }

    #[test]
    fn turns_alternate_and_a_rival_that_fails_is_left_out_from_there_on() {
        let order = Cell::new(String::new());
        let note = |who| order.set(order.take() + who);
        let ours = |value: f64| {
            note("a");
            Ok(value)
        };
        let start = || Series { ours: Samples::default(), theirs: Ok(Samples::default()) };
        let mut series = start();
        take_turns(&mut series, 3, &mut || ours(4.0), || {
            note("b");
            Ok(2.0)
        })
        .expect("measured");
        assert_eq!(order.take(), "abbaab");
        let text = printed(&series);
        assert!(
            text.contains("\"link/x/ratio/ucx_perftest\", \"unit\": \"x\", \"median\": 2.0"),
            "{text}"
        );
        let mut series = start();
        take_turns(&mut series, 3, &mut || ours(4.0), || {
            note("b");
            Err(Refused::TooLong)
        })
        .expect("ours alone");
        assert_eq!((&*order.take(), series.ours.rounds()), ("abaa", 3));
        assert!(printed(&series).contains("did not end within"), "{}", printed(&series));
    }
}
