//! One life of a peer: from the card that was made for it to its end.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use pontoon_hal::link::{LinkError, PeerState};
use pontoon_signal::{
    ClaimError, Ending, Publisher, Rank, Segment, Seq, SharedPublisher, SignalTable, Slot, SlotId,
    TableShape,
    shim::{AtomicU64, Ordering::Relaxed},
};

use super::{
    NAME,
    flight::{Answer, Flight},
    header::{Header, Kind},
};
use crate::{Body, Endpoint, Status, link::MESSAGE};

/// A peer, from the card that was made for it to its end. One that was started again is another.
///
/// Invariant P1: the end comes once and stays; what is done to the peer looks for it first.
pub(crate) struct Life {
    pub(crate) rank: Rank,
    /// What its messages must carry.
    pub(crate) cookie: u64,
    way: OnceLock<Way>,
    /// Until the end.
    endpoint: Mutex<Option<Endpoint>>,
    ending: OnceLock<End>,
    flight: Mutex<Flight>,
    inbound: Mutex<Inbound>,
    completions: Slot,
    /// Its segment, where that is mapped here, until the end.
    segment: Mutex<Option<Segment>>,
    /// Grows when an operation on mapped memory is over: all below a number are over then, whichever
    /// threads they are of.
    done: SharedPublisher,
    bytes: AtomicU64,
}

/// What the peer's card says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) cookie: u64,
    pub(crate) epoch: u32,
    pub(crate) pid: u32,
    /// Whether its segment is mapped here.
    pub(crate) mapped: bool,
}

/// How a life ended, and which call showed it.
#[derive(Clone, Copy, Debug)]
struct End {
    ending: Ending,
    call: &'static str,
}

/// What the peer sends.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// The number of the last message.
    number: u64,
    /// The slots of its row here that it has attached.
    pub(crate) publishers: BTreeMap<u32, Publisher>,
    /// Its writes that were refused.
    pub(crate) refused: u64,
    /// Answers to what came before it was connected.
    early: Vec<Header>,
}

impl Inbound {
    /// Takes message `number`; `false` if it does not follow the last one.
    pub(crate) fn follows(&mut self, number: u64) -> bool {
        let follows = number == self.number.wrapping_add(1);
        if follows {
            self.number = number;
        }
        follows
    }
}

