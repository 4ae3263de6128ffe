//! What the logged test runs ran, by kind; a kind the project relies on that ran nothing fails.
//!
//! A log is given as `KIND=PATH`. `workspace` is the output, both streams in one, of `cargo test
//! --workspace -- --show-output`: cargo's headings sort its tests into unit, integration, model,
//! ui and doc. `loom` and `weakened` logs count as that kind whole.
//!
//! A test that cannot run here prints `skipped: what was probed and is missing`. libtest calls it
//! passed; here it is skipped and not passed. Without `--show-output` libtest keeps such lines.
//! Where it names a part of the machine in brackets, the part is counted too: see [`parts`].

use crate::{
    parts::{self, Parts},
    report::Report,
};
use std::{collections::BTreeMap, env, fs};

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
    /// What libtest called passed.
    ok: usize,
    /// The part of `ok` that a line of output gave to another kind.
    elsewhere: usize,
    failed: usize,
    ignored: usize,
    /// The part of `ok` that only said why it cannot run.
    skipped: usize,
}

impl Tally {
    fn passed(&self) -> usize {
        self.ok.saturating_sub(self.elsewhere + self.skipped)
    }
}

type Tallies = BTreeMap<Kind, Tally>;

/// Counts the logs `KIND=PATH`.
pub(crate) fn check(logs: &[&str]) -> Result<Report, String> {
    let required = env::var(parts::REQUIRE).unwrap_or_default();
    let (mut tallies, mut parts) = (Tallies::new(), Parts::default());
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
        read(&text, whole, &mut tallies, &mut parts, &mut report.lines);
    }
    parts.conclude(&required, &mut report);
    conclude(&tallies, &mut report);
    Ok(report)
}

