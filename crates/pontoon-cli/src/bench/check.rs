//! `bench check`: what it costs that a missing edge is noticed.
//!
//! `intervals` is a checked submission whose four accesses fall into random places of a buffer of
//! which so many parts were touched by different commands, over queues that only count.
//!
//! `step` is a step of `pontoon train` with its edges checked, and with the same edges trusted; both
//! train the same network to the same digest. There the host is ahead of the devices, and what it
//! does about edges takes no time of theirs.

use std::{
    io::Write,
    ops::Range,
    time::{Duration, Instant},
};

use pontoon::{
    Buffer, Edges, Patience, Rank, Refusal, Session, StreamId,
    hal::{ACCESSES_MAX, Engine},
};

use super::{
    BenchError, Options, Rounds,
    pin::CpuPair,
    print, print_ratio,
    submit::{NullDevice, NullMemory, apart, in_turns},
    work::fill,
};
use crate::{
    figures::{Printer, Samples, Unit},
    train::Trial,
};

/// Numbers of parts that a buffer is touched in.
const PARTS: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Elements of a part.
const PART: usize = 8;
/// Submissions that are timed together.
const BLOCK: usize = 128;
/// Accesses of one.
const ACCESSES: usize = 4;
/// Numbers of devices of a job.
const DEVICES: [u32; 2] = [4, 2];
/// The longest that anything here may take before the measurement gives up.
const PATIENCE: Duration = Duration::from_secs(10);

fn rounds(options: &Options, least: usize, most: usize, time: Duration) -> Rounds {
    if options.quick {
        Rounds { least, most: most / 3, time: time / 3 }
    } else {
        Rounds { least: 2 * least, most, time }
    }
}

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    let limits = rounds(options, 10, 1500, Duration::from_millis(2400));
    let samples = apart(CpuPair::usable()?, || intervals(limits))?;
    for (parts, samples) in PARTS.into_iter().zip(&samples) {
        print(printer, format!("check/intervals/{parts}"), Unit::Ns, samples)?;
    }
    let [few, .., many] = &samples;
    print_ratio(printer, "check/intervals/growth", many, few)?;

    let limits = rounds(options, 3, 180, Duration::from_secs(6));
    let [four, two] = steps(limits)?;
    for (devices, [check, trust]) in DEVICES.into_iter().zip([&four, &two]) {
        print(printer, format!("check/step/check/{devices}"), Unit::Ms, check)?;
        print(printer, format!("check/step/trust/{devices}"), Unit::Ms, trust)?;
    }
    let [[check, trust], [check_two, trust_two]] = [&four, &two];
    print_ratio(printer, "check/step/ratio/trust", check, trust)?;
    print_ratio(printer, "check/step/ratio/trust/2", check_two, trust_two)
}

fn intervals(limits: Rounds) -> Result<[Samples; PARTS.len()], BenchError> {
    let ranks: [u32; PARTS.len()] = std::array::from_fn(|rank| rank as u32);
    let devices = ranks.map(|rank| NullDevice::new(Rank(rank)));
    let mut buffers = Vec::with_capacity(PARTS.len());
    for (device, parts) in devices.iter().zip(PARTS) {
        buffers.push(Parted::open(device, parts)?);
    }
    let samples = in_turns(limits, |which| buffers[which].submission())?;
    for buffer in &mut buffers {
        buffer.verify()?;
    }
    Ok(samples)
}

/// A buffer that was touched in parts.
struct Parted<'d> {
    device: &'d NullDevice,
    session: Session<'d, NullDevice>,
    stream: StreamId,
    other: StreamId,
    buffer: Buffer<NullMemory, u64>,
    parts: usize,
    round: u64,
}

impl<'d> Parted<'d> {
    fn open(device: &'d NullDevice, parts: usize) -> Result<Self, BenchError> {
        let mut session = Session::new(Edges::Check).with_patience(Patience::within(PATIENCE));
        let stream = session.stream(device, Engine::Compute, "own")?;
        let other = session.stream(device, Engine::Compute, "other")?;
        let buffer = Buffer::allocate(device, parts * PART)?;
        let mut this = Self { device, session, stream, other, buffer, parts, round: 0 };
        // Neighbours are touched by different commands, so that they stay apart.
        let commands = parts.div_ceil(ACCESSES_MAX);
        for command in 0..commands {
            let own = (command..parts).step_by(commands);
            let accesses = own.map(|part| this.buffer.write(elements(part)));
            drop(this.session.launch(stream, "touch", &(), accesses, [])?);
            if command % BLOCK == 0 {
                this.complete()?;
            }
        }
        this.complete()?;
        Ok(this)
    }

