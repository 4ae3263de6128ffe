//! What the logged test runs ran, by kind; a kind the project relies on that ran nothing fails.
//!
//! A log is given as `KIND=PATH`. `workspace` is the output, both streams in one, of `cargo test
//! --workspace -- --show-output`: cargo's headings sort its tests into unit, integration, model,
//! ui and doc. `loom` and `weakened` logs count as that kind whole.
//!
//! A test that cannot run here prints `skipped: what was probed and is missing`. libtest calls it
//! passed; here it is skipped and not passed. Without `--show-output` libtest keeps such lines.

use crate::report::Report;
use std::{collections::BTreeMap, fs};

/// A kind of test, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Unit,
    Integration,
    /// `tests/model_*.rs`: random operations against an oracle.
    Model,
    /// What must not compile: `compile_fail` doc tests and `tests/ui.rs`.
    Ui,
    Doc,
    Loom,
    /// Models with an ordering taken away, which loom must catch.
    Weakened,
}

/// Every kind there is; each must run something.
const REQUIRED: [Kind; 7] =
    [Kind::Unit, Kind::Integration, Kind::Model, Kind::Ui, Kind::Doc, Kind::Loom, Kind::Weakened];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::Model => "model",
            Self::Ui => "ui",
            Self::Doc => "doc",
            Self::Loom => "loom",
            Self::Weakened => "weakened",
        }
    }

    /// The kind that a heading of cargo's opens, if the line is one.
    fn of_heading(line: &str) -> Option<Self> {
        let line = line.trim_start();
        if line.starts_with("Doc-tests ") {
            return Some(Self::Doc);
        }
        let target = line.strip_prefix("Running ")?;
        if target.starts_with("unittests ") {
            return Some(Self::Unit);
        }
        let file = target.split(' ').next()?.rsplit('/').next()?;
        Some(match file {
            "ui.rs" => Self::Ui,
            _ if file.starts_with("model_") => Self::Model,
            _ => Self::Integration,
        })
    }
}

/// How many tests of one kind ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: usize,
}

type Tallies = BTreeMap<Kind, Tally>;

/// Counts the logs `KIND=PATH`.
pub(crate) fn check(logs: &[&str]) -> Result<Report, String> {
    let mut tallies = Tallies::new();
    let mut report = Report::default();
    for log in logs {
        let (label, path) = log.split_once('=').ok_or(format!("`{log}` is not KIND=PATH"))?;
        let whole = match label {
            "workspace" => None,
            "loom" => Some(Kind::Loom),
            "weakened" => Some(Kind::Weakened),
            _ => return Err(format!("`{label}` is not workspace, loom or weakened")),
        };
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        read(&text, whole, &mut tallies, &mut report.lines);
    }
    conclude(&tallies, &mut report);
    Ok(report)
}

/// Adds up one log; `skipped: ` lines are echoed to `lines`.
fn read(text: &str, whole: Option<Kind>, tallies: &mut Tallies, lines: &mut Vec<String>) {
    let mut kind = whole;
    // Whether the output being read is that of a test already counted as skipped.
    let mut counted = false;
    for line in text.lines() {
        if whole.is_none() {
            kind = Kind::of_heading(line).or(kind);
        }
        let Some(kind) = kind else { continue };
        let tally = tallies.entry(kind).or_default();
        if let Some([passed, failed, ignored]) = result(line) {
            // Skipped tests were taken off before their sum was known.
            tally.passed = tally.passed.wrapping_add(passed);
            tally.failed += failed;
            tally.ignored += ignored;
        } else if line.starts_with("---- ") {
            counted = false;
        } else if line.starts_with("skipped: ") {
            lines.push(format!("{}: {line}", kind.name()));
            if !counted {
                tally.skipped += 1;
                tally.passed = tally.passed.wrapping_sub(1);
            }
            counted = true;
        } else if kind == Kind::Doc && line.contains(" - compile fail ... ") {
            let ui = tallies.entry(Kind::Ui).or_default();
            if line.ends_with(" ok") {
                ui.passed += 1;
                let doc = tallies.entry(Kind::Doc).or_default();
                doc.passed = doc.passed.wrapping_sub(1);
            }
        }
    }
}

/// Passed, failed and ignored of a `test result: …` line.
fn result(line: &str) -> Option<[usize; 3]> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |word: &str| -> Option<usize> {
        let part = counts.split("; ").find_map(|part| part.strip_suffix(word))?;
        part.trim().parse().ok()
    };
    Some([count("passed")?, count("failed")?, count("ignored")?])
}

/// Writes the table and finds the kinds that are red.
fn conclude(tallies: &Tallies, report: &mut Report) {
    report.line(format!(
        "{:12} {:>7} {:>7} {:>7} {:>7}",
        "kind", "passed", "failed", "ignored", "skipped"
    ));
    let mut sum = Tally::default();
    for kind in REQUIRED {
        let tally = tallies.get(&kind).copied().unwrap_or_default();
        let Tally { passed, failed, ignored, skipped } = tally;
        report
            .line(format!("{:12} {passed:>7} {failed:>7} {ignored:>7} {skipped:>7}", kind.name()));
        if passed + failed == 0 {
            report.problem(format!("no {} test ran", kind.name()));
        }
        sum.passed += passed;
        sum.failed += failed;
        sum.skipped += skipped + ignored;
    }
    if sum.failed > 0 {
        report.problem(format!("{} test(s) failed", sum.failed));
    }
    report.line(format!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped));
}