/// Adds up one log; `skipped: ` lines are echoed to `lines`.
fn read(
    text: &str,
    whole: Option<Kind>,
    tallies: &mut Tallies,
    parts: &mut Parts,
    lines: &mut Vec<String>,
) {
    let mut kind = whole;
    // Whether the output being read is that of a test already counted as skipped.
    let mut counted = false;
    for line in text.lines() {
        if whole.is_none() {
            kind = Kind::of_heading(line).or(kind);
        }
        let Some(kind) = kind else { continue };
        parts.read(line);
        let tally = tallies.entry(kind).or_default();
        if let Some([passed, failed, ignored]) = result(line) {
            tally.ok += passed;
            tally.failed += failed;
            tally.ignored += ignored;
            parts.end_test();
        } else if line.starts_with("---- ") {
            parts.end_test();
            counted = false;
        } else if line.starts_with("skipped: ") {
            lines.push(format!("{}: {line}", kind.name()));
            tally.skipped += usize::from(!counted);
            counted = true;
        } else if line.starts_with("test ") && line.ends_with(" - compile fail ... ok") {
            tally.elsewhere += 1;
            tallies.entry(Kind::Ui).or_default().ok += 1;
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
    let row = |kind: &str, columns: [&str; 4]| {
        let [passed, failed, ignored, skipped] = columns;
        format!("{kind:12} {passed:>7} {failed:>7} {ignored:>7} {skipped:>7}")
    };
    report.line(row("kind", ["passed", "failed", "ignored", "skipped"]));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for kind in REQUIRED {
        let tally = tallies.get(&kind).copied().unwrap_or_default();
        let counts = [tally.passed(), tally.failed, tally.ignored, tally.skipped];
        report.line(row(kind.name(), counts.map(|it| it.to_string()).each_ref().map(|it| &**it)));
        if tally.passed() + tally.failed == 0 {
            report.problem(format!("no {} test ran", kind.name()));
        }
        passed += tally.passed();
        failed += tally.failed;
        skipped += tally.skipped + tally.ignored;
    }
    if failed > 0 {
        report.problem(format!("{failed} test(s) failed"));
    }
    report.line(format!("{passed} passed, {failed} failed, {skipped} skipped"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "\
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.73s
     Running unittests src/lib.rs (target/debug/deps/a-90b0f7d1df453fe5)

running 3 tests
test a ... ok
test b ... ok
test c ... ignored

successes:

---- a stdout ----
skipped: no device: probed /dev/x, no such file
skipped: nor /dev/y

---- b stdout ----
noise

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/abc.rs (target/debug/deps/abc-896901b8782e9220)
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running crates/a/tests/model_x.rs (target/debug/deps/model_x-35b17219c30900ce)
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests a
running 3 tests
test src/lib.rs - (line 10) - compile ... ok
test src/lib.rs - (line 1) ... ok
test src/lib.rs - (line 7) - compile fail ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.22s
";
    const LOOM: &str = "     Running tests/loom_a.rs (target/release/deps/loom_a-1)\n\
        test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    fn counted(logs: &[(&str, Option<Kind>)]) -> (Tallies, Report) {
        let (mut tallies, mut report) = (Tallies::new(), Report::default());
        for (text, whole) in logs {
            read(text, *whole, &mut tallies, &mut Parts::default(), &mut report.lines);
        }
        conclude(&tallies, &mut report);
        (tallies, report)
    }

    #[test]
    fn headings_sort_the_tests_into_kinds() {
        let logs = [(WORKSPACE, None), (LOOM, Some(Kind::Loom)), (LOOM, Some(Kind::Weakened))];
        let (tallies, report) = counted(&logs);
        let passed: Vec<_> = tallies.iter().map(|(kind, it)| (*kind, it.passed())).collect();
        let expected = [1, 3, 4, 1, 2, 5, 5];
        assert_eq!(passed, REQUIRED.into_iter().zip(expected).collect::<Vec<_>>());
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.lines.last().unwrap(), "21 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_test_that_says_twice_why_it_is_skipped_is_skipped_once() {
        let (tallies, report) = counted(&[(WORKSPACE, None)]);
        let unit = tallies[&Kind::Unit];
        assert_eq!((unit.passed(), unit.ignored, unit.skipped), (1, 1, 1));
        assert_eq!(report.lines[0], "unit: skipped: no device: probed /dev/x, no such file");
        assert_eq!(report.lines[1], "unit: skipped: nor /dev/y");
    }

    #[test]
    fn a_kind_that_ran_nothing_is_refused() {
        let (_, report) = counted(&[(WORKSPACE, None), (LOOM, Some(Kind::Loom))]);
        assert_eq!(report.problems, ["no weakened test ran"]);
        let none = "   Doc-tests a\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(counted(&[(none, None)]).1.problems.len(), REQUIRED.len());
        let skipped = "Running tests/model_a.rs (x)\n---- a stdout ----\nskipped: no a\n\
                       test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured";
        assert!(counted(&[(skipped, None)]).1.complains_of("no model test ran"));
    }

    #[test]
    fn a_failure_is_refused() {
        let failed = WORKSPACE.replace("ok. 4 passed; 0 failed", "FAILED. 3 passed; 1 failed");
        assert!(counted(&[(&failed, None)]).1.complains_of("1 test(s) failed"));
    }

    #[test]
    fn a_part_counts_once_for_each_test_that_names_it() {
        let log = "     Running tests/a.rs (target/debug/deps/a-1)\n\
            ---- a stdout ----\nruns: [ucx]\n---- b stdout ----\nruns: [ucx]\n\
            ---- c stdout ----\nskipped: [ucx] no libucp.so.0\nsuccesses:\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                 Running tests/b.rs (target/debug/deps/b-1)\n\
            ---- a stdout ----\nruns: [ucx]\n\
            test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let (mut parts, mut report) = (Parts::default(), Report::default());
        read(log, None, &mut Tallies::new(), &mut parts, &mut report.lines);
        parts.conclude("", &mut report);
        let expected = ["integration: skipped: [ucx] no libucp.so.0", "with ucx: 3 ran, 1 skipped"];
        assert_eq!(report.lines, expected);
    }

    #[test]
    fn unknown_logs_are_refused() {
        assert!(check(&["unit=/dev/null"]).is_err());
        assert!(check(&["loom"]).is_err());
        assert!(check(&["loom=/nowhere/loom.log"]).is_err());
    }
}
