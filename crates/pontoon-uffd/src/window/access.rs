//! Which accesses a window lets through: all, none to pages that are read only but loads, or none at all while nobody
//! could serve them.

use core::ops::Range;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use rustix::io::Errno;

use super::Window;

/// What accesses are let through. Whoever changes it has it; who looks at pages, or opens one for himself, keeps it from being
/// changed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// Pages whose stores raise SIGSEGV, for good.
    read_only: Vec<Range<usize>>,
    /// Whether any access does, since a server has gone.
    pub(crate) is_shut: bool,
}

impl Window {
    /// Has each store to `pages` raise SIGSEGV for good, whoever serves them later.
    pub(crate) fn refuse_stores(&self, pages: Range<usize>) -> Result<(), Errno> {
        let mut access = self.access();
        if !access.is_shut {
            self.reserved.read_only(self.bytes_of(&pages))?;
        }
        access.read_only.push(pages);
        Ok(())
    }

    /// Has each access raise SIGSEGV until they are [let through](Self::let_through) again: nobody would end its fault.
    pub(crate) fn shut(&self) -> Result<(), Errno> {
        let mut access = self.access();
        access.is_shut = true;
        self.reserved.close(0..self.bytes())
    }

    /// Lets accesses through, but for stores to what is read only: those are let through at no time.
    pub(crate) fn let_through(&self) -> Result<(), Errno> {
        let mut access = self.access();
        access.read_only.sort_unstable_by_key(|pages| pages.start);
        let mut at = 0;
        for pages in &access.read_only {
            if at < pages.start {
                self.reserved.open(self.bytes_of(&(at..pages.start)))?;
            }
            self.reserved.read_only(self.bytes_of(pages))?;
            at = at.max(pages.end);
        }
        if at < self.pages() {
            self.reserved.open(self.bytes_of(&(at..self.pages())))?;
        }
        access.is_shut = false;
        Ok(())
    }

    /// What it is now, and as long as this is kept; `None` while it is changed. It never waits: handlers ask.
    pub(crate) fn access_as_it_is(&self) -> Option<RwLockReadGuard<'_, Access>> {
        match self.access.try_read() {
            Ok(access) => Some(access),
            Err(TryLockError::Poisoned(access)) => Some(access.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn bytes_of(&self, pages: &Range<usize>) -> Range<usize> {
        pages.start * self.page..pages.end * self.page
    }

    /// Nothing panics while it is held, so what is behind is whole.
    fn access(&self) -> RwLockWriteGuard<'_, Access> {
        self.access.write().unwrap_or_else(PoisonError::into_inner)
    }
}
