//! `doctor --device`: whether what kernels of a device send arrives, over every link that is here.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use pontoon::{
    Bound,
    signal::Nanos,
    verify::{By, Outcome, Over, verify},
};
use serde::Serialize;

use super::DoctorError;
use crate::{FAILED, figures::closed_pipe_is_no_fault, stdout::stdout};

/// The devices that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DeviceName {
    /// Threads of this machine's processors
    Cpu,
}

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// One way that was tried.
#[derive(Serialize)]
struct Row<'r> {
    device: &'r str,
    link: String,
    by: String,
    state: &'static str,
    found: String,
}

/// Tries every way, and prints what came of each. The exit code is a failure if one stopped.
pub(super) fn run(device: DeviceName, json: bool) -> Result<ExitCode, DoctorError> {
    let DeviceName::Cpu = device;
    let (mut stopped, mut out) = (false, stdout());
    if !json {
        print(&mut out, "a kernel writes, sends and signals; another looks at what came\n\n")?;
    }
    for over in Over::ALL {
        for by in By::ALL {
            let outcome = verify(over, by, Bound::within(PATIENCE)).map_err(DoctorError::Verify)?;
            let (state, found) = match outcome {
                Outcome::Works(took) => ("ok", format!("observed after {}", Nanos::from(took))),
                Outcome::Absent(why) => ("absent", why),
                Outcome::Stopped { at, why } => {
                    stopped = true;
                    ("stopped", format!("{at}; {why}"))
                }
            };
            let (link, by) = (over.to_string(), by.to_string());
            let row = Row { device: "cpu", link, by, state, found };
            let line = if json {
                serde_json::to_string(&row).map_err(io::Error::from)? + "\n"
            } else {
                let Row { device, link, by, state, found } = row;
                format!("{device:<6} {link:<8} {by:<8} {state:<8} {found}\n")
            };
            print(&mut out, &line)?;
        }
    }
    Ok(if stopped { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn print(out: &mut impl Write, text: &str) -> Result<(), DoctorError> {
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(closed_pipe_is_no_fault(printed)?)
}
