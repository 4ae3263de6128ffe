//! How a queue ends before its time.

use core::{fmt, ops::Range};
use std::sync::Arc;

use pontoon_signal::{Ending, Rank, Seq, WaitError};

use crate::{Mode, RegionId};

/// Why a queue stopped: which command failed, and how. Sticky: a queue that failed stays failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The device.
    pub device: Rank,
    /// The queue, by the label it was opened with.
    pub queue: Arc<str>,
    /// The command, by the label it was submitted with.
    pub command: &'static str,
    /// The completion that the command would have been.
    pub at: Seq,
    /// What happened.
    pub cause: Cause,
}

/// What happened to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A wait failed.
    Wait(WaitError),
    /// It met another access to the same bytes that nothing ordered against it.
    Hazard(Hazard),
    /// The kernel panicked, with this message.
    Panicked(Arc<str>),
    /// The device is gone.
    DeviceLost,
}

/// Two accesses to the same bytes at the same time, of which one writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// The region.
    pub region: RegionId,
    /// The bytes and use of the access that came second and was refused.
    pub refused: (Range<usize>, Mode),
    /// The bytes and use of the access that was under way.
    pub running: (Range<usize>, Mode),
    /// Who was under way.
    pub holder: &'static str,
    /// On which device; `None` for the host.
    pub on: Option<Rank>,
}

/// Reasons of the endings that a queue's signal gets when the queue fails, for waiters that see
/// nothing but the signal.
pub mod fault_reason {
    use pontoon_signal::Reason;

    /// A wait of the queue used up its bound.
    pub const TIMED_OUT: Reason = Reason::small(1);
    /// A command met a hazard.
    pub const HAZARD: Reason = Reason::small(2);
    /// A kernel panicked.
    pub const PANICKED: Reason = Reason::small(3);
    /// A link failed that the queue waited over.
    pub const LINK: Reason = Reason::small(4);

    /// What a queue's ending with `reason` means; `None` if it is no fault of a queue.
    pub fn meaning(reason: Reason) -> Option<&'static str> {
        match reason {
            TIMED_OUT => Some("a wait timed out"),
            HAZARD => Some("a command met a hazard"),
            PANICKED => Some("a kernel panicked"),
            LINK => Some("a link failed"),
            _ => None,
        }
    }
}

impl Fault {
    /// The ending that the queue's signal gets. A wait's failure is handed on with its root: who
    /// waits for this queue learns who is dead or who gave up first.
    pub fn ending(&self) -> Ending {
        let aborted = |reason| Ending::Aborted { reason, by: self.device };
        match &self.cause {
            Cause::DeviceLost => Ending::PeerDead { rank: self.device },
            Cause::Hazard(_) => aborted(fault_reason::HAZARD),
            Cause::Panicked(_) => aborted(fault_reason::PANICKED),
            Cause::Wait(WaitError::PeerDead { rank, .. }) => Ending::PeerDead { rank: *rank },
            Cause::Wait(WaitError::Aborted { reason, by, .. }) => {
                Ending::Aborted { reason: *reason, by: *by }
            }
            Cause::Wait(WaitError::LinkFailed { .. }) => aborted(fault_reason::LINK),
            Cause::Wait(_) => aborted(fault_reason::TIMED_OUT),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queue, command, at, cause } = self;
        write!(f, "device {device} queue {queue}: {command} (completion {at}) failed: {cause}")
    }
}

impl core::error::Error for Fault {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(error) => {
                error.fmt(f)?;
                match error {
                    WaitError::Aborted { reason, .. } => match fault_reason::meaning(*reason) {
                        Some(meaning) => write!(f, " (there, {meaning})"),
                        None => Ok(()),
                    },
                    _ => Ok(()),
                }
            }
            Self::Hazard(hazard) => hazard.fmt(f),
            Self::Panicked(message) => write!(f, "the kernel panicked: {message}"),
            Self::DeviceLost => f.write_str("the device is lost"),
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, refused, running, holder, on } = self;
        write!(
            f,
            "it would {} bytes {}..{} of {region} while {holder} ",
            verb(refused.1),
            refused.0.start,
            refused.0.end
        )?;
        match on {
            Some(device) => write!(f, "on device {device} ")?,
            None => f.write_str("on the host ")?,
        }
        write!(
            f,
            "{}s bytes {}..{}: wait for its fence first",
            verb(running.1),
            running.0.start,
            running.0.end
        )
    }
}

fn verb(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}
