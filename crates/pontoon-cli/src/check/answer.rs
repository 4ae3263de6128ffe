//! Findings for people and for programs.

use std::{
    io::{self, Write},
    path::Path,
};

use pontoon_queue::check::{Act, Command, Finding, Hazard, HazardKind};
use serde_json::{Value, json};

use super::scenario::Scenario;

use crate::counted::counted;

/// What was found in a file.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) file: &'a Path,
    pub(super) scenario: &'a Scenario,
    pub(super) findings: &'a [Finding],
}

impl Answer<'_> {
    /// One object on one line.
    pub(super) fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        let findings: Vec<_> = self.findings.iter().map(|finding| self.json(finding)).collect();
        let file = self.file.display().to_string();
        writeln!(out, "{}", json!({ "file": file, "findings": findings }))
    }

    /// A block a finding, or one line where there is none.
    pub(super) fn print_text(&self, out: &mut impl Write) -> io::Result<()> {
        let file = self.file.display();
        if self.findings.is_empty() {
            return writeln!(out, "{file}: no finding");
        }
        for finding in self.findings {
            match finding {
                Finding::Hazard(hazard) => {
                    let buffer = &self.scenario.buffers[hazard.buffer.0];
                    let (start, end) = (hazard.range.start, hazard.range.end);
                    let (kind, why) = (name(hazard.kind), meaning(hazard.kind));
                    writeln!(out, "{file}: {kind}: {why}")?;
                    writeln!(out, "  first   {}", self.entry(hazard.first))?;
                    writeln!(out, "  second  {}", self.entry(hazard.second))?;
                    writeln!(out, "  bytes   {buffer}[{start}..{end}]")?;
                    if hazard.more > 0 {
                        let pairs = counted(hazard.more as u64, "later pair");
                        writeln!(out, "  more    {pairs} at these bytes")?;
                    }
                }
                Finding::NeverSignalled { first, second } => {
                    writeln!(out, "{file}: never-signalled: nothing left can end this wait")?;
                    if let Some(first) = first {
                        writeln!(out, "  first   {}", self.entry(*first))?;
                    }
                    writeln!(out, "  second  {}", self.entry(*second))?;
                }
                Finding::Deadlock { cycle } => {
                    writeln!(out, "{file}: deadlock: none can go on before the next has")?;
                    for &at in cycle {
                        writeln!(out, "  entry   {}", self.entry(at))?;
                    }
                }
            }
            writeln!(out, "  fix     {}", self.fix(finding))?;
        }
        Ok(())
    }

    fn json(&self, finding: &Finding) -> Value {
        let fix = self.fix(finding);
        match finding {
            Finding::Hazard(hazard) => json!({
                "kind": name(hazard.kind),
                "buffer": self.scenario.buffers[hazard.buffer.0],
                "range": [hazard.range.start, hazard.range.end],
                "first": hazard.first,
                "second": hazard.second,
                "more": hazard.more,
                "fix": fix,
            }),
            Finding::NeverSignalled { first: Some(first), second } => {
                json!({ "kind": "never-signalled", "first": first, "second": second, "fix": fix })
            }
            Finding::NeverSignalled { first: None, second } => {
                json!({ "kind": "never-signalled", "second": second, "fix": fix })
            }
            Finding::Deadlock { cycle } => {
                json!({ "kind": "deadlock", "cycle": cycle, "fix": fix })
            }
        }
    }

    /// An entry by its index, its label and where it is.
    fn entry(&self, at: usize) -> String {
        format!("#{at} {:?} on {}", self.scenario.labels[at], self.place(at))
    }

    fn place(&self, at: usize) -> String {
        let entry = &self.scenario.program.entries[at];
        match entry.submission() {
            Some((queue, _)) => self.scenario.queues[queue.0].clone(),
            None => match self.scenario.threads[entry.thread.0].as_str() {
                "main" => "host".to_owned(),
                name => format!("host:{name}"),
            },
        }
    }

    /// An entry by where it is and its index.
    fn brief(&self, at: usize) -> String {
        format!("{}#{at}", self.place(at))
    }

    /// The smallest change that mends it.
    fn fix(&self, finding: &Finding) -> String {
        match finding {
            Finding::Hazard(hazard) => self.edge(hazard),
            Finding::NeverSignalled { first: Some(first), second } => {
                let (first, second) = (self.brief(*first), self.brief(*second));
                format!("{first} signals what {second} waits for")
            }
            Finding::NeverSignalled { first: None, second } => {
                format!("something signals what {} waits for", self.brief(*second))
            }
            Finding::Deadlock { cycle } => {
                let last = cycle.last().copied().unwrap_or_default();
                let first = cycle.first().copied().unwrap_or_default();
                let (last, first) = (self.brief(last), self.brief(first));
                format!("{last} goes on without {first}")
            }
        }
    }

    fn edge(&self, hazard: &Hazard) -> String {
        let entries = &self.scenario.program.entries;
        let (first, second) = (self.brief(hazard.first), self.place(hazard.second));
        let class = |at: usize| {
            let class = entries[at].work().and_then(|work| work.class);
            class.map_or("all", |class| self.scenario.classes[class.0].as_str())
        };
        match hazard.kind {
            HazardKind::UseAfterFree => {
                format!("host frees after {}", self.brief(hazard.second))
            }
            HazardKind::Visibility => {
                let (from, to) = (class(hazard.first), class(hazard.second));
                let second = self.brief(hazard.second);
                format!("a barrier between {first} and {second} goes from {from} to {to}")
            }
            _ if self.same_queue(hazard) => {
                format!("a barrier on {second} between #{} and #{}", hazard.first, hazard.second)
            }
            _ => format!("{second} waits for {first}"),
        }
    }

    fn same_queue(&self, hazard: &Hazard) -> bool {
        let entries = &self.scenario.program.entries;
        let queue = |at: usize| match &entries[at].act {
            Act::Submit(queue, Command::Work(_)) => Some(*queue),
            _ => None,
        };
        queue(hazard.first).is_some() && queue(hazard.first) == queue(hazard.second)
    }
}

fn name(kind: HazardKind) -> &'static str {
    match kind {
        HazardKind::ReadAfterWrite => "RAW",
        HazardKind::WriteAfterRead => "WAR",
        HazardKind::WriteAfterWrite => "WAW",
        HazardKind::Visibility => "visibility",
        HazardKind::UseAfterFree => "use-after-free",
    }
}

fn meaning(kind: HazardKind) -> &'static str {
    match kind {
        HazardKind::ReadAfterWrite => "nothing orders this read after this write",
        HazardKind::WriteAfterRead => "nothing orders this write after this read",
        HazardKind::WriteAfterWrite => "nothing orders these two writes",
        HazardKind::Visibility => "ordered, but no barrier hands the bytes from class to class",
        HazardKind::UseAfterFree => "the bytes were freed before",
    }
}
