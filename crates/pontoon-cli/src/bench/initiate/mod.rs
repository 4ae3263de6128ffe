//! `bench initiate`: a message that a kernel sends by itself, beside one that the host sends for it.
//!
//! A kernel on rank 0's device computes a message and decides to send it. *direct* and *ring*: the
//! kernel puts it and its signal, by stores in rank 1's memory or by a task for the proxy. *triggered*:
//! the host has prepared both, and the kernel fires them. *host*: the kernel ends, the host's thread waits for the fence of its command, then puts both. A latency
//! is from the decision, in the kernel, until rank 1's waiter has acquired the signal, by the clock
//! that both processes have in common. Each message begins once the one before was answered.
//!
//! The kernel fills the whole message before it decides, so its bytes are in its core's cache for
//! all ways. `host_cpu` is what all threads of rank 0's process take for a message: that work, and their
//! polls until the answer is there, which with two CPUs keep each other waiting.
//!
//! In `throughput` a kernel sends all messages, 16 of them under way; the host needs a kernel for
//! each, for only a command's end tells it that bytes are ready, and has 16 in work as well.
//!
//! Rank 1 waits on a CPU of its own and spins. Of rank 0 the kernel, the proxy and the host's thread
//! have each a CPU of its own if there are four; the proxy still has one if there are three; with two
//! they share one, and the latencies of *ring* and *host* have changes of thread in them. In
//! `throughput` rank 1 sleeps until all has come, and with two CPUs the proxy has its CPU.
//!
//! `side.rs` is a rank and what the receiving one does, `initiator.rs` the sending one, `kernels.rs`
//! what runs on its device, `step.rs` the word for what both do next.

mod initiator;
mod kernels;
pub(super) mod side;
pub(crate) mod step;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use super::{
    BenchError, Options, Rounds,
    link::TCP,
    pin::CpuPair,
    print, print_ratio,
    ranks::{What, pair::Pair},
    skip,
};
use crate::figures::{Printer, Samples, Unit};
use step::{Before, Led, Step};

/// Messages by name and bytes, and how many a round has, over shared memory and over UCX.
const SIZES: [(&str, u32, [u32; 2]); 8] = [
    ("8B", 8, [20, 20]),
    ("64B", 64, [20, 20]),
    ("512B", 512, [20, 20]),
    ("4KiB", 4 << 10, [20, 20]),
    ("64KiB", 64 << 10, [10, 10]),
    ("1MiB", 1 << 20, [5, 3]),
    ("4MiB", 4 << 20, [3, 3]),
    ("64MiB", 64 << 20, [1, 0]),
];
/// Messages of which many are under way, and how many a round has, likewise.
const LOADS: [(&str, u32, [u32; 2]); 3] = [
    ("8B", 8, [20_000, 2_000]),
    ("4KiB", 4 << 10, [10_000, 1_000]),
    ("64KiB", 64 << 10, [500, 100]),
];
/// Pairs of ranks: how far a line is from two CPUs depends on where it lies.
const SITTINGS: usize = 3;

/// A way between the ranks.
struct Over {
    name: &'static str,
    ucx: Option<&'static [(&'static str, &'static str)]>,
    /// How messages can be sent on it.
    leds: &'static [Led],
}

const SHM: Over = Over { name: "initiate", ucx: None, leds: &Led::ALL };
/// Memory is not mapped: no kernel stores in it.
const UCX_TCP: Over = Over {
    name: "initiate/ucx-tcp",
    ucx: Some(TCP.variables),
    leds: &[Led::Ring, Led::Auto, Led::Host, Led::Triggered],
};

impl Over {
    /// Which of two counts is for it.
    fn which_count(&self) -> usize {
        usize::from(self.ucx.is_some())
    }
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let Some(cpus) = CpuPair::usable()? else {
        return skip(printer, "initiate", "two ranks need two CPUs; this process may use one");
    };
    let rounds = if options.quick {
        Rounds { least: 2, most: 20, time: Duration::from_millis(100) }
    } else {
        Rounds { least: 5, most: 200, time: Duration::from_millis(700) }
    };
    for over in [&SHM, &UCX_TCP] {
        measure(over, cpus, rounds, printer)?;
    }
    Ok(())
}

