//! Extents: the parts of a window, and where their pages are at home.

mod open;

pub use open::{Class, Extent};

use core::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use pontoon_hal::paging::PAGE;
use pontoon_signal::{
    Block, Host, Os, Rank, Span, SystemError,
    shim::{AtomicU64, Ordering::*},
};

use crate::{Home, OpenError, Settings, SmcError, clock::Clock};

/// An extent of a window that is open.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its pages in the window.
    pub(crate) pages: Range<usize>,
    pub(crate) group: usize,
    pub(crate) pattern: u64,
    /// Whether nothing of it is ever here.
    pub(crate) uncached: bool,
    /// Whether this process stores to none of it.
    pub(crate) read_only: bool,
    /// A page of it.
    pub(crate) poison: Block,
    /// Where it is now. Whoever holds it for writing touches no window.
    place: RwLock<Place>,
    /// Whose memory that is: told without a lock, as it is asked where an access faults.
    rank: AtomicU64,
    later: Mutex<Vec<Place>>,
    /// Those that were, as long as anybody is at them or a transfer is late: the last handle of a home is not to be
    /// dropped where an access faults.
    former: Mutex<Vec<Place>>,
    health: Health,
}

/// Where an extent is: at a home, from a page on.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) first: usize,
    /// How many there were before.
    pub(crate) generation: u64,
    /// Shared with who is at it just now.
    users: Arc<()>,
}

impl Place {
    /// That its link cannot.
    pub(crate) fn unable(&self, what: &'static str, instead: &'static str) -> SmcError {
        SmcError::Unable { home: self.home.rank(), link: self.home.link_name(), what, instead }
    }
}

/// How an extent's home does.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failures: AtomicU64,
    since: AtomicU64,
    unavailable: AtomicU64,
    /// Whether it went on at its next home, and pages may hold the pattern since before.
    moved: AtomicU64,
    /// Whether pages may hold the pattern.
    sick: AtomicU64,
    /// The number of a question that its home has not answered yet, and which home; of the keeper alone.
    pub(crate) asked: AtomicU64,
    pub(crate) asked_of: AtomicU64,
    /// Pages that its homes were asked for and have not answered for.
    waiting: AtomicU64,
    /// The generation of the last home that was started again.
    started_again: AtomicU64,
    /// Writes that were posted and that nobody has waited for since.
    posted: AtomicU64,
    /// How often its home was another before what was posted was known to be there, and how often a drain said so.
    posts_lost: AtomicU64,
    posts_told: AtomicU64,
    /// How many of its pages are marked as holding the pattern.
    pub(crate) patterns: AtomicU64,
    /// How many ever were.
    pub(crate) ever: AtomicU64,
    /// Accesses that waited in vain, all of them, and those of them that the log knows.
    pub(crate) vain: AtomicU64,
    pub(crate) told: AtomicU64,
    pub(crate) told_at: AtomicU64,
}

impl Held {
    pub(crate) fn open(extent: Extent, bytes: usize, in_handler: bool) -> Result<Self, OpenError> {
        let Extent { bytes: asked, homes, class, pattern, uncached, read_only } = extent;
        let whole = |at: usize| at.is_multiple_of(PAGE);
        if asked.is_empty() || asked.end > bytes || !whole(asked.start) || !whole(asked.end) {
            return Err(OpenError::Extent { asked, bytes });
        }
        let mut places = Vec::new();
        for (generation, (home, from)) in (0..).zip(homes) {
            let first = fits(&home, from, asked.len(), in_handler)?;
            places.push(Place { home, first, generation, users: Arc::default() });
        }
        let place = places.remove(0);
        let rank = AtomicU64::new(place.home.rank().0.into());
        let poison = patterned(pattern)?;
        let pages = asked.start / PAGE..asked.end / PAGE;
        let (place, later) = (RwLock::new(place), Mutex::new(places));
        let (former, health) = (Mutex::default(), Health::default());
        let group = class.pages();
        Ok(Self {
            pages,
            group,
            pattern,
            uncached,
            read_only,
            poison,
            place,
            rank,
            later,
            former,
            health,
        })
    }

