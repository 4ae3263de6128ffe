//! What all clones of a port share: where its tasks go, and what is waited for on the way.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pontoon_signal::{Bound, Ending, Nanos, Rank, Seq, shim::yield_now};

use super::Mode;
use crate::{
    SendError, Task,
    channel::{Channel, Route},
    error::reason,
    lane::Lane,
    proxy::{Pulse, Shared},
    ring::{Claimed, PushError, Ring},
    ticket::Until,
};

/// Rounds after which a proxy has seen what was there before them.
const ROUNDS: u64 = 2;

/// What all clones of a port share.
pub(crate) struct Parts {
    pub(crate) channel: Arc<Channel>,
    pub(crate) proxy: Arc<Shared>,
    pub(crate) route: Arc<Route>,
    /// That of its route on its lane, given back with the last clone (C2). A trigger's calls have numbers of
    /// their own.
    pub(super) number: Option<u16>,
    pub(super) lane: Arc<Lane>,
}

impl Parts {
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The same over the lane of a trigger.
    pub(crate) fn with_lane(&self, lane: Arc<Lane>) -> Self {
        let (channel, proxy) = (Arc::clone(&self.channel), Arc::clone(&self.proxy));
        Self { channel, proxy, route: Arc::clone(&self.route), number: None, lane }
    }

    /// That its tasks may yet be done.
    #[inline]
    pub(crate) fn still_open(&self) -> Result<(), SendError> {
        match self.lane.ending() {
            None => Ok(()),
            Some(ending) => {
                let done = self.lane.done.value();
                Err(self.ended(&self.lane, ending, done, done + 1))
            }
        }
    }

    /// The error of who waits for what is never done: what the link said, if it was a task that it refused.
    #[cold]
    pub(crate) fn ended(&self, lane: &Lane, ending: Ending, done: Seq, wanted: Seq) -> SendError {
        let ended = SendError::Ended { peer: self.peer(), ending, done, wanted };
        lane.fault.get().map_or(ended, |fault| SendError::Link(fault.clone()))
    }

    /// The ring; a trigger has none, and nobody pushes there.
    pub(super) fn ring(&self) -> Result<&Ring, SendError> {
        let peer = self.peer();
        self.lane.ring().ok_or(SendError::Impossible { peer, what: "ring for a trigger" })
    }

    pub(crate) fn peer(&self) -> Rank {
        self.channel.peer
    }

    /// Waits until the lane's tasks are done to `end`, and looks after the proxy meanwhile.
    pub(crate) fn wait_for_lane(&self, end: Seq, bound: Bound) -> Result<(), SendError> {
        self.wait_for(self.lane(), end, bound)
    }

    /// As [`wait_for_lane`](Self::wait_for_lane), for any lane to that peer.
    fn wait_for(&self, lane: &Lane, end: Seq, bound: Bound) -> Result<(), SendError> {
        let stall = self.proxy.settings.stall;
        let waiter = lane.done.uncounted_waiter();
        let (started, mut pulse) = (Instant::now(), Pulse::of(&self.proxy, lane));
        loop {
            let spent = started.elapsed();
            let left = bound.less(Nanos::from(spent));
            // Counted bounds are the caller's to count: they are used up in one go.
            let is_last =
                bound.tries().is_some() || left.deadline().is_some_and(|left| left <= stall / 4);
            let slice =
                if is_last { left } else { Bound::within(stall / 4).spinning(bound.spin()) };
            match waiter.wait_ge_bounded(end, slice) {
                Ok(observed) => {
                    let _ = observed.acq_fence();
                    return Ok(());
                }
                Err(error) if is_last || !error.is_timeout() => {
                    let (at, waited) = (error.at(), started.elapsed());
                    let (peer, done, wanted) = (self.peer(), at.found, at.wanted);
                    return Err(match error.ending() {
                        Some(ending) => self.ended(lane, ending, done, wanted),
                        None => SendError::TimedOut { peer, done, wanted, waited },
                    });
                }
                Err(_) => {}
            }
            if let Some(silent) = pulse.missed(stall) {
                let (peer, done) = (self.peer(), lane.done.value());
                return Err(SendError::Stalled { peer, silent, done, wanted: end });
            }
        }
    }

    /// Waits until all that was put in rings to that peer before is done, so that what comes next is after it.
    /// The own ring keeps its order by itself, for a call that goes by it.
    #[inline]
    pub(super) fn catch_up(&self, mode: Mode, patience: Duration) -> Result<(), SendError> {
        for lane in &self.channel.lanes {
            let is_own = mode == Mode::Ring && Arc::ptr_eq(lane, &self.lane);
            if !is_own && !lane.is_quiet() {
                self.wait_for_all(lane, patience)?;
            }
        }
        if self.channel.family.is_split() { self.catch_up_beside(patience) } else { Ok(()) }
    }

