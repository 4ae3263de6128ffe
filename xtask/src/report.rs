//! What a check looked at and what it found wrong.

use std::process::ExitCode;

/// The outcome of one check: it passes when there are no problems.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What was looked at, for people.
    pub(crate) lines: Vec<String>,
    /// What is wrong, one sentence each, `file:line: …` where there is a place.
    pub(crate) problems: Vec<String>,
}

impl Report {
    /// A check that could not look at all.
    pub(crate) fn refusal(problem: String) -> Self {
        Self { lines: Vec::new(), problems: vec![problem] }
    }

    pub(crate) fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    pub(crate) fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Prints the lines, then the problems, and says how the process should end.
    pub(crate) fn print(&self, check: &str) -> ExitCode {
        for line in &self.lines {
            println!("{line}");
        }
        for problem in &self.problems {
            eprintln!("error: {problem}");
        }
        if self.problems.is_empty() {
            return ExitCode::SUCCESS;
        }
        eprintln!("xtask {check}: {} problem(s)", self.problems.len());
        ExitCode::FAILURE
    }

    /// Whether some problem contains `text`.
    #[cfg(test)]
    pub(crate) fn complains_of(&self, text: &str) -> bool {
        self.problems.iter().any(|problem| problem.contains(text))
    }
}
