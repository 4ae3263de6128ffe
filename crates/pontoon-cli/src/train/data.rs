//! Labelled samples from CSV or CSV.gz.
//!
//! One sample a row: the features, then the label in the last column. The features are the pixels
//! of a square image, row by row. A first row without a single number in it is a header and is
//! skipped; a first row in which only some cells are no numbers is a mistake and is reported.
//! Blank lines are skipped, spaces around a cell are ignored.

use std::{
    error::Error,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::{self, FromStr},
};

use super::{
    model::{CLASSES, Shape},
    rng::{SplitMix64, Stream},
};

/// The fewest samples that [`Dataset::load`] accepts, so that both parts of a split hold some.
pub(crate) const MIN_SAMPLES: usize = 8;
/// The most text that is read, in bytes after decompression.
const MAX_BYTES: u64 = 256 << 20;
/// How every gzip file begins (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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
            .and_then(|text| Self::parse(&text))
            .map_err(|fault| DataError { file: path.to_owned(), fault })
    }

    fn parse(text: &[u8]) -> Result<Self, DataFault> {
        if text.is_empty() {
            return Err(DataFault::Empty);
        }
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text);
        let mut row = csv::ByteRecord::new();
        let mut lines = Lines { text, at: 0, line: 1 };
        let mut first = None;
        let (mut features, mut labels) = (Vec::new(), Vec::new());
        while reader.read_byte_record(&mut row).expect("bytes in memory can be read") {
            let line = lines.of(&row);
            let width = match first {
                Some(width) => width,
                None => {
                    let width = *first.insert(Width::of(&row, line)?);
                    if row.iter().all(|cell| number::<f64>(cell).is_none()) {
                        continue;
                    }
                    width
                }
            };
            if row.len() != width.columns {
                return Err(DataFault::Ragged {
                    line,
                    columns: row.len(),
                    first_line: width.line,
                    first: width.columns,
                });
            }
            read_row(&row, line, &mut features, &mut labels)?;
        }
        match first {
            Some(Width { shape, .. }) if labels.len() >= MIN_SAMPLES => {
                Ok(Self { shape, features, labels })
            }
            Some(_) if !labels.is_empty() => Err(DataFault::TooFewSamples { found: labels.len() }),
            _ => Err(DataFault::NoSamples),
        }
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

/// Why a file is not a data set: which file, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct DataError {
    /// The file, as it was named.
    pub(crate) file: PathBuf,
    /// The first thing wrong with it.
    pub(crate) fault: DataFault,
}

/// What is wrong with a data file; lines and columns count from 1.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum DataFault {
    /// The file cannot be opened.
    Open(io::Error),
    /// The file cannot be read.
    Read(io::Error),
    /// The file begins as gzip and does not decompress to its end.
    Gzip(io::Error),
    /// There is more text than is read.
    TooLarge {
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// There is no text at all.
    Empty,
    /// There is a header or blank lines and nothing else.
    NoSamples,
    /// There are too few samples to split.
    TooFewSamples {
        /// How many there are.
        found: usize,
    },
    /// A row has no room for a feature and a label.
    TooFewColumns {
        /// Where.
        line: u64,
    },
    /// The features are not a square image of an accepted size.
    NotSquare {
        /// Where.
        line: u64,
        /// Columns before the label.
        features: usize,
    },
    /// A row has not as many columns as the first.
    Ragged {
        /// Where.
        line: u64,
        /// How many columns it has.
        columns: usize,
        /// Where the first row is.
        first_line: u64,
        /// How many columns the first row has.
        first: usize,
    },
    /// A feature is not a number, not finite, or beyond what 32 bits hold.
    Feature {
        /// Where.
        line: u64,
        /// In which column.
        column: usize,
        /// What is there.
        cell: Cell,
    },
    /// A label is not the number of a class.
    Label {
        /// Where.
        line: u64,
        /// In which column.
        column: usize,
        /// What is there.
        cell: Cell,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.fault {
            DataFault::Open(error) => write!(f, "cannot open: {error}"),
            DataFault::Read(error) => write!(f, "cannot read: {error}"),
            DataFault::Gzip(error) => {
                write!(f, "begins as gzip but is cut short or damaged: {error}")
            }
            DataFault::TooLarge { limit } => {
                write!(f, "holds more than {limit} bytes of text, the most that is read")
            }
            DataFault::Empty => f.write_str("is empty; expected rows of features and a label"),
            DataFault::NoSamples => f.write_str("has no rows of numbers"),
            DataFault::TooFewSamples { found } => {
                write!(f, "has too few rows to split: {found}, expected at least {MIN_SAMPLES}")
            }
            DataFault::TooFewColumns { line } => write!(
                f,
                "line {line} has 1 column; expected at least 2, features and then a label"
            ),
            DataFault::NotSquare { line, features } => write!(
                f,
                "line {line} has {features} features before the label; expected the pixels of a \
                 square image, at most {} (such as 64 for 8x8)",
                Shape::MAX_INPUTS
            ),
            DataFault::Ragged { line, columns, first_line, first } => {
                write!(
                    f,
                    "line {line} has {columns} columns; expected {first} as on line {first_line}"
                )
            }
            DataFault::Feature { line, column, cell } => write!(
                f,
                "line {line}, column {column}: expected a finite 32-bit number, found {cell}"
            ),
            DataFault::Label { line, column, cell } => write!(
                f,
                "line {line}, column {column}: expected a whole number from 0 to {} as the label, \
                 found {cell}",
                CLASSES - 1
            ),
        }
    }
}

