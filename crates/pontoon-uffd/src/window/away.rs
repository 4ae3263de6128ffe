//! Pages that are taken out of a window.

use core::ops::Range;

use rustix::io::Errno;

use super::{Shelf, Tracking, Window};
use crate::{Feature, PageError, Pattern, abi, descriptor::Stopped, reserved::Reserved};

impl Window {
    /// Drops `pages`: what was written to them is gone, they are absent, and poisoned ones are not
    /// poisoned any more. A writer that is at it meanwhile loses what it wrote before, and faults.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn drop_pages(&self, pages: Range<usize>) -> Result<(), PageError> {
        self.check(&pages)?;
        self.drop_resident(pages.clone())?;
        self.healed(pages);
        Ok(())
    }

    pub(super) fn drop_resident(&self, pages: Range<usize>) -> Result<(), PageError> {
        if pages.is_empty() {
            return Ok(());
        }
        let dropped = self.reserved.drop_pages(self.byte_range(&pages));
        dropped.map_err(|errno| PageError::refused("madvise", pages, errno))
    }

    /// Sets room for `pages` pages aside that [`move_out`](Self::move_out) can move pages of this
    /// window to.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn shelf(&self, pages: usize) -> Result<Shelf, crate::ReserveError> {
        if !self.features.has(Feature::Move) {
            return Err(crate::ReserveError::Lacks(Feature::Move));
        }
        let bytes = pages.checked_mul(self.page).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(crate::ReserveError::Size { bytes: pages })?;
        let reserved = Reserved::new(bytes)?;
        let mode = abi::UFFDIO_REGISTER_MODE_MISSING;
        let registered = self.descriptor.register(&reserved, mode);
        registered.map_err(crate::error::system("UFFDIO_REGISTER"))?;
        Ok(Shelf::new(reserved, self.page))
    }

    /// Moves `pages`, all of which are there, to `shelf` from its page `to` on, which is empty. They are
    /// absent then, and what was written to them before, by whomever, is on the shelf: no write is lost,
    /// for one that comes later faults.
    ///
    /// # Errors
    ///
    /// [`PageError`]. Those before the pages that the error names were moved.
    pub fn move_out(&self, pages: Range<usize>, shelf: &Shelf, to: usize) -> Result<(), PageError> {
        self.check(&pages)?;
        shelf.check(to..to.saturating_add(pages.len()))?;
        let first = pages.start;
        let mode = abi::UFFDIO_MOVE_MODE_DONTWAKE;
        let moved = self.steps("UFFDIO_MOVE", pages.clone(), |left| {
            let target = shelf.address(to + (left.start - first));
            let place = to + (left.start - first);
            let moved = match self.descriptor.move_pages(self.span(&left), target, mode) {
                // The place was empty, so it is this page that is there now: since Linux 6.18 the kernel tries a
                // page that was busy again, forgets that it was when it has moved it, and tries once more.
                Err(Stopped { done: 0, errno: Errno::EXIST }) if !shelf.has(place) => {
                    Err(Stopped { done: self.page, errno: Errno::AGAIN })
                }
                moved => moved,
            };
            let bytes = moved.map_or_else(|it| it.done, |()| left.len() * self.page);
            shelf.arrived(place, bytes / self.page);
            moved
        });
        if let Tracking::Faults(noted) = &self.tracking {
            // They are gone with what was noted of them.
            let _ = noted.take(pages, |_| true, || ());
        }
        moved
    }

    /// Puts an ordinary page of `pattern` in place of `page`, in one step: the last resort, if nothing
    /// else can be done about a fault. The page is not served any more, and what is written to it not
    /// noted, until the window goes; each costs a mapping, of which a process may have 65530.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn replace(&self, page: usize, pattern: &Pattern) -> Result<(), PageError> {
        let pages = page..page.saturating_add(1);
        self.check(&pages)?;
        let refused = |call, code| PageError::Refused { call, pages: page..page + 1, code };
        let other = Reserved::new(self.page).map_err(|error| refused(error.call, error.code))?;
        if let Some(words) = other.words(0..self.page) {
            let word = pattern.word();
            words.iter().for_each(|it| it.store(word, pontoon_signal::shim::Ordering::Relaxed));
        }
        let replaced = self.reserved.replace(page * self.page, other);
        replaced.map_err(|errno| refused("mremap", errno.raw_os_error()))?;
        self.healed(pages.clone());
        // Threads that wait there are woken: nobody else will.
        let _ = self.wake(pages);
        Ok(())
    }
}
