//! Faults put in on purpose.

use std::{fmt, str::FromStr};

use pontoon::Rank;

/// A fault put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inject {
    /// One wait is left out: that number, or the last device's for its copy before it normalises.
    DropFence(Option<usize>),
    /// The last device dies half-way.
    KillProducer,
    /// The last rank is stopped half-way, as a debugger does it.
    StopProducer,
    /// The last device takes long over a few gradients.
    SlowProducer,
}

impl Inject {
    /// What is said of it before the run.
    pub(in crate::train) fn told(self, last: u32) -> String {
        format!("injected: {}", self.what(last))
    }

    /// The same where `rank` is the last one, and has devices up to `last`.
    pub(in crate::train) fn told_of(self, rank: Rank, last: u32) -> String {
        match self {
            Self::KillProducer => format!("injected: rank {rank} is killed half-way"),
            Self::StopProducer => format!("injected: rank {rank} is stopped half-way"),
            Self::SlowProducer | Self::DropFence(_) => {
                format!("injected: of rank {rank}, {}", self.what(last))
            }
        }
    }

    /// What it does where device `last` is the last one.
    fn what(self, last: u32) -> String {
        match self {
            Self::DropFence(None) => {
                format!("device {last} normalises without waiting for its copy")
            }
            Self::DropFence(Some(fence)) => format!("fence {fence} is not waited for"),
            Self::KillProducer => format!("device {last} dies half-way"),
            Self::StopProducer => "the last rank is stopped half-way".to_owned(),
            Self::SlowProducer => format!("device {last} is slow over three of its gradients"),
        }
    }
}

impl FromStr for Inject {
    type Err = NoSuchFault;

    fn from_str(text: &str) -> Result<Self, NoSuchFault> {
        match (text, text.strip_prefix("drop-fence=")) {
            ("drop-fence", _) => Ok(Self::DropFence(None)),
            ("kill-producer", _) => Ok(Self::KillProducer),
            ("stop-producer", _) => Ok(Self::StopProducer),
            ("slow-producer", _) => Ok(Self::SlowProducer),
            (_, Some(number)) => {
                number.parse().map(|number| Self::DropFence(Some(number))).map_err(|_| NoSuchFault)
            }
            _ => Err(NoSuchFault),
        }
    }
}

/// Not the name of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSuchFault;

impl fmt::Display for NoSuchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected drop-fence, drop-fence=K with the number of a fence, kill-producer, \
             stop-producer or slow-producer",
        )
    }
}

impl std::error::Error for NoSuchFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_is_injected_and_at_which_rank() {
        assert_eq!(Inject::KillProducer.told(3), "injected: device 3 dies half-way");
        let of = |fault: Inject| fault.told_of(Rank(2), 1);
        assert_eq!(of(Inject::KillProducer), "injected: rank 2 is killed half-way");
        assert_eq!(
            of(Inject::SlowProducer),
            "injected: of rank 2, device 1 is slow over three of its gradients"
        );
    }

    #[test]
    fn faults_have_names_and_fences_numbers() {
        assert_eq!("drop-fence".parse(), Ok(Inject::DropFence(None)));
        assert_eq!("drop-fence=12".parse(), Ok(Inject::DropFence(Some(12))));
        assert_eq!("kill-producer".parse(), Ok(Inject::KillProducer));
        assert_eq!("stop-producer".parse(), Ok(Inject::StopProducer));
        for bad in ["", "drop-fence=", "drop-fence=-1", "drop-fence=x", "drop", "DropFence"] {
            assert_eq!(bad.parse::<Inject>(), Err(NoSuchFault), "{bad}");
        }
    }
}
