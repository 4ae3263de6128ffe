//! Words that are written through.

use core::fmt;

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
    release::late,
    table::State,
};

/// A word of a window, at home: what is written is there when the call returns, or after a [drain](Word::drain).
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
    /// [`SmcError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn drain(&self, bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        place.home.flush(clock.left())?;
        self.announce(extent, &place, &clock)
    }

    /// What home has now.
    ///
    /// # Errors
    ///
    /// [`SmcError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn load_fresh(&self, bound: Bound) -> Result<u64, SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        let inner = self.window.inner();
        let stage = inner.stage(&mut clock);
        let mut stage = stage.ok_or_else(|| late(extent, clock.waited()))?;
        let (at, into) = (self.at_home(extent, &place), stage.at..stage.at + 8);
        let number = place.home.post(&mut clock, |home| home.read(at, into.clone()))?;
        loop {
            match place.home.is_done(number) {
                Ok(true) => return Ok(stage.words[0].load(Relaxed)),
                Ok(false) if clock.pause() => {}
                Ok(false) => {
                    stage.keep(&place.home, number);
                    return Err(late(extent, clock.waited()));
                }
                Err(error) => {
                    stage.keep(&place.home, number);
                    return Err(error.into());
                }
            }
        }
    }

    /// Adds to it at home, at once against all others that do. Gives what it was.
    ///
    /// # Errors
    ///
    /// [`SmcError`]. After a time-out the addition may have been done, or may yet be.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub(crate) fn fetch_add(&self, n: u64, bound: Bound) -> Result<u64, SmcError> {
        let mut clock = Clock::bound(bound);
        let (extent, place) = self.there(&mut clock)?;
        let before = place.home.add(self.at_home(extent, &place), n, clock.left())?;
        self.announce(extent, &place, &clock)?;
        self.put_here(before.wrapping_add(n), &mut clock);
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
        let at = self.at_home(extent, &place);
        let before = place.home.compare_swap(at, expected, new, clock.left())?;
        if before == expected {
            self.announce(extent, &place, &clock)?;
            self.put_here(new, &mut clock);
        }
        Ok(before)
    }

    fn there(&self, clock: &mut Clock) -> Result<(&'w Held, Place), SmcError> {
        let extent = self.window.extent_of(self.offset..self.offset + 8)?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        Ok((extent, place))
    }

    fn at_home(&self, extent: &Held, place: &Place) -> usize {
        place.at_home(extent, self.offset / PAGE) * PAGE + self.offset % PAGE
    }

    /// Tells others that the page has changed. This side's copy of it is compared as theirs are.
    fn announce(&self, extent: &Held, place: &Place, clock: &Clock) -> Result<(), SmcError> {
        place.home.changed(place.at_home(extent, self.offset / PAGE), clock.left())?;
        Ok(())
    }

    /// Makes the page here, if there is one, have it too, as if it had been acquired.
    fn put_here(&self, value: u64, clock: &mut Clock) {
        let (inner, pane) = (self.window.inner(), self.window.pane());
        let page = self.offset / PAGE;
        let Some(_unchanged) = pane.unchanged(clock) else { return };
        let (id, word) = (pane.id(page), self.offset / 8 % PAGE_WORDS);
        while let Some(slot) = inner.table.find(id) {
            if inner.table.turn(slot, id, State::Resident, State::Busy) {
                let twin = &inner.twin(slot)[word];
                if pane.is_guarded(page) {
                    // The next access finds the twin.
                    twin.store(value, Relaxed);
                    let _ = pane.paging.discard(page..page + 1);
                    inner.table.set(slot, State::Resident);
                    return;
                }
                let live = &pane.paging.words(page)[word];
                let new = AtomicU64::new(value);
                merge(
                    core::slice::from_ref(live),
                    core::slice::from_ref(&new),
                    core::slice::from_ref(twin),
                    Last::Home,
                );
                inner.table.set(slot, State::Resident);
                return;
            }
            if inner.table.state(slot) == State::Poisoned || !clock.pause() {
                return;
            }
        }
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word(byte {} of {:?})", self.offset, self.window)
    }
}
