//! What is read and what is refused.

use std::{error::Error, fs, io::Write, path::PathBuf, process};

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
    read::parse(text.as_bytes())
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
        let expected =
            format!("d.csv: holds more than {} bytes of text, the most that is read", length - 1);
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
