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
    /// Pages whose stores raise SIGSEGV, for good: in order, and no two ranges meet.
    read_only: Vec<Range<usize>>,
    /// Whether nobody is to begin a look at pages, since a server goes or has gone.
    pub(crate) is_left: bool,
    /// Whether any access does, since a server has gone.
    pub(crate) is_shut: bool,
}

impl Access {
    /// Whether each store to a page is to raise SIGSEGV.
    pub(crate) fn is_read_only(&self, page: usize) -> bool {
        let after = self.read_only.partition_point(|pages| pages.end <= page);
        self.read_only.get(after).is_some_and(|pages| pages.start <= page)
    }

    /// Adds pages whose stores do, joined with those that they meet.
    fn add(&mut self, pages: Range<usize>) {
        let first = self.read_only.partition_point(|other| other.end < pages.start);
        let after = self.read_only.partition_point(|other| other.start <= pages.end);
        let met = &self.read_only[first..after];
        let start = met.first().map_or(pages.start, |other| other.start.min(pages.start));
        let end = met.last().map_or(pages.end, |other| other.end.max(pages.end));
        self.read_only.splice(first..after, core::iter::once(start..end));
    }
}

impl Window {
    /// Has each store to `pages` raise SIGSEGV for good, whoever serves them later.
    pub(crate) fn refuse_stores(&self, pages: Range<usize>) -> Result<(), Errno> {
        let mut access = self.access();
        if !access.is_shut {
            self.reserved.read_only(self.bytes_of(&pages))?;
        }
        access.add(pages);
        Ok(())
    }

    /// Has nobody look at pages any more. Whoever does ends that first, and may need the server for it.
    pub(crate) fn leave(&self) {
        self.access().is_left = true;
    }

    /// Has each access raise SIGSEGV until they are [let through](Self::let_through) again: nobody would end its fault.
    pub(crate) fn shut(&self) -> Result<(), Errno> {
        let mut access = self.access();
        (access.is_left, access.is_shut) = (true, true);
        self.reserved.close(0..self.bytes())
    }

    /// Lets accesses through, but for stores to what is read only: those are let through at no time. If that cannot be had
    /// for all, none is.
    pub(crate) fn let_through(&self) -> Result<(), Errno> {
        let mut access = self.access();
        let opened = self.open_but(&access.read_only);
        access.is_shut = opened.is_err();
        access.is_left = access.is_shut;
        if opened.is_err() {
            // What is one mapping again needs no memory.
            let _ = self.reserved.close(0..self.bytes());
        }
        opened
    }

    fn open_but(&self, read_only: &[Range<usize>]) -> Result<(), Errno> {
        let mut at = 0;
        for pages in read_only {
            if at < pages.start {
                self.reserved.open(self.bytes_of(&(at..pages.start)))?;
            }
            self.reserved.read_only(self.bytes_of(pages))?;
            at = pages.end;
        }
        if at < self.pages() {
            self.reserved.open(self.bytes_of(&(at..self.pages())))?;
        }
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

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::Access;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn read_only_pages_are_kept_as_few_ranges(
            ranges in prop::collection::vec((0_usize..60, 1_usize..9), 0..20),
        ) {
            let (mut access, mut all) = (Access::default(), [false; 70]);
            for (start, len) in ranges {
                access.add(start..start + len);
                all[start..start + len].fill(true);
                prop_assert!(access.read_only.windows(2).all(|two| two[0].end < two[1].start));
                prop_assert!((0..70).all(|page| access.is_read_only(page) == all[page]));
            }
        }
    }
}
