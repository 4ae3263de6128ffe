//! Buffers that go round between a writer and a reader: filled one way, credits the other.
#![allow(unsafe_code)] // A buffer is a shared cell that the two counters pass to and fro.

use alloc::{boxed::Box, sync::Arc};
use core::ops;

use crate::{
    Bound, Host, Load, Observed, Os, Publisher, Seq, SignalTable, Slot, SlotId, TableShape,
    WaitError, Waiter, shim::UnsafeCell,
};

/// Two or more buffers between one writer and one reader.
///
/// The writer fills buffer `i` while the reader still reads `i - 1`; each waits only when the
/// other is a whole round behind. Nothing is copied and nothing locked.
///
/// Invariant B1: with `filled` and `freed` the two counters since the start and `n` buffers,
/// `freed <= filled <= freed + n`. Buffer `k % n` belongs to the writer from `freed > k - n` until
/// it publishes `filled = k + 1`, then to the reader until that publishes `freed = k + 1`. Both
/// counters are private to this object.
///
/// ```
/// use pontoon_signal::{Bound, DoubleBuffer};
///
/// let (mut writer, mut reader) = DoubleBuffer::new([vec![0u8; 3], vec![0u8; 3]]);
/// let producer = std::thread::spawn(move || {
///     for step in 0..10 {
///         let mut buffer = writer.fill(Bound::default())?;
///         buffer.fill(step);
///         buffer.publish();
///     }
///     Ok::<_, pontoon_signal::WaitError>(())
/// });
/// for step in 0..10 {
///     assert_eq!(*reader.next(Bound::default())?, [step; 3]);
/// }
/// producer.join().unwrap()?;
/// # Ok::<(), pontoon_signal::WaitError>(())
/// ```
#[derive(Debug)]
pub struct DoubleBuffer<T> {
    cells: Box<[UnsafeCell<T>]>,
}

// SAFETY: B1 gives each buffer one owner at a time and the counters order one's accesses before
// the other's; `T` changes threads, which needs `T: Send`.
unsafe impl<T: Send> Sync for DoubleBuffer<T> {}

const FILLED: SlotId = SlotId::new(0, 0);
const FREED: SlotId = SlotId::new(1, 0);

impl<T> DoubleBuffer<T> {
    /// A writer and a reader over `buffers`.
    ///
    /// # Panics
    ///
    /// If there is no buffer.
    #[expect(clippy::new_ret_no_self, reason = "the two ends are all there is to hold")]
    pub fn new(buffers: impl IntoIterator<Item = T>) -> (BufferWriter<T>, BufferReader<T>) {
        Self::starting_at(Seq::new(0), buffers)
    }

    /// As [`new`](Self::new), with both counters at `start`: tests start near the wrap.
    ///
    /// # Panics
    ///
    /// If there is no buffer.
    pub fn starting_at(
        start: Seq,
        buffers: impl IntoIterator<Item = T>,
    ) -> (BufferWriter<T>, BufferReader<T>) {
        Self::starting_at_on(Os, start, buffers)
    }

    /// As [`starting_at`](Self::starting_at), on a host of the caller's.
    ///
    /// # Panics
    ///
    /// If there is no buffer.
    pub fn starting_at_on<H: Host>(
        host: H,
        start: Seq,
        buffers: impl IntoIterator<Item = T>,
    ) -> (BufferWriter<T, H>, BufferReader<T, H>) {
        let cells: Box<[_]> = buffers.into_iter().map(UnsafeCell::new).collect();
        assert!(!cells.is_empty(), "buffers go round only if there is at least one");
        let count = u32::try_from(cells.len()).expect("fewer than 2^32 buffers");
        let shape = TableShape::new(2, 1).starting_at(start);
        let table = SignalTable::in_process_on(host, shape);
        let claimed = "a new table has free slots";
        let buffers = Arc::new(Self { cells });
        let writer = BufferWriter {
            buffers: Arc::clone(&buffers),
            count,
            index: 0,
            filled: table.publisher(FILLED).expect(claimed),
            freed: table.waiter(FREED).expect(claimed),
            freed_to: start,
        };
        let reader = BufferReader {
            buffers,
            index: 0,
            taken: start,
            filled: table.waiter(FILLED).expect(claimed),
            freed: table.publisher(FREED).expect(claimed),
        };
        (writer, reader)
    }
}

