//! A channel: all that goes to one peer over one link.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak},
    time::{Duration, Instant},
};

use pontoon_hal::link::{Link, LinkCapabilities, PeerState, Registered, Remote, RemoteSignal};
use pontoon_signal::{
    Ending, Rank, Slot,
    shim::{AtomicU64, Ordering::Relaxed, spin_loop, yield_now},
};

use crate::{CommError, chooser::Chooser, error::reason, lane::Lane};

/// How often a kernel looks back to back whether another has let go of a signal: some microseconds.
const LOOKS: u32 = 1_000;

/// All that ever went to one peer over one link, in this life of the peer.
///
/// A strong call is after what was asked by any of it. Lanes of channels that are gone are over, and are here no more,
/// but for the last one that left anything undone.
#[derive(Debug, Default)]
pub(crate) struct Family {
    lanes: Mutex<Vec<Weak<Lane>>>,
    undone: Mutex<Option<Arc<Lane>>>,
    /// Whether there was ever more than one channel.
    is_split: AtomicU64,
}

impl Family {
    /// Whether other channels may have anything to do. One load while there is but one.
    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        // Whoever has a port of a second channel had it after this was set.
        self.is_split.load(Relaxed) != 0
    }

    /// All lanes that somebody has yet, with the one that is kept here for what it left undone.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        locked(&self.lanes).iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps of the lanes of a channel that goes the one that was closed last with something undone: who vouches for
    /// none of that one's vouches for none of those before.
    fn keep_undone(&self, lanes: &[Arc<Lane>]) {
        let kept = &mut *locked(&self.undone);
        let undone = lanes.iter().filter(|lane| !lane.is_quiet());
        let last = undone.chain(kept.as_ref()).max_by_key(|lane| lane.closed_at()).cloned();
        *kept = last;
    }

    fn join(&self, lanes: &[Arc<Lane>]) {
        let mut all = locked(&self.lanes);
        all.retain(|lane| lane.strong_count() > 0);
        self.is_split.fetch_or(u64::from(!all.is_empty()), Relaxed);
        all.extend(lanes.iter().map(Arc::downgrade));
    }
}

/// Invariant C1: a lane is of one channel, so what a peer holds up holds up nobody else's tasks.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) peer: Rank,
    pub(crate) link: Arc<dyn Link>,
    /// Of this life of the peer: one that is started again has others.
    pub(crate) link_done: Slot,
    pub(crate) capabilities: LinkCapabilities,
    pub(crate) lanes: Box<[Arc<Lane>]>,
    pub(crate) family: Arc<Family>,
    opened_at: Instant,
    pub(crate) chooser: Chooser,
}

impl Channel {
    /// A channel of `lanes`, in the place of `replaced`.
    pub(crate) fn new(
        link: Arc<dyn Link>,
        peer: Rank,
        lanes: Box<[Arc<Lane>]>,
        replaced: Option<&Self>,
    ) -> Result<Self, CommError> {
        let (capabilities, link_done) = (link.capabilities(peer)?, link.completions(peer)?);
        let family = replaced.filter(|old| old.link_done.is(&link_done));
        let family = family.map_or_else(Arc::default, |old| Arc::clone(&old.family));
        family.join(&lanes);
        let (chooser, opened_at) = (Chooser::default(), Instant::now());
        Ok(Self { peer, link, link_done, capabilities, lanes, family, opened_at, chooser })
    }

    /// Whether it is the channel to `peer` over `link`.
    pub(crate) fn is(&self, link: &Arc<dyn Link>, peer: Rank) -> bool {
        self.peer == peer && Arc::ptr_eq(&self.link, link)
    }

    /// Whether it is of the life of the peer that the link has now.
    pub(crate) fn is_of_now(&self) -> bool {
        self.link.completions(self.peer).is_ok_and(|now| now.is(&self.link_done))
    }

    /// Whether new ports need another: the peer was started again, or a ring of this one has ended though both the way
    /// to the peer and the proxy go on.
    pub(crate) fn is_broken(&self) -> bool {
        let is_alive = || {
            self.link_done.ending().is_none() && self.link.peer_state(self.peer) == PeerState::Alive
        };
        let is_lost = |ending| match ending {
            Ending::Aborted { reason, .. } => reason::is_a_tasks(reason),
            _ => is_alive(),
        };
        !self.is_of_now() || self.lanes.iter().any(|lane| lane.ending().is_some_and(is_lost))
    }

    /// Whether what `lane`, which is over, left undone is no business of this channel's ports: it was closed before they
    /// were opened, and who asked was told.
    pub(crate) fn excuses(&self, lane: &Lane) -> bool {
        lane.closed_at().is_some_and(|at| at <= self.opened_at)
    }

    /// It goes, for nobody has a port of it.
    pub(crate) fn forget(&self) {
        self.family.keep_undone(&self.lanes);
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
