//! Data-parallel training of a small network, the job pontoon is shown and measured by.
//!
//! Each step runs the classic graph on every device: a copy brings the batch, two streams prepare
//! it side by side (scaled; shifted by a pixel), a third merges both and computes gradients.
//! Device 0 sums the gradients of all devices in a fixed order and updates. The result is the same
//! bit for bit for any number of devices and any way of keeping the stages in order.

mod data;
mod error;
mod given;
mod job;
mod missing;
mod model;
mod places;
mod plan;
mod profile;
mod progress;
mod ranks;
mod reference;
mod report;
mod rng;
mod taker;
mod trace;
mod trial;
mod way;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use pontoon::{
    Bound, Edges,
    signal::{Between, Profile},
};

pub(crate) use error::TrainError;
pub(crate) use ranks::{WITHOUT_RANKS, ways_to_ranks};
pub(crate) use trace::TraceError;
pub(crate) use trial::Trial;

use data::{Dataset, Split};
use job::Job;
use plan::Plan;
use progress::Progress;
use reference::{Settings, train_reference};
use report::Report;
use trace::{Room, Trace};
use way::{Inject, Run, Way};

use crate::{
    duration::LONGEST,
    number::{whole, within},
    voice,
};

/// The digits that come with pontoon, so that the command works anywhere.
const DIGITS: &[u8] = include_bytes!("../../../../examples/data/digits.csv.gz");
const DIGITS_NAME: &str = "examples/data/digits.csv.gz";
/// The share of the samples that the network is tested on.
const TEST_SHARE: f64 = 0.25;

/// Trains a small network across several devices that hand data to each other by signals.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Devices to train on; more than there are cores is fine.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within(1..=64_u32))]
    devices: u32,
    /// Passes over the training set.
    #[arg(long, value_name = "N", default_value_t = Settings::DEFAULT.epochs, value_parser = within(1..=10_000_u32))]
    epochs: u32,
    /// Samples a step.
    #[arg(long, value_name = "N", default_value_t = Settings::DEFAULT.batch as u32, value_parser = within(1..=65_536_u32))]
    batch: u32,
    /// Decides the split, the first weights, the order of the samples and their shifts.
    #[arg(long, value_name = "N", default_value_t = Settings::DEFAULT.seed, value_parser = |text: &str| whole(text, 0))]
    seed: u64,
    /// CSV or CSV.gz, the label (0..=9) in the last column; the digits that come with pontoon
    /// unless given.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// How the stages are kept in order.
    #[arg(long, value_name = "WAY", default_value = "signals")]
    sync: Way,
    /// Takes the fences for complete: nobody looks whether one is missing.
    #[arg(long, conflicts_with = "auto")]
    trust: bool,
    /// Gives no fences: they are derived from what each command uses.
    #[arg(long)]
    auto: bool,
    /// A fault to put in on purpose: `drop-fence` or `drop-fence=K` (one wait is left out),
    /// `kill-producer` (the last device dies half-way; among ranks, the last of them),
    /// `stop-producer` (the last rank is stopped), `slow-producer`.
    #[arg(long, value_name = "FAULT")]
    inject: Option<Inject>,
    /// The longest that any wait may take, such as 500ms or 2s; what `pontoon tune` chose for
    /// threads unless given, or 2s if it never ran. Among ranks what is chosen is that for processes,
    /// and at least twice --lost-after; if less is given, a wait for a rank that is only slow fails
    /// before it counts as dead.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::bound)]
    bound: Option<Duration>,
    /// Trains on one thread as well and fails if the digests differ.
    #[arg(long)]
    verify: bool,
    /// Where to draw the run in time, for ui.perfetto.dev: what each queue did when, and who waited
    /// for whom.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Prints one JSON object instead of a report for people.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::RankOptions,
}

impl Options {
    /// The samples and the steps.
    fn given(&self) -> Result<Given, TrainError> {
        let data = match &self.data {
            Some(path) => Dataset::load(path)?,
            None => Dataset::from_bytes(DIGITS, Path::new(DIGITS_NAME))?,
        };
        let Split { train, test } = data.split(self.seed, TEST_SHARE);
        let (epochs, batch, seed) = (self.epochs, self.batch as usize, self.seed);
        let settings = Settings { epochs, batch, seed, ..Settings::DEFAULT };
        let plan = Plan::new(&settings, train.len());
        Ok(Given { train: Arc::new(train), test, settings, plan })
    }

