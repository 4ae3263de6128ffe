//! Training on one thread: what every multi-device run must equal, bit for bit.

use super::{
    data::Dataset,
    model::{
        apply, augment, epoch_order, init, mean_loss, normalise, shard_gradient, shard_range,
        shards,
    },
    plan::{Absence, Present},
};

/// What a training run is asked to do; the same settings and data give the same parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Passes over the training set.
    pub(crate) epochs: u32,
    /// Samples in a batch, at least 1; an epoch's last batch may have fewer.
    pub(crate) batch: usize,
    /// Decides the initial parameters, the order of the samples and their shifts.
    pub(crate) seed: u64,
    /// The step size in the first epoch; see [`Settings::rate`].
    pub(crate) learning_rate: f32,
    /// The share of the velocity kept from one step to the next, in `0.0..1.0`.
    pub(crate) momentum: f32,
}

impl Settings {
    /// What `pontoon train` does unless told otherwise.
    pub(crate) const DEFAULT: Self =
        Self { epochs: 40, batch: 64, seed: 1, learning_rate: 0.2, momentum: 0.9 };

    /// The step size in `epoch`, counted from 0: falls in a straight line to `1 / epochs` of
    /// `learning_rate` in the last epoch.
    pub(crate) fn rate(&self, epoch: u32) -> f32 {
        self.learning_rate * (self.epochs - epoch) as f32 / self.epochs as f32
    }
}

/// A trained network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trained {
    /// The parameters, flat, in the order of [`Shape::parameters`](super::model::Shape::parameters).
    pub(crate) params: Vec<f32>,
    /// The mean loss of each epoch, in nats, taken while it trained.
    pub(crate) losses: Vec<f32>,
}

/// Trains on `train` on the calling thread.
///
/// # Panics
///
/// If `settings.batch` is 0.
pub(crate) fn train_reference(train: &Dataset, settings: &Settings) -> Trained {
    train_reference_without(train, settings, 1, &[])
}

/// As [`train_reference`], as if shared among `devices` devices of which some are absent.
pub(super) fn train_reference_without(
    train: &Dataset,
    settings: &Settings,
    devices: usize,
    absences: &[Absence],
) -> Trained {
    let shape = train.shape();
    let (inputs, count) = (shape.inputs(), shape.parameters());
    let scale = train.scale();
    let largest = settings.batch.min(train.len());
    let mut raw = vec![0.0; largest * inputs];
    let mut normalised = raw.clone();
    let mut augmented = raw.clone();
    let mut labels = vec![0; largest];
    let mut shard_grads = vec![0.0; shards(largest) * count];

    let mut params = init(shape, settings.seed);
    let mut velocity = vec![0.0; count];
    let mut losses = Vec::new();
    let mut step = 0;
    for epoch in 0..settings.epochs {
        let (mut shard_losses, mut seen) = (Vec::new(), 0);
        for samples in epoch_order(settings.seed, epoch, train.len()).chunks(settings.batch) {
            let features = samples.len() * inputs;
            let (raw, labels) = (&mut raw[..features], &mut labels[..samples.len()]);
            let (normalised, augmented) = (&mut normalised[..features], &mut augmented[..features]);
            let shard_grads = &mut shard_grads[..shards(samples.len()) * count];
            let present = Present::of(step, samples.len(), devices, absences);
            step += 1;
            seen += present.samples;
            train.gather(samples, raw, labels);
            normalise(raw, normalised, scale);
            augment(shape, raw, augmented, scale, settings.seed, epoch, samples);
            for (shard, grad) in shard_grads.chunks_exact_mut(count).enumerate() {
                if !present.has(shard) {
                    continue;
                }
                let places = shard_range(shard, samples.len());
                let features = places.start * inputs..places.end * inputs;
                shard_losses.push(shard_gradient(
                    shape,
                    &params,
                    &normalised[features.clone()],
                    &augmented[features],
                    &labels[places],
                    grad,
                ));
            }
            let shards = 0..shards(samples.len());
            let places: Vec<_> = shards.filter(|shard| present.has(*shard)).collect();
            apply(
                &mut params,
                &mut velocity,
                shard_grads,
                &places,
                present.samples,
                settings.rate(epoch),
                settings.momentum,
            );
        }
        losses.push(mean_loss(&shard_losses, seen.max(1)));
    }
    Trained { params, losses }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::train::{
        data::Split,
        model::{accuracy, digest},
    };

    fn digits(seed: u64) -> Split {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.csv.gz");
        Dataset::load(&path).unwrap().split(seed, 0.25)
    }

    #[test]
    fn a_short_run_learns_the_digits() {
        let split = digits(1);
        let settings = Settings { epochs: 8, ..Settings::DEFAULT };
        let trained = train_reference(&split.train, &settings);
        let accuracy = accuracy(&trained.params, &split.test, split.train.scale());
        assert!(accuracy >= 0.95, "{accuracy}");
        assert_eq!(trained.losses.len(), 8);
        assert!(trained.losses[7] < 0.5 * trained.losses[0], "{:?}", trained.losses);
    }

    #[test]
    fn a_seed_has_one_digest_in_every_build_and_on_every_machine() {
        let train = digits(1).train;
        let settings = Settings { epochs: 2, seed: 7, ..Settings::DEFAULT };
        let trained = train_reference(&train, &settings);
        assert_eq!(digest(&trained.params), "3bf95cdf6c5a167f");
        assert_eq!(
            trained.losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>(),
            [0x3fd2_3cf4, 0x3f5a_4f05]
        );
        let other = train_reference(&train, &Settings { seed: 2, ..settings });
        assert_ne!(digest(&other.params), digest(&trained.params));
    }

    #[test]
    fn a_batch_may_be_larger_than_the_training_set_and_a_shard_smaller_than_four() {
        let train = digits(1).test.split(1, 0.99).train;
        assert_eq!(train.len(), 4);
        for batch in [1, 3, 64] {
            let settings = Settings { epochs: 3, batch, ..Settings::DEFAULT };
            let trained = train_reference(&train, &settings);
            assert!(trained.params.iter().chain(&trained.losses).all(|x| x.is_finite()));
        }
    }

    #[test]
    fn the_rate_falls_to_one_part_of_the_epochs() {
        let settings = Settings { epochs: 4, learning_rate: 0.5, ..Settings::DEFAULT };
        let rates: Vec<f32> = (0..4).map(|epoch| settings.rate(epoch)).collect();
        assert_eq!(rates, [0.5, 0.375, 0.25, 0.125]);
    }
}
