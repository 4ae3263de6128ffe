//! The way to one rank: a link, and what is registered with it.

use std::{ops::Range, sync::Arc};

use pontoon_comm::{Comm, CommError, Port};
use pontoon_hal::link::{
    Explanation, Link, LinkCapabilities, LinkError, Operation, Order, PeerState, RegionKey,
    Registered, Remote, RemoteSignal,
};
use pontoon_signal::{
    Bound, Host, Nanos, Observed, Os, Rank, Segment, Seq, Slot, WaitError, Waiter,
};

use super::WorldError;

/// Memory that is shared with other ranks, over whatever link leads there. A handle.
#[derive(Clone, Debug)]
pub struct Shared {
    of_links: Arc<[Registered]>,
}

impl Shared {
    pub(super) fn new(of_links: Vec<Registered>) -> Self {
        Self { of_links: of_links.into() }
    }

    pub(super) fn key(&self, link: usize) -> Option<&RegionKey> {
        self.of_links[link].key()
    }
}

/// Polls before a wait is written down, which takes a system call: some microseconds, in which a peer
/// that spins has answered.
const SOON: u64 = 1_000;

/// The way to one rank. A handle.
#[derive(Clone, Debug)]
pub struct Way {
    peer: Rank,
    link: Arc<dyn Link>,
    at: usize,
    segment: Segment,
    moves_by_itself: bool,
}

impl Way {
    pub(super) fn new(peer: Rank, link: Arc<dyn Link>, at: usize, segment: Segment) -> Self {
        let moves_by_itself = link.moves_by_itself(peer);
        Self { peer, link, at, segment, moves_by_itself }
    }

    /// Where it leads.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// The link that it goes over.
    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// What the link can do on this way.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    pub fn capabilities(&self) -> Result<LinkCapabilities, LinkError> {
        self.link.capabilities(self.peer)
    }

    /// Where the peer stands.
    pub fn state(&self) -> PeerState {
        self.link.peer_state(self.peer)
    }

    pub(super) fn attach(&self, key: Vec<u8>) -> Result<Remote, WorldError> {
        let key = RegionKey::from_bytes(key)
            .ok_or(LinkError::Key { peer: self.peer, why: pontoon_hal::link::KeyFault::Form })?;
        Ok(self.link.attach(self.peer, &key)?)
    }

    /// This rank's counter `slot` at the peer; nobody else grows it.
    ///
    /// # Errors
    ///
    /// [`LinkError::Slot`].
    pub fn signal(&self, slot: u32) -> Result<RemoteSignal, LinkError> {
        self.link.attach_signal(self.peer, slot)
    }

    /// Writes bytes `range` of `from` to `to`, from `offset` on; see [`Link::write`].
    ///
    /// # Errors
    ///
    /// [`LinkError`].
    pub fn write(
        &self,
        from: &Shared,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        self.link.write(&from.of_links[self.at], range, to, offset)
    }

    /// Reads from `from`, from `offset` on, into bytes `range` of `into`; see [`Link::read`].
    ///
    /// # Errors
    ///
    /// [`LinkError`].
    pub fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Shared,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        self.link.read(from, offset, &into.of_links[self.at], range)
    }

    /// Writes, then grows `signal` by `n`; see [`Link::write_signal`].
    ///
    /// # Errors
    ///
    /// [`LinkError`].
    #[expect(clippy::too_many_arguments, reason = "those of Link::write_signal")]
    pub fn write_signal(
        &self,
        from: &Shared,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
        signal: &mut RemoteSignal,
        n: u32,
        order: Order,
    ) -> Result<Seq, LinkError> {
        self.link.write_signal(&from.of_links[self.at], range, to, offset, signal, n, order)
    }

    /// Grows `signal` by `n`; see [`Link::signal`].
    ///
    /// # Errors
    ///
    /// [`LinkError`].
    pub fn tell(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        self.link.signal(signal, n, order)
    }

    /// A port of `comm`: the same for kernels to call, from `from` to `to`, and to `signal` there.
    ///
    /// # Errors
    ///
    /// [`CommError`].
    pub fn port(
        &self,
        comm: &Comm,
        from: &Shared,
        to: &Remote,
        signal: Option<RemoteSignal>,
    ) -> Result<Port, CommError> {
        comm.port(&self.link, from.of_links[self.at].clone(), to.clone(), signal)
    }

    /// Waits until operation `seq` and all before it are done on this side.
    ///
    /// # Errors
    ///
    /// [`LinkError::TimedOut`] with how far it got; [`LinkError::PeerDead`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn done(&self, seq: Seq, bound: Bound) -> Result<(), LinkError> {
        let completions = self.link.completions(self.peer)?;
        let waiter = completions.into_uncounted_waiter();
        match self.link.wait(&waiter, seq, bound) {
            Ok(observed) => {
                let _ = observed.acq_fence();
                Ok(())
            }
            Err(error) => {
                let (link, operation) = (self.link.name(), Operation::Write);
                Err(LinkError::of_wait(&error, self.peer, link, operation, seq))
            }
        }
    }

    /// Waits until all that was posted to the peer is performed there; see [`Link::flush`].
    ///
    /// # Errors
    ///
    /// [`LinkError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn flush(&self, bound: Bound) -> Result<(), LinkError> {
        self.link.flush(self.peer, bound)
    }

    /// The counter of operations on the peer that are done on this side.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    pub fn completions(&self) -> Result<Slot, LinkError> {
        self.link.completions(self.peer)
    }

    /// Waits on a counter that the peer grows; the calling thread does the link's work meanwhile. See
    /// [`Link::wait`]. Once it is seen to last it stands in the segment's pending table under `label`.
    ///
    /// # Errors
    ///
    /// [`WaitError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn wait<'w>(
        &self,
        waiter: &'w Waiter,
        target: Seq,
        bound: Bound,
        label: &str,
    ) -> Result<Observed<'w>, WaitError> {
        let soon = u64::from(bound.spin()).min(SOON).min(bound.tries().unwrap_or(SOON));
        // A link that moves by itself is not asked to between two polls.
        let (rounds, polls) = if self.moves_by_itself { (1, soon) } else { (soon.max(1), 1) };
        for _ in 0..rounds {
            if let Some(observed) = waiter.try_wait_soon(target, polls)? {
                return Ok(observed);
            }
            self.link.progress();
        }
        let within = bound.deadline().map(Nanos::from);
        let (slot, since) = (waiter.slot().id(), Os.now());
        let _pending = self.segment.pending().enter(slot, target, since, within, label);
        self.link.wait(waiter, target, bound)
    }

    /// What an operation on the peer is made of.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    pub fn explain(&self, operation: Operation) -> Result<Explanation, LinkError> {
        self.link.explain(self.peer, operation)
    }
}
