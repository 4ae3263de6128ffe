//! Two ranks in one process, each with a link to the other.

use std::sync::Arc;

use pontoon_comm::{Comm, Port};
use pontoon_hal::link::{Link, Registered, Remote};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{Block, Ending, Rank, Segment, SegmentShape, SignalTable};
use pontoon_ucx::{LinkSetupError, Options, UcxLink};

use super::{Over, SLOT, VerifyError, WORDS};

/// Rank 0, which sends, and rank 1.
pub(super) struct Pair {
    links: [Arc<dyn Link>; 2],
    segments: [Segment; 2],
    source: Registered,
    landing: Registered,
    target: Remote,
}

/// What came of making one.
pub(super) enum Made {
    Pair(Pair),
    /// There is no such link here.
    Absent(String),
}

fn failed(error: impl ToString) -> VerifyError {
    VerifyError::Setup(error.to_string())
}

fn shape() -> SegmentShape {
    SegmentShape::new(2, 2, 4 * WORDS * 8)
}

impl Pair {
    pub(super) fn make(over: Over) -> Result<Made, VerifyError> {
        let linked = match over {
            Over::Shm => shm()?,
            Over::UcxTcp => match ucx("tcp") {
                Ok(linked) => linked,
                Err(error) => return absent(error),
            },
            Over::UcxShm => match ucx("posix") {
                Ok(linked) => linked,
                Err(error) => return absent(error),
            },
        };
        let (links, segments) = linked;
        let mut registered = Vec::new();
        for (link, segment) in links.iter().zip(&segments) {
            let block = segment.allocate(WORDS * 8).map_err(failed)?;
            registered.push(link.register(&block).map_err(failed)?);
        }
        let [source, landing] =
            <[Registered; 2]>::try_from(registered).map_err(|_| failed("two were registered"))?;
        let key = landing.key().ok_or_else(|| failed("the segment's own memory has no key"))?;
        let target = links[0].attach(Rank(1), key).map_err(failed)?;
        Ok(Made::Pair(Self { links, segments, source, landing, target }))
    }

    /// The way from rank 0's source to rank 1's landing.
    pub(super) fn port(&self, comm: &Comm) -> Result<Port, VerifyError> {
        let signal = self.links[0].attach_signal(Rank(1), SLOT.slot).map_err(failed)?;
        let (source, target) = (self.source.clone(), self.target.clone());
        comm.port(&self.links[0], source, target, Some(signal)).map_err(failed)
    }

    pub(super) fn source(&self) -> Block {
        self.source.block().clone()
    }

    pub(super) fn landing(&self) -> Block {
        self.landing.block().clone()
    }

    /// Rank 1's.
    pub(super) fn signals(&self) -> &SignalTable {
        self.segments[1].signals()
    }

    /// How many operations rank 0's link was given.
    pub(super) fn posted(&self) -> u64 {
        self.links[0].report().posted
    }

    pub(super) fn end_peer(&self) {
        self.links[0].end_peer(Rank(1), Ending::PeerDead { rank: Rank(1) });
    }
}

type Linked = ([Arc<dyn Link>; 2], [Segment; 2]);

fn shm() -> Result<Linked, VerifyError> {
    let segment = |rank| Segment::create(shape(), identity([7; 16], Rank(rank), 2, 0));
    let segments = [segment(0).map_err(failed)?, segment(1).map_err(failed)?];
    let links = [0, 1].map(|me: usize| ShmLink::new(segments[me].clone()));
    for (link, other) in links.iter().zip([1_usize, 0]) {
        link.connect(Rank(other as u32), segments[other].clone()).map_err(failed)?;
    }
    Ok((links.map(|link| Arc::new(link) as Arc<dyn Link>), segments))
}

fn absent(error: LinkSetupError) -> Result<Made, VerifyError> {
    Ok(Made::Absent(error.to_string()))
}

fn ucx(transports: &str) -> Result<Linked, LinkSetupError> {
    let open = |rank| {
        let whose = identity([7; 16], Rank(rank), 2, 0);
        UcxLink::allocate(shape(), whose, Options::default().transports(transports))
    };
    let links = [open(0)?, open(1)?];
    let cards = [links[0].card(Rank(1))?, links[1].card(Rank(0))?];
    links[1].connect(Rank(0), &cards[0])?;
    links[0].connect(Rank(1), &cards[1])?;
    let segments = [links[0].segment().clone(), links[1].segment().clone()];
    Ok((links.map(|link| Arc::new(link) as Arc<dyn Link>), segments))
}
