//! From the bytes of a file to rows of numbers.

use std::{
    io::Read,
    path::Path,
    str::{self, FromStr},
};

use super::{Cell, DataFault, Dataset, MIN_SAMPLES};
use crate::{
    input::{Input, read_to_limit},
    train::model::{CLASSES, Shape},
};

/// How every gzip file begins (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The samples in `text`.
pub(super) fn parse(text: &[u8]) -> Result<Dataset, DataFault> {
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
            Ok(Dataset { shape, features, labels })
        }
        Some(_) if !labels.is_empty() => Err(DataFault::TooFewSamples { found: labels.len() }),
        _ => Err(DataFault::NoSamples),
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

pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataFault> {
    unpack(Input::open(path).map_err(DataFault::Open)?, limit)
}

/// What `file` holds, unpacked if its first bytes say gzip.
pub(super) fn unpack(mut file: impl Read, limit: u64) -> Result<Vec<u8>, DataFault> {
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic).map_err(DataFault::Read)?;
    let is_gzip = magic == GZIP_MAGIC;
    let whole = magic.as_slice().chain(file);
    let text = if is_gzip {
        let members = flate2::read::MultiGzDecoder::new(whole);
        read_to_limit(members, limit).map_err(DataFault::Gzip)?
    } else {
        read_to_limit(whole, limit).map_err(DataFault::Read)?
    };
    text.ok_or(DataFault::TooLarge { limit })
}

fn read_row(
    row: &csv::ByteRecord,
    line: u64,
    features: &mut Vec<f32>,
    labels: &mut Vec<u8>,
) -> Result<(), DataFault> {
    let label_at = row.len() - 1;
    let no_memory = |_| DataFault::NoMemory { line };
    features.try_reserve(label_at).map_err(no_memory)?;
    labels.try_reserve(1).map_err(no_memory)?;
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