    /// Who sees to the fences, if that goes with the rest.
    fn edges(&self) -> Result<Edges, TrainError> {
        let has_fences = self.sync == Way::Signals;
        if let Some(Inject::DropFence(fence)) = self.inject {
            if !has_fences || self.auto {
                return Err(TrainError::Options(
                    "--inject drop-fence needs --sync signals without --auto: there is no other \
                     fence to drop",
                ));
            }
            let fences = way::edges_of(self.devices as usize);
            if fence.is_some_and(|fence| fence >= fences) {
                return Err(TrainError::NoSuchFence { devices: self.devices, last: fences - 1 });
            }
        }
        match (self.auto, self.trust) {
            (false, false) => Ok(Edges::Check),
            _ if !has_fences => Err(TrainError::Options(
                "--auto and --trust need --sync signals: the other ways have no fences",
            )),
            (true, _) => Ok(Edges::Auto),
            (_, true) => Ok(Edges::Trust),
        }
    }
}

/// Trains and prints what came of it. The status.
pub(crate) fn run(options: &Options) -> Result<u8, TrainError> {
    let edges = options.edges()?;
    if options.ranks.is_several() {
        return ranks::run(options, edges);
    }
    run_here(options, edges).map(|()| 0)
}

fn run_here(options: &Options, edges: Edges) -> Result<(), TrainError> {
    if options.inject == Some(Inject::StopProducer) {
        return Err(TrainError::Options("--inject stop-producer is for ranks: see --procs"));
    }
    let Given { train, test, settings, plan } = options.given()?;
    let trace = options.trace.as_deref().map(Trace::create).transpose()?;
    let room = trace.as_ref().map_or(Room::default(), |_| Room::of(&plan, options.devices));
    let job = Job::open(options.devices, Arc::clone(&train), settings, &plan, room.spans)?;

    let progress = Progress::new(plan.steps());
    if let Some(inject) = options.inject {
        progress.warn(&inject.told(options.devices - 1));
    }
    let (bound, inject) =
        (options.bound.unwrap_or_else(|| tuned(Between::Threads)), options.inject);
    let timeline = Mutex::default();
    let (added, observe, progress) = (Vec::new(), false, &progress);
    let (job, plan, moments, keep) = (&job, &plan, room.moments, &timeline);
    let run = Run { job, plan, edges, bound, inject, added, observe, progress, moments, keep };
    let started = Instant::now();
    let ran = way::run(options.sync, &run);
    let wall = started.elapsed();
    progress.finish();
    // What nobody looked for at submit is looked for now.
    let missing = match inject {
        Some(inject @ Inject::DropFence(_)) if edges == Edges::Trust => {
            Some(missing::look_for(&train, &settings, options.devices, bound, inject)?.to_string())
        }
        _ => None,
    };
    let timeline = timeline.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Of a run that failed too: that is when one wants to look.
    let written = trace.map(|trace| trace.write(job.runtime.devices(), &timeline));
    let ran = ran.inspect_err(|_| {
        if let Some(Ok(written)) = &written {
            progress.warn(&format!("trace of what ran until it failed: {}", written.file));
        }
        if let Some(missing) = &missing {
            progress.warn(missing);
        }
    })?;
    let written = written.transpose()?;

    let params = job.shared.params()?;
    let digest = model::digest(&params);
    // An injected missing fence is looked for without being asked.
    let reference = (options.verify || matches!(inject, Some(Inject::DropFence(_))))
        .then(|| model::digest(&train_reference(&train, &settings).params));
    let report = Report {
        way: options.sync,
        devices: options.devices,
        ranks: None,
        lost: &[],
        steps: plan.steps(),
        steps_an_epoch: plan.steps_an_epoch(),
        samples: train.len(),
        losses: &ran.losses,
        accuracy: model::accuracy(&params, &test, train.scale()),
        tested: test.len(),
        digest: &digest,
        reference: reference.as_deref(),
        missing: missing.as_deref(),
        wall,
        waits: &ran.waits,
        edges,
        counts: ran.counts.as_ref(),
        profile: ran.profile.as_ref(),
        slowest: ran.slowest.as_ref(),
        trace: written.as_ref(),
        pages: None,
    };
    report.print(options.json).map_err(TrainError::Output)?;
    match reference {
        Some(reference) if options.verify && reference != digest => {
            Err(TrainError::Digest { found: digest, reference })
        }
        _ => Ok(()),
    }
}

/// What a run works on.
struct Given {
    train: Arc<Dataset>,
    test: Dataset,
    settings: Settings,
    plan: Plan,
}

/// The deadline that was chosen for waits between such; says so if the profile is broken.
fn tuned(whom: Between) -> Duration {
    if let Err(broken) = Profile::active() {
        voice::say(&format!("warning: {broken}; until then waits have their usual bound of 2 s"));
    }
    let deadline = Bound::tuned(whom).deadline();
    deadline.map_or(LONGEST, |deadline| deadline.min(LONGEST))
}