    /// Nanoseconds of a submission that reads two parts and writes two others.
    fn submission(&mut self) -> Result<f64, BenchError> {
        self.round += 1;
        let parts = self.random(BLOCK);
        let before = self.session.counts();
        let start = Instant::now();
        for [a, b, c, d] in &parts {
            let Self { session, buffer, .. } = self;
            let accesses = [
                buffer.read(elements(*a)),
                buffer.read(elements(*b)),
                buffer.write(elements(*c)),
                buffer.write(elements(*d)),
            ];
            drop(session.launch(self.stream, "touch", &(), accesses, [])?);
        }
        let ns = start.elapsed().as_nanos() as f64 / BLOCK as f64;
        let after = self.session.counts();
        self.complete()?;
        let submitted = after.commands - before.commands;
        BenchError::unless_equal("commands submitted", BLOCK as u64, submitted)?;
        Ok(ns)
    }

    /// Each access falls into another quarter of the buffer.
    fn random(&self, count: usize) -> Vec<[usize; ACCESSES]> {
        let mut words = vec![0; count * ACCESSES];
        fill(&mut words, self.round, 0);
        let quarter = self.parts / ACCESSES;
        let in_quarters =
            |words: &[u64]| std::array::from_fn(|at| at * quarter + words[at] as usize % quarter);
        words.chunks(ACCESSES).map(in_quarters).collect()
    }

    fn complete(&mut self) -> Result<(), BenchError> {
        self.device.complete();
        Ok(self.session.drain(self.stream, Patience::within(PATIENCE))?)
    }

    /// Fails unless the session still tells the parts apart: what it refuses is one of them.
    fn verify(&mut self) -> Result<(), BenchError> {
        let [[.., part]] = self.random(1)[..] else { return Err(BenchError::OutOfStep) };
        let own = self.buffer.write(elements(part));
        drop(self.session.launch(self.stream, "touch", &(), [own], [])?);
        let refused = self.session.launch(self.other, "all", &(), [self.buffer.write(..)], []);
        let Err(Refusal::Missing(missing)) = refused else {
            return Err(BenchError::Count { what: "missing edges", expected: 1, found: 0 });
        };
        let bytes = elements(part);
        let bytes = [bytes.start, bytes.end].map(|at| (at * size_of::<u64>()) as u64);
        BenchError::unless_equal("is where a missing edge begins", bytes[0], missing.range.start)?;
        BenchError::unless_equal("is where a missing edge ends", bytes[1], missing.range.end)
    }
}

fn elements(part: usize) -> Range<usize> {
    part * PART..(part + 1) * PART
}

/// Milliseconds a step with edges checked and trusted, for each number of devices.
fn steps(limits: Rounds) -> Result<[[Samples; 2]; DEVICES.len()], BenchError> {
    let [four, two] = DEVICES.map(Trial::new);
    let trials = [four?, two?];
    let mut digest = None;
    let [a, b, c, d] = in_turns(limits, |which| {
        let edges = if which % 2 == 0 { Edges::Check } else { Edges::Trust };
        let (step_ms, found) = trials[which / 2].measure(edges)?;
        let expected = *digest.get_or_insert(found);
        if expected != found {
            return Err(BenchError::Checksum { what: "a trained network", expected, found });
        }
        Ok(step_ms)
    })?;
    Ok([[a, b], [c, d]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_what_it_is_named_after() {
        let few = Rounds { least: 2, most: 2, time: Duration::ZERO };
        let samples = intervals(few).expect("measured and checked");
        assert!(samples.iter().all(|samples| samples.rounds() == 2));
        let samples = steps(few).expect("measured and checked");
        assert!(samples.iter().flatten().all(|samples| samples.rounds() == 2));
    }
}
