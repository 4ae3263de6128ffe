//! A segment and its parts.
#![allow(unsafe_code)] // The header lies in shared memory, reached through a pointer.

use alloc::sync::Arc;
use core::{fmt, ptr::addr_of};

use rustix::fd::{BorrowedFd, OwnedFd};

use super::{
    Identity, PendingTable, Recorder, RegionTable, SegmentError, SegmentState,
    header::{HEADER_BYTES, LAYOUT, MAGIC, SECTIONS, Section, SegmentHeader, VERSION},
};
use crate::{
    Block, LINE_BYTES, Nanos, Rank, SharedMap, SignalTable, TableShape,
    header::table_bytes,
    shim::{AtomicU32, AtomicU64, Ordering::*},
};

/// The sizes of a segment's parts.
#[derive(Clone, Copy, Debug)]
pub struct SegmentShape {
    /// The signals that others publish here, a row a producer.
    pub signals: TableShape,
    /// Waits that can be written down at once.
    pub pending: u32,
    /// Records that the flight recorder keeps.
    pub records: u32,
    /// Regions that can be registered at once.
    pub regions: u32,
    /// Bytes for rings of communication tasks.
    pub ring_bytes: usize,
    /// Bytes for regions that others reach.
    pub heap_bytes: usize,
}

impl SegmentShape {
    /// A row of `slots` counters for each of `world` ranks, a heap of `heap_bytes`, 64 waits, 1,024
    /// records, 256 regions, no rings.
    pub const fn new(world: u32, slots: u32, heap_bytes: usize) -> Self {
        let signals = TableShape::new(world, slots);
        Self { signals, pending: 64, records: 1024, regions: 256, ring_bytes: 0, heap_bytes }
    }
}

const TABLE: usize = 0;
const PENDING: usize = 1;
const RECORDER: usize = 2;
const REGIONS: usize = 3;
const RINGS: usize = 4;
const HEAP: usize = 5;

/// A rank's shared memory: signals, what it waits for, what happened last, rings, and a heap of
/// regions that others may be given. A handle: clones name the same memory.
///
/// Who maps it reaches all of it, so its file is handed to processes of the job alone.
///
/// ```
/// use pontoon_signal::{Identity, Nanos, Rank, Segment, SegmentShape};
///
/// let whose = Identity { job: *b"a job of my own.", rank: Rank(0), world: 2, epoch: 0,
///     pid: std::process::id(), start_time: 0, created: Nanos(0) };
/// let segment = Segment::create(SegmentShape::new(2, 8, 1 << 20), whose)?;
/// let gradients = segment.allocate(4096)?;
/// assert_eq!(segment.heap().offset_of(&gradients), Some(0));
///
/// let file = segment.file().expect("its own").try_clone_to_owned()?; // to another process
/// let theirs = Segment::open(file)?;
/// assert_eq!(theirs.identity(), whose);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Segment {
    parts: Arc<Parts>,
}

/// Invariant G1: `all` begins with a `SegmentHeader` that `create` or `open` checked.
#[derive(Debug)]
struct Parts {
    all: Block,
    identity: Identity,
    signals: SignalTable,
    pending: PendingTable,
    recorder: Recorder,
    regions: RegionTable,
    rings: Block,
    heap: Block,
    /// How much of the heap is given away, by this process.
    used: AtomicU64,
}

impl Segment {
    /// Lays out a new segment.
    ///
    /// # Errors
    ///
    /// [`SegmentError::System`], [`SegmentError::TooLarge`] or, if its signals have no line,
    /// [`SegmentError::Table`].
    pub fn create(shape: SegmentShape, identity: Identity) -> Result<Self, SegmentError> {
        let map = SharedMap::create("pontoon-segment", Self::bytes_of(&shape)?)?;
        // SAFETY: it was mapped here, of a new file, and nobody else has it.
        unsafe { Self::lay_out_in(Block::of(map), shape, identity) }
    }

    /// As [`create`](Self::create), in a new file with a name, for readers after its owner's end:
    /// see [`SharedMap::on_file`].
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn create_on(
        file: OwnedFd,
        shape: SegmentShape,
        identity: Identity,
    ) -> Result<Self, SegmentError> {
        let map = SharedMap::on_file(file, Self::bytes_of(&shape)?)?;
        // SAFETY: it was mapped here, of a new file, and nobody else has it.
        unsafe { Self::lay_out_in(Block::of(map), shape, identity) }
    }

    /// How many bytes a segment of that shape takes.
    ///
    /// # Errors
    ///
    /// [`SegmentError::TooLarge`], or of its signals [`SegmentError::Table`].
    pub fn bytes_of(shape: &SegmentShape) -> Result<usize, SegmentError> {
        sections(shape).map(|(_, bytes)| bytes)
    }

