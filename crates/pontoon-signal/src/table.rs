//! Signal tables: lines by `[producer][slot]`, in one process or shared by several.
#![allow(unsafe_code)] // A line in shared memory is reached through a pointer.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ptr::NonNull;

#[cfg(not(pontoon_loom))]
use rustix::fd::{BorrowedFd, OwnedFd};

use crate::{
    ClaimError, Ending, Host, OpenError, Os, Publisher, Rank, SharedPublisher, SignalLine, Slot,
    SlotId, TableShape, TimePoints, Waiter, header::table_bytes, trace::Trace,
};
#[cfg(not(pontoon_loom))]
use crate::{block::Block, header::Header, line::LINE_BYTES, map::SharedMap};

/// Lines by `[producer][slot]`.
///
/// The table is a handle: clones reach the same lines, and publishers and waiters keep them alive.
///
/// ```
/// use pontoon_signal::{Bound, Seq, SignalTable, SlotId, TableShape};
///
/// let table = SignalTable::in_process(TableShape::new(1, 1));
/// let slot = SlotId::new(0, 0);
/// let mut publisher = table.publisher(slot)?;
/// let waiter = table.waiter(slot)?;
/// let producer = std::thread::spawn(move || {
///     publisher.pub_release(1);
///     publisher.retire();
/// });
/// let observed = waiter.wait_ge_bounded(Seq::new(1), Bound::default())?;
/// let acquired = observed.acq_fence(); // from here on the producer's writes can be read
/// assert_eq!(acquired.value(), Seq::new(1));
/// # producer.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SignalTable<H: Host = Os> {
    lines: Arc<Lines>,
    host: H,
}

impl<H: Host> Clone for SignalTable<H> {
    fn clone(&self) -> Self {
        Self { lines: Arc::clone(&self.lines), host: self.host.clone() }
    }
}

/// Invariant T1: `first` is the first of `shape.lines()` lines, valid until `self` is dropped.
#[derive(Debug)]
struct Lines {
    first: NonNull<SignalLine>,
    shape: TableShape,
    traced: bool,
    trace: Option<Trace>,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// A boxed slice from `Lines::first` on. Not kept as a box: moving a box says that nobody else
    /// points into it.
    Process,
    #[cfg(not(pontoon_loom))]
    Shared(Block),
}

// SAFETY: T1, and a line consists of atomics only (L1).
unsafe impl Send for Lines {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lines {}

impl SignalTable {
    /// A table for the threads of this process.
    ///
    /// # Panics
    ///
    /// If the shape has no line, or more lines than memory can hold.
    pub fn in_process(shape: TableShape) -> Self {
        Self::in_process_on(Os, shape)
    }

    /// A table in a new memfd, to be handed to other processes.
    ///
    /// # Errors
    ///
    /// [`OpenError::Empty`], [`OpenError::TooLarge`] or [`OpenError::System`].
    #[cfg(not(pontoon_loom))]
    pub fn shared(shape: TableShape) -> Result<Self, OpenError> {
        let map = SharedMap::create("pontoon-signals", table_bytes(shape)?)?;
        Self::lay_out(Block::of(map), shape)
    }

    /// A new table in `block`, which is zeroed and which nobody else uses yet.
    #[cfg(not(pontoon_loom))]
    pub(crate) fn lay_out(block: Block, shape: TableShape) -> Result<Self, OpenError> {
        assert_on_a_line(&block);
        let (bytes, wanted) = (block.bytes(), table_bytes(shape)?);
        if bytes < wanted {
            return Err(OpenError::Truncated { bytes, wanted });
        }
        // SAFETY: the block is at least one line long and begins on one, as asserted; nobody
        // else has it yet.
        unsafe { block.base().cast::<Header>().write(shape.header()) };
        let table = Self::in_block(block, shape, shape.trace > 0);
        for line in table.lines.as_slice() {
            line.start_at(shape.start);
        }
        Ok(table)
    }

    /// The table that another process made, by the file it handed over.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; a mismatch names both sides' versions.
    #[cfg(not(pontoon_loom))]
    pub fn open(file: OwnedFd) -> Result<Self, OpenError> {
        Self::open_traced(file, 0)
    }

    /// As [`open`](Self::open), recording the time points of the first `waits` successful waits of
    /// this process. They are exact only if the creator traced the table too; else a publish's time
    /// can be that of the one before.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[cfg(not(pontoon_loom))]
    pub fn open_traced(file: OwnedFd, waits: u32) -> Result<Self, OpenError> {
        Self::find(Block::of(SharedMap::open(file)?), waits)
    }

