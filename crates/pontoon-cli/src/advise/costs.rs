//! What each way costs on this machine.

use crate::{
    bench::{
        BenchError,
        link::TCP,
        pin::CpuPair,
        ranks::{What, pair::Pair},
        smc::step::{How, Step},
    },
    figures::{Samples, Unit},
};

/// Pages that are touched at random, or released, in one go.
const SOME: u32 = 256;
/// Pages that are read in order.
const ALL: u32 = 4096;
/// Bytes of a bulk read.
const BULK: f64 = (4 << 20) as f64;
const ROUNDS: usize = 5;

/// Nanoseconds, as medians of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// The link over which they were measured.
    pub(super) over: &'static str,
    /// A remote read of 64 bytes.
    pub(super) remote: f64,
    /// What each byte of a large remote read takes.
    pub(super) remote_byte: f64,
    /// A page of a window that is touched for the first time, at random.
    pub(super) miss: f64,
    /// The same of pages that are read in order.
    pub(super) in_order: f64,
    /// 64 bytes of a window, or of any memory, again.
    pub(super) again: f64,
    /// A page that has changed, to send home what did.
    pub(super) release: f64,
}

impl Costs {
    /// Measures between two processes, over TCP if they stand for two hosts. The inner error says what is missing here.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    pub(super) fn measure(is_remote: bool) -> Result<Result<Self, String>, BenchError> {
        let Some(cpus) = CpuPair::usable()? else {
            return Ok(Err("two ranks need two CPUs; this process may use one".into()));
        };
        let (over, variables) =
            if is_remote { ("tcp", Some(TCP.variables)) } else { ("shm", None) };
        let mut pair = match Pair::start(What::Smc, cpus, variables)? {
            Ok(pair) => pair,
            Err(why) => return Ok(Err(why)),
        };
        let places = SOME;
        let steps = [
            Step::Cold { how: How::Remote, places },
            Step::Bulk(How::Remote),
            Step::Cold { how: How::Smc, places },
            Step::Prefetch { pages: ALL },
            Step::Warm { how: How::Smc, places },
            Step::Release { pages: SOME },
        ];
        let mut samples = steps.map(|_| Samples::default());
        // What home has is mapped once it was read.
        pair.run([Step::Prefetch { pages: ALL }.word()])?;
        for _ in 0..ROUNDS {
            for (step, samples) in steps.iter().zip(&mut samples) {
                let [ns] = pair.run([step.word()])?;
                samples.push(ns)?;
            }
        }
        let median = |samples: &Samples| samples.figure("", Unit::Ns).map_or(0.0, |it| it.median);
        let [remote, bulk, miss, in_order, again, release] = samples.each_ref().map(median);
        Ok(Ok(Self { over, remote, remote_byte: bulk / BULK, miss, in_order, again, release }))
    }
}