/// The filling end of a [`DoubleBuffer`]. Dropping it ends the reader's waits, once the reader has
/// had all that was published.
#[derive(Debug)]
pub struct BufferWriter<T, H: Host = Os> {
    buffers: Arc<DoubleBuffer<T>>,
    count: u32,
    index: usize,
    filled: Publisher<H>,
    freed: Waiter<H>,
    /// Where `freed` was seen and fenced: up to there the buffers are known to be free.
    freed_to: Seq,
}

impl<T, H: Host> BufferWriter<T, H> {
    /// The same writer, its counter [undated](Publisher::undated).
    pub fn undated(self) -> Self {
        Self { filled: self.filled.undated(), ..self }
    }

    /// Waits for a buffer that the reader has given back.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]; `PeerDead` if the reader was dropped.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows, if the reader is a whole round behind.
    pub fn fill(&mut self, bound: Bound) -> Result<Filling<'_, T, H>, WaitError> {
        self.freed.wait_ge_bounded(self.oldest(), bound)?.acq_fence();
        Ok(Filling { writer: self })
    }

    /// A free buffer, or `None` if the reader is a whole round behind. Polls once, or not at all
    /// if it saw the buffer come back earlier.
    ///
    /// # Errors
    ///
    /// `PeerDead` if the reader was dropped, or why else its line ended.
    pub fn try_fill(&mut self) -> Result<Option<Filling<'_, T, H>>, WaitError> {
        let oldest = self.oldest();
        // The reader's line is looked at once a round: each look may take it from the reader.
        if !self.freed_to.is_at_or_past(oldest) {
            let Some(freed) = self.freed.try_wait(oldest)? else { return Ok(None) };
            self.freed_to = freed.acq_fence().value();
        }
        Ok(Some(Filling { writer: self }))
    }

    /// How many buffers were published since the start, as a position of the reader's counter.
    pub fn published(&self) -> Seq {
        self.filled.value()
    }

    /// Where the reader has to be for the next buffer to be free: buffer k is, once `freed` is at
    /// k + 1 - count. The subtraction may wrap: only the distance counts.
    fn oldest(&self) -> Seq {
        Seq::new((self.filled.value() + 1).get().wrapping_sub(u64::from(self.count)))
    }
}

/// A buffer being filled. Dropped unpublished, it is simply filled again.
#[derive(Debug)]
pub struct Filling<'w, T, H: Host = Os> {
    writer: &'w mut BufferWriter<T, H>,
}

impl<T, H: Host> Filling<'_, T, H> {
    /// Hands the buffer to the reader.
    pub fn publish(self) {
        let writer = self.writer;
        writer.index = (writer.index + 1) % writer.buffers.cells.len();
        writer.filled.pub_release(1);
    }
}

impl<T, H: Host> ops::Deref for Filling<'_, T, H> {
    type Target = T;

    fn deref(&self) -> &T {
        self.writer.buffers.cells[self.writer.index].with(|cell| {
            // SAFETY: B1, `fill` saw the buffer freed and it is not published yet: it is ours, and
            // `self` borrows the only writer.
            unsafe { &*cell }
        })
    }
}

impl<T, H: Host> ops::DerefMut for Filling<'_, T, H> {
    fn deref_mut(&mut self) -> &mut T {
        self.writer.buffers.cells[self.writer.index].with_mut(|cell| {
            // SAFETY: B1 as in `deref`, and `&mut self` makes this the only reference.
            unsafe { &mut *cell }
        })
    }
}

/// The reading end of a [`DoubleBuffer`]. Dropping it ends the writer's waits.
#[derive(Debug)]
pub struct BufferReader<T, H: Host = Os> {
    buffers: Arc<DoubleBuffer<T>>,
    index: usize,
    taken: Seq,
    filled: Waiter<H>,
    freed: Publisher<H>,
}