    /// The table that was laid out in `block`.
    #[cfg(not(pontoon_loom))]
    pub(crate) fn find(block: Block, waits: u32) -> Result<Self, OpenError> {
        assert_on_a_line(&block);
        if block.bytes() < LINE_BYTES {
            return Err(OpenError::Truncated { bytes: block.bytes(), wanted: LINE_BYTES });
        }
        // SAFETY: the block is at least a line long, begins on one, as asserted, and any bytes are a
        // valid `Header`. Its creator wrote them before the file came here; a hostile
        // one can change no more than what `check` sees, since the copy is checked, not the memory.
        let header = unsafe { block.base().cast::<Header>().read_volatile() };
        let shape = header.check(block.bytes())?.traced(waits);
        Ok(Self::in_block(block, shape, header.traced != 0))
    }

    #[cfg(not(pontoon_loom))]
    fn in_block(block: Block, shape: TableShape, traced: bool) -> Self {
        // SAFETY: `table_bytes` counted the header's line, so the offset stays within the block.
        let first = unsafe { block.base().add(LINE_BYTES) }.cast();
        let trace = (shape.trace > 0).then(|| Trace::new(shape.trace));
        let lines = Lines { first, shape, traced, trace, memory: Memory::Shared(block) };
        Self { lines: Arc::new(lines), host: Os }
    }

    /// The file to hand to another process; `None` if the table is this process's own, if another
    /// created it, or if it is part of a [`Segment`](crate::Segment), whose file it is.
    #[cfg(not(pontoon_loom))]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.lines.memory {
            Memory::Process => None,
            Memory::Shared(block) if block.is_whole() => block.file(),
            Memory::Shared(_) => None,
        }
    }
}

impl<H: Host> SignalTable<H> {
    /// A table for the threads of this process, on a host of the caller's.
    ///
    /// # Panics
    ///
    /// If the shape has no line, or more lines than memory can hold.
    pub fn in_process_on(host: H, shape: TableShape) -> Self {
        let mut memory = Vec::new();
        let room = table_bytes(shape).and_then(|_| {
            let too_large = OpenError::TooLarge { shape: (shape.producers, shape.slots) };
            memory.try_reserve_exact(shape.lines()).map_err(|_| too_large)
        });
        room.unwrap_or_else(|error| panic!("{error}"));
        memory.extend((0..shape.lines()).map(|_| SignalLine::new(shape.start)));
        let first = NonNull::from(Box::leak(memory.into_boxed_slice())).cast();
        let trace = (shape.trace > 0).then(|| Trace::new(shape.trace));
        let traced = trace.is_some();
        let lines = Lines { first, shape, traced, trace, memory: Memory::Process };
        Self { lines: Arc::new(lines), host }
    }

    /// Claims `slot` for its one producer.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Taken`] names who has it; [`ClaimError::NoSuchSlot`] the table's size.
    pub fn publisher(&self, slot: SlotId) -> Result<Publisher<H>, ClaimError> {
        Publisher::claim(self.line(slot)?, slot, self.host.clone())
    }

    /// Claims `slot` for several producers, each of which may only add.
    ///
    /// # Errors
    ///
    /// As for [`publisher`](Self::publisher): a slot is either one producer's or shared.
    pub fn shared_publisher(&self, slot: SlotId) -> Result<SharedPublisher<H>, ClaimError> {
        SharedPublisher::claim(self.line(slot)?, slot, self.host.clone())
    }

    /// A waiter on `slot`.
    ///
    /// # Errors
    ///
    /// [`ClaimError::NoSuchSlot`].
    pub fn waiter(&self, slot: SlotId) -> Result<Waiter<H>, ClaimError> {
        Ok(Waiter::new(self.line(slot)?, slot, self.host.clone()))
    }

    /// The handle of `slot`, to be waited on anywhere in this process.
    ///
    /// # Errors
    ///
    /// [`ClaimError::NoSuchSlot`].
    pub fn slot(&self, slot: SlotId) -> Result<Slot<H>, ClaimError> {
        Ok(Slot::new(self.line(slot)?, slot, self.host.clone()))
    }

    /// Ends `slot`: every wait on it that has not been reached fails at once. Whether this was
    /// the first ending; a later one changes nothing.
    ///
    /// # Errors
    ///
    /// [`ClaimError::NoSuchSlot`].
    pub fn end(&self, slot: SlotId, ending: Ending) -> Result<bool, ClaimError> {
        Ok(self.line(slot)?.end_and_wake(ending))
    }

    /// Ends every slot of `producer`, whose lines it publishes no more. How many this was the first
    /// ending of.
    ///
    /// # Errors
    ///
    /// [`ClaimError::NoSuchSlot`].
    pub fn end_producer(&self, producer: Rank, ending: Ending) -> Result<usize, ClaimError> {
        let mut ended = 0;
        for slot in 0..self.lines.shape.slots {
            ended += usize::from(self.end(SlotId { producer, slot }, ending)?);
        }
        Ok(ended)
    }

