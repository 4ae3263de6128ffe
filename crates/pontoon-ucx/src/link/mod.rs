//! The link over UCX. Where the peer's memory is mapped here, operations are loads and stores. Else one
//! message is a write and its signal, and the peer's handler applies it.
//!
//! `docs/design/ucx.md` has the figures that decided so, `docs/design/link-ucx.md` the order and what a
//! stranger can do. Read in this order: [`UcxLink`], then `header.rs` (what a message says), `messages.rs`
//! (the sender's side) and `receive.rs` (the owner's), `direct.rs` (mapped memory), `operations.rs` (which of both), `flight.rs` (numbers and completions), `life.rs` (one
//! peer), `home.rs` (all of them).

mod card;
mod direct;
mod error;
mod explain;
mod flight;
#[cfg(any(test, pontoon_fuzz))]
pub(crate) mod fuzz;
mod header;
mod home;
mod key;
mod life;
mod messages;
mod operations;
mod post;
mod receive;

use std::{
    fmt,
    ptr::NonNull,
    sync::{Arc, Weak},
};

use pontoon_signal::{
    Block, Ending, Identity, Rank, Segment, SegmentShape, SystemError, shim::Ordering::Relaxed,
};

pub use error::LinkSetupError;

use crate::{Backing, Context, Endpoint, Library, Options, Region, Worker};
use card::Card;
use home::{Home, random};
use key::Stretch;
use life::{Life, Way, ending_of};
use receive::Receiver;

const NAME: &str = "ucx";
/// The number of the messages that links send.
pub(crate) const MESSAGE: u16 = 0x706c;

/// The ways from one rank to others by UCX, over whatever transports that finds.
///
/// A rank gives each other a [card](Self::card), over a channel that only the job can read, and
/// [connects](Self::connect) by the one that it got. From then on the peer's death is noticed by UCX, or told
/// by [`end_peer`](pontoon_hal::link::Link::end_peer).
///
/// A thread makes progress while nobody waits. [`attach_signal`](pontoon_hal::link::Link::attach_signal) asks
/// the peer and waits for its answer, five seconds at most; nothing else waits without a bound of the caller's.
pub struct UcxLink {
    home: Arc<Home>,
    worker: Worker,
    context: Context,
}

/// A block as memory to be registered.
struct Blocked(Block);

#[allow(unsafe_code)] // a promise about memory
// SAFETY: B1 of the block, which keeps its mapping; what is in it is reached by raw pointers and atomics only.
unsafe impl Backing for Blocked {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl UcxLink {
    /// The link of the rank whose segment that is. It has no peer yet. All that peers do there comes as
    /// messages: see [`allocate`](Self::allocate).
    ///
    /// # Errors
    ///
    /// [`LinkSetupError::Library`] names the package where there is no UCX; else what UCX says.
    pub fn open(segment: Segment, options: Options) -> Result<Self, LinkSetupError> {
        let context = Context::open(Library::open()?, options)?;
        let block = segment.block().clone();
        let region = context.map(Arc::new(Blocked(block)))?;
        Self::over(context, segment, region, false)
    }

    /// The link of a rank, with a new segment for it in memory that UCX allocates: where transports allow it,
    /// peers of this host map it, and reach it by loads and stores. It has no file that could be handed over,
    /// and only what is part of its heap has a key.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and [`LinkSetupError::Segment`].
    pub fn allocate(
        shape: SegmentShape,
        identity: Identity,
        options: Options,
    ) -> Result<Self, LinkSetupError> {
        let context = Context::open(Library::open()?, options)?;
        let region = context.allocate(Segment::bytes_of(&shape)?)?;
        #[allow(unsafe_code)] // a promise about memory
        // SAFETY: it was allocated here, and its key is not given away before there is a card.
        let segment = unsafe { Segment::lay_out_in(Block::of(region.clone()), shape, identity) }?;
        Self::over(context, segment, region, true)
    }

    fn over(
        context: Context,
        segment: Segment,
        region: Region,
        shared: bool,
    ) -> Result<Self, LinkSetupError> {
        let worker = context.worker()?;
        let bytes = region.bytes();
        let home = Arc::new(Home::new(segment, Stretch { region, at: 0, bytes }, shared));
        let _ = home.engine.set(Arc::downgrade(worker.engine()));
        worker.handle(MESSAGE, Box::new(Receiver { home: Arc::clone(&home) }))?;
        worker.start_thread()?;
        Ok(Self { home, worker, context })
    }

