//! Home: where the pages of an extent are when nobody has fetched them.
//!
//! ```text
//!  region:  | version of page 0, 1, 2 … (8 bytes each) | pad to a page | page 0 | page 1 | …
//! ```
//!
//! A page's version grows after each change of it is there. Who reads a version and then the page has at least
//! what the version stands for.

use core::{fmt, ops::Range};
use std::sync::Arc;

use pontoon_hal::{
    link::{Link, LinkError, Registered, Remote},
    paging::PAGE,
};
use pontoon_signal::{Block, Bound, Rank, Seq, Slot};

use crate::clock::Clock;

/// How a region that others map is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pages: usize,
}

impl Layout {
    /// For so many bytes, rounded up to whole pages.
    pub fn of(bytes: usize) -> Self {
        Self { pages: bytes.div_ceil(PAGE) }
    }

    /// That of a region of so many bytes; `None` if no layout has that size.
    pub fn of_region(bytes: usize) -> Option<Self> {
        // Each 512 pages, and each rest of them, have one page of versions.
        let pages = bytes / PAGE;
        let layout = Self { pages: pages - pages.div_ceil(PAGE / 8 + 1) };
        (layout.region() == bytes && layout.pages > 0).then_some(layout)
    }

    /// How many pages it has.
    pub fn pages(self) -> usize {
        self.pages
    }

    /// Where the pages begin.
    pub fn data(self) -> usize {
        (self.pages * 8).next_multiple_of(PAGE)
    }

    /// The bytes of it all; where there are no so large numbers the largest, which no memory has.
    pub fn region(self) -> usize {
        self.data().saturating_add(self.pages.saturating_mul(PAGE))
    }
}

/// A home, as a window reaches it: a region of a peer, over a link.
#[derive(Clone)]
pub struct Home {
    link: Arc<dyn Link>,
    region: Remote,
    layout: Layout,
    /// The pool's memory.
    pool: Registered,
    done: Slot,
    in_handler: bool,
    inline_bytes: usize,
    system_atomics: bool,
    is_direct: bool,
    /// Shared by all handles of it. Dropped last: whoever has the only one has the only one of the rest.
    users: Arc<()>,
}

impl Home {
    pub(crate) fn new(
        link: Arc<dyn Link>,
        region: Remote,
        pool: Registered,
    ) -> Result<Option<Self>, LinkError> {
        let Some(layout) = Layout::of_region(region.bytes()) else { return Ok(None) };
        let done = link.completions(region.peer())?;
        let capabilities = link.capabilities(region.peer())?;
        let (in_handler, inline_bytes) = (capabilities.mapped, capabilities.inline_bytes);
        let system_atomics = capabilities.system_atomics;
        // One that is away is asked only when it is used.
        let is_direct = in_handler && !matches!(link.mapped(&region, 0, 0), Ok(None));
        Ok(Some(Self {
            link,
            region,
            layout,
            pool,
            done,
            in_handler,
            inline_bytes,
            system_atomics,
            is_direct,
            users: Arc::default(),
        }))
    }