    /// Lays out a new segment in `all`, zeroed memory of the caller's that nobody else uses yet, as large
    /// as [`bytes_of`](Self::bytes_of) says.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create); [`SegmentError::Malformed`] if the memory is too small or does not
    /// begin on a line.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the memory before this returns: not through another handle of `all` or
    /// of its mapping, and not from another process. Its header is written as plain bytes.
    pub unsafe fn lay_out_in(
        all: Block,
        shape: SegmentShape,
        identity: Identity,
    ) -> Result<Self, SegmentError> {
        let (sections, bytes) = sections(&shape)?;
        if all.bytes() < bytes || !is_on_a_line(&all) {
            return Err(malformed(&all, TABLE));
        }
        let Identity { job, rank, world, epoch, pid, start_time, created } = identity;
        let header = SegmentHeader {
            magic: MAGIC,
            version: VERSION,
            header_bytes: HEADER_BYTES as u32,
            layout: LAYOUT,
            bytes: all.bytes() as u64,
            job,
            rank: rank.0,
            world,
            pid,
            epoch,
            start_time,
            created: created.0,
            sections,
            state: AtomicU32::new(SegmentState::New.word()),
        };
        // SAFETY: it begins on a line, is at least a header long, and nobody else has it yet.
        unsafe { all.base().cast::<SegmentHeader>().write(header) };
        SignalTable::lay_out(part(&all, &sections, TABLE)?, shape.signals)?;
        Self::find(all, sections, identity)
    }

    /// The segment that another process laid out, by the file it handed over.
    ///
    /// # Errors
    ///
    /// See [`SegmentError`]; a mismatch names both sides' versions.
    pub fn open(file: OwnedFd) -> Result<Self, SegmentError> {
        Self::in_block(Block::of(SharedMap::open(file)?))
    }

    /// As [`open`](Self::open), of a file with a name: see [`SharedMap::open_named`].
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_named(file: OwnedFd) -> Result<Self, SegmentError> {
        Self::in_block(Block::of(SharedMap::open_named(file)?))
    }

    /// The segment in a file that is open for reading, its owner alive or not. It shows what is
    /// there; what is written through it, the segment never sees: see [`SharedMap::view`].
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn view(file: OwnedFd) -> Result<Self, SegmentError> {
        Self::in_block(Block::of(SharedMap::view(file)?))
    }

    /// The segment that was laid out in `all`, however that memory came here.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn in_block(all: Block) -> Result<Self, SegmentError> {
        if all.bytes() < HEADER_BYTES || !is_on_a_line(&all) {
            return Err(malformed(&all, TABLE));
        }
        let header = all.base().cast::<SegmentHeader>().as_ptr();
        macro_rules! field {
            ($name:ident) => {{
                // SAFETY: within the block, as it is a header long (B1).
                let place = unsafe { addr_of!((*header).$name) };
                // SAFETY: as above, and any bytes are a valid number. What is checked is the copy,
                // so that a hostile creator changes nothing afterwards.
                unsafe { place.read_volatile() }
            }};
        }
        let (magic, version, layout) = (field!(magic), field!(version), field!(layout));
        if magic == MAGIC.swap_bytes() {
            return Err(SegmentError::ByteOrder);
        }
        if magic != MAGIC {
            return Err(SegmentError::NotASegment { found: magic });
        }
        if (version, layout) != (VERSION, LAYOUT) {
            let (theirs, ours) = ((version, layout), (VERSION, LAYOUT));
            return Err(SegmentError::Version { theirs, ours });
        }
        let (header_bytes, bytes) = (field!(header_bytes), field!(bytes));
        if header_bytes as usize != HEADER_BYTES || bytes > all.bytes() as u64 {
            return Err(SegmentError::Cut { bytes: all.bytes(), header_bytes, wanted: bytes });
        }
        let identity = Identity {
            job: field!(job),
            rank: Rank(field!(rank)),
            world: field!(world),
            epoch: field!(epoch),
            pid: field!(pid),
            start_time: field!(start_time),
            created: Nanos(field!(created)),
        };
        Self::find(all, field!(sections), identity)
    }

    fn find(
        all: Block,
        sections: [Section; SECTIONS],
        identity: Identity,
    ) -> Result<Self, SegmentError> {
        let parts = Parts {
            signals: SignalTable::find(part(&all, &sections, TABLE)?, 0)?,
            pending: PendingTable::in_block(
                part(&all, &sections, PENDING)?
                    .holding(PendingTable::bytes(1))
                    .ok_or(malformed(&all, PENDING))?,
            ),
            recorder: Recorder::in_block(
                part(&all, &sections, RECORDER)?
                    .holding(Recorder::bytes(1))
                    .ok_or(malformed(&all, RECORDER))?,
            ),
            regions: RegionTable::in_block(
                part(&all, &sections, REGIONS)?
                    .holding(RegionTable::bytes(1))
                    .ok_or(malformed(&all, REGIONS))?,
            ),
            rings: part(&all, &sections, RINGS)?,
            heap: part(&all, &sections, HEAP)?,
            used: AtomicU64::new(0),
            identity,
            all,
        };
        Ok(Self { parts: Arc::new(parts) })
    }

    /// Whose it is.
    pub fn identity(&self) -> Identity {
        self.parts.identity
    }

    /// The signals that others publish here.
    pub fn signals(&self) -> &SignalTable {
        &self.parts.signals
    }

    /// What its owner waits for.
    pub fn pending(&self) -> &PendingTable {
        &self.parts.pending
    }

    /// What happened last.
    pub fn recorder(&self) -> &Recorder {
        &self.parts.recorder
    }

    /// What of the heap is registered.
    pub fn regions(&self) -> &RegionTable {
        &self.parts.regions
    }

    /// Room for rings of communication tasks.
    pub fn rings(&self) -> &Block {
        &self.parts.rings
    }

    /// All that can be given away as regions.
    pub fn heap(&self) -> &Block {
        &self.parts.heap
    }

    /// All of it.
    pub fn block(&self) -> &Block {
        &self.parts.all
    }

    /// The file to hand to another process, by whoever laid the segment out.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.parts.all.file()
    }

    /// Gives away `bytes` of the heap, from a page boundary on, for as long as the segment lives.
    /// The same calls give the same offsets at every rank.
    ///
    /// # Errors
    ///
    /// [`HeapFull`].
    pub fn allocate(&self, bytes: usize) -> Result<Block, HeapFull> {
        let (heap, page) = (&self.parts.heap, rustix::param::page_size() as u64);
        let room = heap.bytes() as u64;
        let mut at = 0;
        let end = |used: u64| {
            at = used;
            let end = used.checked_add(bytes as u64)?.checked_next_multiple_of(page)?;
            (end <= room.next_multiple_of(page) && used + bytes as u64 <= room).then_some(end)
        };
        let taken = self.parts.used.fetch_update(Relaxed, Relaxed, end);
        let full = HeapFull {
            asked: bytes,
            left: room.saturating_sub(self.parts.used.load(Relaxed)) as usize,
            bytes: heap.bytes(),
        };
        taken.map_err(|_| full)?;
        heap.part(at as usize..at as usize + bytes).ok_or(full)
    }

    /// How far its owner is.
    pub fn state(&self) -> SegmentState {
        SegmentState::of_word(self.state_word().load(Relaxed))
    }

    /// Says how far its owner is: for readers outside, nothing is ordered by it.
    pub fn set_state(&self, state: SegmentState) {
        self.state_word().store(state.word(), Relaxed);
    }

    fn state_word(&self) -> &AtomicU32 {
        let header = self.parts.all.base().cast::<SegmentHeader>().as_ptr();
        // SAFETY: G1.
        let word = unsafe { addr_of!((*header).state) };
        // SAFETY: G1; an atomic, which others may write.
        unsafe { &*word }
    }
}

