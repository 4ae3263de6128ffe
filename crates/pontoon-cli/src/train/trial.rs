//! The job run anew, in one way or another: to measure what checking its edges costs, and to find
//! the one that is missing.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use pontoon::{Edges, queue::EdgeName};

use super::{
    DIGITS, DIGITS_NAME, TEST_SHARE, TrainError,
    data::{Dataset, Split},
    job::Job,
    model,
    plan::Plan,
    progress::Progress,
    reference::Settings,
    way::{self, Inject, Ran, Run, Way},
};

/// The longest that any wait may take before a measurement fails.
const BOUND: Duration = Duration::from_secs(10);
/// Enough that opening the streams is little beside it.
const EPOCHS: u32 = 3;

/// A job that can be run again and again, kept in order by signals.
pub(crate) struct Trial {
    pub(super) train: Arc<Dataset>,
    pub(super) settings: Settings,
    pub(super) devices: u32,
    pub(super) bound: Duration,
}

/// How a trial is run.
#[derive(Default)]
pub(super) struct How {
    pub(super) inject: Option<Inject>,
    /// Edges that are added to those given.
    pub(super) added: Vec<EdgeName>,
    /// Whether the edges that are made are wanted.
    pub(super) observe: bool,
}

/// What came of a trial.
pub(super) struct Tried {
    pub(super) ran: Ran,
    /// Of the weights: the same for any number of devices and whoever saw to the edges.
    pub(super) digest: String,
    pub(super) wall: Duration,
    pub(super) steps: usize,
}

impl Trial {
    /// One with the data at hand, to be measured.
    pub(crate) fn new(devices: u32) -> Result<Self, TrainError> {
        let settings = Settings { epochs: EPOCHS, ..Settings::DEFAULT };
        let data = Dataset::from_bytes(DIGITS, Path::new(DIGITS_NAME))?;
        let Split { train, .. } = data.split(settings.seed, TEST_SHARE);
        Ok(Self { train: Arc::new(train), settings, devices, bound: BOUND })
    }

    /// The time of a step in milliseconds, and the digest.
    pub(crate) fn measure(&self, edges: Edges) -> Result<(f64, u64), TrainError> {
        let tried = self.run(edges, How::default())?;
        let digest = u64::from_str_radix(&tried.digest, 16);
        let digest = digest.expect("a digest is a hexadecimal number");
        Ok((tried.wall.as_secs_f64() * 1e3 / tried.steps as f64, digest))
    }

    /// Trains anew.
    pub(super) fn run(&self, edges: Edges, how: How) -> Result<Tried, TrainError> {
        let plan = Plan::new(&self.settings, self.train.len());
        let job = Job::open(self.devices, Arc::clone(&self.train), self.settings, &plan, 0)?;
        let progress = Progress::hidden();
        let How { inject, added, observe } = how;
        let (bound, steps) = (self.bound, plan.steps());
        let (job, plan, progress) = (&job, &plan, &progress);
        let (moments, keep) = (0, &Mutex::default());
        let run = Run { job, plan, edges, bound, inject, added, observe, progress, moments, keep };
        let started = Instant::now();
        let ran = way::run(Way::Signals, &run)?;
        let wall = started.elapsed();
        let digest = model::digest(&job.shared.params()?);
        Ok(Tried { ran, digest, wall, steps })
    }
}
