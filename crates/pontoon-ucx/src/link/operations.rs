//! The sender's side of every operation.

use core::ops::Range;
use std::{sync::Arc, time::Duration};

use pontoon_hal::link::{
    Between, Explanation, KeyFault, Link, LinkCapabilities, LinkError, LinkReport, Operation,
    Order, PeerState, RegionKey, Registered, Remote, RemoteSignal,
};
use pontoon_signal::{
    Block, Bound, ClaimError, Ending, Listed, Observed, Producer, PublishedRegion, Publisher, Rank,
    Seq, Slot, SlotId, WaitError, Waiter, fence_system,
    shim::{AtomicU64, Ordering::Relaxed},
};

use super::{
    Blocked, NAME, UcxLink,
    direct::{self, Direct, span},
    explain::explain,
    flight::{Adding, Answer, DEPTH},
    header::{Header, Kind},
    home::{Home, random},
    key::{Key, Opened, Registration, Stretch},
    life::Life,
    messages::{Data, ask, say},
};
use crate::limit;

/// The most bytes of an inline write.
const INLINE: usize = 4096;
const MEMORY: &str = "registered memory";
/// How long a peer has to answer what has no bound of the caller's.
const ATTACH: Duration = Duration::from_secs(5);

/// What the link remembers of a signal in a peer's table.
struct Signal {
    home: Arc<Home>,
    life: Arc<Life>,
    slot: u32,
    /// Where the peer's table is mapped here.
    publisher: Option<Publisher>,
}

impl Drop for Signal {
    fn drop(&mut self) {
        if self.publisher.is_some() {
            return;
        }
        let header = Header { slot: self.slot, ..Header::of(Kind::Detach) };
        // A peer that is gone has no use for it.
        let _ = say(&self.home, &self.life, header);
    }
}

impl UcxLink {
    /// The peer's life and the region, after looking whether `bytes` bytes from `offset` on are within.
    fn there<'r>(
        &self,
        to: &'r Remote,
        offset: usize,
        bytes: usize,
    ) -> Result<&'r Opened, LinkError> {
        let opened = to.data::<Opened>().filter(|opened| self.is_ours(&opened.home));
        let opened = opened.ok_or(LinkError::Foreign("a region"))?;
        opened.life.alive()?;
        to.check(offset, bytes)?;
        Ok(opened)
    }

    fn here<'r>(
        &self,
        block: &'r Registered,
        range: &Range<usize>,
    ) -> Result<&'r Stretch, LinkError> {
        let known = block.data::<Registration>().filter(|known| self.is_ours(&known.home));
        let known = known.ok_or(LinkError::Foreign(MEMORY))?;
        block.check(self.home.rank(), range)?;
        Ok(&known.stretch)
    }

    /// The word at `offset` of `block`, where an old value goes, and its stretch.
    fn word_here<'r>(
        &self,
        block: &'r Registered,
        offset: usize,
    ) -> Result<(Stretch, &'r AtomicU64), LinkError> {
        block.check_word(self.home.rank(), offset)?;
        let range = offset..offset + 8;
        let Stretch { region, at, .. } = self.here(block, &range)?;
        let stretch = Stretch { region: region.clone(), at: at + offset, bytes: 8 };
        let word = span(block.block(), range, MEMORY)?.word(0);
        Ok((stretch, word.ok_or(LinkError::Misaligned { offset })?))
    }

    /// What is remembered of `signal`, which is `life`'s, if that is given.
    fn told<'s>(
        &self,
        signal: &'s mut RemoteSignal,
        life: Option<&Arc<Life>>,
    ) -> Result<&'s mut Signal, LinkError> {
        let told = signal.data::<Signal>().filter(|told| self.is_ours(&told.home));
        let told = told.ok_or(LinkError::Foreign("a signal"))?;
        told.life.alive()?;
        if life.is_some_and(|life| !Arc::ptr_eq(life, &told.life)) {
            return Err(LinkError::Foreign("a signal"));
        }
        Ok(told)
    }

    fn is_ours(&self, home: &Arc<Home>) -> bool {
        Arc::ptr_eq(home, &self.home)
    }
}

impl Link for UcxLink {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> Rank {
        self.home.rank()
    }

    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError> {
        let mapped = self.home.life(peer)?.is_mapped();
        let mut capabilities = LinkCapabilities::least(if mapped { u32::MAX } else { DEPTH });
        (capabilities.mapped, capabilities.one_sided) = (mapped, mapped);
        // By processors of one host, this rank's or the peer's.
        capabilities.system_atomics = true;
        capabilities.between = if mapped { Between::Release } else { Between::OneMessage };
        capabilities.inline_bytes = if mapped { usize::MAX } else { INLINE };
        capabilities.notices_death = true;
        Ok(capabilities)
    }

