//! Ranges of a window that are written through: raw stores that are cells'.

use core::{fmt, ops::Range};
use std::sync::Arc;

use pontoon_hal::{
    guard::{Guard, Refusal, Storer},
    paging::PAGE,
};
use pontoon_signal::{Bound, shim::Ordering::Relaxed};

use crate::{
    SmcError, Window, clock::Clock, mailbox::Mailbox, pane::Taken, release::late, stores::Stores,
};

/// When a store to a range that is written through returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// Once its bytes are at home, and whoever acquires has them.
    #[default]
    AtHome,
    /// Once they are on their way: both is so after the next [drain](Through::drain).
    Posted,
}

/// A range of a window whose raw stores are written through, as long as this is kept: drop it when no thread
/// stores there any more, for then a store raises SIGSEGV.
///
/// Each store that a thread makes there, by whatever code, is one write at home, and each atomic or other change of a
/// value one change at home, at once against those of other ranks. Nothing there has to be released.
///
/// ```
/// # use pontoon_smc::{Arrival, SmcError, Window};
/// # fn old_code(to: core::ptr::NonNull<u8>) {}
/// # fn run(window: &Window, bound: pontoon_signal::Bound) -> Result<(), SmcError> {
/// let through = window.write_through(0..4096, Arrival::AtHome, bound)?;
/// old_code(window.base()); // it stores there, and others see that when they acquire
/// through.check()?; // all of it was made
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Through {
    stores: Arc<Stores>,
    // In this order: stores come to an end before those who make them, and then another may have the pages.
    _guard: Box<dyn Guard>,
    _mailbox: Option<Arc<Mailbox>>,
    _taken: Taken,
    window: Window,
}

impl Window {
    /// Has raw stores to the pages of `bytes` written through, for good: by the code that there is, plain stores,
    /// vectors, string moves, atomics. What was stored there before goes home first.
    ///
    /// A store that is trapped takes microseconds; a [`Cell`](crate::Cell) does the same without. What cannot be
    /// made for certain, such as an instruction that is not known, is not made: a line to standard error says which, and
    /// the thread gets SIGSEGV. A store whose home does not answer within the pool's deadline is lost, or comes yet:
    /// the thread goes on, and [`Through::check`] says so.
    ///
    /// # Errors
    ///
    /// [`SmcError::ReadOnly`]; [`SmcError::Twice`] if some of the pages are written through already; [`SmcError::Occupied`] if other calls did not leave
    /// the window in time; [`SmcError::Paging`] where stores cannot be trapped, as on other processors than x86-64; else [`SmcError`] if what was
    /// stored before did not go home: then call it again, as stores to the range raise SIGSEGV meanwhile.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows, and stores of other threads to the range as well.
    pub fn write_through(
        &self,
        bytes: Range<usize>,
        arrival: Arrival,
        bound: Bound,
    ) -> Result<Through, SmcError> {
        self.mapped(&bytes)?;
        self.writable(&bytes)?;
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        if pages.is_empty() {
            return Err(SmcError::OutOfRange { asked: bytes, bytes: self.bytes() });
        }
        let whole = pages.start * PAGE..pages.end * PAGE;
        let pane = self.shared_pane();
        let taken = pane.take_through(pages.clone()).map_err(|other| {
            let other = other.start * PAGE..other.end * PAGE;
            SmcError::Twice { asked: whole.clone(), other }
        })?;
        // Most of it while stores go on.
        self.release(whole.clone(), bound)?;
        let mut clock = Clock::bound(bound);
        let stores = Stores::new(self.shared_inner(), Arc::clone(pane), pages.clone(), arrival)?;
        let stores = Arc::new(stores);
        let mailbox = if pane.paging.asks_in_handler() {
            None
        } else {
            Some(Arc::new(Mailbox::over(Arc::clone(&stores))?))
        };
        let storer: Arc<dyn Storer> = match &mailbox {
            Some(mailbox) => Arc::clone(mailbox) as _,
            None => Arc::clone(&stores) as _,
        };
        let alone = pane.alone(&mut clock);
        let alone = alone
            .ok_or_else(|| SmcError::Occupied { bytes: whole.clone(), waited: clock.waited() })?;
        let guard = pane.paging.guard(pages.clone(), storer)?;
        self.release(whole, clock.left())?;
        pane.set_guarded(pages)?;
        drop(alone);
        let window = self.clone();
        Ok(Through { stores, _guard: guard, _mailbox: mailbox, _taken: taken, window })
    }
}

impl Through {
    /// The bytes of the window that are written through.
    pub fn bytes(&self) -> Range<usize> {
        self.stores.pages.start * PAGE..self.stores.pages.end * PAGE
    }

    /// Waits until all that was stored to it before is at home, and whoever acquires has it.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; the next drain waits for it again. [`Moved`](SmcError::Moved), once, if a home is another than what was
    /// stored before went to.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn drain(&self, bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        let (stores, pane) = (&self.stores, self.window.pane());
        for extent in stores.extents() {
            let posts = extent.posted();
            if posts > 0 {
                let place = extent.place(&mut clock).ok_or_else(|| late(extent, clock.waited()))?;
                place.home.flush(clock.left())?;
                extent.has_drained(posts);
            }
        }
        for (index, word) in stores.unsaid.iter().enumerate() {
            let mut left = word.swap(0, Relaxed);
            while left != 0 {
                let page = stores.pages.start + index * 64 + left.trailing_zeros() as usize;
                let said = self.drain_page(pane, page, &mut clock);
                if said.is_err() {
                    word.fetch_or(left, Relaxed);
                    return said;
                }
                left &= left - 1;
            }
        }
        let lost = stores.count_lost_posts();
        if stores.posts_lost.swap(lost, Relaxed) != lost {
            let extent = self.window.extent_of(self.bytes().start..self.bytes().start + 8)?;
            return Err(SmcError::Moved { home: extent.rank(), bytes: self.bytes() });
        }
        self.check()
    }

    fn drain_page(
        &self,
        pane: &crate::pane::Pane,
        page: usize,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let bytes = page * PAGE..(page + 1) * PAGE;
        let extent = pane
            .extent(page)
            .ok_or(SmcError::OutOfRange { asked: bytes, bytes: self.window.bytes() })?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        place.home.flush(clock.left())?;
        place.home.changed(place.at_home(extent, page), clock.left())?;
        Ok(())
    }

    /// Whether all stores were made: the first that was not since it was asked last.
    ///
    /// # Errors
    ///
    /// [`SmcError`] of that store. [`Statistics::lost`](crate::Statistics) says how many there were.
    pub fn check(&self) -> Result<(), SmcError> {
        self.stores.failure().map_or(Ok(()), Err)
    }

    /// The stores that could not be made, the first few of them.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.stores.refusals()
    }
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Through(bytes {:?} of {:?})", self.bytes(), self.window)
    }
}
