//! One life of a peer: from the segment it handed over to its end.

use std::sync::{Arc, OnceLock};

use pontoon_hal::link::{LinkError, PeerState};
use pontoon_signal::{
    ClaimError, Ending, Life, Publisher, Rank, Segment, Seq, SharedPublisher, SignalTable, Slot,
    SlotId, TableShape,
    shim::{AtomicU64, Ordering::*},
};

use crate::link::NAME;

/// Tells the handles of one link from those of another, by its address.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Keys that opened nothing.
    pub(crate) refused: AtomicU64,
}

/// A peer from connecting to its end. One that was started again is another.
///
/// Invariant P1: the end comes once and stays; what is done to the peer looks for it first.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) mark: Arc<Mark>,
    pub(crate) rank: Rank,
    pub(crate) segment: Segment,
    pub(crate) watched: bool,
    ending: OnceLock<Ending>,
    /// Set when its claims were taken away.
    pub(crate) evicted: OnceLock<()>,
    /// Grows when an operation is over, so that its numbers are in the order of their ends: all
    /// below a number are over, whichever threads they are of.
    done: SharedPublisher,
    completions: Slot,
    bytes: AtomicU64,
}

impl Peer {
    pub(crate) fn new(
        mark: Arc<Mark>,
        segment: Segment,
        watched: bool,
    ) -> Result<Self, ClaimError> {
        let rank = segment.identity().rank;
        let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(rank));
        let slot = SlotId { producer: rank, slot: 0 };
        let (done, completions) = (table.shared_publisher(slot)?.unnoted(), table.slot(slot)?);
        let (ending, evicted) = (OnceLock::new(), OnceLock::new());
        let bytes = AtomicU64::new(0);
        Ok(Self { mark, rank, segment, watched, ending, evicted, done, completions, bytes })
    }

    /// That nothing is known against it.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), LinkError> {
        match self.ending.get() {
            None => Ok(()),
            Some(ending) => Err(LinkError::ended(self.rank, NAME, *ending)),
        }
    }

    pub(crate) fn state(&self) -> PeerState {
        self.ending.get().map_or(PeerState::Alive, |ending| PeerState::Ended(*ending))
    }

    /// Whether its process runs. One of this same process is gone as soon as somebody says so.
    pub(crate) fn life(&self) -> Life {
        if self.watched { self.segment.identity().process().look() } else { Life::Gone }
    }

    /// Ends it. Whether this was the first ending.
    pub(crate) fn end(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending).is_ok();
        if first {
            self.completions.end(ending);
        }
        first
    }

    /// An operation of so many bytes is over. Gives its number.
    #[inline]
    pub(crate) fn over(&self, bytes: usize) -> Seq {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.done.pub_release(1)
    }

    /// Grows `publisher` by `n`, with which an operation of so many bytes is over. Gives where the
    /// counter is, and the operation's number.
    #[inline]
    pub(crate) fn announce(&self, publisher: &mut Publisher, n: u32, bytes: usize) -> (Seq, Seq) {
        (publisher.pub_release(n), self.over(bytes))
    }

    /// Makes what all threads of this rank did to it so far part of what this thread did.
    #[inline]
    pub(crate) fn gather(&self) {
        let _ = self.done.acquire();
    }

    pub(crate) fn completions(&self) -> &Slot {
        &self.completions
    }

    /// Operations and bytes so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.completions.value().get(), self.bytes.load(Relaxed))
    }
}

/// What the link remembers of a signal in a peer's table.
pub(crate) struct Signal {
    pub(crate) peer: Arc<Peer>,
    pub(crate) publisher: Publisher,
}