    /// Whether nobody else has a handle of it.
    pub(crate) fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.users).is_some()
    }

    /// Whose memory it is.
    pub fn rank(&self) -> Rank {
        self.region.peer()
    }

    /// The same for all homes of that rank by that link, and not 0.
    pub(crate) fn key(&self) -> u64 {
        let link = Arc::as_ptr(&self.link).cast::<()>().addr() as u64;
        (link ^ u64::from(self.region.peer().0) << 48) | 1
    }

    /// How many bytes it has for pages.
    pub fn bytes(&self) -> usize {
        self.layout.pages * PAGE
    }

    /// Whether it can be reached where an access faults: over mapped memory, where nothing is waited for.
    pub(crate) fn in_handler(&self) -> bool {
        self.in_handler
    }

    /// Whether its pages can be put in place from its own memory, which is mapped here.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// So many pages from `page` on, as its memory has them.
    pub(crate) fn pages(&self, page: usize, count: usize) -> Result<Option<Block>, LinkError> {
        self.link.mapped(&self.region, self.layout.data() + page * PAGE, count * PAGE)
    }

    /// The most bytes that [`write_inline`](Self::write_inline) takes.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Whether a change of a word loses no write to other bytes of it: where both are the processors'.
    pub(crate) fn changes_beside_writes(&self) -> bool {
        self.in_handler && self.system_atomics
    }

    /// Whether its changes of words are atomic against the processors at home too.
    pub(crate) fn has_system_atomics(&self) -> bool {
        self.system_atomics
    }

    /// By which link it is reached.
    pub(crate) fn link_name(&self) -> &'static str {
        self.link.name()
    }

    /// Reads from `offset` on into those bytes of the pool.
    pub(crate) fn read(&self, offset: usize, into: Range<usize>) -> Result<Seq, LinkError> {
        self.link.read(&self.region, self.layout.data() + offset, &self.pool, into)
    }

    /// Reads the versions of pages from `page` on into those bytes of the pool.
    pub(crate) fn read_versions(&self, page: usize, into: Range<usize>) -> Result<Seq, LinkError> {
        self.link.read(&self.region, page * 8, &self.pool, into)
    }

    /// Writes those bytes of the pool, from `offset` on.
    pub(crate) fn write(&self, from: Range<usize>, offset: usize) -> Result<Seq, LinkError> {
        self.link.write(&self.pool, from, &self.region, self.layout.data() + offset)
    }

    /// Writes bytes that are taken over at once.
    pub(crate) fn write_inline(&self, bytes: &[u8], offset: usize) -> Result<Seq, LinkError> {
        self.link.write_inline(bytes, &self.region, self.layout.data() + offset)
    }

    /// Posts something, once the link has room for it: an error if it has none in time.
    pub(crate) fn post(
        &self,
        clock: &mut Clock,
        post: impl Fn(&Self) -> Result<Seq, LinkError>,
    ) -> Result<Seq, LinkError> {
        loop {
            match post(self) {
                Err(LinkError::Full { peer, depth }) => {
                    self.link.progress();
                    if !clock.pause() {
                        return Err(LinkError::Full { peer, depth });
                    }
                }
                posted => return posted,
            }
        }
    }

    /// Keeps what comes after behind what came before.
    pub(crate) fn fence(&self) -> Result<(), LinkError> {
        self.link.fence(self.rank())
    }

    /// Waits until all that was written is there.
    pub(crate) fn flush(&self, bound: Bound) -> Result<(), LinkError> {
        self.link.flush(self.rank(), bound)
    }

    /// Says that a page has changed, without waiting for it: the version before comes to that byte of the pool.
    pub(crate) fn post_changed(&self, page: usize, into: usize) -> Result<Seq, LinkError> {
        self.link.post_add(&self.region, page * 8, 1, Some((&self.pool, into)))
    }

    /// Says that a page has changed. Gives the version before.
    pub(crate) fn changed(&self, page: usize, bound: Bound) -> Result<u64, LinkError> {
        self.link.add(&self.region, page * 8, 1, bound)
    }

    pub(crate) fn add(&self, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        self.link.add(&self.region, self.layout.data() + offset, n, bound)
    }

    pub(crate) fn compare_swap(
        &self,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        self.link.compare_swap(&self.region, self.layout.data() + offset, expected, new, bound)
    }

    /// Whether an operation is done, moving the link on if it does not move by itself.
    pub(crate) fn is_done(&self, number: Seq) -> Result<bool, LinkError> {
        if self.done.acquire().is_at_or_past(number) {
            return Ok(true);
        }
        if let Some(ending) = self.done.ending() {
            return Err(LinkError::ended(self.rank(), self.link.name(), ending));
        }
        self.link.progress();
        Ok(self.done.acquire().is_at_or_past(number))
    }
}

impl Home {
    /// Whether nothing of an operation that was given up will touch this side's memory any more.
    pub(crate) fn is_over(&self, number: Seq) -> bool {
        match self.is_done(number) {
            Ok(done) => done,
            // Nothing is done any more, and what the link still holds it counts.
            Err(_) => self.link.report().quarantined == 0,
        }
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Home({} bytes of rank {} over {})",
            self.bytes(),
            self.rank().0,
            self.link.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use pontoon_hal::paging::PAGE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_layout_is_known_by_its_size(pages in 1..3_000_000_usize) {
            let layout = Layout::of(pages * PAGE);
            prop_assert_eq!(layout.pages(), pages);
            prop_assert_eq!(Layout::of_region(layout.region()), Some(layout));
            prop_assert!(layout.data() >= pages * 8);
        }
    }

    #[test]
    fn other_sizes_are_no_layouts() {
        for bytes in [0, 1, PAGE, PAGE + 1, 2 * PAGE + 1] {
            assert_eq!(Layout::of_region(bytes), None, "{bytes}");
        }
        assert_eq!(Layout::of(1).region(), 2 * PAGE);
        assert_eq!(Layout::of(usize::MAX).region(), usize::MAX);
    }
}