impl Block {
    /// The block, if it holds as many bytes.
    fn holding(self, bytes: usize) -> Option<Self> {
        (self.bytes() >= bytes).then_some(self)
    }
}

fn is_on_a_line(block: &Block) -> bool {
    block.base().addr().get().is_multiple_of(LINE_BYTES)
}

fn malformed(all: &Block, section: usize) -> SegmentError {
    SegmentError::Malformed { bytes: all.bytes(), section }
}

/// Section `at`, if it lies within `all`, behind the header, and begins on a line.
fn part(all: &Block, sections: &[Section; SECTIONS], at: usize) -> Result<Block, SegmentError> {
    let Section { offset, bytes } = sections[at];
    let within = || {
        let start = usize::try_from(offset)
            .ok()
            .filter(|start| *start >= HEADER_BYTES && start.is_multiple_of(LINE_BYTES))?;
        all.part(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    };
    within().ok_or(malformed(all, at))
}

/// Where the parts go, and how many bytes they take in all.
fn sections(shape: &SegmentShape) -> Result<([Section; SECTIONS], usize), SegmentError> {
    let page = rustix::param::page_size();
    let bytes = [
        table_bytes(shape.signals)?,
        PendingTable::bytes(shape.pending.max(1) as usize),
        Recorder::bytes(shape.records.max(1) as usize),
        RegionTable::bytes(shape.regions.max(1) as usize),
        shape.ring_bytes,
        shape.heap_bytes,
    ];
    let mut sections = [Section::default(); SECTIONS];
    let mut at = Some(HEADER_BYTES);
    for (section, (place, bytes)) in sections.iter_mut().zip(bytes).enumerate() {
        // Rings and heap on pages of their own: they may be registered apart.
        let boundary = if section >= RINGS { page } else { LINE_BYTES };
        let start = at.and_then(|at| at.checked_next_multiple_of(boundary));
        let start = start.ok_or(SegmentError::TooLarge)?;
        *place = Section { offset: start as u64, bytes: bytes as u64 };
        at = start.checked_add(bytes);
    }
    let fits = |at: &usize| isize::try_from(*at).is_ok();
    Ok((sections, at.filter(fits).ok_or(SegmentError::TooLarge)?))
}

/// The heap of a segment has no room for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapFull {
    /// How many bytes were asked for.
    pub asked: usize,
    /// How many are left.
    pub left: usize,
    /// The heap's size.
    pub bytes: usize,
}

impl fmt::Display for HeapFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, left, bytes } = self;
        write!(
            f,
            "a region of {asked} bytes was asked for and {left} of the segment's {bytes} bytes \
             are left: open the segment with a larger heap"
        )
    }
}

impl core::error::Error for HeapFull {}
