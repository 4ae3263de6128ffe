//! How what goes to another rank, or comes from it, fails.

use std::sync::{Arc, OnceLock};

use pontoon::{
    Rank,
    comm::SendError,
    hal::link::LinkError,
    signal::{Ending, Reason, Slot},
    smc::SmcError,
};

use crate::{from::from, train::error::TrainError};

/// Why a rank's signals end here that could not be sent a message.
const UNSENT: Reason = Reason::small(0x301);

/// Why something did not come to another rank, or from there.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Send(SendError),
    Pages(SmcError),
}

/// The first failure between this rank and another. A handle, for the kernels that may fail.
#[derive(Clone)]
pub(super) struct Failed {
    first: Arc<OnceLock<Failure>>,
    /// The other's signals here.
    incoming: Slot,
    own: Rank,
}

impl Failed {
    /// Nothing has failed yet between rank `own` and the one whose signals are `incoming`.
    pub(super) fn new(incoming: &Slot, own: Rank) -> Self {
        Self { first: Arc::default(), incoming: incoming.clone(), own }
    }

    pub(super) fn get(&self) -> Option<&Failure> {
        self.first.get()
    }

    /// Notes a failure. Nothing is expected of the other rank any more, which cannot go on without what it
    /// was not sent: what waits for its signals fails now, wherever the host is, and not when its bound is
    /// used up. Whoever sees them end finds the failure.
    pub(super) fn note(&self, failure: Failure) {
        if self.first.set(failure).is_ok() {
            self.incoming.end(Ending::Aborted { reason: UNSENT, by: self.own });
        }
    }
}

from! {
    Failure:
    SendError => Send,
    SmcError => Pages,
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Send(error.into())
    }
}

impl From<Failure> for TrainError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Send(error) => Self::Send(error),
            Failure::Pages(error) => Self::Pages(error),
        }
    }
}