/// Of one size the latencies of each way, and processor time.
#[derive(Default)]
struct Measured {
    took: [Samples; Led::ALL.len()],
    cpu: [Samples; Led::ALL.len()],
}

/// All that is measured over one link.
#[derive(Default)]
struct Series {
    latencies: [Measured; SIZES.len()],
    rates: [[Samples; Led::ALL.len()]; LOADS.len()],
    in_use: Samples,
    depth: Samples,
    overshoot: Samples,
}

fn measure<W: Write>(
    over: &Over,
    cpus: CpuPair,
    rounds: Rounds,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    let mut series = Series::default();
    for sitting in 0..SITTINGS {
        for what in [What::Initiate, What::Stream] {
            let mut pair = match Pair::start(what, cpus, over.ucx)? {
                Ok(pair) => pair,
                Err(why) => return skip(printer, over.name, &why),
            };
            if what == What::Initiate {
                series.one_by_one(over, &mut pair, sitting, rounds)?;
            } else {
                series.together(over, &mut pair, sitting, rounds)?;
            }
        }
    }
    series.print(over, printer)
}

impl Series {
    /// The rounds in which a message begins once the one before was answered.
    fn one_by_one(
        &mut self,
        over: &Over,
        pair: &mut Pair,
        sitting: usize,
        rounds: Rounds,
    ) -> Result<(), BenchError> {
        for ((_, bytes, counts), measured) in SIZES.into_iter().zip(&mut self.latencies) {
            let count = counts[over.which_count()];
            if count == 0 {
                continue;
            }
            in_turns(over.leds, sitting, rounds, |led| {
                let messages = Step::Messages { led, bytes, count };
                let [took, cpu] = pair.run([messages, Step::Ask(Before::Cpu)].map(Step::word))?;
                measured.took[led as usize].push(took)?;
                Ok(measured.cpu[led as usize].push(cpu)?)
            })?;
        }
        if over.ucx.is_none() {
            for _ in 0..rounds.least {
                let [beyond] = pair.run([Step::DeadProxy.word()])?;
                self.overshoot.push(beyond)?;
            }
        }
        Ok(())
    }

