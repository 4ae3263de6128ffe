//! Which samples each step trains on, and which device has which of them.

use std::ops::Range;

use super::{
    model::{self, SHARD},
    reference::Settings,
};

/// The steps of a run, in order.
#[derive(Debug)]
pub(super) struct Plan {
    orders: Vec<Vec<u32>>,
    batch: usize,
    steps_an_epoch: usize,
}

/// One step: the samples of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'p> {
    /// Counted from 0 over the whole run.
    pub(super) index: usize,
    pub(super) epoch: u32,
    /// Sample numbers in the training set.
    pub(super) samples: &'p [u32],
}

impl Plan {
    pub(super) fn new(settings: &Settings, samples: usize) -> Self {
        let order = |epoch| model::epoch_order(settings.seed, epoch, samples);
        let steps_an_epoch = samples.div_ceil(settings.batch);
        Self {
            orders: (0..settings.epochs).map(order).collect(),
            batch: settings.batch,
            steps_an_epoch,
        }
    }

    pub(super) fn steps(&self) -> usize {
        self.orders.len() * self.steps_an_epoch
    }

    pub(super) fn steps_an_epoch(&self) -> usize {
        self.steps_an_epoch
    }

    /// The most samples a step has.
    pub(super) fn largest_batch(&self) -> usize {
        self.batch.min(self.orders.first().map_or(0, Vec::len))
    }

    pub(super) fn step(&self, index: usize) -> Step<'_> {
        let (epoch, batch) = (index / self.steps_an_epoch, index % self.steps_an_epoch);
        let order = &self.orders[epoch];
        let start = batch * self.batch;
        let samples = &order[start..(start + self.batch).min(order.len())];
        Step { index, epoch: epoch as u32, samples }
    }
}

/// A device's part of a batch: whole shards, so that who computes a shard changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) shards: Range<usize>,
    pub(super) samples: Range<usize>,
}

impl Part {
    /// The part of device `device` of `devices` in a batch of `samples`. May be empty.
    pub(super) fn of(device: usize, devices: usize, samples: usize) -> Self {
        let shards = model::shards(samples);
        let shards = shards * device / devices..shards * (device + 1) / devices;
        let samples = (shards.start * SHARD).min(samples)..(shards.end * SHARD).min(samples);
        Self { shards, samples }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Plan};
    use crate::train::{model, reference::Settings};

    #[test]
    fn the_parts_of_a_batch_are_the_batch() {
        for samples in [1, 3, 4, 5, 63, 64, 65] {
            for devices in [1, 2, 3, 4, 7, 40] {
                let parts: Vec<_> =
                    (0..devices).map(|device| Part::of(device, devices, samples)).collect();
                assert_eq!(parts[0].samples.start, 0);
                assert_eq!(parts[devices - 1].samples.end, samples);
                assert_eq!(parts[devices - 1].shards.end, model::shards(samples));
                for pair in parts.windows(2) {
                    assert_eq!(pair[0].samples.end, pair[1].samples.start);
                    assert_eq!(pair[0].shards.end, pair[1].shards.start);
                }
            }
        }
    }

    #[test]
    fn an_epoch_has_every_sample_once() {
        let settings = Settings { epochs: 2, batch: 10, ..Settings::default() };
        let plan = Plan::new(&settings, 25);
        assert_eq!((plan.steps(), plan.steps_an_epoch(), plan.largest_batch()), (6, 3, 10));
        let mut seen: Vec<u32> = (3..6).flat_map(|s| plan.step(s).samples.to_vec()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
        assert_eq!((plan.step(5).epoch, plan.step(5).samples.len()), (1, 5));
    }
}