    /// Where it is now; `None` if that could not be told in time.
    pub(crate) fn place(&self, clock: &mut Clock) -> Option<Place> {
        loop {
            match self.place.try_read() {
                Ok(place) => return Some(place.clone()),
                Err(TryLockError::Poisoned(place)) => return Some(place.into_inner().clone()),
                Err(TryLockError::WouldBlock) => {
                    if !clock.pause() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whose memory it is now.
    pub(crate) fn rank(&self) -> Rank {
        Rank(self.rank.load(Relaxed) as u32)
    }

    /// Puts it at its next place, of which the caller has the lock. Gives the former one.
    fn put_at(&self, place: &mut Place, next: Place) -> Place {
        self.rank.store(next.home.rank().0.into(), Relaxed);
        core::mem::replace(place, next)
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Its bytes in the window.
    pub(crate) fn bytes(&self) -> Range<usize> {
        self.pages.start * PAGE..self.pages.end * PAGE
    }

    /// The pages that `page` comes with: those of its group, at most `most` of them.
    pub(crate) fn group_of(&self, page: usize, most: usize) -> Range<usize> {
        let group = self.group.min(most.max(1));
        let start = page / group * group;
        start.max(self.pages.start)..(start + group).min(self.pages.end)
    }

    /// That this process may write to what it has.
    pub(crate) fn writable(&self) -> Result<(), SmcError> {
        if self.read_only { Err(SmcError::ReadOnly { bytes: self.bytes() }) } else { Ok(()) }
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        self.health.unavailable.load(Relaxed) != 0
    }

    /// Notes that a page holds the pattern.
    pub(crate) fn is_sick(&self) {
        self.health.sick.store(1, Relaxed);
    }

    /// Whether a page may hold the pattern.
    pub(crate) fn may_be_sick(&self) -> bool {
        self.is_unavailable() || self.health.sick.load(Relaxed) != 0
    }

    /// Notes that none will, of those that hold the pattern now.
    pub(crate) fn is_healed(&self) {
        self.health.sick.store(0, Relaxed);
        if self.is_unavailable() {
            self.is_well();
        }
    }

    /// Notes that an access waited in vain. Whether that makes the home unavailable.
    pub(crate) fn failed(&self, settings: &Settings) -> bool {
        let (health, now) = (&self.health, Os.now().0);
        health.vain.fetch_add(1, Relaxed);
        let burst = u64::try_from(settings.burst.as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_sub(health.since.load(Relaxed)) > burst {
            health.since.store(now, Relaxed);
            health.failures.store(0, Relaxed);
        }
        let failures = health.failures.fetch_add(1, Relaxed) + 1;
        if failures < u64::from(settings.threshold) {
            return false;
        }
        health.unavailable.store(1, Relaxed);
        true
    }

    /// It is at its next home from now on, if there is one and it can be had without waiting.
    pub(crate) fn fall_back(&self) -> bool {
        let Ok(mut later) = self.later.try_lock() else { return false };
        if later.is_empty() {
            return false;
        }
        let Ok(mut place) = self.place.try_write() else { return false };
        let Ok(mut former) = self.former.try_lock() else { return false };
        if former.len() == former.capacity() {
            // Room was made when it was opened; more would have to be allocated.
            return false;
        }
        let next = Place { generation: place.generation + 1, ..later.remove(0) };
        former.push(self.put_at(&mut place, next));
        drop((place, former, later));
        self.health.moved.store(1, Relaxed);
        self.has_left();
        true
    }

    /// Whether it went on at its next home since this was asked.
    pub(crate) fn has_moved(&self) -> bool {
        self.health.moved.load(Relaxed) != 0 && self.health.moved.swap(0, Relaxed) != 0
    }

    /// Which page of `home` it would begin with there.
    pub(crate) fn fits(
        &self,
        home: &Home,
        from: usize,
        in_handler: bool,
    ) -> Result<usize, OpenError> {
        fits(home, from, self.bytes().len(), in_handler)
    }

    /// It is at another home from now on, from its page `first` on.
    pub(crate) fn move_to(&self, home: Home, first: usize) {
        // In the order of fall_back, so that neither waits for the other.
        let later = locked(&self.later);
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let generation = place.generation + 1;
        let next = Place { home, first, generation, users: Arc::default() };
        let mut former = locked(&self.former);
        former.push(self.put_at(&mut place, next));
        former.reserve(later.len());
        // Before anybody can be there.
        self.health.started_again.store(generation, Relaxed);
        drop((former, place, later));
        self.has_left();
    }

    /// How many homes it had before this one; `None` if it moves just now.
    pub(crate) fn generation(&self) -> Option<u64> {
        match self.place.try_read() {
            Ok(place) => Some(place.generation),
            Err(TryLockError::Poisoned(place)) => Some(place.into_inner().generation),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// It has another home than before, of which nothing is known.
    fn has_left(&self) {
        self.is_well();
        if self.health.posted.swap(0, Relaxed) != 0 {
            self.health.posts_lost.fetch_add(1, Relaxed);
        }
    }

    /// That it is where it was when `place` was asked for: else what went there is not where others look.
    pub(crate) fn is_still_at(&self, place: &Place) -> Result<(), SmcError> {
        if self.generation() == Some(place.generation) {
            return Ok(());
        }
        Err(SmcError::Moved { home: self.rank(), bytes: self.bytes() })
    }

    /// Whether its home was started again since it had that generation: a next one [that was given](Extent::or) has what
    /// the one before had.
    pub(crate) fn was_started_again_since(&self, generation: u64) -> bool {
        self.health.started_again.load(Relaxed) > generation
    }

    /// Pages that its homes were asked for and have not answered for.
    pub(crate) fn asked(&self) -> usize {
        self.health.waiting.load(Relaxed) as usize
    }

    pub(crate) fn ask_for(&self, pages: usize) {
        self.health.waiting.fetch_add(pages as u64, Relaxed);
    }

    pub(crate) fn has_answered(&self, pages: usize) {
        self.health.waiting.fetch_sub(pages as u64, Relaxed);
    }

    /// Something was posted to the home of that generation, for a drain to wait for.
    pub(crate) fn has_posted(&self, generation: u64) {
        self.health.posted.fetch_add(1, Relaxed);
        if self.generation() != Some(generation) {
            self.health.posts_lost.fetch_add(1, Relaxed);
        }
    }

    /// Writes that were posted and that nobody has waited for.
    pub(crate) fn posted(&self) -> u64 {
        self.health.posted.load(Relaxed)
    }

    /// So many of them are there.
    pub(crate) fn has_drained(&self, posts: u64) {
        let less = |posted: u64| Some(posted.saturating_sub(posts));
        let _ = self.health.posted.fetch_update(Relaxed, Relaxed, less);
    }

    /// How often its home was another before what was posted was known to be there.
    pub(crate) fn posts_lost(&self) -> u64 {
        self.health.posts_lost.load(Relaxed)
    }

    /// Whether that happened since this was asked last.
    pub(crate) fn has_lost_posts(&self) -> bool {
        let lost = self.posts_lost();
        self.health.posts_told.swap(lost, Relaxed) < lost
    }

    /// Where it was or is, by its generation.
    pub(crate) fn place_of(&self, generation: u64) -> Option<Place> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        if place.generation == generation {
            return Some(place.clone());
        }
        locked(&self.former).iter().find(|former| former.generation == generation).cloned()
    }

    /// Lets go of homes that it was at, but for those that `is_late` says.
    pub(crate) fn leave_former(&self, is_late: impl Fn(u64) -> bool) {
        let mut gone = Vec::new();
        let mut former = locked(&self.former);
        let mut at = 0;
        while let Some(place) = former.get_mut(at) {
            // Who was at it has noted by now what was late.
            if Arc::get_mut(&mut place.users).is_some() && !is_late(place.generation) {
                gone.push(former.swap_remove(at));
            } else {
                at += 1;
            }
        }
        // Not under the lock, for which nobody is to wait longer than it takes to look.
        drop(former);
    }

    /// Whether there is any home that it was at.
    pub(crate) fn has_former(&self) -> bool {
        !locked(&self.former).is_empty()
    }

    /// Its home answers.
    pub(crate) fn is_well(&self) {
        self.health.failures.store(0, Relaxed);
        self.health.unavailable.store(0, Relaxed);
    }

    /// Makes room for what falling back needs.
    pub(crate) fn make_ready(&self) {
        let more = locked(&self.later).len();
        locked(&self.former).reserve(more);
    }
}

/// That `home` has so many bytes from `from` on. Gives the page that they begin with.
fn fits(home: &Home, from: usize, len: usize, in_handler: bool) -> Result<usize, OpenError> {
    let (rank, has) = (home.rank(), home.bytes());
    let end = from.checked_add(len).filter(|&end| end <= has && from.is_multiple_of(PAGE));
    if end.is_none() {
        let asked = from..from.saturating_add(len);
        return Err(OpenError::Short { home: rank, asked, bytes: has });
    }
    if in_handler && !home.in_handler() {
        return Err(OpenError::InHandler { home: rank });
    }
    Ok(from / PAGE)
}

/// A page of that word, over and over.
fn patterned(pattern: u64) -> Result<Block, SystemError> {
    let page = Block::private("pontoon-poison", PAGE)?;
    let bytes: Vec<u8> = pattern.to_ne_bytes().repeat(PAGE / 8);
    if let Some(span) = Span::of(&page, 0..PAGE) {
        span.put(&bytes);
    }
    page.part(0..PAGE).ok_or(SystemError { call: "mmap", code: 0 })
}

/// Nothing panics while one of these is held, so what is behind is whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
