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

use std::ops::Range;

use super::{
    data::Dataset,
    rng::{SplitMix64, Stream},
};

/// Units of the hidden layer.
pub(crate) const HIDDEN: usize = 32;
/// Classes the network tells apart; labels are `0..CLASSES`.
pub(crate) const CLASSES: usize = 10;
/// Samples in a shard, the part of a batch that one device computes; a batch's last may have fewer.
pub(crate) const SHARD: usize = 4;
/// Parameters that [`apply`] sums at a time, so that the sums stay in registers or in L1.
const BLOCK: usize = 64;

/// The network's dimensions, which follow from the side of the square images it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    side: usize,
}

impl Shape {
    /// The largest [`inputs`](Self::inputs) accepted: images of 32 by 32.
    pub(crate) const MAX_INPUTS: usize = 1024;

    /// The shape for images of `inputs` pixels, or `None` unless that is a square number in
    /// `1..=MAX_INPUTS`.
    pub(crate) fn for_inputs(inputs: usize) -> Option<Self> {
        let side = inputs.isqrt();
        (side * side == inputs && (1..=Self::MAX_INPUTS).contains(&inputs)).then_some(Self { side })
    }

    /// Pixels along one side of an image.
    pub(crate) fn side(self) -> usize {
        self.side
    }

    /// Features of a sample: the pixels of an image, row by row.
    pub(crate) fn inputs(self) -> usize {
        self.side * self.side
    }

    /// Length of the flat parameter vector: `w1[inputs][HIDDEN]`, `b1[HIDDEN]`,
    /// `w2[HIDDEN][CLASSES]`, `b2[CLASSES]`, in this order.
    pub(crate) fn parameters(self) -> usize {
        (self.inputs() + 1) * HIDDEN + (HIDDEN + 1) * CLASSES
    }
}

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
/// for the last shard.
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

/// Shifts each image by at most one pixel and brings it to the scale of [`normalise`].
///
/// `raw` and `out` hold one image (`[side][side]`) for each entry of `samples`, the samples'
/// numbers in the training set. A sample's direction is a function of (`seed`, `epoch`, number)
/// alone, see [`Shift::of`]. Vacated pixels become 0.
///
/// # Panics
///
/// If the lengths do not agree.
pub(crate) fn augment(
    shape: Shape,
    raw: &[f32],
    out: &mut [f32],
    scale: f32,
    seed: u64,
    epoch: u32,
    samples: &[u32],
) {
    assert_eq!(raw.len(), out.len(), "augment writes one value for each it reads");
    assert_eq!(raw.len(), samples.len() * shape.inputs(), "augment reads one image a sample");
    let images = raw.chunks_exact(shape.inputs()).zip(out.chunks_exact_mut(shape.inputs()));
    for ((raw, out), &sample) in images.zip(samples) {
        shift(shape.side(), raw, out, scale, Shift::of(seed, epoch, sample));
    }
}

/// Where [`augment`] moves the content of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Not at all.
    Stay,
    /// Towards row 0.
    Up,
    /// Towards the last row.
    Down,
    /// Towards column 0.
    Left,
    /// Towards the last column.
    Right,
}

impl Shift {
    /// The direction for training sample number `sample` in `epoch`; the five are equally likely.
    pub(crate) fn of(seed: u64, epoch: u32, sample: u32) -> Self {
        const ALL: [Shift; 5] = [Shift::Stay, Shift::Up, Shift::Down, Shift::Left, Shift::Right];
        let path = [u64::from(epoch), u64::from(sample)];
        ALL[SplitMix64::open(seed, Stream::Shift, &path).below(ALL.len() as u32) as usize]
    }

    /// Rows down and columns right.
    fn offset(self) -> (isize, isize) {
        match self {
            Self::Stay => (0, 0),
            Self::Up => (-1, 0),
            Self::Down => (1, 0),
            Self::Left => (0, -1),
            Self::Right => (0, 1),
        }
    }
}

