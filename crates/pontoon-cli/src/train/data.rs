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

    /// The samples of a file whose bytes are at hand; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub(crate) fn from_bytes(bytes: &[u8], file: &Path) -> Result<Self, DataError> {
        unpack(bytes, MAX_BYTES)
            .and_then(|text| Self::parse(&text))
            .map_err(|fault| DataError { file: file.to_owned(), fault })
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
    unpack(File::open(path).map_err(DataFault::Open)?, limit)
}

/// What `file` holds, unpacked if its first bytes say gzip.
fn unpack(mut file: impl Read, limit: u64) -> Result<Vec<u8>, DataFault> {
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

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, process};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// A file that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("pontoon-{}-{name}", process::id()));
            fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// Eight samples of 2 by 2 pixels: `[n, -n, 0.5, 1e2]` with the label `n`.
    fn good() -> String {
        (0..8).map(|n| format!("{n},-{n}, 0.5,1e2,{n}\n")).collect()
    }

    fn parse(text: &str) -> Result<Dataset, DataFault> {
        Dataset::parse(text.as_bytes())
    }

    /// What is said of a file `d.csv` with this text.
    fn message(text: &str) -> String {
        let fault = parse(text).expect_err("the text is faulty");
        DataError { file: "d.csv".into(), fault }.to_string()
    }

    /// What is said of [`good`] after its third line was replaced.
    fn message_with(third: &str) -> String {
        let text = good();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[2] = third;
        message(&lines.join("\n"))
    }

    #[test]
    fn rows_become_features_and_labels() {
        let data = parse(&good()).unwrap();
        assert_eq!((data.len(), data.shape().side()), (8, 2));
        assert_eq!(data.features()[4..8], [1.0, -1.0, 0.5, 100.0]);
        assert_eq!(data.labels(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(data.scale(), 100.0);
    }

    #[test]
    fn the_same_rows_are_read_from_every_form_of_file() {
        let expected = parse(&good()).unwrap();
        let text = good();
        let header = format!("a,b,c,d,label\n{text}");
        let windows = format!("\u{feff}{}\r\n", text.replace('\n', "\r\n\r\n"));
        let halves = text.split_at(text.len() / 2);
        let members = [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat();
        for (form, bytes) in [
            ("plain.csv.gz", text.clone().into_bytes()),
            ("gzip.csv", gzip(text.as_bytes())),
            ("members.csv.gz", members),
            ("header.csv", header.into_bytes()),
            ("windows.csv", windows.into_bytes()),
            ("no-end.csv", text.trim_end().as_bytes().to_vec()),
            ("whole-label.csv", text.replacen(",3\n", ",3.0\n", 1).into_bytes()),
        ] {
            let file = Scratch::new(form, &bytes);
            assert_eq!(Dataset::load(&file.0).expect(form), expected, "{form}");
        }
    }

    #[test]
    fn the_digits_are_1797_images_of_8_by_8() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.csv.gz");
        let data = Dataset::load(&path).unwrap();
        assert_eq!((data.len(), data.shape().side(), data.scale()), (1797, 8, 16.0));
        let split = data.split(1, 0.25);
        assert_eq!((split.train.len(), split.test.len()), (1348, 449));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let missing = std::env::temp_dir().join("pontoon-no-such-file.csv");
        let error = Dataset::load(&missing).unwrap_err();
        assert!(matches!(error.fault, DataFault::Open(_)));
        let expected = "cannot open: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), format!("{}: {expected}", missing.display()));
        assert!(error.source().is_some());

        let folder = std::env::temp_dir();
        let error = Dataset::load(&folder).unwrap_err();
        assert!(matches!(error.fault, DataFault::Read(_)));
        let expected = "cannot read: Is a directory (os error 21)";
        assert_eq!(error.to_string(), format!("{}: {expected}", folder.display()));
    }

    #[test]
    fn a_damaged_gzip_file_is_refused_wherever_it_is_cut() {
        let whole = gzip(good().as_bytes());
        for length in 2..whole.len() {
            let file = Scratch::new("cut.csv.gz", &whole[..length]);
            let error = Dataset::load(&file.0).unwrap_err();
            assert!(matches!(error.fault, DataFault::Gzip(_)), "{length}: {error}");
        }
        let file = Scratch::new("half.csv.gz", &whole[..whole.len() / 2]);
        let expected = "begins as gzip but is cut short or damaged: incomplete deflate stream";
        let error = Dataset::load(&file.0).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {expected}", file.0.display()));

        let mut flipped = whole.clone();
        let checksum = whole.len() - 8;
        flipped[checksum] ^= 1;
        let file = Scratch::new("flipped.csv.gz", &flipped);
        let expected = "begins as gzip but is cut short or damaged: corrupt gzip stream does not \
                        have a matching checksum";
        let error = Dataset::load(&file.0).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {expected}", file.0.display()));
    }

    #[test]
    fn more_text_than_the_limit_is_refused_before_it_is_kept() {
        for bytes in [good().into_bytes(), gzip(good().as_bytes())] {
            let file = Scratch::new("large.csv", &bytes);
            let length = good().len() as u64;
            assert_eq!(read(&file.0, length).unwrap(), good().as_bytes());
            let fault = read(&file.0, length - 1).unwrap_err();
            let message = DataError { file: "d.csv".into(), fault }.to_string();
            let expected = format!(
                "d.csv: holds more than {} bytes of text, the most that is read",
                length - 1
            );
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn files_without_enough_rows_are_refused() {
        let empty = "d.csv: is empty; expected rows of features and a label";
        assert_eq!(message(""), empty);
        let no_rows = "d.csv: has no rows of numbers";
        assert_eq!(message("\n\n"), no_rows);
        assert_eq!(message("a,b,c,d,label\n"), no_rows);
        let seven: String = good().lines().take(7).map(|line| format!("{line}\n")).collect();
        let too_few = "d.csv: has too few rows to split: 7, expected at least 8";
        assert_eq!(message(&seven), too_few);
    }

    #[test]
    fn rows_of_a_wrong_width_are_refused() {
        let narrow = "d.csv: line 1 has 1 column; expected at least 2, features and then a label";
        assert_eq!(message("5\n6\n"), narrow);
        let not_square = "d.csv: line 2 has 3 features before the label; expected the pixels of a \
                          square image, at most 1024 (such as 64 for 8x8)";
        assert_eq!(message("\n1,2,3,4\n"), not_square);
        let ragged = "d.csv: line 3 has 4 columns; expected 5 as on line 1";
        assert_eq!(message_with("1,2,3,4"), ragged);
        let ragged = "d.csv: line 3 has 6 columns; expected 5 as on line 1";
        assert_eq!(message_with("1,2,3,4,5,6"), ragged);
    }

    #[test]
    fn cells_that_are_no_finite_numbers_are_shown() {
        let shown = |cell: &str, shown: &str| {
            let message = message_with(&format!("1,2,{cell},4,5"));
            let expected = "d.csv: line 3, column 3: expected a finite 32-bit number, found ";
            assert_eq!(message, format!("{expected}{shown}"));
        };
        shown("x", "\"x\"");
        shown("", "nothing");
        shown("nan", "\"nan\"");
        shown("-inf", "\"-inf\"");
        shown("1e39", "\"1e39\"");
        shown("\"1\n2\"", "\"1\\n2\"");
        shown(&"é".repeat(41), &format!("\"{}…\"", "é".repeat(40)));
    }

    #[test]
    fn labels_that_are_no_classes_are_shown() {
        for label in ["-1", "10", "2.5", "1e99", "nan", "cat"] {
            let expected = "d.csv: line 3, column 5: expected a whole number from 0 to 9 as the \
                            label, found ";
            let message = message_with(&format!("1,2,3,4,{label}"));
            assert_eq!(message, format!("{expected}{label:?}"));
        }
    }

    #[test]
    fn a_first_row_is_a_header_only_if_it_holds_no_number() {
        let fault = "d.csv: line 1, column 2: expected a finite 32-bit number, found \"b\"";
        assert_eq!(message(&format!("1,b,c,d,5\n{}", good())), fault);
        let fault = "d.csv: line 2, column 1: expected a finite 32-bit number, found \"e\"";
        assert_eq!(message(&format!("a,b,c,d,label\ne,f,g,h,i\n{}", good())), fault);
    }

    #[test]
    fn lines_are_counted_as_an_editor_counts_them() {
        let line = |before: &str| {
            let fault = parse(&format!("{before}x,1,1,1,1\n")).expect_err("x is no number");
            let DataFault::Feature { line, .. } = fault else { panic!("{fault:?}") };
            line
        };
        assert_eq!(line("1,1,1,1,1\n"), 2);
        assert_eq!(line("\n\n1,1,1,1,1\n\n\n"), 6);
        assert_eq!(line("1,1,1,1,1\r\n\r\n"), 3);
        assert_eq!(line("1,1,1,1,1\r\r"), 3);
        assert_eq!(line("\"\n1\",1,1,1,1\n"), 3);
        assert_eq!(line("\u{feff}1,1,1,1,1\n"), 2);
    }

    #[test]
    fn a_split_is_decided_by_its_seed_and_keeps_every_sample() {
        let data = parse(&good()).unwrap();
        let split = data.split(1, 0.25);
        assert_eq!((split.train.len(), split.test.len()), (6, 2));
        assert_eq!(split, data.split(1, 0.25));
        assert!((2..9).any(|seed| data.split(seed, 0.25) != split));
        let mut labels = [split.train.labels(), split.test.labels()].concat();
        for part in [&split.train, &split.test] {
            for (image, &label) in part.features().chunks(4).zip(part.labels()) {
                assert_eq!(image[0], f32::from(label));
            }
        }
        labels.sort_unstable();
        assert_eq!(labels, data.labels());
    }

    #[test]
    fn samples_are_gathered_in_the_order_asked_for() {
        let data = parse(&good()).unwrap();
        let (mut features, mut labels) = ([0.0; 12], [0; 3]);
        data.gather(&[6, 2, 6], &mut features, &mut labels);
        assert_eq!(labels, [6, 2, 6]);
        assert_eq!([features[0], features[4], features[8]], [6.0, 2.0, 6.0]);
    }

    #[test]
    fn the_scale_is_a_magnitude() {
        assert_eq!(parse(&"-3,0\n".repeat(8)).unwrap().scale(), 3.0);
    }

    #[test]
    fn a_set_of_zeros_has_a_scale_that_can_divide() {
        let data = parse(&"0,0\n".repeat(8)).unwrap();
        assert_eq!(data.scale(), 1.0);
    }
}