    /// The rounds in which many are under way.
    fn together(
        &mut self,
        over: &Over,
        pair: &mut Pair,
        sitting: usize,
        rounds: Rounds,
    ) -> Result<(), BenchError> {
        for ((_, bytes, counts), rates) in LOADS.into_iter().zip(&mut self.rates) {
            let count = counts[over.which_count()];
            in_turns(over.leds, sitting, rounds, |led| {
                let (load, used) = (Step::Load { led, bytes, count }, Step::Ask(Before::Use));
                let steps = [used, load, used, Step::Ask(Before::Depth)];
                let [_, rate, used, deepest] = pair.run(steps.map(Step::word))?;
                rates[led as usize].push(rate)?;
                if led == Led::Ring && bytes == LOADS[0].1 {
                    self.in_use.push(used)?;
                    self.depth.push(deepest)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn print<W: Write>(&self, over: &Over, printer: &mut Printer<W>) -> Result<(), BenchError> {
        for ((size, ..), measured) in SIZES.into_iter().zip(&self.latencies) {
            report(over, size, measured, printer)?;
        }
        for ((size, ..), rates) in LOADS.into_iter().zip(&self.rates) {
            for led in fixed(over) {
                let name = format!("{}/throughput/{size}/{}", over.name, led.name());
                print(printer, name, Unit::MessagesPerS, &rates[led as usize])?;
            }
        }
        print(printer, format!("{}/proxy/use", over.name), Unit::Percent, &self.in_use)?;
        print(printer, format!("{}/proxy/depth", over.name), Unit::Tasks, &self.depth)?;
        if over.ucx.is_none() {
            let name = format!("{}/dead_proxy/overshoot", over.name);
            print(printer, name, Unit::Ns, &self.overshoot)?;
        }
        Ok(())
    }
}

/// Has each way measure once a round, beginning with another in each: with number `first` in the first.
fn in_turns(
    leds: &[Led],
    first: usize,
    rounds: Rounds,
    mut measure: impl FnMut(Led) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let start = Instant::now();
    for round in 0.. {
        for turn in 0..leds.len() {
            measure(leds[(first + round + turn) % leds.len()])?;
        }
        if rounds.are_over(round + 1, start) {
            break;
        }
    }
    Ok(())
}

/// The ways that say how they go.
fn fixed(over: &Over) -> impl Iterator<Item = Led> + use<'_> {
    over.leds.iter().copied().filter(|&led| led != Led::Auto)
}

/// Those of them that a port can choose between.
fn of_ports(over: &Over) -> impl Iterator<Item = Led> + use<'_> {
    fixed(over).filter(|led| matches!(led, Led::Direct | Led::Ring))
}

fn report<W: Write>(
    over: &Over,
    size: &str,
    measured: &Measured,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    let took = |led: Led| &measured.took[led as usize];
    if took(Led::Host).rounds() == 0 {
        return Ok(());
    }
    let name = format!("{}/{size}", over.name);
    for led in fixed(over) {
        print(printer, format!("{name}/{}", led.name()), Unit::Ns, took(led))?;
    }
    let best = took(best(of_ports(over), &measured.took));
    print_ratio(printer, format!("{name}/ratio/host"), took(Led::Host), best)?;
    print_ratio(printer, format!("{name}/auto/ratio/best"), took(Led::Auto), best)?;
    for led in fixed(over) {
        let cpu = &measured.cpu[led as usize];
        print(printer, format!("{name}/host_cpu/{}", led.name()), Unit::Ns, cpu)?;
    }
    Ok(())
}

/// The way with the lowest median, for the whole run: the better one of each round would be one that
/// was lucky.
fn best(leds: impl Iterator<Item = Led>, took: &[Samples]) -> Led {
    let median = |led: &Led| {
        let figure = took[*led as usize].figure("", Unit::Ns);
        figure.map_or(f64::INFINITY, |figure| figure.median)
    };
    leds.min_by(|a, b| median(a).total_cmp(&median(b))).unwrap_or(Led::Ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for &value in values {
            samples.push(value).expect("finite");
        }
        samples
    }

    #[test]
    fn the_best_way_is_that_of_the_lower_median_of_those_that_a_port_has() {
        let of = |direct: &[f64], ring: &[f64]| {
            [direct, ring, &[2.0; 3], &[1.0; 3], &[1.0; 3]].map(samples)
        };
        let took = of(&[5.0, 5.0, 1.0], &[4.0, 4.0, 9.0]);
        assert_eq!(best(of_ports(&SHM), &took), Led::Ring);
        let took = of(&[3.0, 3.0, 9.0], &[4.0; 3]);
        assert_eq!(best(of_ports(&SHM), &took), Led::Direct);
        assert_eq!(best(of_ports(&UCX_TCP), &took), Led::Ring);
    }

    #[test]
    fn each_way_begins_a_round_in_turn() {
        let mut order = Vec::new();
        let two = Rounds { least: 2, most: 2, time: Duration::ZERO };
        in_turns(&[Led::Ring, Led::Host], 1, two, |led| {
            order.push(led);
            Ok(())
        })
        .expect("measured");
        assert_eq!(order, [Led::Host, Led::Ring, Led::Ring, Led::Host]);
    }

    #[test]
    fn the_ratios_are_over_the_best_of_the_kernels() {
        let mut measured = Measured::default();
        let values = [2.0, 8.0, 3.0, 6.0, 7.0];
        measured.took = values.map(|value| samples(&[value]));
        measured.cpu = values.map(|value| samples(&[10.0 * value]));
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, crate::figures::Format::Json);
        report(&SHM, "8B", &measured, &mut printer).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        for (name, median) in [
            ("direct", 2.0),
            ("ring", 8.0),
            ("host", 6.0),
            ("ratio/host", 3.0),
            ("auto/ratio/best", 1.5),
            ("host_cpu/host", 60.0),
            ("triggered", 7.0),
            ("host_cpu/triggered", 70.0),
        ] {
            let line = text.lines().find(|line| line.contains(&format!("\"initiate/8B/{name}\"")));
            let line = line.expect(name);
            assert!(line.contains(&format!("\"median\": {median:.1}")), "{line}");
        }
        assert_eq!(text.lines().count(), 10);
    }
}
