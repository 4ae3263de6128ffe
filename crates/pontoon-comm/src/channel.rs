//! A channel: all that goes to one peer over one link.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::{Duration, Instant},
};

use pontoon_hal::link::{Link, LinkCapabilities, Registered, Remote, RemoteSignal};
use pontoon_signal::{
    Ending, Rank,
    shim::{spin_loop, yield_now},
};

use crate::{CommError, chooser::Chooser, error::reason, lane::Lane};

/// How often a kernel looks back to back whether another has let go of a signal: some microseconds.
const LOOKS: u32 = 1_000;

/// Invariant C1: a lane is of one channel, so what a peer holds up holds up nobody else's tasks.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) peer: Rank,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) capabilities: LinkCapabilities,
    pub(crate) lanes: Box<[Arc<Lane>]>,
    /// Those of channels that this one replaced which had something to do yet.
    pub(crate) elders: Box<[Arc<Lane>]>,
    pub(crate) chooser: Chooser,
}

impl Channel {
    pub(crate) fn new(
        link: Arc<dyn Link>,
        peer: Rank,
        lanes: Box<[Arc<Lane>]>,
        replaced: Option<&Self>,
    ) -> Result<Self, CommError> {
        let capabilities = link.capabilities(peer)?;
        let elders = replaced.into_iter().flat_map(|old| old.lanes.iter().chain(&old.elders));
        let elders = elders.filter(|lane| !lane.is_over()).cloned().collect();
        Ok(Self { peer, link, capabilities, lanes, elders, chooser: Chooser::default() })
    }

    /// Whether a ring of it ended by a fault that was not the peer's, so that new ports need another.
    pub(crate) fn is_broken(&self) -> bool {
        let own =
            |ending| matches!(ending, Ending::Aborted { reason, .. } if reason::is_a_tasks(reason));
        self.lanes.iter().any(|lane| lane.ending().is_some_and(own))
    }

    /// Whether it is the channel to `peer` over `link`.
    pub(crate) fn is(&self, link: &Arc<dyn Link>, peer: Rank) -> bool {
        self.peer == peer && Arc::ptr_eq(&self.link, link)
    }

    /// Adds a route to the lane that has the fewest. Gives its number there; `None` while there is none to be
    /// had.
    pub(crate) fn add(&self, route: &Arc<Route>) -> Option<(u16, &Arc<Lane>)> {
        let lane = self.lanes.iter().min_by_key(|lane| lane.routes.in_use())?;
        Some((lane.routes.add(route)?, lane))
    }
}

/// What a task's numbers are about: from which memory to which, and whom to tell.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) source: Registered,
    pub(crate) target: Remote,
    signal: Option<Mutex<RemoteSignal>>,
}

/// Why a route's signal is not to be had.
pub(crate) enum NoSignal {
    None,
    Busy,
}

impl Route {
    pub(crate) fn new(source: Registered, target: Remote, signal: Option<RemoteSignal>) -> Self {
        Self { source, target, signal: signal.map(Mutex::new) }
    }

    pub(crate) fn has_signal(&self) -> bool {
        self.signal.is_some()
    }

    /// The signal, at once or not at all. Held by others only for as long as a link takes to post.
    pub(crate) fn try_signal(&self) -> Result<MutexGuard<'_, RemoteSignal>, NoSignal> {
        match self.signal.as_ref().ok_or(NoSignal::None)?.try_lock() {
            Ok(signal) => Ok(signal),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(NoSignal::Busy),
        }
    }

    /// As [`try_signal`](Self::try_signal), looking again until the patience is over: whoever has it may be
    /// copying much, or have no processor.
    pub(crate) fn signal(
        &self,
        patience: Duration,
    ) -> Result<MutexGuard<'_, RemoteSignal>, NoSignal> {
        for _ in 0..LOOKS {
            match self.try_signal() {
                Err(NoSignal::Busy) => spin_loop(),
                found => return found,
            }
        }
        let started = Instant::now();
        loop {
            match self.try_signal() {
                Err(NoSignal::Busy) if started.elapsed() < patience => yield_now(),
                found => return found,
            }
        }
    }
}

/// Nothing panics while one of these is held, so what is behind is whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
