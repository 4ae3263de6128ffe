//! The link: operations as copies and publishes in the peers' memory.

use core::{fmt, ops::Range};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pontoon_hal::link::{
    Between, Explanation, KeyFault, Link, LinkCapabilities, LinkError, LinkReport, Operation,
    Order, PeerState, RegionKey, Registered, Remote, RemoteSignal,
};
use pontoon_signal::{
    Block, Bound, Ending, Life, PublishedRegion, Rank, Segment, Seq, Slot, SlotId, Span,
    fence_system,
    shim::{AtomicU64, Ordering::*},
};

use crate::{
    ConnectError,
    explain::explain,
    peer::{Mark, Peer, Signal},
    region::{Key, Opened, Registration},
    watch::{Ward, Watch},
};

pub(crate) const NAME: &str = "shm";

/// The ways from one rank to the others of its host, whose segments it maps.
///
/// Neither an operation nor a signal allocates, locks or waits, and a system call is made only to
/// wake a peer that sleeps. A peer's process that ends, however, is noticed within milliseconds: see
/// `watch.rs`. Regions outside the own segment can be written from and read into, but have no key.
pub struct ShmLink {
    rank: Rank,
    home: Arc<Home>,
    watch: Watch,
}

/// What the link and its watch share.
#[derive(Debug)]
pub(crate) struct Home {
    mark: Arc<Mark>,
    segment: Segment,
    /// Off the path of operations: those reach their peer by their handles.
    peers: Mutex<BTreeMap<Rank, Arc<Peer>>>,
    /// Held while a peer's row is ended and its claims are taken: who comes second finds it done.
    rows: Mutex<()>,
    /// What peers did that were started again since: operations, bytes.
    past: Mutex<(u64, u64)>,
}

impl ShmLink {
    /// The link of the rank whose segment that is. It has no peer yet.
    pub fn new(segment: Segment) -> Self {
        let mark = Arc::new(Mark { refused: AtomicU64::new(0) });
        let (peers, rows, past) = (Mutex::default(), Mutex::default(), Mutex::default());
        let home = Arc::new(Home { mark, segment, peers, rows, past });
        let rank = home.segment.identity().rank;
        Self { rank, watch: Watch::new(Arc::clone(&home)), home }
    }

    /// Connects `peer`, by the segment that it handed over. A peer of this same process is not
    /// watched: it ends when [`end_peer`](Link::end_peer) says so.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the segment is another's, or its process runs no more.
    pub fn connect(&self, peer: Rank, segment: Segment) -> Result<(), ConnectError> {
        self.admit(peer, segment, false)
    }

    /// Connects `peer` again, which was started again: its segment has a higher epoch. Handles of
    /// its former life stay dead, and what that had claimed in this rank's table is free.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), [`ConnectError::Epoch`], and [`ConnectError::StillRuns`] while
    /// the process of the former start does.
    pub fn reconnect(&self, peer: Rank, segment: Segment) -> Result<(), ConnectError> {
        self.admit(peer, segment, true)
    }

    fn admit(&self, peer: Rank, segment: Segment, again: bool) -> Result<(), ConnectError> {
        let (theirs, ours) = (segment.identity(), self.home.segment.identity());
        if theirs.rank != peer {
            return Err(ConnectError::Rank { asked: peer, found: theirs.rank });
        }
        if (theirs.job, theirs.world) != (ours.job, ours.world) {
            let (theirs, ours) = (theirs.world, ours.world);
            return Err(ConnectError::Job { peer, theirs, ours });
        }
        let watched = theirs.pid != std::process::id();
        match theirs.process().look() {
            Life::Gone if watched => {
                return Err(ConnectError::NotRunning { peer, pid: theirs.pid });
            }
            Life::Unknown(error) if watched => return Err(error.into()),
            _ => {}
        }
        let life = Peer::new(Arc::clone(&self.home.mark), segment, watched)
            .map_err(ConnectError::Completions)?;
        let life = Arc::new(life);
        {
            let mut peers = self.home.peers();
            match peers.get(&peer) {
                None => {}
                Some(_) if !again => return Err(ConnectError::Connected { peer }),
                Some(old) => {
                    let (connected, offered) = (old.segment.identity().epoch, theirs.epoch);
                    if offered <= connected {
                        return Err(ConnectError::Epoch { peer, connected, offered });
                    }
                    match old.life() {
                        Life::Gone => self.home.gone(old),
                        Life::Runs => {
                            let pid = old.segment.identity().pid;
                            return Err(ConnectError::StillRuns { peer, pid });
                        }
                        Life::Unknown(error) => return Err(error.into()),
                    }
                }
            }
            if watched {
                // Before the peer is there, for one that cannot be watched is not connected. The watch
                // ends it by its handle, which is the one that others find.
                self.watch.over(Ward::new(Arc::clone(&life)))?;
            }
            if let Some(old) = peers.insert(peer, life) {
                let (posted, bytes) = old.counts();
                let mut past = locked(&self.home.past);
                *past = (past.0.wrapping_add(posted), past.1.wrapping_add(bytes));
            }
        }
        Ok(())
    }

