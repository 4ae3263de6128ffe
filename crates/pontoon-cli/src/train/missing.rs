//! Which dependency a run lacks: found by running a short job again and again, each time with some of
//! the edges added that the job is known to need.

use std::{sync::Arc, time::Duration};

use pontoon::{
    Edges,
    queue::{Bisection, bisect},
};

use super::{
    data::Dataset,
    error::TrainError,
    reference::Settings,
    trial::{How, Trial, Tried},
    way::Inject,
};

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
    let trial = Trial { train: Arc::clone(train), settings, devices, bound };
    // What is derived is right and complete: it gives the result to hold others against, and the
    // edges to try.
    let derived = trial.run(Edges::Auto, How { observe: true, ..How::default() })?;
    let right = outcome(&derived);
    bisect(&derived.ran.observed, |added| {
        let how = How { inject: Some(inject), added: added.to_vec(), observe: false };
        match trial.run(Edges::Trust, how) {
            Ok(tried) => Ok(outcome(&tried) == right),
            Err(error) if error.is_bad_input() => Err(error),
            // A hazard, or a wait that ran out: wrong too.
            Err(_) => Ok(false),
        }
    })
}

/// The weights' digest, and the losses by their bits.
fn outcome(tried: &Tried) -> (String, Vec<u32>) {
    let losses = tried.ran.losses.iter().map(|loss| loss.to_bits());
    (tried.digest.clone(), losses.collect())
}
