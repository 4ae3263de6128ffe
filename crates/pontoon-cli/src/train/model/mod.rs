//! The network, its gradients in fixed shards, its update, its digest.
//!
//! One hidden layer: `inputs -> 32 (ReLU) -> 10`, softmax cross-entropy, momentum. Everything is
//! a pure function over slices of `f32` and works in one fixed order: no sum is regrouped, `exp`
//! and `log` are software ([`libm`]), and Rust neither fuses nor reassociates floating-point
//! operations. So the same seed gives the same bits on every machine, in every build, and for
//! every number of devices: a batch is always cut into shards of [`SHARD`] samples, and shards
//! are always summed in their own order, whoever computed them.
//!
//! Each sample is used twice, once as it is ([`normalise`]) and once shifted ([`augment`]).

mod augment;
mod layers;

use std::ops::Range;

pub(crate) use augment::augment;
pub(crate) use layers::{CLASSES, HIDDEN, Shape};

use super::{
    data::Dataset,
    rng::{SplitMix64, Stream},
};
use layers::{Layers, LayersMut, add_scaled};

/// Samples in a shard, the part of a batch that one device computes; a batch's last may have fewer.
pub(crate) const SHARD: usize = 4;
/// Parameters that [`apply`] sums at a time, so that the sums stay in registers or in L1.
const BLOCK: usize = 64;

/// The parameters before the first step, [`Shape::parameters`] of them: weights uniform within
/// `sqrt(6 / fan-in)` (He et al., "Delving deep into rectifiers", 2015), biases zero.
pub(crate) fn init(shape: Shape, seed: u64) -> Vec<f32> {
    let mut params = vec![0.0; shape.parameters()];
    let mut rng = SplitMix64::open(seed, Stream::Init, &[]);
    let layers = LayersMut::new(shape, &mut params);
    for (weights, fan_in) in
        [(layers.w1.as_flattened_mut(), shape.inputs()), (layers.w2.as_flattened_mut(), HIDDEN)]
    {
        let bound = (6.0 / fan_in as f32).sqrt();
        weights.iter_mut().for_each(|weight| *weight = rng.signed_unit() * bound);
    }
    params
}

/// The order in which epoch `epoch` visits `samples` training samples; batches are its chunks of
/// the batch size, the last one as long as what remains.
pub(crate) fn epoch_order(seed: u64, epoch: u32, samples: usize) -> Vec<u32> {
    let samples = u32::try_from(samples).expect("a data set holds fewer than 2^32 samples");
    SplitMix64::open(seed, Stream::Order, &[u64::from(epoch)]).permutation(samples)
}

/// Shards in a batch of `samples`.
pub(crate) fn shards(samples: usize) -> usize {
    samples.div_ceil(SHARD)
}

/// Places in a batch of `samples` that shard number `shard` covers: [`SHARD`] of them, or fewer
/// for the last shard, or none for a shard beyond it.
pub(crate) fn shard_range(shard: usize, samples: usize) -> Range<usize> {
    (shard * SHARD).min(samples)..((shard + 1) * SHARD).min(samples)
}

/// Brings features to the network's scale: `out = raw / scale`, element by element.
///
/// `raw` and `out` hold any number of samples; `scale` is [`Dataset::scale`] of the training set,
/// so that training features end up in `-1.0..=1.0`.
///
/// # Panics
///
/// If `raw` and `out` differ in length.
pub(crate) fn normalise(raw: &[f32], out: &mut [f32], scale: f32) {
    assert_eq!(raw.len(), out.len(), "normalise writes one value for each it reads");
    for (out, &raw) in out.iter_mut().zip(raw) {
        *out = raw / scale;
    }
}

