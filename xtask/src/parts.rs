//! Which parts of the machine the tests ran with: those that print `runs: [part]` had it, those that
//! print `skipped: [part] why` did without (`pontoon_hal::conformance::part`).
//!
//! `PONTOON_REQUIRE` lists parts, with commas between them. One that a test skipped for, or that no
//! test ran with, is a problem.

use crate::report::Report;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// The variable with the parts that must be tested.
pub(crate) const REQUIRE: &str = "PONTOON_REQUIRE";

/// What all tests said.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    tallies: BTreeMap<String, Tally>,
    test: Test,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ran: usize,
    skipped: usize,
}

/// The test whose output is being read. One that was skipped ran with no part.
#[derive(Debug, Default)]
struct Test {
    runs: BTreeSet<String>,
    skips: BTreeSet<String>,
}

impl Parts {
    /// Takes one line of a test's output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(part) = line.strip_prefix("runs: ").and_then(bracketed) {
            self.test.runs.insert(part.to_owned());
        } else if let Some(part) = line.strip_prefix("skipped: ").and_then(bracketed) {
            self.test.skips.insert(part.to_owned());
        }
    }

    /// The output of one test is over.
    pub(crate) fn end_test(&mut self) {
        let Test { runs, skips } = mem::take(&mut self.test);
        let was_skipped = !skips.is_empty();
        for part in runs {
            self.tallies.entry(part).or_default().ran += usize::from(!was_skipped);
        }
        for part in skips {
            self.tallies.entry(part).or_default().skipped += 1;
        }
    }

    /// Writes how many tests ran with each part, and finds those of `required` that are red.
    pub(crate) fn conclude(&self, required: &str, report: &mut Report) {
        for (part, tally) in &self.tallies {
            report.line(format!("with {part}: {} ran, {} skipped", tally.ran, tally.skipped));
        }
        for part in required.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Tally { ran, skipped } = self.tallies.get(part).copied().unwrap_or_default();
            if ran == 0 {
                report.problem(format!("no test ran with {part}, which {REQUIRE} names"));
            }
            if skipped > 0 {
                let what = format!("{skipped} test(s) skipped for want of {part}");
                report.problem(format!("{what}, which {REQUIRE} names"));
            }
        }
    }
}

/// The part in `[part] …`.
fn bracketed(text: &str) -> Option<&str> {
    Some(text.strip_prefix('[')?.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(tests: &[&str], required: &str) -> Report {
        let (mut parts, mut report) = (Parts::default(), Report::default());
        for test in tests {
            test.lines().for_each(|line| parts.read(line));
            parts.end_test();
        }
        parts.conclude(required, &mut report);
        report
    }

    const RAN: &str = "runs: [ucx]\nnoise [ucx]\nruns: [ucx]\n";
    const SKIPPED: &str = "skipped: [ucx] no libucp.so.0: not found\nskipped: [ucx] at all\n";

    #[test]
    fn a_test_counts_once_for_each_part() {
        let both = "runs: [ucx]\nruns: [namespaces]\n";
        let report = counted(&[RAN, both, SKIPPED, "skipped: no bracket", "runs: [open"], "");
        let expected = ["with namespaces: 1 ran, 0 skipped", "with ucx: 2 ran, 1 skipped"];
        assert_eq!(report.lines, expected);
        assert_eq!(report.problems, [""; 0]);
    }

    #[test]
    fn a_test_that_skips_for_one_part_ran_with_no_other() {
        let report = counted(&["runs: [ucx]\nskipped: [namespaces] not root"], "ucx");
        let expected = ["with namespaces: 0 ran, 1 skipped", "with ucx: 0 ran, 0 skipped"];
        assert_eq!(report.lines, expected);
        assert_eq!(report.problems, ["no test ran with ucx, which PONTOON_REQUIRE names"]);
    }

    #[test]
    fn a_required_part_is_never_skipped_and_ran() {
        assert_eq!(counted(&[RAN], "ucx").problems, [""; 0]);
        let skipped = "1 test(s) skipped for want of ucx, which PONTOON_REQUIRE names";
        assert_eq!(counted(&[RAN, SKIPPED], "namespaces, ucx").problems.len(), 2);
        assert!(counted(&[RAN, SKIPPED], "namespaces, ucx").complains_of(skipped));
        assert!(counted(&[RAN, SKIPPED], "namespaces").complains_of("no test ran with namespaces"));
    }
}