    /// Ends the slots of `producer` that its process `pid`, which is dead, has or nobody, and takes its
    /// claims away, so that a successor can have them. How many claims that were. What a successor
    /// has already is left to it.
    ///
    /// Of a process that is alive it takes what that believes to own: its publishes then mix with
    /// its successor's.
    ///
    /// # Errors
    ///
    /// [`ClaimError::NoSuchSlot`].
    pub fn evict(&self, producer: Rank, pid: u32, ending: Ending) -> Result<usize, ClaimError> {
        let mut evicted = 0;
        for slot in 0..self.lines.shape.slots {
            evicted += usize::from(self.line(SlotId { producer, slot })?.evict(pid, ending));
        }
        Ok(evicted)
    }

    /// Its size.
    pub fn shape(&self) -> TableShape {
        self.lines.shape
    }

    /// Ends every slot of the table.
    pub fn end_all(&self, ending: Ending) {
        for line in self.lines.as_slice() {
            if line.end(ending) {
                line.park().notify();
            }
        }
    }

    /// The completed time points of a traced table, oldest first, and how many waits found no
    /// room. Empty if this process does not trace it.
    pub fn time_points(&self) -> (Vec<TimePoints>, u64) {
        self.lines.trace.as_ref().map_or_else(Default::default, Trace::read)
    }

    /// Line `index` in the order of memory: row after row.
    ///
    /// # Panics
    ///
    /// If the table has no such line.
    #[inline]
    pub(crate) fn line_at(&self, index: u32) -> &SignalLine {
        &self.lines.as_slice()[index as usize]
    }

    /// The handle of line `index`, under the name `id`.
    pub(crate) fn slot_at(&self, index: u32, id: SlotId) -> Slot<H> {
        let line = NonNull::from(self.line_at(index));
        Slot::new(LineRef { line, lines: Arc::clone(&self.lines) }, id, self.host.clone())
    }

    /// The bare line, for comparisons with a protocol-free ping-pong.
    #[doc(hidden)]
    pub fn line(&self, slot: SlotId) -> Result<LineRef, ClaimError> {
        let shape = self.lines.shape;
        let row = slot.producer.0.wrapping_sub(shape.first_rank.0);
        if row >= shape.producers || slot.slot >= shape.slots {
            let (first, producers, slots) = (shape.first_rank, shape.producers, shape.slots);
            return Err(ClaimError::NoSuchSlot { slot, first, producers, slots });
        }
        let index = row as usize * shape.slots as usize + slot.slot as usize;
        // SAFETY: T1, the index is below `producers * slots`.
        let line = unsafe { self.lines.first.add(index) };
        Ok(LineRef { line, lines: Arc::clone(&self.lines) })
    }
}

#[cfg(not(pontoon_loom))]
fn assert_on_a_line(block: &Block) {
    assert!(block.base().cast::<SignalLine>().is_aligned(), "a table begins on a line");
}

impl Drop for Lines {
    fn drop(&mut self) {
        if matches!(self.memory, Memory::Process) {
            let count = self.shape.lines();
            let lines = NonNull::slice_from_raw_parts(self.first, count);
            // SAFETY: `in_process_on` leaked a box of this address and length; T1 ends here.
            drop(unsafe { Box::from_raw(lines.as_ptr()) });
        }
    }
}

impl Lines {
    #[inline]
    fn as_slice(&self) -> &[SignalLine] {
        let count = self.shape.lines();
        // SAFETY: T1, all of these are lines, and `self` keeps them.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), count) }
    }
}

/// A line, kept alive.
///
/// Invariant T2: `line` points into `lines`.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LineRef {
    line: NonNull<SignalLine>,
    lines: Arc<Lines>,
}

// SAFETY: T2, and a line consists of atomics only (L1).
unsafe impl Send for LineRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for LineRef {}

impl LineRef {
    /// Whether publishers of this line note the time before they announce.
    pub(crate) fn is_traced(&self) -> bool {
        self.lines.traced
    }

    /// Where this process records time points.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.lines.trace.as_ref()
    }

    /// Whether only this process can reach the line.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.lines.memory, Memory::Process)
    }

    /// Whether both are the same line, though perhaps of two handles.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.line == other.line
    }

    pub(crate) fn end_and_wake(&self, ending: Ending) -> bool {
        let first = self.end(ending);
        if first {
            self.park().notify();
        }
        first
    }
}

impl core::ops::Deref for LineRef {
    type Target = SignalLine;

    #[inline]
    fn deref(&self) -> &SignalLine {
        // SAFETY: T2, `self.lines` keeps the line mapped.
        unsafe { self.line.as_ref() }
    }
}
