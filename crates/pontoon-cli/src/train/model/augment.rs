//! Images shifted by a pixel, so that no two epochs see the same ones.

use super::Shape;
use crate::train::rng::{SplitMix64, Stream};

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
    let from = |to: usize, by: isize| to.checked_add_signed(-by).filter(|&from| from < side);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_moves_by_one_pixel_and_is_scaled() {
        let raw = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0].map(|pixel: f32| pixel * 2.0);
        for (direction, moved) in [
            (Shift::Stay, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
            (Shift::Up, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0]),
            (Shift::Down, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            (Shift::Left, [2.0, 3.0, 0.0, 5.0, 6.0, 0.0, 8.0, 9.0, 0.0]),
            (Shift::Right, [0.0, 1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 7.0, 8.0]),
        ] {
            let mut out = [f32::NAN; 9];
            shift(3, &raw, &mut out, 2.0, direction);
            assert_eq!(out, moved, "{direction:?}");
        }
    }

    #[test]
    fn augment_shifts_each_sample_by_its_number_whatever_its_place() {
        let shape = Shape::for_inputs(9).unwrap();
        let samples: Vec<u32> = (100..150).collect();
        let raw: Vec<f32> = (0..50 * 9).map(|at| at as f32).collect();
        let mut all = vec![f32::NAN; raw.len()];
        augment(shape, &raw, &mut all, 16.0, 3, 4, &samples);
        for (at, &sample) in samples.iter().enumerate() {
            let image = at * 9..(at + 1) * 9;
            let mut alone = [f32::NAN; 9];
            augment(shape, &raw[image.clone()], &mut alone, 16.0, 3, 4, &[sample]);
            assert_eq!(all[image.clone()], alone);
            let mut moved = [f32::NAN; 9];
            shift(3, &raw[image], &mut moved, 16.0, Shift::of(3, 4, sample));
            assert_eq!(alone, moved);
        }
    }

    #[test]
    fn directions_are_equally_likely_and_change_with_seed_and_epoch() {
        let directions =
            |seed, epoch| (0..1000).map(|s| Shift::of(seed, epoch, s)).collect::<Vec<_>>();
        let first = directions(1, 0);
        for wanted in [Shift::Stay, Shift::Up, Shift::Down, Shift::Left, Shift::Right] {
            let count = first.iter().filter(|&&direction| direction == wanted).count();
            assert!((150..250).contains(&count), "{wanted:?}: {count}");
        }
        assert_ne!(first, directions(2, 0));
        assert_ne!(first, directions(1, 1));
    }
}