    fn peer_state(&self, peer: Rank) -> PeerState {
        let unknown = PeerState::Ended(Ending::PeerDead { rank: peer });
        self.home.life(peer).map_or(unknown, |life| life.state())
    }

    fn end_peer(&self, peer: Rank, ending: Ending) {
        if let Ok(life) = self.home.life(peer) {
            self.home.end(&life, ending, "end_peer");
        }
    }

    fn register(&self, block: &Block) -> Result<Registered, LinkError> {
        let refused = |call, code, remedy| LinkError::Register {
            link: NAME,
            bytes: block.bytes(),
            call,
            code,
            lockable: None,
            remedy,
        };
        let home = &self.home;
        let stretch = match home.segment.block().offset_of(block) {
            Some(at) => Stretch { region: home.own.region.clone(), at, bytes: block.bytes() },
            None => {
                let mapped = self.context.map(Arc::new(Blocked(block.clone())));
                let region = mapped.map_err(|error| {
                    let empty = refused("ucp_mem_map", -5, "a region needs at least one byte");
                    limit::not_registered(NAME, block.bytes(), &error).unwrap_or(empty)
                })?;
                Stretch { region, at: 0, bytes: block.bytes() }
            }
        };
        let nonce = random().map_err(|errno| {
            refused("getrandom", errno.raw_os_error(), "no key can be made without")
        })?;
        let (rank, epoch, bytes) =
            (self.rank(), home.segment.identity().epoch, block.bytes() as u64);
        let (behind, listed) = ((block.base().addr().get() % 8) as u8, Listed { at: 0, stamp: 0 });
        let mut key = Key { rank, epoch, nonce, bytes, place: 0, listed, behind };
        let (mut listed, place) = (None, home.segment.heap().offset_of(block));
        if let (true, Some(place)) = (home.shared, place) {
            key.place = place as u64;
            let region = PublishedRegion { nonce, offset: key.place, bytes };
            let full = rustix::io::Errno::NOSPC.raw_os_error();
            key.listed = home.segment.regions().list(region).ok_or_else(|| {
                refused("list", full, "drop registrations, or open the segment for more regions")
            })?;
            listed = Some(key.listed);
        }
        home.list(nonce, stretch.clone());
        let data = Registration { home: Arc::clone(home), stretch, nonce, listed };
        // What peers could not map some of them could reach, and others not.
        let key = if home.shared && listed.is_none() { None } else { key.seal() };
        Ok(Registered::new(block.clone(), key, Arc::new(data)))
    }

    fn attach(&self, peer: Rank, key: &RegionKey) -> Result<Remote, LinkError> {
        let life = self.home.life(peer)?;
        life.alive()?;
        let epoch = life.way().map_or(0, |way| way.epoch);
        let wrong = |why| {
            self.home.refuse("a key that opens nothing", Some(peer));
            LinkError::Key { peer, why }
        };
        let key = Key::open(key, peer, epoch).map_err(wrong)?;
        let bytes = usize::try_from(key.bytes).map_err(|_| wrong(KeyFault::Form))?;
        let segment = life.segment()?;
        let direct = segment.map(|segment| Direct::open(&segment, &key).map_err(wrong));
        let (home, nonce, direct) = (Arc::clone(&self.home), key.nonce, direct.transpose()?);
        let opened = Opened { home, life, nonce, direct };
        Ok(Remote::new(peer, bytes, Arc::new(opened)).beginning_at(key.behind.into()))
    }

    fn owns(
        &self,
        from: &Registered,
        to: &Remote,
        signal: Option<&mut RemoteSignal>,
    ) -> Result<(), LinkError> {
        self.here(from, &(0..0))?;
        let opened = to.data::<Opened>().filter(|opened| self.is_ours(&opened.home));
        let opened = opened.ok_or(LinkError::Foreign("a region"))?;
        let told = signal.map(|signal| {
            signal.data::<Signal>().is_some_and(|told| Arc::ptr_eq(&told.life, &opened.life))
        });
        if told == Some(false) { Err(LinkError::Foreign("a signal")) } else { Ok(()) }
    }

