//! What is wrong with a data file, and where.

use std::{error::Error, fmt, io, path::PathBuf};

use super::MIN_SAMPLES;
use crate::train::model::{CLASSES, Shape};

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
    /// The numbers take more memory than there is.
    NoMemory {
        /// Where reading ended.
        line: u64,
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
            DataFault::NoMemory { line } => {
                write!(f, "line {line} and what is before it do not fit in memory")
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

    pub(super) fn new(bytes: &[u8]) -> Self {
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
