//! Words that are changed at home.

use core::fmt;
use std::sync::RwLockReadGuard;

use pontoon_hal::paging::{PAGE, PAGE_WORDS};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    SmcError, Window,
    bytes::{Last, merge},
    clock::Clock,
    extent::{Held, Place},
    hold::{Hold, is_seen},
    release::late,
    table::Version,
};

/// A word of a window, at home.
#[derive(Clone, Copy)]
pub(crate) struct Word<'w> {
    window: &'w Window,
    offset: usize,
}

impl<'w> Word<'w> {
    pub(crate) fn new(window: &'w Window, offset: usize) -> Self {
        Self { window, offset }
    }

    /// Waits until all that was posted to this cell's home is there.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; [`Moved`](SmcError::Moved), once, if the home is another than what was posted before went to.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn drain(&self, bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        if extent.read_only {
            return Ok(()); // nothing is posted there
        }
        let posts = extent.posted();
        place.home.flush(clock.left())?;
        place.home.changed(place.at_home(extent, self.offset / PAGE), clock.left())?;
        extent.has_drained(posts);
        if extent.has_lost_posts() {
            return Err(SmcError::Moved { home: extent.rank(), bytes: extent.bytes() });
        }
        Ok(())
    }

    /// Adds to it at home, at once against all others that do. Gives what it was.
    ///
    /// # Errors
    ///
    /// [`SmcError`]. After a time-out the addition may have been done, or may yet be; [`Moved`](SmcError::Moved) if it was
    /// done at a home that is another by now.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn fetch_add(&self, n: u64, bound: Bound) -> Result<u64, SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        extent.writable()?;
        let (_unchanged, hold) = self.hold(extent, &mut clock)?;
        place.home.fence()?;
        let before = place.home.add(self.at_home(extent, &place), n, clock.left())?;
        self.announce(extent, &place, &hold, before.wrapping_add(n), &clock)?;
        Ok(before)
    }

    /// Puts `new` there if it is `expected`. Gives what it was.
    ///
    /// # Errors
    ///
    /// As [`fetch_add`](Self::fetch_add).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn compare_exchange(
        &self,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        extent.writable()?;
        let (_unchanged, hold) = self.hold(extent, &mut clock)?;
        place.home.fence()?;
        let at = self.at_home(extent, &place);
        let before = place.home.compare_swap(at, expected, new, clock.left())?;
        if before == expected {
            self.announce(extent, &place, &hold, new, &clock)?;
        }
        Ok(before)
    }

    fn there(&self, clock: &mut Clock) -> Result<(&'w Held, Place), SmcError> {
        let extent = self.window.extent_of(self.offset..self.offset + 8)?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        Ok((extent, place))
    }

    /// The page, so that what two threads write is here and at home in one order. Before that, that it does not become guarded
    /// meanwhile: who guards it waits for those who hold it.
    fn hold(
        &self,
        extent: &Held,
        clock: &mut Clock,
    ) -> Result<(RwLockReadGuard<'w, ()>, Hold<'w>), SmcError> {
        let (inner, pane) = (self.window.inner(), self.window.pane());
        let page = self.offset / PAGE;
        let unchanged = pane.unchanged(clock);
        let unchanged = unchanged
            .ok_or_else(|| SmcError::Occupied { bytes: extent.bytes(), waited: clock.waited() })?;
        let hold = inner.hold_page(pane, page, clock);
        let hold = hold.ok_or_else(|| inner.not_had(extent, pane.id(page), clock))?;
        if hold.is_here() {
            is_seen(pane, page)?;
        }
        Ok((unchanged, hold))
    }

    fn at_home(&self, extent: &Held, place: &Place) -> usize {
        place.at_home(extent, self.offset / PAGE) * PAGE + self.offset % PAGE
    }

    /// Tells others that the page has changed, and makes the one here, if there is one, have the word too.
    fn announce(
        &self,
        extent: &Held,
        place: &Place,
        hold: &Hold<'_>,
        value: u64,
        clock: &Clock,
    ) -> Result<(), SmcError> {
        let number = place.home.changed(place.at_home(extent, self.offset / PAGE), clock.left())?;
        extent.is_still_at(place)?;
        // Else it is brought by the next acquire.
        if hold.is_here() && self.put_here(hold, value) {
            let before = Version { number, generation: place.generation };
            self.window.inner().table.has_announced(hold.slot, before);
        }
        Ok(())
    }

    /// Makes the page here have the word, as if it had been acquired. Whether it has.
    fn put_here(&self, hold: &Hold<'_>, value: u64) -> bool {
        let (inner, pane, page) = (self.window.inner(), self.window.pane(), self.offset / PAGE);
        let at = self.offset / 8 % PAGE_WORDS;
        let twin = &inner.twin(hold.slot)[at];
        if pane.is_guarded(page) {
            // The next access finds the twin.
            twin.store(value, Relaxed);
            return pane.paging.discard(page..page + 1).is_ok();
        }
        let new = AtomicU64::new(value);
        let put = pane.paging.look(page, &mut |live| {
            let [live, new, twin] = [&live[at], &new, twin].map(core::slice::from_ref);
            merge(live, new, twin, Last::Home);
            true
        });
        put.is_some()
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word(byte {} of {:?})", self.offset, self.window)
    }
}