    fn attach_signal(&self, peer: Rank, slot: u32) -> Result<RemoteSignal, LinkError> {
        let life = self.home.life(peer)?;
        life.alive()?;
        let id = SlotId { producer: self.rank(), slot };
        let home = Arc::clone(&self.home);
        if let Some(segment) = life.segment()? {
            let publisher = direct::publisher(&segment, self.rank(), slot);
            let publisher = publisher.map_err(|why| LinkError::Slot { peer, why })?;
            let value = publisher.value();
            let signal = Signal { home, life, slot, publisher: Some(publisher) };
            return Ok(RemoteSignal::new(peer, id, value, Box::new(signal)));
        }
        let header = Header { slot, ..Header::of(Kind::Attach) };
        let what = (Operation::Signal(Order::Weak), None);
        let answer = self.question(&life, header, what, Bound::within(ATTACH))?;
        let Answer { code, first, second, third } = answer;
        let why = match code {
            Answer::DONE => {
                let signal = Signal { home, life, slot, publisher: None };
                return Ok(RemoteSignal::new(peer, id, Seq::new(first), Box::new(signal)));
            }
            Answer::TAKEN => {
                let (rank, generation, pid) = (Rank(first as u32), second as u32, third as u32);
                ClaimError::Taken { slot: id, by: Producer { rank, generation, pid } }
            }
            _ => {
                let (producers, slots) = (second as u32, third as u32);
                ClaimError::NoSuchSlot { slot: id, first: Rank(first as u32), producers, slots }
            }
        };
        Err(LinkError::Slot { peer, why })
    }

    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        let source = self.here(from, &range)?;
        let opened = self.there(to, offset, range.len())?;
        if let Some(direct) = &opened.direct {
            let target = direct.span(to.peer(), offset, range.len())?;
            span(from.block(), range.clone(), MEMORY)?.copy_to(target);
            return Ok(opened.life.over(range.len()));
        }
        self.post(opened, offset, (Data::Of(source, range.start), range.len()), None)
    }

    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        let opened = self.there(to, offset, bytes.len())?;
        if let Some(direct) = &opened.direct {
            direct.span(to.peer(), offset, bytes.len())?.put(bytes);
            return Ok(opened.life.over(bytes.len()));
        }
        if bytes.len() > INLINE {
            return Err(LinkError::TooLong { bytes: bytes.len(), most: INLINE });
        }
        self.post(opened, offset, (Data::Copied(bytes), bytes.len()), None)
    }

    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        let target = self.here(into, &range)?;
        let opened = self.there(from, offset, range.len())?;
        let life = &opened.life;
        if let Some(direct) = &opened.direct {
            let source = direct.span(from.peer(), offset, range.len())?;
            source.copy_to(span(into.block(), range.clone(), MEMORY)?);
            return Ok(life.over(range.len()));
        }
        let into_bytes = Stretch {
            region: target.region.clone(),
            at: target.at + range.start,
            bytes: range.len(),
        };
        let begun = life.flight().begin(1, range.len());
        let operation = begun.ok_or(LinkError::Full { peer: life.rank, depth: DEPTH })?;
        let header = Header {
            nonce: opened.nonce,
            offset: offset as u64,
            first: range.len() as u64,
            ..Header::of(Kind::Read)
        };
        ask(&self.home, life, header, None, |flight, number| {
            flight.read(number, operation, into_bytes, into.clone());
        })?;
        Ok(operation)
    }

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
        let opened = self.there(to, offset, range.len())?;
        let told = self.told(signal, Some(&opened.life))?;
        if let (Some(direct), Some(publisher)) = (&opened.direct, &mut told.publisher) {
            let target = direct.span(to.peer(), offset, range.len())?;
            span(from.block(), range.clone(), MEMORY)?.copy_to(target);
            if order == Order::Strong {
                opened.life.gather();
            }
            let value = publisher.pub_release(n);
            signal.set_value(value);
            return Ok(opened.life.over(range.len()));
        }
        let slot = told.slot;
        let data = (Data::Of(source, range.start), range.len());
        let number = self.post(opened, offset, data, Some((slot, n)))?;
        signal.set_value(signal.value() + n);
        Ok(number)
    }

    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        let told = self.told(signal, None)?;
        if let Some(publisher) = &mut told.publisher {
            if order == Order::Strong {
                told.life.gather();
            }
            let value = publisher.pub_release(n);
            let number = told.life.over(0);
            signal.set_value(value);
            return Ok(number);
        }
        let life = Arc::clone(&told.life);
        let header = Header { slot: told.slot, first: n.into(), ..Header::of(Kind::Signal) };
        let begun = life.flight().begin(1, 0);
        let operation = begun.ok_or(LinkError::Full { peer: life.rank, depth: DEPTH })?;
        ask(&self.home, &life, header, Some(operation), |_, _| ())?;
        signal.set_value(signal.value() + n);
        Ok(operation)
    }

    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        let place = reply.map(|(into, at)| self.word_here(into, at)).transpose()?;
        to.check_word(offset)?;
        let opened = self.there(to, offset, 8)?;
        let life = &opened.life;
        if let Some(direct) = &opened.direct {
            let before = direct.word(to.peer(), offset)?.fetch_add(n, Relaxed);
            if let Some((_, word)) = place {
                word.store(before, Relaxed);
            }
            return Ok(life.over(8));
        }
        let reply = place.map(|(stretch, _)| stretch).zip(reply.map(|(into, _)| into.clone()));
        let begun = life.flight().begin(1, 8);
        let operation = begun.ok_or(LinkError::Full { peer: life.rank, depth: DEPTH })?;
        let (nonce, at) = (opened.nonce, offset as u64);
        let header = Header { nonce, offset: at, first: n, ..Header::of(Kind::Add) };
        ask(&self.home, life, header, None, |flight, number| {
            flight.add(number, Adding { operation, offset, reply });
        })?;
        Ok(operation)
    }

    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        to.check_word(offset)?;
        let opened = self.there(to, offset, 8)?;
        if let Some(direct) = &opened.direct {
            let before = direct.word(to.peer(), offset)?.fetch_add(n, Relaxed);
            opened.life.over(8);
            return Ok(before);
        }
        let header = Header { first: n, ..Header::of(Kind::Add) };
        self.word(opened, offset, header, Operation::Add, bound)
    }

    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        to.check_word(offset)?;
        let opened = self.there(to, offset, 8)?;
        if let Some(direct) = &opened.direct {
            let word = direct.word(to.peer(), offset)?;
            let (Ok(before) | Err(before)) = word.compare_exchange(expected, new, Relaxed, Relaxed);
            opened.life.over(8);
            return Ok(before);
        }
        let header = Header { first: expected, second: new, ..Header::of(Kind::CompareSwap) };
        self.word(opened, offset, header, Operation::CompareSwap, bound)
    }

    fn fence(&self, peer: Rank) -> Result<(), LinkError> {
        let life = self.home.life(peer)?;
        life.alive()?;
        // Messages to a peer are handled in their order as it is.
        if life.is_mapped() {
            life.gather();
            fence_system();
        }
        Ok(())
    }

    fn flush(&self, peer: Rank, bound: Bound) -> Result<(), LinkError> {
        let life = self.home.life(peer)?;
        life.alive()?;
        if life.is_mapped() {
            life.gather();
            return Ok(());
        }
        let header = Header::of(Kind::Flush);
        let answer = self.question(&life, header, (Operation::Flush, None), bound)?;
        if life.flight().tell_refusals(answer.second) {
            return Err(LinkError::Key { peer, why: KeyFault::Unknown });
        }
        Ok(())
    }

    fn completions(&self, peer: Rank) -> Result<Slot, LinkError> {
        Ok(self.home.life(peer)?.completions().clone())
    }

    fn moves_by_itself(&self, peer: Rank) -> bool {
        self.home.life(peer).is_ok_and(|life| life.is_mapped())
    }

    fn progress(&self) -> bool {
        self.worker.progress().is_ok_and(|events| events > 0)
    }

    fn wait<'w>(
        &self,
        waiter: &'w Waiter,
        target: Seq,
        bound: Bound,
    ) -> Result<Observed<'w>, WaitError> {
        if let Some(observed) = waiter.try_wait(target)? {
            return Ok(observed);
        }
        // What a peer stores wakes who sleeps on the line, and no event of UCX's.
        let all_mapped = self.home.by_message.load(Relaxed) == 0;
        if all_mapped || self.moves_by_itself(waiter.slot().id().producer) {
            return waiter.wait_ge_bounded(target, bound);
        }
        let mut seen = Ok(None);
        let waited = self.worker.wait_until(bound, || {
            seen = waiter.try_wait(target);
            !matches!(seen, Ok(None))
        });
        match (seen?, waited) {
            (Some(observed), _) => Ok(observed),
            (None, Ok(Err(waited))) => waiter.give_up(target, waited),
            (None, _) => waiter.wait_ge_bounded(target, bound),
        }
    }

    fn explain(&self, peer: Rank, operation: Operation) -> Result<Explanation, LinkError> {
        self.home.life(peer).map(|life| explain(peer, operation, life.is_mapped()))
    }

    fn report(&self) -> LinkReport {
        let mut report = LinkReport::default();
        for life in self.home.all() {
            let (posted, bytes) = life.counts();
            report.posted = report.posted.wrapping_add(posted);
            report.bytes = report.bytes.wrapping_add(bytes);
            if life.alive().is_err() {
                report.quarantined += life.flight().in_hand();
            }
        }
        report.refused = self.home.refused();
        report
    }
}
