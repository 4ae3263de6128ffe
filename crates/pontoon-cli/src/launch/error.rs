//! How a launch fails.

use std::{fmt, io, path::PathBuf, time::Duration};

use super::{hosts::HostError, output::OutputError, signals::name};
use crate::{from::from, limit};

/// How a launch fails. That a rank failed is no error: it is the job's status.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The hosts cannot be those of this job.
    Hosts(HostError),
    /// An option has no sense, and why.
    Option { option: &'static str, why: String },
    /// The working folder is gone.
    Folder(io::Error),
    /// The remote shell cannot be started.
    Shell { shell: String, error: io::Error },
    /// A host was not reached.
    Unreached { host: String, why: String },
    /// Hosts had not answered in time.
    Late { hosts: Vec<String>, waited: Duration },
    /// A host cannot run what was asked for.
    Refused { on: String, why: String },
    /// The system refused what the launcher cannot do without.
    System(&'static str, io::Error),
    /// Output could not be written.
    Output { at: Option<PathBuf>, error: io::Error },
    /// A signal came before any rank ran.
    Stopped(i32),
}

impl LaunchError {
    /// Whether there is nobody to tell: the reader of the output has gone.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::Output { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The status of the command: 2 where nothing of the job ran, 128 and the signal where one
    /// ended it.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::System(_, error) if limit::of(error).is_none() => 1,
            Self::Output { error, .. } if limit::of(error).is_some() => 2,
            // As a shell tells of one that SIGPIPE ended.
            Self::Output { .. } if self.is_silent() => 128 + 13,
            Self::Output { .. } => 1,
            Self::Stopped(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            _ => 2,
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(error) => error.fmt(f),
            Self::Option { option, why } => write!(f, "{option}: {why}"),
            Self::Folder(error) => write!(f, "the working folder cannot be passed on: {error}"),
            Self::Shell { shell, error } => {
                write!(f, "cannot start the remote shell {shell}: {error}; see --rsh")
            }
            Self::Unreached { host, why } => write!(f, "host {host} was not reached: {why}"),
            Self::Late { hosts, waited } => write!(
                f,
                "no answer within {waited:?} from host {}; nothing was started; see --start-within",
                hosts.join(", ")
            ),
            Self::Refused { on, why } => write!(f, "{why}{on}"),
            Self::System(what, error) => refused(f, format_args!("cannot {what}"), error),
            Self::Output { at: None, error } => match limit::of(error) {
                None => write!(f, "cannot write the output of the ranks: {error}"),
                Some(_) => refused(f, "cannot prepare the output of the ranks", error),
            },
            Self::Output { at: Some(at), error } => {
                refused(f, format_args!("cannot write {}", at.display()), error)
            }
            Self::Stopped(signal) => write!(f, "{} came before any rank ran", name(*signal)),
        }
    }
}

impl std::error::Error for LaunchError {}

/// `what`, why, and what to do where a limit of this process is the reason.
pub(super) fn refusal(what: impl fmt::Display, error: &io::Error) -> String {
    match limit::of(error).and_then(|limit| limit.remedy()) {
        Some(remedy) => format!("{what}: {error}; {remedy}"),
        None => format!("{what}: {error}"),
    }
}

fn refused(f: &mut fmt::Formatter<'_>, what: impl fmt::Display, error: &io::Error) -> fmt::Result {
    f.write_str(&refusal(what, error))
}

impl From<OutputError> for LaunchError {
    fn from(OutputError { at, error }: OutputError) -> Self {
        Self::Output { at, error }
    }
}

from! { LaunchError: HostError => Hosts }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_what_to_do_and_is_no_failure_of_the_job() {
        let full = |code| io::Error::from_raw_os_error(code);
        for (error, parts) in [
            (
                LaunchError::System("handle signals", full(24)),
                ["cannot handle signals", "ulimit -n"],
            ),
            (
                LaunchError::Output { at: None, error: full(24) },
                ["cannot prepare the output", "ulimit -n"],
            ),
            (
                LaunchError::Output { at: Some("a/0.out".into()), error: full(24) },
                ["cannot write a/0.out", "ulimit -n"],
            ),
            (LaunchError::System("start an agent", full(11)), ["start an agent", "ulimit -u"]),
        ] {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(error.status(), 2, "{text}");
        }
        let gone = LaunchError::System("start an agent", full(2));
        assert_eq!((gone.status(), gone.to_string().contains("ulimit")), (1, false));
        let full_disk = LaunchError::Output { at: None, error: full(28) };
        assert_eq!(full_disk.status(), 1);
        assert!(full_disk.to_string().starts_with("cannot write the output"), "{full_disk}");
    }
}
