//! Where pages are moved to.

use core::ops::Range;

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

use crate::{PageError, reserved::Reserved};

/// Pages that were [moved out](crate::Window::move_out) of a window, as they are at that moment:
/// nobody writes there any more.
#[derive(Debug)]
pub struct Shelf {
    reserved: Reserved,
    page: usize,
    /// 1 for each page that is there.
    there: Box<[AtomicU64]>,
}

impl Shelf {
    pub(super) fn new(reserved: Reserved, page: usize) -> Self {
        let pages = reserved.bytes() / page;
        Self { reserved, page, there: (0..pages).map(|_| AtomicU64::new(0)).collect() }
    }

    /// How many pages it has room for.
    pub fn pages(&self) -> usize {
        self.there.len()
    }

    /// The words of `page`, or `None` if none was moved there.
    pub fn words(&self, page: usize) -> Option<&[AtomicU64]> {
        let there = self.there.get(page)?.load(Relaxed) == 1;
        there.then(|| self.reserved.words(page * self.page..(page + 1) * self.page)).flatten()
    }

    /// Drops `pages`, so that others can be moved there.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn clear(&mut self, pages: Range<usize>) -> Result<(), PageError> {
        self.check(pages.clone())?;
        if pages.is_empty() {
            return Ok(());
        }
        let bytes = pages.start * self.page..pages.end * self.page;
        let dropped = self.reserved.drop_pages(bytes);
        dropped.map_err(|errno| PageError::refused("madvise", pages.clone(), errno))?;
        self.there[pages].iter().for_each(|it| it.store(0, Relaxed));
        Ok(())
    }

    pub(super) fn check(&self, pages: Range<usize>) -> Result<(), PageError> {
        if !self.reserved.is_here() {
            return Err(PageError::Forked);
        }
        if pages.start <= pages.end && pages.end <= self.pages() {
            return Ok(());
        }
        Err(PageError::Outside { pages, window: self.pages() })
    }

    /// Whether a page was moved there and not dropped yet.
    pub(super) fn has(&self, page: usize) -> bool {
        self.there.get(page).is_some_and(|there| there.load(Relaxed) == 1)
    }

    pub(super) fn address(&self, page: usize) -> usize {
        self.reserved.start() + page * self.page
    }

    pub(super) fn arrived(&self, first: usize, count: usize) {
        self.there[first..first + count].iter().for_each(|it| it.store(1, Relaxed));
    }
}