fn shift(side: usize, raw: &[f32], out: &mut [f32], scale: f32, shift: Shift) {
    let (down, right) = shift.offset();
    let from = |to: usize, by: isize| to.checked_sub_signed(by).filter(|&from| from < side);
    for (row, out) in out.chunks_exact_mut(side).enumerate() {
        let source = from(row, down).map(|row| &raw[row * side..][..side]);
        for (column, out) in out.iter_mut().enumerate() {
            *out = match (source, from(column, right)) {
                (Some(source), Some(column)) => source[column] / scale,
                _ => 0.0,
            };
        }
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
/// `params` and `velocity` are flat ([`Shape::parameters`]); `shard_grads` is
/// `[shards][parameters]`, what [`shard_gradient`] wrote for each shard of a batch of `samples`.
/// The shards are summed in their order, whatever the number of devices, and divided by
/// `2 * samples`; then `velocity = momentum * velocity + mean` and
/// `params -= learning_rate * velocity`. The parameters are independent of each other: a caller
/// may also step a part of them, given that part of every shard.
///
/// # Panics
///
/// If the lengths do not agree.
pub(crate) fn apply(
    params: &mut [f32],
    velocity: &mut [f32],
    shard_grads: &[f32],
    samples: usize,
    learning_rate: f32,
    momentum: f32,
) {
    let count = params.len();
    assert_eq!(velocity.len(), count, "every parameter has a velocity");
    assert_eq!(shard_grads.len(), shards(samples) * count, "every shard has a gradient");
    let terms = 2.0 * samples as f32;
    for first in (0..count).step_by(BLOCK) {
        let block = first..(first + BLOCK).min(count);
        let mut sums = [0.0; BLOCK];
        for shard in shard_grads.chunks_exact(count) {
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

/// The parts of a flat parameter vector.
struct Layers<'a> {
    w1: &'a [[f32; HIDDEN]],
    b1: &'a [f32; HIDDEN],
    w2: &'a [[f32; CLASSES]],
    b2: &'a [f32; CLASSES],
}

impl<'a> Layers<'a> {
    fn new(shape: Shape, flat: &'a [f32]) -> Self {
        assert_eq!(flat.len(), shape.parameters(), "a flat vector has one value a parameter");
        let (first, second) = flat.split_at((shape.inputs() + 1) * HIDDEN);
        let (b1, w1) = first.as_chunks().0.split_last().expect("b1 ends the first layer");
        let (b2, w2) = second.as_chunks().0.split_last().expect("b2 ends the second layer");
        Self { w1, b1, w2, b2 }
    }

    fn hidden(&self, image: &[f32]) -> [f32; HIDDEN] {
        let mut hidden = *self.b1;
        for (row, &pixel) in self.w1.iter().zip(image) {
            add_scaled(&mut hidden, row, pixel);
        }
        hidden.map(|sum| sum.max(0.0))
    }

    fn logits(&self, hidden: &[f32; HIDDEN]) -> [f32; CLASSES] {
        let mut logits = *self.b2;
        for (row, &activity) in self.w2.iter().zip(hidden) {
            add_scaled(&mut logits, row, activity);
        }
        logits
    }
}

/// The parts of a flat parameter or gradient vector, to be written.
struct LayersMut<'a> {
    w1: &'a mut [[f32; HIDDEN]],
    b1: &'a mut [f32; HIDDEN],
    w2: &'a mut [[f32; CLASSES]],
    b2: &'a mut [f32; CLASSES],
}

impl<'a> LayersMut<'a> {
    fn new(shape: Shape, flat: &'a mut [f32]) -> Self {
        assert_eq!(flat.len(), shape.parameters(), "a flat vector has one value a parameter");
        let (first, second) = flat.split_at_mut((shape.inputs() + 1) * HIDDEN);
        let (b1, w1) = first.as_chunks_mut().0.split_last_mut().expect("b1 ends the first layer");
        let (b2, w2) = second.as_chunks_mut().0.split_last_mut().expect("b2 ends the second layer");
        Self { w1, b1, w2, b2 }
    }
}

/// `sums += row * by`. Elements are independent, so this becomes vector code with the same bits.
#[inline]
fn add_scaled<const N: usize>(sums: &mut [f32; N], row: &[f32; N], by: f32) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value * by;
    }
}
