//! The other side: memory of this rank that windows of others map.

use core::{fmt, ops::Range};

use pontoon_hal::{Placement, paging::PAGE};
use pontoon_signal::{Block, Span, fence_system, shim::Ordering::Relaxed};

use crate::Layout;

/// Memory of this rank, laid out for windows of others: register its [block](Self::block) and hand over the key. A
/// handle.
///
/// Others write into it whenever they release. What this rank changes itself is seen by an acquire of theirs after
/// [`write`](Self::write) or [`publish`](Self::publish).
#[derive(Clone)]
pub struct Export {
    block: Block,
    layout: Layout,
}

impl Export {
    /// Over `block`, of which a [`Layout`] has just the size; `None` for another size. Its versions are to be zero,
    /// as new memory is.
    pub fn over(block: Block) -> Option<Self> {
        let layout = Layout::of_region(block.bytes())?;
        Some(Self { block, layout })
    }

    /// All of it.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The bytes that windows map.
    pub fn bytes(&self) -> usize {
        self.layout.pages() * PAGE
    }

    /// The memory that windows map, for those who change it in place and [publish](Self::publish) that.
    pub fn data(&self) -> Option<Block> {
        self.block.part(self.layout.data()..self.layout.region())
    }

    /// What its memory is; `None` if the kernel does not tell.
    pub fn placement(&self) -> Option<Placement> {
        Placement::of(&self.block)
    }

    /// Copies the bytes from `at` on, as many as `into` has. Whether there are so many.
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(span) = self.span(at, into.len()) else { return false };
        span.get(into);
        true
    }

    /// Writes `bytes` from `at` on, and says so. Whether there is room.
    pub fn write(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(span) = self.span(at, bytes.len()) else { return false };
        span.put(bytes);
        self.publish(at..at + bytes.len())
    }

    /// Says that those bytes have changed: whoever acquires after it has what was written before it. Whether there are
    /// so many.
    pub fn publish(&self, bytes: Range<usize>) -> bool {
        if bytes.is_empty() || bytes.end > self.bytes() {
            return bytes.is_empty();
        }
        // Before the versions, for readers on any device and machine: they read a version, and then the page.
        fence_system();
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let Some(span) = Span::of(&self.block, page * 8..page * 8 + 8) else { return false };
            let Some(version) = span.word(0) else { return false };
            version.fetch_add(1, Relaxed);
        }
        true
    }

    /// How often the page at `at` has changed.
    pub fn version(&self, at: usize) -> Option<u64> {
        let page = at / PAGE;
        let span = Span::of(&self.block, page * 8..page * 8 + 8)?;
        (at < self.bytes()).then(|| span.word(0).map(|word| word.load(Relaxed)))?
    }

    fn span(&self, at: usize, len: usize) -> Option<Span<'_>> {
        let end = at.checked_add(len).filter(|&end| end <= self.bytes())?;
        let data = self.layout.data();
        Span::of(&self.block, data + at..data + end)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Export({} pages)", self.layout.pages())
    }
}