/// Writes the gradient of a shard's summed loss to `grad` and returns that loss, in nats.
///
/// `params` and `grad` are flat ([`Shape::parameters`]); `normalised` and `augmented` are
/// `[labels.len()][inputs]`, in the order of `labels`. The sum runs over sample 0 normalised,
/// sample 0 augmented, sample 1 normalised and so on: over `2 * labels.len()` losses, not their
/// mean. What `grad` held before does not matter.
///
/// # Panics
///
/// If the lengths do not agree, or a label is not below [`CLASSES`].
pub(crate) fn shard_gradient(
    shape: Shape,
    params: &[f32],
    normalised: &[f32],
    augmented: &[f32],
    labels: &[u8],
    grad: &mut [f32],
) -> f32 {
    let features = labels.len() * shape.inputs();
    assert_eq!(normalised.len(), features, "a shard has one normalised image a label");
    assert_eq!(augmented.len(), features, "a shard has one augmented image a label");
    let layers = Layers::new(shape, params);
    grad.fill(0.0);
    let mut grad = LayersMut::new(shape, grad);
    let images =
        normalised.chunks_exact(shape.inputs()).zip(augmented.chunks_exact(shape.inputs()));
    let mut loss = 0.0;
    for ((normalised, augmented), &label) in images.zip(labels) {
        loss += add_gradient(&layers, normalised, label, &mut grad);
        loss += add_gradient(&layers, augmented, label, &mut grad);
    }
    loss
}

/// Adds the gradient of one image's loss to `grad`; returns the loss.
fn add_gradient(layers: &Layers, image: &[f32], label: u8, grad: &mut LayersMut) -> f32 {
    let hidden = layers.hidden(image);
    let logits = layers.logits(&hidden);
    let label = usize::from(label);

    // Softmax relative to the largest logit, so that no exponential overflows.
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, &logit| top.max(logit));
    let mut slope = logits.map(|logit| libm::expf(logit - top));
    let total = slope.iter().fold(0.0, |total, &part| total + part);
    slope.iter_mut().for_each(|part| *part /= total);
    slope[label] -= 1.0;

    add_scaled(grad.b2, &slope, 1.0);
    let mut hidden_slope = [0.0; HIDDEN];
    for (unit, &activity) in hidden.iter().enumerate() {
        add_scaled(&mut grad.w2[unit], &slope, activity);
        if activity > 0.0 {
            let products = layers.w2[unit].iter().zip(&slope);
            hidden_slope[unit] = products.fold(0.0, |sum, (weight, slope)| sum + weight * slope);
        }
    }
    add_scaled(grad.b1, &hidden_slope, 1.0);
    for (row, &pixel) in grad.w1.iter_mut().zip(image) {
        add_scaled(row, &hidden_slope, pixel);
    }
    libm::logf(total) + top - logits[label]
}

/// Takes one step of gradient descent with momentum, in place.
///
/// `params` and `velocity` are flat ([`Shape::parameters`]); `grads` is `[places][parameters]`, what
/// [`shard_gradient`] wrote for each shard of a batch at its place. `places` are those of the shards
/// in the order of shards: so they are summed, whatever the number of devices, and divided by twice
/// their `samples`; then `velocity = momentum * velocity + mean` and
/// `params -= learning_rate * velocity`.
///
/// What is at other places is not read. Without any samples nothing changes.
///
/// # Panics
///
/// If the lengths do not agree, or there is no such place.
pub(crate) fn apply(
    params: &mut [f32],
    velocity: &mut [f32],
    grads: &[f32],
    places: &[usize],
    samples: usize,
    learning_rate: f32,
    momentum: f32,
) {
    let count = params.len();
    assert_eq!(velocity.len(), count, "every parameter has a velocity");
    if samples == 0 {
        return;
    }
    let terms = 2.0 * samples as f32;
    for first in (0..count).step_by(BLOCK) {
        let block = first..(first + BLOCK).min(count);
        let mut sums = [0.0; BLOCK];
        for place in places {
            let shard = &grads[place * count..(place + 1) * count];
            for (sum, &part) in sums.iter_mut().zip(&shard[block.clone()]) {
                *sum += part;
            }
        }
        let stepped = params[block.clone()].iter_mut().zip(&mut velocity[block]);
        for ((param, velocity), sum) in stepped.zip(sums) {
            *velocity = momentum * *velocity + sum / terms;
            *param -= learning_rate * *velocity;
        }
    }
}