    /// This rank's segment.
    pub fn segment(&self) -> &Segment {
        &self.home.segment
    }

    fn peer(&self, peer: Rank) -> Result<Arc<Peer>, LinkError> {
        let found = self.home.peers().get(&peer).map(Arc::clone);
        found.ok_or(LinkError::NoSuchPeer { peer, link: NAME })
    }

    /// The peer and the bytes of `to` from `offset` on.
    #[inline]
    fn there<'r>(
        &self,
        to: &'r Remote,
        offset: usize,
        bytes: usize,
    ) -> Result<(&'r Opened, Span<'r>), LinkError> {
        let opened = to.data::<Opened>().filter(|opened| self.is_ours(&opened.peer.mark));
        let opened = opened.ok_or(LinkError::Foreign("a region"))?;
        opened.peer.alive()?;
        to.check(offset, bytes)?;
        if !opened.listed.holds() {
            return Err(LinkError::Key { peer: to.peer(), why: KeyFault::Unknown });
        }
        let span = Span::of(&opened.block, offset..offset + bytes);
        Ok((opened, span.ok_or(LinkError::Foreign("a region"))?))
    }

    /// The bytes `range` of `block`.
    #[inline]
    fn here<'r>(&self, block: &'r Registered, range: &Range<usize>) -> Result<Span<'r>, LinkError> {
        let known = block.data::<Registration>().is_some_and(|data| self.is_ours(&data.mark));
        if !known {
            return Err(LinkError::Foreign("registered memory"));
        }
        block.check(self.rank, range)?;
        Span::of(block.block(), range.clone()).ok_or(LinkError::Foreign("registered memory"))
    }

    /// The word at `offset` of `block`, where an old value goes.
    fn word_here<'r>(
        &self,
        block: &'r Registered,
        offset: usize,
    ) -> Result<&'r AtomicU64, LinkError> {
        block.check_word(self.rank, offset)?;
        let span = self.here(block, &(offset..offset + 8))?;
        span.word(0).ok_or(LinkError::Misaligned { offset })
    }

    /// What is remembered of `signal`, which is `peer`'s, if that is given.
    #[inline]
    fn told<'s>(
        &self,
        signal: &'s mut RemoteSignal,
        peer: Option<&Arc<Peer>>,
    ) -> Result<&'s mut Signal, LinkError> {
        let told = signal.data::<Signal>().filter(|told| self.is_ours(&told.peer.mark));
        let told = told.ok_or(LinkError::Foreign("a signal"))?;
        match peer {
            // That one was found alive.
            Some(peer) if Arc::ptr_eq(peer, &told.peer) => {}
            Some(_) => return Err(LinkError::Foreign("a signal")),
            None => told.peer.alive()?,
        }
        Ok(told)
    }

    #[inline]
    fn is_ours(&self, mark: &Arc<Mark>) -> bool {
        Arc::ptr_eq(mark, &self.home.mark)
    }

    /// The word at `offset` of `to`, for an atomic operation.
    fn word<'r>(
        &self,
        to: &'r Remote,
        offset: usize,
    ) -> Result<(&'r Opened, &'r AtomicU64), LinkError> {
        to.check_word(offset)?;
        let (opened, span) = self.there(to, offset, 8)?;
        // Aligned in the region is not aligned in memory, if the region begins anywhere.
        Ok((opened, span.word(0).ok_or(LinkError::Misaligned { offset })?))
    }
}

