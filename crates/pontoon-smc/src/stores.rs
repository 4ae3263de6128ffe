//! Stores to pages that are written through: each goes home as it is made, and what is here becomes what home has.
//!
//! This runs where the store is trapped, in a signal handler: nothing here allocates, or waits for what the
//! same thread may hold.

mod hold;

use core::ops::Range;
use std::{
    sync::{Arc, Mutex, TryLockError},
    time::Duration,
};

use arrayvec::ArrayVec;
use pontoon_hal::{
    guard::{Change, Refusal, Storer, Unmade, mask},
    link::LinkError,
    paging::PAGE,
};
use pontoon_signal::{
    Words,
    shim::{AtomicU64, Ordering::Relaxed},
};

use self::hold::{Mine, Pages};
use crate::{
    Arrival, SmcError,
    clock::Clock,
    counts::add,
    extent::{Held, Place},
    hold::Is,
    pane::Pane,
    pool::Inner,
    release::late,
    table::Version,
};

/// Refusals that are kept.
const REFUSALS: usize = 16;

/// Pages of a window that are written through.
pub(crate) struct Stores {
    pub(crate) pool: Arc<Inner>,
    pub(crate) pane: Arc<Pane>,
    pub(crate) pages: Range<usize>,
    arrival: Arrival,
    /// A bit for each page that home has other bytes of than its version says.
    pub(crate) unsaid: Words,
    /// How often its extents lost what was posted, as far as a drain has told.
    pub(crate) posts_lost: AtomicU64,
    failure: Mutex<Option<SmcError>>,
    refusals: Mutex<ArrayVec<Refusal, REFUSALS>>,
}

/// Why a store was not made, before anybody is told.
pub(crate) enum Undone {
    /// Its home did not answer.
    Lost { reads: u64, error: SmcError },
    /// It cannot be made, for this reason.
    Refused(&'static str),
}

/// Why a store outside any extent is not made.
const NOWHERE: &str = "no home has these bytes";

impl Stores {
    pub(crate) fn new(
        pool: Arc<Inner>,
        pane: Arc<Pane>,
        pages: Range<usize>,
        arrival: Arrival,
    ) -> Result<Self, SmcError> {
        let unsaid = Words::zeroed(pages.len().div_ceil(64)).map_err(|error| {
            let (call, code) = (error.call, error.code);
            pontoon_hal::paging::PagingError {
                call,
                code,
                remedy: "there is no memory for a bit a page",
            }
        })?;
        let (failure, refusals) = Default::default();
        let stores = Self {
            pool,
            pane,
            pages,
            arrival,
            unsaid,
            posts_lost: AtomicU64::new(0),
            failure,
            refusals,
        };
        stores.posts_lost.store(stores.count_lost_posts(), Relaxed);
        Ok(stores)
    }

    /// The extents that it has pages of.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &Held> {
        let pages = &self.pages;
        let all = self.pane.extents.iter();
        all.filter(|extent| extent.pages.start < pages.end && pages.start < extent.pages.end)
    }

    /// How often they lost what was posted.
    pub(crate) fn count_lost_posts(&self) -> u64 {
        self.extents().map(Held::posts_lost).sum()
    }