/// The mean loss in nats of `samples` samples, from what [`shard_gradient`] returned for their
/// shards, in the order of batches and shards.
pub(crate) fn mean_loss(shard_losses: &[f32], samples: usize) -> f32 {
    let total = shard_losses.iter().fold(0.0, |total, &loss| total + f64::from(loss));
    (total / (2.0 * samples as f64)) as f32
}

/// The class of one normalised image (`[inputs]`); of equally likely classes the lowest.
pub(crate) fn predict(shape: Shape, params: &[f32], image: &[f32]) -> u8 {
    let layers = Layers::new(shape, params);
    let logits = layers.logits(&layers.hidden(image));
    let mut best = 0;
    for (class, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = class;
        }
    }
    best as u8
}

/// The share of `data`'s samples whose class is predicted right, in `0.0..=1.0`; `scale` is the
/// training set's, as for [`normalise`]. Single-threaded.
pub(crate) fn accuracy(params: &[f32], data: &Dataset, scale: f32) -> f64 {
    let shape = data.shape();
    let mut image = vec![0.0; shape.inputs()];
    let mut right = 0;
    for (raw, &label) in data.features().chunks_exact(shape.inputs()).zip(data.labels()) {
        normalise(raw, &mut image, scale);
        right += usize::from(predict(shape, params, &image) == label);
    }
    right as f64 / data.len() as f64
}