    /// What `peer` needs to [connect](Self::connect) to this rank, and nobody else may have: whoever has it can
    /// send messages in that rank's name. Each call makes another; the last one counts.
    ///
    /// # Errors
    ///
    /// What UCX and the system say.
    pub fn card(&self, peer: Rank) -> Result<Vec<u8>, LinkSetupError> {
        let cookie = random()
            .map_err(|errno| SystemError { call: "getrandom", code: errno.raw_os_error() })?;
        let address = self.worker.address()?;
        let life = Arc::new(Life::new(peer, cookie)?);
        let old = self.home.with_lives(peer, |lives| lives.next.replace(life));
        drop(old);
        let (rank, epoch) = (self.home.rank(), self.home.segment.identity().epoch);
        let pid = std::process::id();
        let segment = if self.home.shared { self.home.own.region.key()? } else { Vec::new() };
        Ok(Card { rank, epoch, cookie, pid, address, segment }.seal())
    }

    /// Connects `peer`, by the card that it gave to this rank. A card for it was made before.
    ///
    /// It does not wait for the peer; whether that is there shows with the first operation.
    ///
    /// # Errors
    ///
    /// [`LinkSetupError`].
    pub fn connect(&self, peer: Rank, card: &[u8]) -> Result<(), LinkSetupError> {
        self.admit(peer, card, false)
    }

    /// Connects `peer` again, which was started again: its card has a higher epoch, and a new one was made for
    /// it. Handles of its former life stay dead, and what that had claimed in this rank's table is free.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), and [`LinkSetupError::Epoch`].
    pub fn reconnect(&self, peer: Rank, card: &[u8]) -> Result<(), LinkSetupError> {
        self.admit(peer, card, true)
    }

    fn admit(&self, peer: Rank, card: &[u8], again: bool) -> Result<(), LinkSetupError> {
        let card = Card::open(card)?;
        if card.rank != peer {
            return Err(LinkSetupError::Rank { asked: peer, found: card.rank });
        }
        let endpoint = self.worker.connect(&format!("rank {peer}"), &card.address)?;
        let life = self.home.with_lives(peer, |lives| {
            let connected = lives.now.as_ref().and_then(|life| life.way()).map(|way| way.epoch);
            match connected {
                Some(_) if !again => Err(LinkSetupError::Connected { peer }),
                Some(connected) if card.epoch <= connected => {
                    Err(LinkSetupError::Epoch { peer, connected, offered: card.epoch })
                }
                _ => lives.next.take().ok_or(LinkSetupError::NoCard { peer }),
            }
        })?;
        let state = Arc::clone(&endpoint.inner().state);
        let segment = self.map(&endpoint, &card);
        let Card { cookie, epoch, pid, .. } = card;
        let way = Way { cookie, epoch, pid, mapped: segment.is_some() };
        self.home.by_message.fetch_add(u32::from(!way.mapped), Relaxed);
        life.connect(endpoint, way, segment);
        let former = self.home.with_lives(peer, |lives| lives.now.replace(Arc::clone(&life)));
        if let Some(former) = former {
            // Its successor has the row from now on.
            let ending = Ending::PeerDead { rank: peer };
            former.end(ending, "reconnect");
            self.home.evict(&former, ending);
            self.home.bury(former);
        }
        let (home, told) = (Arc::downgrade(&self.home), Arc::downgrade(&life));
        state.tell(Box::new(move |status| {
            if let (Some(home), Some(life)) = (home.upgrade(), Weak::upgrade(&told)) {
                home.end(&life, ending_of(life.rank, status), "ucp_worker_progress");
            }
        }));
        Ok(())
    }

    /// The peer's segment, if its card opens it and it can be mapped here. One that cannot be used is reached
    /// by messages, whose handler knows what it can do.
    fn map(&self, endpoint: &Endpoint, card: &Card) -> Option<Segment> {
        if card.segment.is_empty() {
            return None;
        }
        let block = endpoint.remote(&card.segment).ok()?.block()?;
        let segment = Segment::in_block(block).ok()?;
        let (theirs, ours) = (segment.identity(), self.home.segment.identity());
        direct::is_of(&theirs, &ours, card.rank, card.epoch).then_some(segment)
    }

    /// This rank's segment.
    pub fn segment(&self) -> &Segment {
        &self.home.segment
    }

    /// For tests: whether the thread makes progress.
    #[doc(hidden)]
    pub fn set_thread(&self, runs: bool) -> Result<(), LinkSetupError> {
        if runs {
            return Ok(self.worker.start_thread()?);
        }
        self.worker.stop_thread();
        Ok(())
    }
}

impl Drop for UcxLink {
    fn drop(&mut self) {
        self.worker.stop_thread();
        // The engine has the handler, that has the lives, and their endpoints have the engine.
        for life in self.home.all() {
            life.end(Ending::PeerDead { rank: life.rank }, "drop");
        }
    }
}

impl fmt::Debug for UcxLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxLink").field("rank", &self.home.rank()).finish_non_exhaustive()
    }
}