impl Error for DataError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            DataFault::Open(error) | DataFault::Read(error) | DataFault::Gzip(error) => Some(error),
            _ => None,
        }
    }
}

/// A cell of the file, kept to be shown: its beginning, if it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell(String);

impl Cell {
    const SHOWN: usize = 40;

    fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut shown: String = text.chars().take(Self::SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self(shown)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Quoted and escaped, so that a message stays on one line whatever the file holds.
        if self.0.is_empty() { f.write_str("nothing") } else { write!(f, "{:?}", self.0) }
    }
}

/// What the first row says of all the others.
#[derive(Clone, Copy)]
struct Width {
    shape: Shape,
    columns: usize,
    line: u64,
}

impl Width {
    fn of(row: &csv::ByteRecord, line: u64) -> Result<Self, DataFault> {
        let columns = row.len();
        if columns < 2 {
            return Err(DataFault::TooFewColumns { line });
        }
        let features = columns - 1;
        let shape = Shape::for_inputs(features).ok_or(DataFault::NotSquare { line, features })?;
        Ok(Self { shape, columns, line })
    }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataFault> {
    let mut file = File::open(path).map_err(DataFault::Open)?;
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic).map_err(DataFault::Read)?;
    let mut text = Vec::new();
    let is_gzip = magic == GZIP_MAGIC;
    let whole = magic.as_slice().chain(file);
    if is_gzip {
        let mut members = flate2::read::MultiGzDecoder::new(whole).take(limit + 1);
        members.read_to_end(&mut text).map_err(DataFault::Gzip)?;
    } else {
        whole.take(limit + 1).read_to_end(&mut text).map_err(DataFault::Read)?;
    }
    if text.len() as u64 > limit {
        return Err(DataFault::TooLarge { limit });
    }
    Ok(text)
}

fn read_row(
    row: &csv::ByteRecord,
    line: u64,
    features: &mut Vec<f32>,
    labels: &mut Vec<u8>,
) -> Result<(), DataFault> {
    let label_at = row.len() - 1;
    for (at, cell) in row.iter().take(label_at).enumerate() {
        let value = number(cell).filter(|value: &f32| value.is_finite());
        features.push(value.ok_or_else(|| DataFault::Feature {
            line,
            column: at + 1,
            cell: Cell::new(cell),
        })?);
    }
    let cell = &row[label_at];
    let label = number(cell)
        .filter(|label: &f64| (0.0..CLASSES as f64).contains(label) && label.fract() == 0.0);
    labels.push(label.map(|label| label as u8).ok_or_else(|| DataFault::Label {
        line,
        column: label_at + 1,
        cell: Cell::new(cell),
    })?);
    Ok(())
}

fn number<T: FromStr>(cell: &[u8]) -> Option<T> {
    str::from_utf8(cell).ok()?.parse().ok()
}

/// Counts lines. The reader's own count stands before the blank lines that it skips.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line on which `row` begins; rows are asked for in their order.
    fn of(&mut self, row: &csv::ByteRecord) -> u64 {
        let start = row.position().map_or(0, |position| position.byte() as usize);
        while let Some(&byte) = self.text.get(self.at) {
            let ends_line = match byte {
                b'\n' => true,
                b'\r' => self.text.get(self.at + 1) != Some(&b'\n'),
                _ => false,
            };
            if self.at >= start && !matches!(byte, b'\n' | b'\r') {
                break;
            }
            self.line += u64::from(ends_line);
            self.at += 1;
        }
        self.line
    }
}
