//! Which dependency a run lacks: found by running a short job again and again, each time with some of
//! the edges added that the job is known to need.

use std::{sync::Arc, time::Duration};

use pontoon::{
    Edges,
    queue::{Bisection, EdgeName, bisect},
};

use super::{
    data::Dataset,
    error::TrainError,
    job::Job,
    model,
    plan::Plan,
    progress::Progress,
    reference::Settings,
    way::{self, Inject, Ran, Run, Way},
};

/// One epoch of a job, to be run in several ways.
struct Trial<'t> {
    train: &'t Arc<Dataset>,
    settings: Settings,
    devices: u32,
    bound: Duration,
}

/// What a run gives: the digest of the weights, and the losses by their bits.
type Outcome = (String, Vec<u32>);

/// Looks for the edge that a job lacks which trusts its fences, with `inject` put in.
///
/// # Errors
///
/// The job cannot be run at all.
pub(super) fn look_for(
    train: &Arc<Dataset>,
    settings: &Settings,
    devices: u32,
    bound: Duration,
    inject: Inject,
) -> Result<Bisection, TrainError> {
    let settings = Settings { epochs: 1, ..*settings };
    let trial = Trial { train, settings, devices, bound };
    // What is derived is right and complete: it gives the result to hold others against, and the
    // edges to try.
    let (right, derived) = trial.run(Edges::Auto, None, &[])?;
    bisect(&derived.observed, |added| {
        match trial.run(Edges::Trust, Some(inject), added) {
            Ok((result, _)) => Ok(result == right),
            Err(error) if error.is_bad_input() => Err(error),
            // A hazard, or a wait that ran out: wrong too.
            Err(_) => Ok(false),
        }
    })
}

impl Trial<'_> {
    fn run(
        &self,
        edges: Edges,
        inject: Option<Inject>,
        added: &[EdgeName],
    ) -> Result<(Outcome, Ran), TrainError> {
        let plan = Plan::new(&self.settings, self.train.len());
        let job = Job::open(self.devices, Arc::clone(self.train), self.settings, &plan)?;
        let progress = Progress::hidden();
        let observe = edges == Edges::Auto;
        let (bound, added) = (self.bound, added.to_vec());
        let (job, plan, progress) = (&job, &plan, &progress);
        let run = Run { job, plan, edges, bound, inject, added, observe, progress };
        let ran = way::run(Way::Signals, &run)?;
        let losses = ran.losses.iter().map(|loss| loss.to_bits()).collect();
        Ok(((model::digest(&job.shared.params()?), losses), ran))
    }
}