    /// The same of rings that other ports to that peer go by, which were opened before a ring was replaced or after.
    #[cold]
    fn catch_up_beside(&self, patience: Duration) -> Result<(), SendError> {
        let own = |lane: &Arc<Lane>| self.channel.lanes.iter().any(|own| Arc::ptr_eq(own, lane));
        for lane in self.channel.family.lanes().iter().filter(|lane| !own(lane)) {
            if !lane.is_quiet()
                && let Err(error) = self.wait_for_all(lane, patience)
                && !(lane.is_over() && self.channel.excuses(lane))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn wait_for_all(&self, lane: &Lane, patience: Duration) -> Result<(), SendError> {
        let head = lane.ring().map_or(lane.done.value(), Ring::head);
        self.wait_for(lane, head, Bound::within(patience))
    }

    /// Gives up on what this lane was asked for: nothing more of it is begun. Waits until what was begun to `end` is
    /// done, or nothing of the lane is under way any more, so that the bytes are the caller's again. Where the link
    /// does not come to an end with it, its way to the peer is ended, for all of this rank.
    ///
    /// # Blocks
    ///
    /// At most until the patience has passed since the lane was closed, and then once more as long.
    pub(crate) fn abandon(&self, end: Seq) {
        let (peer, link, patience) =
            (self.peer(), &self.channel.link, self.proxy.settings.patience);
        let ending = Ending::Aborted { reason: reason::ABANDONED, by: link.rank() };
        let (since, called, rounds) =
            (self.lane.close(ending), Instant::now(), self.proxy.rounds.sum());
        self.proxy.ring_the_bell();
        let goes_round =
            || self.proxy.is_gone() || self.proxy.rounds.sum().wrapping_sub(rounds) >= ROUNDS;
        // Long after the close it is enough to learn whether the proxy is alive.
        let is_early = || since.elapsed() < patience;
        let learns = || !goes_round() && called.elapsed() < patience / 4;
        if self.comes_to_its_end(end, || is_early() || learns()) {
            return;
        }
        let waited = if goes_round() {
            tracing::warn!(target: "pontoon::comm", peer = peer.0, link = link.name(),
                "what a dropped ticket asked for does not get on: the link to the peer is ended");
            if self.channel.is_of_now() {
                link.end_peer(peer, ending);
            }
            Instant::now()
        } else {
            // A proxy that stands still is not the link's fault, and no ending of that would move it.
            since + patience
        };
        if !self.comes_to_its_end(end, || waited.elapsed() < patience) {
            tracing::error!(target: "pontoon::comm", peer = peer.0, link = link.name(),
                "neither proxy nor link lets go of the bytes of a dropped ticket, which may yet change");
        }
    }

    /// Waits for as long as `may_wait` until what was begun to `end` is done, or nothing of this lane is under way
    /// any more. Whether it came to that.
    fn comes_to_its_end(&self, end: Seq, may_wait: impl Fn() -> bool) -> bool {
        let Channel { link, link_done, .. } = &*self.channel;
        loop {
            if self.lane.done.acquire().is_at_or_past(end) || self.lane.is_over() {
                return true;
            }
            // Where there is no proxy to tell of it, the link does.
            if self.proxy.is_gone() && link_done.ending().is_some() {
                self.lane.end(Ending::Aborted { reason: reason::ABANDONED, by: link.rank() });
                return true;
            }
            if !may_wait() {
                return false;
            }
            link.progress();
            yield_now();
        }
    }

    /// Waits until a call is done.
    pub(crate) fn wait_until(&self, until: Until, bound: Bound) -> Result<(), SendError> {
        match until {
            Until::Done => Ok(()),
            Until::Lane(end) => self.wait_for_lane(end, bound),
        }
    }

    pub(super) fn push(&self, tasks: &[Task], patience: Duration) -> Result<Claimed, SendError> {
        let ring = self.ring()?;
        let pushed = match tasks {
            [task] => ring.push(task),
            _ => ring.push_all(tasks),
        };
        match pushed {
            Ok(claimed) => {
                self.proxy.ring_the_bell();
                Ok(claimed)
            }
            Err(PushError::Full { .. }) => self.push_later(tasks, patience),
            Err(why) => Err(self.refused(why, Duration::ZERO)),
        }
    }

    /// Waits for room.
    #[cold]
    fn push_later(&self, tasks: &[Task], patience: Duration) -> Result<Claimed, SendError> {
        let (ring, stall) = (self.ring()?, self.proxy.settings.stall);
        let (waiter, started) = (ring.credits().uncounted_waiter(), Instant::now());
        let mut pulse = Pulse::of(&self.proxy, &self.lane);
        loop {
            let next = waiter.value() + 1;
            match ring.push_all(tasks) {
                Ok(claimed) => {
                    self.proxy.ring_the_bell();
                    return Ok(claimed);
                }
                Err(why @ PushError::Full { .. }) => {
                    let spent = started.elapsed();
                    if spent >= patience {
                        return Err(self.refused(why, spent));
                    }
                    if let Some(silent) = pulse.missed(stall) {
                        let (peer, done) = (self.peer(), self.lane.done.value());
                        return Err(SendError::Stalled { peer, silent, done, wanted: ring.head() });
                    }
                    // Each credit is looked at; what it ended with is told by the next push.
                    let slice = (patience - spent).min(stall / 4);
                    let _ = waiter.wait_ge_bounded(next, Bound::within(slice)).map(|_| ());
                }
                Err(why) => return Err(self.refused(why, started.elapsed())),
            }
        }
    }

    #[cold]
    fn refused(&self, why: PushError, waited: Duration) -> SendError {
        match (why, self.lane().fault.get()) {
            (PushError::Ended(_), Some(fault)) => SendError::Link(fault.clone()),
            _ => SendError::Push { peer: self.peer(), why, waited },
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.lane.retire(number);
        }
    }
}
