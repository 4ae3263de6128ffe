//! `pontoon check`: what is unordered, or never ends, in programs written down as scenario files.

mod answer;
mod entries;
mod json;
mod node;
mod scenario;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use pontoon_queue::check::{Finding, check};

use answer::Answer;
use scenario::Scenario;

use crate::input::{Input, MAX_BYTES, read_to_limit};

/// Tells what is unordered, or never ends, in scenario files (docs/formats/scenario.md).
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Scenario files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Prints one JSON object a file.
    #[arg(long)]
    json: bool,
}

/// Something was found.
const FOUND: u8 = 1;
/// A file is not a scenario.
const NO_SCENARIO: u8 = 2;

/// Checks every file; the exit status is that of the worst one.
///
/// # Errors
/// Standard output fails.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> io::Result<ExitCode> {
    let mut worst = 0;
    for file in &options.files {
        let status = match read(file) {
            Ok((scenario, findings)) => {
                let answer = Answer { file, scenario: &scenario, findings: &findings };
                if options.json {
                    answer.print_json(out)?
                } else {
                    answer.print_text(out)?
                }
                if findings.is_empty() { 0 } else { FOUND }
            }
            Err(why) => {
                eprintln!("error: {}: {why}", one_line(&file.display().to_string()));
                NO_SCENARIO
            }
        };
        worst = worst.max(status);
    }
    out.flush()?;
    Ok(ExitCode::from(worst))
}

fn read(file: &Path) -> Result<(Scenario, Vec<Finding>), String> {
    let text = Input::open(file)
        .and_then(|input| read_to_limit(input, MAX_BYTES))
        .map_err(|error| format!("expected a file to read: {error}"))?
        .ok_or_else(|| format!("holds more than {MAX_BYTES} bytes, the most that is read"))?;
    let scenario = Scenario::read(&text).map_err(|fault| one_line(&fault.to_string()))?;
    let findings = check(&scenario.program).map_err(|error| error.to_string())?;
    Ok((scenario, findings))
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Reads and, if it is a scenario, checks; returns what is wrong with the text.
    fn judge(text: &[u8]) -> Option<String> {
        match Scenario::read(text) {
            Ok(scenario) => {
                check(&scenario.program).expect("what is read names only what it has");
                None
            }
            Err(fault) => Some(fault.to_string()),
        }
    }

    fn valid() -> Vec<Vec<u8>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
        let files = fs::read_dir(folder).expect("scenarios").map(|file| file.expect("file").path());
        let files = files.filter(|path| !path.to_string_lossy().ends_with(".expect.json"));
        let files = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
        let mut files: Vec<_> = files.collect();
        files.sort();
        files.iter().map(|path| fs::read(path).expect("readable")).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_bytes_are_refused_in_one_line(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let why = judge(&text).expect("no scenario");
            prop_assert!(why.contains("expected"), "{why}");
        }

        #[test]
        fn a_changed_file_is_read_or_refused(
            which: prop::sample::Index,
            changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..4),
        ) {
            let all = valid();
            let mut text = which.get(&all).clone();
            for (at, change) in changes {
                change.make(&mut text, at);
            }
            if let Some(why) = judge(&text) {
                prop_assert!(why.starts_with("line ") && why.contains("expected"), "{why}");
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Change {
        Byte(u8),
        Insert(&'static str),
        /// In place of one number, also of one in a string such as `s>=1`.
        Number(&'static str),
        /// In place of one string.
        Text(&'static str),
        Cut(usize),
        Swap(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let words = [
            "{",
            "}",
            "[",
            "]",
            ",",
            "\"",
            "0",
            "-1",
            "18446744073709551615",
            "null",
            "\"host\"",
            "\"wait\":[\"t>=1\"],",
            "\"rmw\":[\"x\"],",
            ">=",
            "+=",
            "[1..2]",
            "\\u0000",
            "1e400",
        ];
        let numbers = ["0", "18446744073709551615", "18446744073709551616", "-1", "1.5", "", "7"];
        let texts = [
            "",
            "host",
            "host:",
            "free",
            "barrier",
            "collective",
            "lock",
            "x[",
            "x[]",
            "x[..]",
            "x[1..]",
            "q0",
            "t>=",
            ">=1",
            "=",
            "+=",
            "event:",
            "of",
            "implicit",
            "launch",
        ];
        prop_oneof![
            any::<u8>().prop_map(Change::Byte),
            prop::sample::select(words.to_vec()).prop_map(Change::Insert),
            prop::sample::select(numbers.to_vec()).prop_map(Change::Number),
            prop::sample::select(texts.to_vec()).prop_map(Change::Text),
            (1..40_usize).prop_map(Change::Cut),
            (1..60_usize).prop_map(Change::Swap),
        ]
    }

    impl Change {
        fn make(&self, text: &mut Vec<u8>, at: prop::sample::Index) {
            let parts = match *self {
                Self::Number(_) => runs(text, |byte| byte.is_ascii_digit()),
                Self::Text(_) => runs(text, |byte| byte != b'"'),
                _ => Vec::new(),
            };
            if let (Self::Number(word) | Self::Text(word), false) = (self, parts.is_empty()) {
                drop(text.splice(at.get(&parts).clone(), word.bytes()));
                return;
            }
            let at = at.index(text.len() + 1);
            match *self {
                Self::Number(_) | Self::Text(_) => {}
                Self::Byte(byte) => text.get_mut(at).into_iter().for_each(|it| *it = byte),
                Self::Insert(word) => drop(text.splice(at..at, word.bytes())),
                Self::Cut(length) => drop(text.drain(at..(at + length).min(text.len()))),
                Self::Swap(by) if at + by < text.len() => text.swap(at, at + by),
                Self::Swap(_) => {}
            }
        }
    }

    /// The longest runs of bytes of a kind.
    fn runs(text: &[u8], is_one: impl Fn(u8) -> bool) -> Vec<std::ops::Range<usize>> {
        let mut runs = Vec::<std::ops::Range<usize>>::new();
        for at in (0..text.len()).filter(|&at| is_one(text[at])) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}