/// A fingerprint of the parameters, 16 hexadecimal digits: FNV-1a of 64 bits (Fowler, Noll and Vo)
/// over the bytes of each `f32`, little-endian. Equal digests mean equal bits, not just equal
/// numbers; it guards against mistakes, not against an adversary.
pub(crate) fn digest(params: &[f32]) -> String {
    let bytes = params.iter().flat_map(|param| param.to_bits().to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of `samples` images of 2 by 2 with its parameters: normalised, augmented, labels.
    fn batch(samples: usize) -> (Shape, Vec<f32>, Vec<f32>, Vec<f32>, Vec<u8>) {
        let shape = Shape::for_inputs(4).unwrap();
        let mut rng = SplitMix64::open(5, Stream::Init, &[99]);
        let mut params = init(shape, 5);
        // Biases start at zero; here they must matter.
        params.iter_mut().for_each(|param| *param += 0.1 * rng.signed_unit());
        let mut numbers = || (0..samples * 4).map(|_| rng.signed_unit()).collect::<Vec<f32>>();
        let (normalised, augmented) = (numbers(), numbers());
        let labels = (0..samples).map(|sample| (sample * 7 % CLASSES) as u8).collect();
        (shape, params, normalised, augmented, labels)
    }

    /// The summed loss, written anew in 64 bits.
    fn loss(shape: Shape, params: &[f64], images: &[&[f32]], labels: &[u8]) -> f64 {
        let inputs = shape.inputs();
        let (w1, rest) = params.split_at(inputs * HIDDEN);
        let (b1, rest) = rest.split_at(HIDDEN);
        let (w2, b2) = rest.split_at(HIDDEN * CLASSES);
        let mut total = 0.0;
        for (image, &label) in images.iter().flat_map(|set| set.chunks(inputs).zip(labels)) {
            let hidden = |unit: usize| {
                let terms = (0..inputs).map(|i| f64::from(image[i]) * w1[i * HIDDEN + unit]);
                (b1[unit] + terms.sum::<f64>()).max(0.0)
            };
            let logit = |class: usize| {
                b2[class] + (0..HIDDEN).map(|u| hidden(u) * w2[u * CLASSES + class]).sum::<f64>()
            };
            let total_exp = (0..CLASSES).map(|class| logit(class).exp()).sum::<f64>();
            total += total_exp.ln() - logit(usize::from(label));
        }
        total
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let (shape, params, normalised, augmented, labels) = batch(3);
        let mut grad = vec![f32::NAN; shape.parameters()];
        let found = shard_gradient(shape, &params, &normalised, &augmented, &labels, &mut grad);

        let mut wide: Vec<f64> = params.iter().map(|&param| f64::from(param)).collect();
        let images = [&normalised[..], &augmented[..]];
        let expected = loss(shape, &wide, &images, &labels);
        assert!((f64::from(found) - expected).abs() < 1e-4, "{found} is not {expected}");
        for at in 0..wide.len() {
            const STEP: f64 = 1e-5;
            let middle = wide[at];
            wide[at] = middle + STEP;
            let above = loss(shape, &wide, &images, &labels);
            wide[at] = middle - STEP;
            let below = loss(shape, &wide, &images, &labels);
            wide[at] = middle;
            let slope = (above - below) / (2.0 * STEP);
            let error = (f64::from(grad[at]) - slope).abs();
            assert!(error < 1e-5, "parameter {at}: {} is not {slope}", grad[at]);
        }
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let (shape, mut params, normalised, augmented, labels) = batch(2);
        params.iter_mut().for_each(|param| *param *= 100.0);
        let mut grad = vec![0.0; shape.parameters()];
        let loss = shard_gradient(shape, &params, &normalised, &augmented, &labels, &mut grad);
        assert!(loss > 100.0 && loss.is_finite(), "{loss}");
        assert!(grad.iter().all(|part| part.is_finite()));
    }

    /// A step with all shards present.
    fn apply_all(
        params: &mut [f32],
        velocity: &mut [f32],
        grads: &[f32],
        samples: usize,
        rate: f32,
        momentum: f32,
    ) {
        let places: Vec<_> = (0..shards(samples)).collect();
        apply(params, velocity, grads, &places, samples, rate, momentum);
    }

    /// Steps once over a batch of 11 samples whose shards `devices` devices compute in turns, the
    /// last device first.
    fn step(devices: usize) -> (Vec<f32>, Vec<f32>) {
        const SAMPLES: usize = 11;
        let (shape, mut params, normalised, augmented, labels) = batch(SAMPLES);
        let count = shape.parameters();
        let mut shard_grads = vec![f32::NAN; shards(SAMPLES) * count];
        for device in (0..devices).rev() {
            for shard in (device..shards(SAMPLES)).step_by(devices) {
                let places = shard_range(shard, SAMPLES);
                let features = places.start * 4..places.end * 4;
                shard_gradient(
                    shape,
                    &params,
                    &normalised[features.clone()],
                    &augmented[features],
                    &labels[places],
                    &mut shard_grads[shard * count..][..count],
                );
            }
        }
        let mut velocity = vec![0.25; count];
        apply_all(&mut params, &mut velocity, &shard_grads, SAMPLES, 0.5, 0.75);
        (params, velocity)
    }

    #[test]
    fn a_step_is_the_same_bits_for_any_number_of_devices() {
        let one = step(1);
        for devices in 2..5 {
            assert!(step(devices) == one, "{devices} devices");
        }
    }

    #[test]
    fn a_step_follows_the_mean_over_the_whole_batch() {
        let (shape, before, normalised, augmented, labels) = batch(11);
        let mut whole = vec![0.0; shape.parameters()];
        shard_gradient(shape, &before, &normalised, &augmented, &labels, &mut whole);
        let (params, velocity) = step(3);
        for (at, sum) in whole.into_iter().enumerate() {
            let expected = 0.75 * 0.25 + sum / 22.0;
            assert!((velocity[at] - expected).abs() < 1e-6, "velocity {at}");
            assert!((params[at] - (before[at] - 0.5 * velocity[at])).abs() < 1e-6, "param {at}");
        }
    }

    #[test]
    fn shards_are_summed_in_their_order() {
        let (mut params, mut velocity) = (vec![0.0; 3], vec![0.0; 3]);
        // The large terms swallow a 1 that they meet: the order decides which of the sums keep it.
        let big = 1e9;
        let grads = [[1.0, big, big], [big, -big, 1.0], [-big, 1.0, -big]].concat();
        apply_all(&mut params, &mut velocity, &grads, 12, 1.0, 0.0);
        assert_eq!(velocity, [0.0, 1.0 / 24.0, 0.0]);
        assert_eq!(params, [-0.0, -1.0 / 24.0, -0.0]);
    }

    #[test]
    fn shards_that_are_not_present_are_as_if_they_had_never_been() {
        let (shape, before, normalised, augmented, labels) = batch(11);
        let count = shape.parameters();
        let mut grads = vec![f32::NAN; shards(11) * count];
        for shard in [0, 2] {
            let places = shard_range(shard, 11);
            let features = places.start * 4..places.end * 4;
            let grad = &mut grads[shard * count..][..count];
            let (normalised, augmented) = (&normalised[features.clone()], &augmented[features]);
            shard_gradient(shape, &before, normalised, augmented, &labels[places], grad);
        }
        let (mut params, mut velocity) = (before.clone(), vec![0.25; count]);
        apply(&mut params, &mut velocity, &grads, &[0, 2], 7, 0.5, 0.75);
        for at in 0..count {
            let sum = grads[at] + grads[2 * count + at];
            assert_eq!(velocity[at], 0.75 * 0.25 + sum / 14.0, "velocity {at}");
        }
        let kept = (params.clone(), velocity.clone());
        apply(&mut params, &mut velocity, &grads, &[], 0, 0.5, 0.75);
        assert!((params, velocity) == kept, "a step of nobody changes nothing");
    }

    #[test]
    fn shards_cover_a_batch_and_only_the_last_is_short() {
        for samples in 0..=13 {
            let ranges: Vec<_> = (0..shards(samples)).map(|s| shard_range(s, samples)).collect();
            let places: Vec<usize> = ranges.iter().cloned().flatten().collect();
            assert_eq!(places, (0..samples).collect::<Vec<_>>());
            assert!(ranges.iter().rev().skip(1).all(|range| range.len() == SHARD));
            assert!(ranges.iter().all(|range| !range.is_empty()));
            assert_eq!(shard_range(shards(samples), samples), samples..samples);
        }
    }

    #[test]
    fn normalise_divides_by_the_scale() {
        let mut out = [f32::NAN; 3];
        normalise(&[-16.0, 0.0, 4.0], &mut out, 16.0);
        assert_eq!(out, [-1.0, 0.0, 0.25]);
    }

    #[test]
    fn epochs_have_different_orders_of_all_samples() {
        let mut first = epoch_order(1, 0, 50);
        assert_ne!(first, epoch_order(1, 1, 50));
        assert_ne!(first, epoch_order(2, 0, 50));
        first.sort_unstable();
        assert_eq!(first, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn parameters_start_within_their_bounds_and_biases_at_zero() {
        let shape = Shape::for_inputs(64).unwrap();
        let params = init(shape, 1);
        assert_ne!(params, init(shape, 2));
        let (w1, rest) = params.split_at(64 * HIDDEN);
        let (b1, rest) = rest.split_at(HIDDEN);
        let (w2, b2) = rest.split_at(HIDDEN * CLASSES);
        let largest = |part: &[f32]| part.iter().fold(0.0_f32, |top, x| top.max(x.abs()));
        assert!((0.29..=0.3062).contains(&largest(w1)), "{}", largest(w1));
        assert!((0.41..=0.4331).contains(&largest(w2)), "{}", largest(w2));
        assert_eq!(largest(b1) + largest(b2), 0.0);
    }

    #[test]
    fn the_largest_logit_is_predicted() {
        let shape = Shape::for_inputs(1).unwrap();
        let mut params = vec![0.0; shape.parameters()];
        let b2 = params.len() - CLASSES;
        assert_eq!(predict(shape, &params, &[1.0]), 0);
        params[b2 + 7] = 1.0;
        params[b2 + 8] = 1.0;
        assert_eq!(predict(shape, &params, &[1.0]), 7);
    }

    #[test]
    fn a_mean_loss_counts_both_images_of_a_sample() {
        assert_eq!(mean_loss(&[6.0, 3.0, 1.0], 5), 1.0);
    }

    #[test]
    fn the_digest_is_fnv_1a_and_sees_a_sign() {
        assert_eq!(digest(&[]), "cbf29ce484222325");
        // From the test vectors of the FNV reference code.
        assert_eq!(digest(&[f32::from_le_bytes(*b"foob")]), "dd120e790c2512af");
        assert_ne!(digest(&[0.0]), digest(&[-0.0]));
    }
}
