//! The job by its edges, for measuring what checking them costs.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use pontoon::Edges;

use super::{
    DIGITS, DIGITS_NAME, TEST_SHARE, TrainError,
    data::{Dataset, Split},
    job::Job,
    model,
    plan::Plan,
    progress::Progress,
    reference::Settings,
    way::{self, Run, Way},
};

/// The longest that any wait may take before the trial fails.
const BOUND: Duration = Duration::from_secs(10);
/// Enough that opening the streams is little beside it.
const EPOCHS: u32 = 3;

/// The job with the data at hand.
pub(crate) struct Trial {
    train: Arc<Dataset>,
    settings: Settings,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried {
    pub(crate) step_ms: f64,
    /// Of the weights: the same for any number of devices and whoever saw to the edges.
    pub(crate) digest: u64,
}

impl Trial {
    pub(crate) fn new() -> Result<Self, TrainError> {
        let settings = Settings { epochs: EPOCHS, ..Settings::DEFAULT };
        let data = Dataset::from_bytes(DIGITS, Path::new(DIGITS_NAME))?;
        let Split { train, .. } = data.split(settings.seed, TEST_SHARE);
        Ok(Self { train: Arc::new(train), settings })
    }

    /// Trains anew, kept in order by signals.
    pub(crate) fn train(&self, devices: u32, edges: Edges) -> Result<Tried, TrainError> {
        let plan = Plan::new(&self.settings, self.train.len());
        let job = Job::open(devices, Arc::clone(&self.train), self.settings, &plan)?;
        let progress = Progress::hidden();
        let (bound, inject) = (BOUND, None);
        let run = Run { job: &job, plan: &plan, edges, bound, inject, progress: &progress };
        let started = Instant::now();
        way::run(Way::Signals, &run)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let digest = model::digest(&job.shared.params()?);
        let digest = u64::from_str_radix(&digest, 16).expect("a digest is a hexadecimal number");
        Ok(Tried { step_ms: ms / plan.steps() as f64, digest })
    }
}
