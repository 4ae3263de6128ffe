//! What this machine has, what each part is for, and how to get what is missing; or how its ranks
//! reach each other: `topology/`; or whether what a device sends arrives: `device.rs`.
//!
//! Each probe is a small function that reads and a pure one that judges what was read. A probe
//! tolerates that anything is absent, opens no library but that of UCX, and takes far less than a
//! second. What cannot be asked without doing it is reported as expected, with the reason for expecting it.

mod device;
mod devices;
mod kernel;
mod libraries;
mod memory;
mod processor;
mod report;
mod settings;
mod source;
pub(crate) mod topology;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use pontoon::verify::VerifyError;

use crate::bench::BenchError;
use crate::figures::closed_pipe_is_no_fault;
use crate::from::from;
use crate::{
    FAILED,
    stdout::{out, stdout},
};
pub(crate) use memory::available as available_memory;
use source::Process;
pub(crate) use source::bytes;

/// Where a finding stands in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Processor,
    Memory,
    Kernel,
    Libraries,
    Devices,
    Settings,
}

/// How much of a subject is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// There, but less than pontoon can use, or closed to this user.
    Limited,
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// Something a machine may have.
#[derive(Clone, Copy, Debug)]
struct Subject {
    group: Group,
    name: &'static str,
    used_for: &'static str,
    how_to_get: &'static str,
}

/// What a probe found of its subject.
#[derive(Clone, Debug)]
struct Finding {
    subject: Subject,
    state: State,
    found: Option<String>,
}

impl Subject {
    fn ok(self, found: impl Into<String>) -> Finding {
        Finding { subject: self, state: State::Ok, found: Some(found.into()) }
    }

    fn limited(self, found: impl Into<String>) -> Finding {
        Finding { subject: self, state: State::Limited, found: Some(found.into()) }
    }

    fn missing(self) -> Finding {
        Finding { subject: self, state: State::Missing, found: None }
    }

    /// `ok` if it is all that can be used, else `limited`.
    fn ok_if(self, enough: bool, found: impl Into<String>) -> Finding {
        if enough { self.ok(found) } else { self.limited(found) }
    }
}

/// Runs every probe, in the order of the report.
fn probe_all() -> Vec<Finding> {
    let process = Process::read();
    let mut findings = processor::probe(&process);
    findings.extend(memory::probe(&process));
    findings.extend(kernel::probe(&process));
    findings.extend(libraries::probe());
    findings.extend(devices::probe());
    findings.extend(settings::probe());
    findings
}

/// Tells what this machine has, what each part is for and how to get what is missing.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Prints one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Tells instead how ranks reach each other, and what it takes: the ranks of the job that this
    /// process is one of, such as under `pontoon launch`; else two that it starts here.
    #[arg(long)]
    topology: bool,
    /// Tries instead whether what kernels of this device send arrives, over every link that is here, and
    /// says where it stops.
    #[arg(long, value_name = "DEVICE", conflicts_with = "topology")]
    device: Option<device::DeviceName>,
    #[command(flatten)]
    effort: topology::EffortArgs,
}

/// Why there is no report.
#[derive(Debug)]
pub(crate) enum DoctorError {
    /// It could not be written.
    Output(io::Error),
    /// The ranks did not measure.
    Measure(BenchError),
    /// Nothing could be tried.
    Verify(VerifyError),
}

impl fmt::Display for DoctorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(error) => write!(f, "cannot write the report: {error}"),
            Self::Measure(error) => error.fmt(f),
            Self::Verify(error) => write!(f, "cannot try the device: {error}"),
        }
    }
}

impl Error for DoctorError {}

from! {
    DoctorError:
    io::Error => Output,
    BenchError => Measure,
}

impl DoctorError {
    /// What the process ends with.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Measure(error) => error.status(),
            _ => FAILED,
        }
    }
}

/// Prints what was asked for to stdout. A reader that goes away early is no fault.
///
/// # Errors
///
/// See [`DoctorError`].
pub(crate) fn run(options: &Options) -> Result<ExitCode, DoctorError> {
    if let Some(device) = options.device {
        device::run(device, options.json)
    } else if options.topology {
        topology::run(options.json, options.effort).map(|()| ExitCode::SUCCESS)
    } else {
        Ok(machine(options.json)?)
    }
}

/// Prints what this machine has: a table for people, or with `json` one object a line.
///
/// The exit code is a failure if something that this version of pontoon stands on is missing.
///
/// # Errors
///
/// Those of writing to stdout, `BrokenPipe` excepted.
fn machine(json: bool) -> io::Result<ExitCode> {
    let findings = probe_all();
    let text = if json {
        report::json(&findings)?
    } else {
        let stdout_is_terminal = out().is_terminal();
        let no_color = std::env::var_os("NO_COLOR");
        report::table(&findings, report::colour_wanted(stdout_is_terminal, no_color.as_deref()))
    };
    let mut out = stdout();
    closed_pipe_is_no_fault(out.write_all(text.as_bytes()).and_then(|()| out.flush()))?;
    Ok(if report::ready(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_probe_runs_here_and_keeps_the_form() {
        let start = Instant::now();
        let findings = probe_all();
        assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());

        let mut names = HashSet::new();
        for Finding { subject, state, found } in &findings {
            let name = subject.name;
            assert!(names.insert(name), "{name} is reported twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name:?} is no key"
            );
            assert!(!subject.used_for.is_empty() && !subject.how_to_get.is_empty(), "{name}");
            assert_eq!(found.is_none(), *state == State::Missing, "{name}: {state:?}, {found:?}");
            assert!(
                found.as_ref().is_none_or(|text| !text.trim().is_empty() && !text.contains('\n')),
                "{name}: {found:?}"
            );
        }
        for name in [
            "cpu", "memory", "memfd", "memlock", "kernel", "libucp", "network", "nofile", "profile",
        ] {
            assert!(names.contains(name), "{name} is not probed");
        }
        let groups: Vec<Group> = findings.iter().map(|finding| finding.subject.group).collect();
        let mut seen = vec![groups[0]];
        for group in groups {
            if seen.last() != Some(&group) {
                assert!(!seen.contains(&group), "{group:?} is in two pieces");
                seen.push(group);
            }
        }
        assert_eq!(seen.len(), 6, "a group without a finding: {seen:?}");
    }
}
