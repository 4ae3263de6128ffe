//! The network's dimensions, and its flat parameters as layers.

/// Units of the hidden layer.
pub(crate) const HIDDEN: usize = 32;
/// Classes the network tells apart; labels are `0..CLASSES`.
pub(crate) const CLASSES: usize = 10;

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

/// The parts of a flat parameter vector.
pub(super) struct Layers<'a> {
    pub(super) w1: &'a [[f32; HIDDEN]],
    pub(super) b1: &'a [f32; HIDDEN],
    pub(super) w2: &'a [[f32; CLASSES]],
    pub(super) b2: &'a [f32; CLASSES],
}

impl<'a> Layers<'a> {
    pub(super) fn new(shape: Shape, flat: &'a [f32]) -> Self {
        assert_eq!(flat.len(), shape.parameters(), "a flat vector has one value a parameter");
        let (first, second) = flat.split_at((shape.inputs() + 1) * HIDDEN);
        let (b1, w1) = first.as_chunks().0.split_last().expect("b1 ends the first layer");
        let (b2, w2) = second.as_chunks().0.split_last().expect("b2 ends the second layer");
        Self { w1, b1, w2, b2 }
    }

    pub(super) fn hidden(&self, image: &[f32]) -> [f32; HIDDEN] {
        let mut hidden = *self.b1;
        for (row, &pixel) in self.w1.iter().zip(image) {
            add_scaled(&mut hidden, row, pixel);
        }
        hidden.map(|sum| sum.max(0.0))
    }

    pub(super) fn logits(&self, hidden: &[f32; HIDDEN]) -> [f32; CLASSES] {
        let mut logits = *self.b2;
        for (row, &activity) in self.w2.iter().zip(hidden) {
            add_scaled(&mut logits, row, activity);
        }
        logits
    }
}

/// The parts of a flat parameter or gradient vector, to be written.
pub(super) struct LayersMut<'a> {
    pub(super) w1: &'a mut [[f32; HIDDEN]],
    pub(super) b1: &'a mut [f32; HIDDEN],
    pub(super) w2: &'a mut [[f32; CLASSES]],
    pub(super) b2: &'a mut [f32; CLASSES],
}

impl<'a> LayersMut<'a> {
    pub(super) fn new(shape: Shape, flat: &'a mut [f32]) -> Self {
        assert_eq!(flat.len(), shape.parameters(), "a flat vector has one value a parameter");
        let (first, second) = flat.split_at_mut((shape.inputs() + 1) * HIDDEN);
        let (b1, w1) = first.as_chunks_mut().0.split_last_mut().expect("b1 ends the first layer");
        let (b2, w2) = second.as_chunks_mut().0.split_last_mut().expect("b2 ends the second layer");
        Self { w1, b1, w2, b2 }
    }
}

/// `sums += row * by`. Elements are independent, so this becomes vector code with the same bits.
#[inline]
pub(super) fn add_scaled<const N: usize>(sums: &mut [f32; N], row: &[f32; N], by: f32) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value * by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_squares_up_to_32_by_32() {
        let side = |inputs| Shape::for_inputs(inputs).map(Shape::side);
        assert_eq!([side(1), side(64), side(1024)], [Some(1), Some(8), Some(32)]);
        assert_eq!([side(0), side(2), side(63), side(1023), side(1089)], [None; 5]);
        assert_eq!(Shape::for_inputs(64).unwrap().parameters(), 64 * 32 + 32 + 32 * 10 + 10);
    }
}
