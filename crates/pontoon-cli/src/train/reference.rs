//! Training on one thread: what every multi-device run must equal, bit for bit.

use super::{
    data::Dataset,
    model::{
        apply, augment, epoch_order, init, mean_loss, normalise, shard_gradient, shard_range,
        shards,
    },
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
    /// The step size in `epoch`, counted from 0: falls in a straight line to `1 / epochs` of
    /// `learning_rate` in the last epoch.
    pub(crate) fn rate(&self, epoch: u32) -> f32 {
        self.learning_rate * (self.epochs - epoch) as f32 / self.epochs as f32
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { epochs: 30, batch: 64, seed: 1, learning_rate: 0.1, momentum: 0.9 }
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
    for epoch in 0..settings.epochs {
        let mut shard_losses = Vec::new();
        for samples in epoch_order(settings.seed, epoch, train.len()).chunks(settings.batch) {
            let features = samples.len() * inputs;
            let (raw, labels) = (&mut raw[..features], &mut labels[..samples.len()]);
            let (normalised, augmented) = (&mut normalised[..features], &mut augmented[..features]);
            let shard_grads = &mut shard_grads[..shards(samples.len()) * count];
            train.gather(samples, raw, labels);
            normalise(raw, normalised, scale);
            augment(shape, raw, augmented, scale, settings.seed, epoch, samples);
            for (shard, grad) in shard_grads.chunks_exact_mut(count).enumerate() {
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
            let rate = settings.rate(epoch);
            apply(&mut params, &mut velocity, shard_grads, samples.len(), rate, settings.momentum);
        }
        losses.push(mean_loss(&shard_losses, train.len()));
    }
    Trained { params, losses }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::train::model::{accuracy, digest};

    #[test]
    fn sweep() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.csv.gz");
        let data = Dataset::load(&path).unwrap();
        for (learning_rate, momentum, epochs) in
            [(0.1, 0.9, 30), (0.05, 0.9, 30), (0.2, 0.9, 30), (0.05, 0.9, 60), (0.1, 0.9, 60)]
        {
            let mut accs = vec![];
            let now = std::time::Instant::now();
            let mut d = String::new();
            for seed in 0..10 {
                let split = data.split(seed, 0.25);
                let settings =
                    Settings { epochs, learning_rate, momentum, seed, ..Settings::default() };
                let trained = train_reference(&split.train, &settings);
                accs.push(accuracy(&trained.params, &split.test, split.train.scale()));
                d = digest(&trained.params);
            }
            println!(
                "{learning_rate} {momentum} {epochs}: min {:.4} mean {:.4} {:?}/run {d}",
                accs.iter().copied().fold(1.0, f64::min),
                accs.iter().sum::<f64>() / 10.0,
                now.elapsed() / 10
            );
        }
    }
}
