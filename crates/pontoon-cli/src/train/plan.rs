//! Which samples each step trains on, and which device has which of them.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    model::{self, SHARD},
    reference::Settings,
};

/// The steps of a run, in order.
///
/// An epoch's order is made when its first step is asked for, and at most [`EPOCHS`] are kept:
/// what a run needs does not grow with how long it is.
#[derive(Debug)]
pub(super) struct Plan {
    settings: Settings,
    samples: usize,
    steps_an_epoch: usize,
    /// Epoch `e` is at `e % EPOCHS`.
    orders: Mutex<[Option<Order>; EPOCHS]>,
}

/// The steps under way belong to two epochs at most: a step and the one before it.
const EPOCHS: usize = 2;

#[derive(Debug)]
struct Order {
    epoch: u32,
    samples: Arc<[u32]>,
}

/// One step: the samples of one batch.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Counted from 0 over the whole run.
    pub(super) index: usize,
    pub(super) epoch: u32,
    /// Whether it is the first of its epoch.
    pub(super) is_first: bool,
    order: Arc<[u32]>,
    range: Range<usize>,
}

impl Plan {
    pub(super) fn new(settings: &Settings, samples: usize) -> Self {
        let steps_an_epoch = samples.div_ceil(settings.batch);
        Self { settings: *settings, samples, steps_an_epoch, orders: Mutex::default() }
    }

    pub(super) fn steps(&self) -> usize {
        self.settings.epochs as usize * self.steps_an_epoch
    }

    pub(super) fn steps_an_epoch(&self) -> usize {
        self.steps_an_epoch
    }

    /// The most samples a step has.
    pub(super) fn largest_batch(&self) -> usize {
        self.settings.batch.min(self.samples)
    }

    /// How many samples a step can have: an epoch's last batch may have fewer than the others.
    pub(super) fn batch_sizes(&self) -> impl Iterator<Item = usize> {
        let last = self.samples - (self.steps_an_epoch - 1) * self.settings.batch;
        [self.largest_batch(), last].into_iter()
    }

    pub(super) fn step(&self, index: usize) -> Step {
        let (epoch, batch) = (index / self.steps_an_epoch, index % self.steps_an_epoch);
        let (epoch, start) = (epoch as u32, batch * self.settings.batch);
        let range = start..(start + self.settings.batch).min(self.samples);
        Step { index, epoch, is_first: batch == 0, order: self.order(epoch), range }
    }

    fn order(&self, epoch: u32) -> Arc<[u32]> {
        // Whoever panicked while it made an order has put none here.
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut orders[epoch as usize % EPOCHS];
        if let Some(order) = place.as_ref().filter(|order| order.epoch == epoch) {
            return Arc::clone(&order.samples);
        }
        // The old one first, so that there are never three.
        *place = None;
        let samples: Arc<[u32]> =
            model::epoch_order(self.settings.seed, epoch, self.samples).into();
        *place = Some(Order { epoch, samples: Arc::clone(&samples) });
        samples
    }
}

impl Step {
    /// Sample numbers in the training set.
    pub(super) fn samples(&self) -> &[u32] {
        &self.order[self.range.clone()]
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

/// Devices that are gone from some step on: what they would have computed is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// Of all devices of the job.
    pub(super) devices: Range<usize>,
    pub(super) from: usize,
}

/// Which shards of a step there are when some devices are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    /// Shards that are left out.
    absent: Vec<Range<usize>>,
    /// Samples that are not.
    pub(super) samples: usize,
}

impl Present {
    /// What is left of step `index` with `samples` samples for `devices` devices.
    pub(super) fn of(index: usize, samples: usize, devices: usize, absences: &[Absence]) -> Self {
        let gone = absences.iter().filter(|absence| absence.from <= index);
        let parts = gone.flat_map(|absence| absence.devices.clone());
        let parts: Vec<_> = parts.map(|device| Part::of(device, devices, samples)).collect();
        let absent = parts.iter().map(|part| part.samples.len()).sum::<usize>();
        let absent_shards = parts.into_iter().map(|part| part.shards).collect();
        Self { absent: absent_shards, samples: samples - absent }
    }

    pub(super) fn has(&self, shard: usize) -> bool {
        !self.absent.iter().any(|absent| absent.contains(&shard))
    }
}

#[cfg(test)]
mod tests {
    use super::{Absence, Arc, Part, Plan, Present};
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
    fn who_is_gone_takes_its_shards_along() {
        let absences = [Absence { devices: 2..4, from: 5 }];
        let before = Present::of(4, 63, 4, &absences);
        assert!(before.samples == 63 && (0..16).all(|shard| before.has(shard)));
        let after = Present::of(5, 63, 4, &absences);
        assert_eq!(after.samples, 32);
        assert_eq!(
            (0..16).filter(|&shard| after.has(shard)).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_epoch_has_every_sample_once() {
        let settings = Settings { epochs: 2, batch: 10, ..Settings::DEFAULT };
        let plan = Plan::new(&settings, 25);
        assert_eq!((plan.steps(), plan.steps_an_epoch(), plan.largest_batch()), (6, 3, 10));
        let mut seen: Vec<u32> = (3..6).flat_map(|s| plan.step(s).samples().to_vec()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
        assert_eq!((plan.step(5).epoch, plan.step(5).samples().len()), (1, 5));
    }

    #[test]
    fn a_long_run_over_many_rows_keeps_two_orders() {
        let settings = Settings { epochs: 10_000, batch: 65_536, ..Settings::DEFAULT };
        let plan = Plan::new(&settings, 20_000_000);
        assert_eq!(plan.steps(), 306 * 10_000);
        let small = Plan::new(&settings, 25);
        let first = small.step(0);
        for index in 0..10_000 {
            let step = small.step(index);
            assert_eq!((step.samples().len(), step.is_first), (25, true));
            assert_eq!(small.step(index.saturating_sub(1)).index, index.saturating_sub(1));
        }
        // The run's own handle is the last one to an order that was passed.
        assert_eq!(Arc::strong_count(&first.order), 1);
        assert_eq!(first.samples(), small.step(0).samples());
    }
}