impl Home {
    fn peers(&self) -> MutexGuard<'_, BTreeMap<Rank, Arc<Peer>>> {
        locked(&self.peers)
    }

    /// Ends a life of a peer, and its row in this rank's table. What it claimed there stays its own until
    /// its process is [gone](Self::gone): one that only stood still may go on, and would take a
    /// successor's counters back.
    pub(crate) fn end(&self, peer: &Peer, ending: Ending) {
        match (ending, peer.life()) {
            (Ending::PeerDead { .. }, Life::Gone) => self.gone(peer),
            _ => {
                let _row = locked(&self.rows);
                if peer.end(ending) {
                    let ended = self.segment.signals().end_producer(peer.rank, ending);
                    tell(peer, ending, ended.is_ok());
                }
            }
        }
    }

    /// Ends a life of a peer whose process is gone, and takes its claims in this rank's table away: a
    /// successor can have them when this returns.
    pub(crate) fn gone(&self, peer: &Peer) {
        let _row = locked(&self.rows);
        let ending = Ending::PeerDead { rank: peer.rank };
        peer.end(ending);
        // Once: the pid may be a successor's by now.
        if peer.evicted.set(()).is_ok() {
            let pid = peer.segment.identity().pid;
            let evicted = self.segment.signals().evict(peer.rank, pid, ending);
            tell(peer, ending, evicted.is_ok());
        }
    }
}

/// A table without a row for that rank has nothing to end.
fn tell(peer: &Peer, ending: Ending, rows: bool) {
    tracing::debug!(target: "pontoon::link", peer = peer.rank.0, ?ending, rows, "peer ended");
}