    /// The first failure since it was asked last.
    pub(crate) fn failure(&self) -> Option<SmcError> {
        crate::extent::locked(&self.failure).take()
    }

    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        crate::extent::locked(&self.refusals).to_vec()
    }

    /// The extent of a page, if it is to be had: else it is known to be gone.
    fn extent(&self, page: usize) -> Result<&Held, Undone> {
        let extent = self.pane.extent(page).ok_or(Undone::Refused(NOWHERE))?;
        if extent.is_unavailable() && !extent.fall_back() {
            let (home, bytes) = (extent.rank(), extent.bytes());
            return Err(lost(extent, SmcError::Unavailable { home, bytes, poisoned: 0 }));
        }
        Ok(extent)
    }

    /// Remembers a store that went nowhere, or may come yet: once, by the thread that goes on without it.
    pub(crate) fn told(&self, undone: Undone) -> Unmade {
        let (reads, error) = match undone {
            Undone::Lost { reads, error } => (reads, error),
            Undone::Refused(why) => return Unmade::Refused(why),
        };
        add(&self.pane.counts.lost, 1);
        let failure = match self.failure.try_lock() {
            Ok(failure) => Some(failure),
            Err(TryLockError::Poisoned(failure)) => Some(failure.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut failure) = failure {
            let _ = failure.get_or_insert(error);
        }
        Unmade::Lost { reads }
    }

    /// A store that nobody made in time.
    pub(crate) fn not_made(&self, at: usize, waited: Duration) -> Undone {
        let lost = |extent| lost(extent, late(extent, waited));
        self.pane.extent(at / PAGE).map_or(Undone::Refused(NOWHERE), lost)
    }

    /// A store failed: its home may be unavailable from now on. Whether there is another to try.
    fn falls_back(&self, extent: &Held, error: &SmcError) -> bool {
        let over = extent.failed(&self.pool.settings);
        let is_gone = matches!(error, SmcError::Link(LinkError::PeerDead { .. }));
        self.pool.ring();
        (over || is_gone) && extent.fall_back()
    }

    /// Writes bytes that are all of one extent.
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Undone> {
        let pages = at / PAGE..(at + bytes.len()).div_ceil(PAGE);
        self.with(pages.clone(), |extent, place, mine, clock| {
            let to = place.at_home(extent, at / PAGE) * PAGE + at % PAGE;
            // What was posted there before is to be there before.
            place.home.fence()?;
            if bytes.len() <= place.home.inline_bytes() {
                place.home.post(clock, |home| home.write_inline(bytes, to))?;
            } else {
                self.write_staged(extent, place, bytes, to, clock)?;
            }
            add(&self.pane.counts.through, 1);
            self.arrive(extent, place, mine, clock)?;
            for page in mine.iter().filter(|page| page.is == Is::Here) {
                let start = page.id.page() * PAGE;
                let within = at.max(start)..(at + bytes.len()).min(start + PAGE);
                let new = &bytes[within.start - at..within.end - at];
                self.pool.put_twin(page.slot, within.start - start, new);
                self.pane.paging.discard(page.id.page()..page.id.page() + 1)?;
            }
            Ok(())
        })
    }

    fn write_staged(
        &self,
        extent: &Held,
        place: &Place,
        bytes: &[u8],
        to: usize,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let mut stage = self.pool.stage(extent, place, clock)?;
        self.pool.put_staged(&stage, bytes);
        let from = stage.at..stage.at + bytes.len();
        let number = place.home.post(clock, |home| home.write(from.clone(), to))?;
        stage.wait(extent, place, number, clock)
    }

    /// What was posted is at home when this returns, and others may know; or it is noted that they do not.
    fn arrive(
        &self,
        extent: &Held,
        place: &Place,
        mine: &Pages,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        if self.arrival == Arrival::Posted {
            extent.has_posted(place.generation);
            // After the post: a drain that sees it waits for that.
            for page in mine {
                let page = page.id.page() - self.pages.start;
                self.unsaid[page / 64].fetch_or(1 << (page % 64), Relaxed);
            }
            return Ok(());
        }
        place.home.flush(clock.left())?;
        for page in mine {
            self.announce(extent, place, page, clock)?;
        }
        Ok(())
    }

    fn announce(
        &self,
        extent: &Held,
        place: &Place,
        page: &Mine,
        clock: &Clock,
    ) -> Result<(), SmcError> {
        let number = place.home.changed(place.at_home(extent, page.id.page()), clock.left())?;
        if page.is == Is::Here {
            let before = Version { number, generation: place.generation };
            self.pool.table.has_announced(page.slot, before);
        }
        Ok(())
    }

    /// Changes a value within an aligned word.
    fn change_word(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Undone> {
        let (page, word, shift) = (at / PAGE, at / 8 * 8, at % 8 * 8);
        let field = mask(bytes) << shift;
        self.with(page..page + 1, |extent, place, mine, clock| {
            let to = place.at_home(extent, page) * PAGE + word % PAGE;
            // What this side wrote there is to be there before.
            place.home.fence()?;
            let (old, new) = match change {
                Change::Add(n) if bytes == 8 => {
                    let old = place.home.add(to, n, clock.left())?;
                    (old, old.wrapping_add(n))
                }
                _ => self
                    .swap_until(place, mine, to, clock, |old| {
                        let new = change.of((old & field) >> shift, bytes)?;
                        Some(old & !field | new << shift)
                    })
                    .ok_or_else(|| late(extent, clock.waited()))
                    .and_then(|swapped| Ok(swapped?))?,
            };
            add(&self.pane.counts.through, 1);
            if new != old {
                self.arrive(extent, place, mine, clock)?;
            }
            if let Some(page) = mine.iter().find(|page| page.is == Is::Here) {
                let twin = &self.pool.twin(page.slot)[word % PAGE / 8];
                if twin.load(Relaxed) != new {
                    twin.store(new, Relaxed);
                    self.pane.paging.discard(page.id.page()..page.id.page() + 1)?;
                }
            }
            Ok((old & field) >> shift)
        })
    }

    /// Makes a word at home what `change` makes of it. What it was, and is. `None` if others changed it all the time.
    fn swap_until(
        &self,
        place: &Place,
        mine: &Pages,
        to: usize,
        clock: &mut Clock,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Option<Result<(u64, u64), LinkError>> {
        let here = mine.iter().find(|page| page.is == Is::Here);
        let mut seen =
            here.map_or(0, |page| self.pool.twin(page.slot)[to % PAGE / 8].load(Relaxed));
        loop {
            let new = change(seen).unwrap_or(seen);
            match place.home.compare_swap(to, seen, new, clock.left()) {
                Ok(before) if before == seen => return Some(Ok((seen, new))),
                Ok(before) => seen = before,
                Err(error) => return Some(Err(error)),
            }
            if clock.is_over() {
                return None;
            }
        }
    }
}

impl Stores {
    /// Makes a store.
    pub(crate) fn make(&self, at: usize, bytes: &[u8]) -> Result<(), Undone> {
        add(&self.pane.counts.trapped, 1);
        let (mut done, mut made) = (0, Ok(()));
        while done < bytes.len() {
            let page = (at + done) / PAGE;
            let extent = self.pane.extent(page).ok_or(Undone::Refused(NOWHERE))?;
            let end = bytes.len().min(extent.bytes().end - at);
            // What has another home goes there, whatever became of the rest.
            made = made.and(self.write(at + done, &bytes[done..end]));
            done = end;
        }
        made
    }

    /// Makes a change.
    pub(crate) fn alter(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Undone> {
        add(&self.pane.counts.trapped, 1);
        if at % 8 + bytes > 8 {
            return Err(Undone::Refused(
                "it changes a value that is not within an aligned word of 8 bytes, which is what a link can change",
            ));
        }
        let mut clock = Clock::of(self.pool.settings.deadline);
        let extent = self.extent(at / PAGE)?;
        let Some(place) = extent.place(&mut clock) else {
            return Err(lost(extent, late(extent, clock.waited())));
        };
        if bytes < 8 && !place.home.changes_beside_writes() {
            return Err(Undone::Refused(
                "it changes less than 8 bytes, and the link's changes of a word are not safe from writes beside them",
            ));
        }
        self.change_word(at, bytes, change)
    }
}

/// A store to an extent whose home did not answer.
fn lost(extent: &Held, error: SmcError) -> Undone {
    Undone::Lost { reads: extent.pattern, error }
}

impl Storer for Stores {
    fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Unmade> {
        self.make(at, bytes).map_err(|undone| self.told(undone))
    }

    fn change(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Unmade> {
        self.alter(at, bytes, change).map_err(|undone| self.told(undone))
    }

    fn refused(&self, refusal: &Refusal) {
        if let Ok(mut refusals) = self.refusals.try_lock() {
            // One is enough to look for, and those that are many repeat themselves.
            let _ = refusals.try_push(*refusal);
        }
    }
}
