//! How a training run fails.

use std::{fmt, time::Duration};

use pontoon::{
    FenceError, HostError, Rank, Refusal, StreamError, WaitFailure,
    cpu::OpenDeviceError,
    hal::{AllocateError, Fault, HostAccessError, OpenQueueError},
    signal::WaitError,
};

use super::{TraceError, data::DataError, way::Turn};
use crate::{doctor::bytes, from::from};

/// How a training run fails.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum TrainError {
    /// The data cannot be used.
    Data(DataError),
    /// The options contradict each other.
    Options(&'static str),
    /// There is no fence of that number to drop.
    NoSuchFence { devices: u32, last: usize },
    /// A device could not be opened.
    Device(OpenDeviceError),
    /// A queue could not be opened.
    Queue(OpenQueueError),
    /// There was no memory on a device.
    Memory(AllocateError),
    /// The host met a running command.
    Host(HostAccessError),
    /// A command could not be submitted.
    Stream(StreamError),
    /// The session did not take a command.
    Refused(Refusal),
    /// The host could not use bytes.
    HostAccess(HostError),
    /// A fence was not reached.
    Fence(FenceError),
    /// A wait would never have ended.
    Wait(WaitFailure),
    /// A device did not finish what it had.
    Synchronize { device: Rank, error: WaitError },
    /// The system gave no thread.
    Thread(std::io::Error),
    /// Another device's thread failed first; its error is the one to show.
    Elsewhere,
    /// A device's thread waited too long for another.
    Turn(Turn),
    /// The job needs more memory than there is.
    TooLarge { needed: u64, available: u64 },
    /// A stream failed; all else followed from it.
    Fault(Fault),
    /// The digest is not that of one thread.
    Digest { found: String, reference: String },
    /// The trace could not be written.
    Trace(TraceError),
    /// The results could not be written.
    Output(std::io::Error),
}

impl TrainError {
    /// Whether the user asked for something impossible, rather than the run failing.
    pub(crate) fn is_bad_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::Options(_) | Self::NoSuchFence { .. } | Self::TooLarge { .. } => {
                true
            }
            Self::Trace(error) => error.is_bad_input(),
            _ => false,
        }
    }

    /// Whether it is a wait that used up its time, after which waiting again may help.
    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Fence(FenceError { error, .. }) | Self::Synchronize { error, .. } => {
                error.is_timeout()
            }
            _ => false,
        }
    }

    /// The same time-out, at the end of a wait that lasted for `so_far` in all.
    pub(super) fn after(mut self, so_far: Duration) -> Self {
        if let Self::Fence(FenceError { error, .. }) | Self::Synchronize { error, .. } = &mut self
            && let WaitError::TimedOut { waited, .. } = error
        {
            *waited = so_far.into();
        }
        self
    }

    /// Whether it says no more than that something else failed before.
    pub(super) fn is_consequence(&self) -> bool {
        matches!(self, Self::Elsewhere)
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(error) => error.fmt(f),
            Self::Options(why) => f.write_str(why),
            Self::NoSuchFence { devices, last } => write!(
                f,
                "--inject drop-fence=K: with {devices} devices the fences are 0 to {last}"
            ),
            Self::Device(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Host(error) => write!(f, "the host came too early: {error}"),
            Self::Stream(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::HostAccess(error) => error.fmt(f),
            Self::Fence(error) => error.fmt(f),
            Self::Wait(failure) => failure.fmt(f),
            Self::Synchronize { device, error } => {
                write!(f, "device-wide synchronise of device {device}: {error}")
            }
            Self::Thread(error) => {
                write!(f, "no thread for a device's host: {error}; see ulimit -u")
            }
            Self::Elsewhere => f.write_str("another device's thread failed"),
            Self::Turn(turn) => turn.fmt(f),
            Self::TooLarge { needed, available } => write!(
                f,
                "this run needs {} of memory and {} are available: take a smaller --batch or less \
                 --data",
                bytes(*needed),
                bytes(*available)
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Digest { found, reference } => write!(
                f,
                "the weights' digest is {found}, but one thread gets {reference}: a dependency \
                 is missing"
            ),
            Self::Trace(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write the results: {error}"),
        }
    }
}

impl std::error::Error for TrainError {}

from! {
    TrainError:
    DataError => Data,
    TraceError => Trace,
    OpenQueueError => Queue,
    AllocateError => Memory,
    HostAccessError => Host,
    StreamError => Stream,
    FenceError => Fence,
    HostError => HostAccess,
    Refusal => Refused,
}