/// Nothing panics while one of these is held, so what is behind is whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link for ShmLink {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError> {
        let mut capabilities = LinkCapabilities::least(u32::MAX);
        capabilities.mapped = true;
        capabilities.one_sided = true;
        capabilities.system_atomics = true;
        capabilities.between = Between::Release;
        capabilities.inline_bytes = usize::MAX;
        capabilities.notices_death = self.peer(peer)?.watched;
        Ok(capabilities)
    }

    fn peer_state(&self, peer: Rank) -> PeerState {
        let unknown = PeerState::Ended(Ending::PeerDead { rank: peer });
        self.peer(peer).map_or(unknown, |peer| peer.state())
    }

    fn end_peer(&self, peer: Rank, ending: Ending) {
        if let Ok(peer) = self.peer(peer) {
            self.home.end(&peer, ending);
        }
    }

    fn register(&self, block: &Block) -> Result<Registered, LinkError> {
        let (home, mut listed, mut key) = (&self.home, None, None);
        if let Some(offset) = home.segment.heap().offset_of(block) {
            let refused = |call, code, remedy| {
                let bytes = block.bytes();
                LinkError::Register { link: NAME, bytes, call, code, lockable: None, remedy }
            };
            let mut nonce = [0; 8];
            rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()).map_err(
                |errno| refused("getrandom", errno.raw_os_error(), "no key can be made without"),
            )?;
            let (offset, bytes) = (offset as u64, block.bytes() as u64);
            let region = PublishedRegion { nonce: u64::from_ne_bytes(nonce), offset, bytes };
            let full = rustix::io::Errno::NOSPC.raw_os_error();
            let entry = home.segment.regions().list(region).ok_or_else(|| {
                refused("list", full, "drop registrations, or open the segment for more regions")
            })?;
            let (rank, epoch) = (self.rank, home.segment.identity().epoch);
            key = Key { rank, epoch, listed: entry, region }.encode();
            listed = Some((home.segment.clone(), entry));
        }
        let data = Registration { mark: Arc::clone(&home.mark), listed };
        Ok(Registered::new(block.clone(), key, Arc::new(data)))
    }

    fn attach(&self, peer: Rank, key: &RegionKey) -> Result<Remote, LinkError> {
        let life = self.peer(peer)?;
        life.alive()?;
        let (listed, block) = Key::open(key, &life.segment).map_err(|why| {
            self.home.mark.refused.fetch_add(1, Relaxed);
            LinkError::Key { peer, why }
        })?;
        let (bytes, first) = (block.bytes(), block.base().addr().get());
        let opened = Opened { peer: life, block, listed };
        Ok(Remote::new(peer, bytes, Arc::new(opened)).beginning_at(first))
    }

    fn owns(
        &self,
        from: &Registered,
        to: &Remote,
        signal: Option<&mut RemoteSignal>,
    ) -> Result<(), LinkError> {
        self.here(from, &(0..0))?;
        let opened = to.data::<Opened>().filter(|opened| self.is_ours(&opened.peer.mark));
        let opened = opened.ok_or(LinkError::Foreign("a region"))?;
        let told = signal.map(|signal| {
            signal.data::<Signal>().is_some_and(|told| Arc::ptr_eq(&told.peer, &opened.peer))
        });
        if told == Some(false) { Err(LinkError::Foreign("a signal")) } else { Ok(()) }
    }

    fn attach_signal(&self, peer: Rank, slot: u32) -> Result<RemoteSignal, LinkError> {
        let life = self.peer(peer)?;
        life.alive()?;
        let slot = SlotId { producer: self.rank, slot };
        let publisher = life.segment.signals().publisher(slot);
        let publisher = publisher.map_err(|why| LinkError::Slot { peer, why })?.dated_by_ticks();
        let value = publisher.value();
        Ok(RemoteSignal::new(peer, slot, value, Box::new(Signal { peer: life, publisher })))
    }

    #[inline]
    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        let source = self.here(from, &range)?;
        let (opened, target) = self.there(to, offset, range.len())?;
        source.copy_to(target);
        Ok(opened.peer.over(range.len()))
    }

    #[inline]
    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        let (opened, target) = self.there(to, offset, bytes.len())?;
        target.put(bytes);
        Ok(opened.peer.over(bytes.len()))
    }

    #[inline]
    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        let target = self.here(into, &range)?;
        let (opened, source) = self.there(from, offset, range.len())?;
        source.copy_to(target);
        Ok(opened.peer.over(range.len()))
    }

    fn mapped(
        &self,
        from: &Remote,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<Block>, LinkError> {
        let (opened, _) = self.there(from, offset, bytes)?;
        Ok(opened.block.part(offset..offset + bytes))
    }

    #[inline]
    fn write_signal(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
        signal: &mut RemoteSignal,
        n: u32,
        order: Order,
    ) -> Result<Seq, LinkError> {
        let source = self.here(from, &range)?;
        let (opened, target) = self.there(to, offset, range.len())?;
        let told = self.told(signal, Some(&opened.peer))?;
        source.copy_to(target);
        if order == Order::Strong {
            opened.peer.gather();
        }
        let (value, number) = opened.peer.announce(&mut told.publisher, n, range.len());
        signal.set_value(value);
        Ok(number)
    }

    #[inline]
    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        let told = self.told(signal, None)?;
        if order == Order::Strong {
            told.peer.gather();
        }
        let (value, number) = told.peer.announce(&mut told.publisher, n, 0);
        signal.set_value(value);
        Ok(number)
    }

    #[inline]
    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        let place = reply.map(|(into, at)| self.word_here(into, at)).transpose()?;
        let (opened, word) = self.word(to, offset)?;
        let before = word.fetch_add(n, Relaxed);
        if let Some(place) = place {
            place.store(before, Relaxed);
        }
        Ok(opened.peer.over(8))
    }

    fn add(&self, to: &Remote, offset: usize, n: u64, _: Bound) -> Result<u64, LinkError> {
        let (opened, word) = self.word(to, offset)?;
        let before = word.fetch_add(n, Relaxed);
        opened.peer.over(8);
        Ok(before)
    }

    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        _: Bound,
    ) -> Result<u64, LinkError> {
        let (opened, word) = self.word(to, offset)?;
        let (Ok(before) | Err(before)) = word.compare_exchange(expected, new, Relaxed, Relaxed);
        opened.peer.over(8);
        Ok(before)
    }

    fn fence(&self, peer: Rank) -> Result<(), LinkError> {
        let peer = self.peer(peer)?;
        peer.alive()?;
        peer.gather();
        fence_system();
        Ok(())
    }

    fn flush(&self, peer: Rank, _: Bound) -> Result<(), LinkError> {
        let peer = self.peer(peer)?;
        peer.alive()?;
        peer.gather();
        Ok(())
    }

    fn completions(&self, peer: Rank) -> Result<Slot, LinkError> {
        Ok(self.peer(peer)?.completions().clone())
    }

    fn explain(&self, peer: Rank, operation: Operation) -> Result<Explanation, LinkError> {
        self.peer(peer).map(|_| explain(peer, operation))
    }

    fn report(&self) -> LinkReport {
        let mut report = LinkReport::default();
        (report.posted, report.bytes) = *locked(&self.home.past);
        for peer in self.home.peers().values() {
            let (posted, bytes) = peer.counts();
            report.posted = report.posted.wrapping_add(posted);
            report.bytes = report.bytes.wrapping_add(bytes);
        }
        report.refused = self.home.mark.refused.load(Relaxed);
        report
    }
}

impl fmt::Debug for ShmLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = self.home.peers();
        f.debug_struct("ShmLink").field("rank", &self.rank).field("peers", &peers.keys()).finish()
    }
}
