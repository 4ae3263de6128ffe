//! Labelled samples from CSV or CSV.gz.
//!
//! One sample a row: the features, then the label in the last column. The features are the pixels
//! of a square image, row by row. A first row without a single number in it is a header and is
//! skipped; a first row in which only some cells are no numbers is a mistake and is reported.
//! Blank lines are skipped, spaces around a cell are ignored.

mod error;
mod read;

use std::path::Path;

pub(crate) use error::{Cell, DataError, DataFault};

use super::{
    model::Shape,
    rng::{SplitMix64, Stream},
};
use read::{parse, read, unpack};

use crate::input::MAX_BYTES;

/// The fewest samples that [`Dataset::load`] accepts, so that both parts of a split hold some.
pub(crate) const MIN_SAMPLES: usize = 8;

/// Samples of one shape, as they are in their file; a sample's number is its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dataset {
    shape: Shape,
    features: Vec<f32>,
    labels: Vec<u8>,
}

/// Two parts of a data set that share no sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    /// What the network learns from.
    pub(crate) train: Dataset,
    /// What it is measured on.
    pub(crate) test: Dataset,
}

impl Dataset {
    /// Reads the samples of a CSV file, compressed with gzip or not; its first bytes tell which.
    ///
    /// # Errors
    ///
    /// [`DataError`], with the file and the first [`DataFault`] found in it.
    pub(crate) fn load(path: &Path) -> Result<Self, DataError> {
        read(path, MAX_BYTES)
            .and_then(|text| parse(&text))
            .map_err(|fault| DataError { file: path.to_owned(), fault })
    }

    /// The samples of a file whose bytes are at hand; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub(crate) fn from_bytes(bytes: &[u8], file: &Path) -> Result<Self, DataError> {
        unpack(bytes, MAX_BYTES)
            .and_then(|text| parse(&text))
            .map_err(|fault| DataError { file: file.to_owned(), fault })
    }

    /// The dimensions of the samples and of the network for them.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Samples in the set.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// All features, `[len][inputs]`, in the file's own scale.
    pub(crate) fn features(&self) -> &[f32] {
        &self.features
    }

    /// All labels, `[len]`, each below [`CLASSES`].
    pub(crate) fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Copies the samples with the numbers `samples` to `features` (`[samples][inputs]`, in the
    /// file's own scale) and `labels` (`[samples]`).
    ///
    /// # Panics
    ///
    /// If the lengths do not agree, or a number is not below [`len`](Self::len).
    pub(crate) fn gather(&self, samples: &[u32], features: &mut [f32], labels: &mut [u8]) {
        let inputs = self.shape.inputs();
        assert_eq!(features.len(), samples.len() * inputs, "gather writes one image a sample");
        assert_eq!(labels.len(), samples.len(), "gather writes one label a sample");
        for ((&sample, image), label) in
            samples.iter().zip(features.chunks_exact_mut(inputs)).zip(labels)
        {
            let sample = sample as usize;
            image.copy_from_slice(&self.features[sample * inputs..][..inputs]);
            *label = self.labels[sample];
        }
    }

    /// Shuffles the samples by `seed` and sets the share `test` (`0.0..=1.0`) of them aside,
    /// rounded to whole samples.
    pub(crate) fn split(&self, seed: u64, test: f64) -> Split {
        let count = u32::try_from(self.len()).expect("a file of MAX_BYTES has fewer rows");
        let order = SplitMix64::open(seed, Stream::Split, &[]).permutation(count);
        let (test, train) = order.split_at((self.len() as f64 * test).round() as usize);
        Split { train: self.subset(train), test: self.subset(test) }
    }

    /// The largest magnitude among the features, by which they are divided before training; 1.0 if
    /// all are 0.
    pub(crate) fn scale(&self) -> f32 {
        let largest = self.features.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if largest > 0.0 { largest } else { 1.0 }
    }

    fn subset(&self, samples: &[u32]) -> Self {
        let mut features = vec![0.0; samples.len() * self.shape.inputs()];
        let mut labels = vec![0; samples.len()];
        self.gather(samples, &mut features, &mut labels);
        Self { shape: self.shape, features, labels }
    }
}

#[cfg(test)]
mod tests;
