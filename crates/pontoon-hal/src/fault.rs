//! How a queue ends before its time.

use core::{fmt, ops::Range};
use std::sync::{Arc, OnceLock};

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

/// Where a queue records its fault: a handle that outlives the queue. Whoever saw the queue's signal
/// end finds the reason here.
#[derive(Clone, Debug, Default)]
pub struct FaultCell {
    fault: Arc<OnceLock<Fault>>,
}

impl FaultCell {
    /// Why the queue stopped, if it did.
    pub fn get(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// Records `fault` if it is the first, and gives the first.
    pub fn record(&self, fault: Fault) -> &Fault {
        self.fault.get_or_init(|| fault)
    }
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
    /// What it waited for will never be submitted.
    pub const ABANDONED: Reason = Reason::small(5);

    /// What a queue's ending with `reason` means; `None` if it is no fault of a queue.
    pub fn meaning(reason: Reason) -> Option<&'static str> {
        match reason {
            TIMED_OUT => Some("a wait timed out"),
            HAZARD => Some("a command met a hazard"),
            PANICKED => Some("a kernel panicked"),
            LINK => Some("a link failed"),
            ABANDONED => Some("what was waited for will never be submitted"),
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

#[cfg(test)]
mod tests {
    use pontoon_signal::{
        Bound, Ending, Rank, Reason, Seq, SignalTable, SlotId, TableShape, WaitError,
    };
    use std::time::Duration;

    use super::{Cause, Fault, Hazard, fault_reason};
    use crate::{Mode, RegionId};

    fn fault(cause: Cause) -> Fault {
        Fault { device: Rank(3), queue: "q".into(), command: "c", at: Seq::new(9), cause }
    }

    /// The failure of a wait on a signal that has `ending`, or on one that never comes.
    fn failed_wait(ending: Option<Ending>) -> Cause {
        let table = SignalTable::in_process(TableShape::new(1, 1));
        let slot = table.slot(SlotId::new(0, 0)).unwrap();
        if let Some(ending) = ending {
            slot.end(ending);
        }
        let bound = Bound::within(Duration::from_millis(1));
        let error: WaitError = slot.waiter().wait_ge_bounded(Seq::new(1), bound).unwrap_err();
        Cause::Wait(error)
    }

    #[test]
    fn an_ending_is_handed_on_with_its_root() {
        let hazard = Hazard {
            region: RegionId(1),
            refused: (0..4, Mode::Read),
            running: (2..6, Mode::Write),
            holder: "h",
            on: None,
        };
        let by_us = |reason| Ending::Aborted { reason, by: Rank(3) };
        let dead = Ending::PeerDead { rank: Rank(8) };
        let aborted = Ending::Aborted { reason: Reason::small(77), by: Rank(8) };
        let link = Ending::LinkFailed { code: -1 };
        for (cause, ending) in [
            (Cause::DeviceLost, Ending::PeerDead { rank: Rank(3) }),
            (Cause::Hazard(hazard), by_us(fault_reason::HAZARD)),
            (Cause::Panicked("p".into()), by_us(fault_reason::PANICKED)),
            (failed_wait(None), by_us(fault_reason::TIMED_OUT)),
            (failed_wait(Some(link)), by_us(fault_reason::LINK)),
            (failed_wait(Some(dead)), dead),
            (failed_wait(Some(aborted)), aborted),
        ] {
            assert_eq!(fault(cause.clone()).ending(), ending, "{cause}");
        }
    }

    #[test]
    fn a_hazard_with_the_host_says_so() {
        let hazard = Hazard {
            region: RegionId(5),
            refused: (0..4, Mode::Write),
            running: (2..6, Mode::Read),
            holder: "an access",
            on: None,
        };
        assert_eq!(
            fault(Cause::Hazard(hazard)).to_string(),
            "device 3 queue q: c (completion 9) failed: it would write bytes 0..4 of region 5 while \
             an access on the host reads bytes 2..6: wait for its fence first"
        );
    }
}