impl<T, H: Host> BufferReader<T, H> {
    /// The same reader, polling for buffers by `load`: what the reading device is capable of.
    pub fn reading_by(self, load: Load) -> Self {
        Self { filled: self.filled.reading_by(load), ..self }
    }

    /// The same reader, its counter [undated](Publisher::undated).
    pub fn undated(self) -> Self {
        Self { freed: self.freed.undated(), ..self }
    }

    /// Waits for the next filled buffer.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]; `PeerDead` if the writer was dropped and all is read.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn next(&mut self, bound: Bound) -> Result<Filled<'_, T, H>, WaitError> {
        self.filled.wait_ge_bounded(self.taken + 1, bound)?.acq_fence();
        Ok(self.take())
    }

    /// The next filled buffer, or `None` if there is none yet. Polls once.
    ///
    /// # Errors
    ///
    /// `PeerDead` if the writer was dropped and all is read, or why else its line ended.
    pub fn try_next(&mut self) -> Result<Option<Filled<'_, T, H>>, WaitError> {
        let filled = self.filled.try_wait(self.taken + 1)?.map(Observed::acq_fence).is_some();
        Ok(filled.then(|| self.take()))
    }

    /// What the next buffer's arrival will move, and to where: for waiting on several at once.
    pub fn pending(&self) -> (Slot<H>, Seq) {
        (self.filled.slot(), self.taken + 1)
    }

    /// How many buffers were taken since the start, as a position of the writer's counter.
    pub fn taken(&self) -> Seq {
        self.taken
    }

    fn take(&mut self) -> Filled<'_, T, H> {
        self.taken = self.taken + 1;
        let index = self.index;
        self.index = (index + 1) % self.buffers.cells.len();
        Filled { reader: self, index }
    }
}

/// A filled buffer. Dropping it gives the buffer back to the writer.
#[derive(Debug)]
pub struct Filled<'r, T, H: Host = Os> {
    reader: &'r mut BufferReader<T, H>,
    index: usize,
}

impl<T, H: Host> ops::Deref for Filled<'_, T, H> {
    type Target = T;

    fn deref(&self) -> &T {
        self.reader.buffers.cells[self.index].with(|cell| {
            // SAFETY: B1, `next` saw the buffer filled and it is not freed yet: it is ours.
            unsafe { &*cell }
        })
    }
}

impl<T, H: Host> ops::DerefMut for Filled<'_, T, H> {
    /// The buffer is the reader's own until it is given back, so it may also take things out.
    fn deref_mut(&mut self) -> &mut T {
        self.reader.buffers.cells[self.index].with_mut(|cell| {
            // SAFETY: B1 as in `deref`, and `&mut self` makes this the only reference.
            unsafe { &mut *cell }
        })
    }
}

impl<T, H: Host> Drop for Filled<'_, T, H> {
    fn drop(&mut self) {
        // All that was taken, not one more: a buffer that was forgotten comes back with this one.
        // It cannot be behind: `taken` grew since the last one.
        let _ = self.reader.freed.pub_release_set(self.reader.taken);
    }
}

/// One stage of a chain: reads from the stage before, writes to the stage after.
///
/// Each round waits for the input and for a free output, reads, writes, releases to the next stage
/// and gives its credit back to the one before. When the stage before is dropped, so is this one's
/// output by its owner, and the end runs down the chain.
#[derive(Debug)]
pub struct Stage<A, B, H: Host = Os> {
    input: BufferReader<A, H>,
    output: BufferWriter<B, H>,
}

impl<A, B, H: Host> Stage<A, B, H> {
    /// A stage between two double buffers.
    pub fn new(input: BufferReader<A, H>, output: BufferWriter<B, H>) -> Self {
        Self { input, output }
    }

    /// One round: `work` reads the input and fills the output.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]. Nothing was consumed or published; the round can be tried again.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows for each of its two waits.
    pub fn run(&mut self, bound: Bound, work: impl FnOnce(&A, &mut B)) -> Result<(), WaitError> {
        // The output first: once the input is taken it will be given back, whatever happens.
        let mut output = self.output.fill(bound)?;
        let input = self.input.next(bound)?;
        work(&input, &mut output);
        output.publish();
        Ok(())
    }
}