impl Life {
    pub(crate) fn new(rank: Rank, cookie: u64) -> Result<Self, ClaimError> {
        let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(rank));
        let slot = SlotId { producer: rank, slot: 0 };
        let (done, completions) = (table.shared_publisher(slot)?.unnoted(), table.slot(slot)?);
        Ok(Self {
            rank,
            cookie,
            way: OnceLock::new(),
            endpoint: Mutex::default(),
            ending: OnceLock::new(),
            flight: Mutex::new(Flight::new(done.clone())),
            inbound: Mutex::default(),
            completions,
            segment: Mutex::default(),
            done,
            bytes: AtomicU64::new(0),
        })
    }

    /// What its card said, once it is connected.
    pub(crate) fn way(&self) -> Option<Way> {
        self.way.get().copied()
    }

    /// Connects it, once.
    pub(crate) fn connect(&self, endpoint: Endpoint, way: Way, segment: Option<Segment>) {
        *lock(&self.endpoint) = Some(endpoint);
        *lock(&self.segment) = segment;
        let early = {
            // Whoever answers looks for the way with this locked.
            let mut inbound = self.inbound();
            let _ = self.way.set(way);
            std::mem::take(&mut inbound.early)
        };
        for header in early {
            self.answer_later(header, Body::Nothing);
        }
        if self.ending.get().is_some() {
            drop(self.part());
        }
    }

    /// That nothing is known against it.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), LinkError> {
        match self.ending.get() {
            None => Ok(()),
            Some(End { ending: Ending::LinkFailed { code }, call }) => {
                Err(LinkError::Failed { peer: self.rank, link: NAME, call, code: *code })
            }
            Some(End { ending, .. }) => Err(LinkError::ended(self.rank, NAME, *ending)),
        }
    }

    /// The way there.
    #[inline]
    pub(crate) fn endpoint(&self) -> Result<Endpoint, LinkError> {
        self.alive()?;
        let endpoint = lock(&self.endpoint).clone();
        // Between the end and here, or before it is connected.
        endpoint.ok_or_else(|| self.lost(LinkError::NoSuchPeer { peer: self.rank, link: NAME }))
    }

    /// The failure of an operation that found no way there.
    pub(crate) fn lost(&self, otherwise: LinkError) -> LinkError {
        self.alive().err().unwrap_or(otherwise)
    }

    pub(crate) fn state(&self) -> PeerState {
        self.ending.get().map_or(PeerState::Alive, |end| PeerState::Ended(end.ending))
    }

    /// Ends it. Whether this was the first ending.
    pub(crate) fn end(&self, ending: Ending, call: &'static str) -> bool {
        let first = self.mark(ending, call);
        if first {
            self.finish(ending);
        }
        first
    }

    /// Says that it has ended, and no more: [`finish`](Self::finish) is to follow, if this was the first ending.
    pub(crate) fn mark(&self, ending: Ending, call: &'static str) -> bool {
        self.ending.set(End { ending, call }).is_ok()
    }

    /// Ends what is under way, and whoever waits for it.
    pub(crate) fn finish(&self, ending: Ending) {
        // Who had the flight in hand before may be storing an answer; whoever has it after this finds the end.
        let forsaken = self.flight().end(self.completions.clone(), ending);
        drop(forsaken);
        drop(self.part());
        for (_, publisher) in std::mem::take(&mut lock(&self.inbound).publishers) {
            publisher.end(ending);
        }
    }

    /// The endpoint, to be dropped: that closes it, and ends what UCX has under way with it, once
    /// nobody has the mapped segment any more.
    fn part(&self) -> (Option<Segment>, Option<Endpoint>) {
        (lock(&self.segment).take(), lock(&self.endpoint).take())
    }

    /// Whether its segment is mapped here.
    pub(crate) fn is_mapped(&self) -> bool {
        self.way().is_some_and(|way| way.mapped)
    }

    /// Its segment, if that is mapped here.
    pub(crate) fn segment(&self) -> Result<Option<Segment>, LinkError> {
        let segment = lock(&self.segment).clone();
        self.alive().map(|()| segment)
    }

    /// An operation of so many bytes on mapped memory is over. Gives its number.
    #[inline]
    pub(crate) fn over(&self, bytes: usize) -> Seq {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.done.pub_release(1)
    }

    /// Makes what all threads of this rank did to its mapped memory so far part of what this thread
    /// did.
    #[inline]
    pub(crate) fn gather(&self) {
        let _ = self.done.acquire();
    }

    /// Operations and bytes so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let direct = if self.is_mapped() { self.completions.value().get() } else { 0 };
        let flight = self.flight();
        let bytes = flight.bytes().wrapping_add(self.bytes.load(Relaxed));
        (flight.counts().0.wrapping_add(direct), bytes)
    }

    #[inline]
    pub(crate) fn flight(&self) -> MutexGuard<'_, Flight> {
        lock(&self.flight)
    }

    pub(crate) fn inbound(&self) -> MutexGuard<'_, Inbound> {
        lock(&self.inbound)
    }

    pub(crate) fn completions(&self) -> &Slot {
        &self.completions
    }

    /// `header` as it goes to the peer from `rank`.
    pub(crate) fn address(&self, rank: Rank, header: Header) -> Header {
        Header { rank, cookie: self.way().map_or(0, |way| way.cookie), ..header }
    }

    /// Answers message `number` from within a handler.
    pub(crate) fn answer(&self, rank: Rank, number: u64, answer: Answer) {
        let Answer { code, first, second, third } = answer;
        let header = Header {
            flags: code,
            rank,
            number,
            first,
            second,
            nonce: third,
            ..Header::of(Kind::Answer)
        };
        let mut inbound = self.inbound();
        if self.way().is_none() {
            inbound.early.push(header);
            return;
        }
        drop(inbound);
        self.answer_later(header, Body::Nothing);
    }

    pub(crate) fn answer_later(&self, header: Header, body: Body<'_>) {
        let endpoint = lock(&self.endpoint).clone();
        if let Some(endpoint) = endpoint {
            let header = self.address(header.rank, header);
            endpoint.send_later(MESSAGE, &header.encode(), body);
        }
    }
}

/// How a life ends whose endpoint failed so.
pub(crate) fn ending_of(rank: Rank, status: Status) -> Ending {
    match status {
        // Reset, or silent: what a dead process looks like.
        Status(-25 | -80) => Ending::PeerDead { rank },
        Status(code) => Ending::LinkFailed { code: code.into() },
    }
}

/// Nothing panics while one of these is held, so what is behind is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Inbound, Life, ending_of};
    use crate::Status;
    use pontoon_hal::link::{LinkError, PeerState};
    use pontoon_signal::{Ending, Rank};

    #[test]
    fn a_message_that_overtook_another_does_not_follow() {
        let mut inbound = Inbound::default();
        assert!(inbound.follows(1) && inbound.follows(2));
        for wrong in [2, 1, 4, 0] {
            assert!(!inbound.follows(wrong), "{wrong} after 2");
        }
        assert!(inbound.follows(3));
    }

    #[test]
    fn the_first_end_stays_and_is_told_as_what_it_was() {
        let rank = Rank(3);
        let life = Life::new(rank, 1).unwrap();
        assert_eq!((life.alive(), life.state()), (Ok(()), PeerState::Alive));
        let failed = ending_of(rank, Status(-3));
        assert!(life.end(failed, "ucp_worker_progress"));
        assert!(!life.end(ending_of(rank, Status(-25)), "ucp_am_send_nbx"));
        assert_eq!(life.state(), PeerState::Ended(Ending::LinkFailed { code: -3 }));
        let told =
            LinkError::Failed { peer: rank, link: "ucx", call: "ucp_worker_progress", code: -3 };
        assert_eq!(life.alive(), Err(told));
        assert_eq!(ending_of(rank, Status(-80)), Ending::PeerDead { rank });
    }
}
