//! The windows of a pool by their numbers, which are given again.
//!
//! - W1: a slot that is not free and whose page is of a window's number is of the window that has that number now: a number
//!   is taken from a window by the keeper alone, when nobody else has a handle of it and no such slot is left.
//! - W2: who looks at a window by its number has no handle of it, but keeps the keeper from taking its number meanwhile. So
//!   the last handle is the keeper's, and no handler's: what goes with it is memory, and whatever else a program keeps there.
//!
//! So who looks, and then turns a slot of that number, or the other way round, has the window that the slot is of.
//! Handlers look, and never wait.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use crate::{pane::Pane, table::PageId};

type Entry = Option<Arc<Pane>>;

/// The windows of a pool.
pub(crate) struct Panes(Box<[RwLock<Entry>]>);

/// What has a number, as long as this is kept.
pub(crate) struct Seen<'p>(Option<RwLockReadGuard<'p, Entry>>);

impl Seen<'_> {
    /// The window that has it, if any, and if that could be told without waiting.
    pub(crate) fn pane(&self) -> Option<&Arc<Pane>> {
        self.0.as_deref()?.as_ref()
    }
}

impl Panes {
    pub(crate) fn new() -> Self {
        Self((0..PageId::WINDOWS_MAX).map(|_| RwLock::default()).collect())
    }

    /// Looks who has a number.
    pub(crate) fn at(&self, window: usize) -> Seen<'_> {
        Seen(self.0.get(window).and_then(|entry| match entry.try_read() {
            Ok(entry) => Some(entry),
            Err(TryLockError::Poisoned(entry)) => Some(entry.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }))
    }

    /// All of them, by number: of the keeper. One that is being opened has its turn another time.
    pub(crate) fn all(&self) -> impl Iterator<Item = Seen<'_>> {
        (0..self.0.len()).map(|window| self.at(window))
    }

    /// All of them, by number, and none is passed over: of who opens windows, who may wait until the keeper has looked.
    pub(crate) fn each(&self) -> impl Iterator<Item = Seen<'_>> {
        self.0.iter().map(|entry| {
            let entry = entry.read().unwrap_or_else(PoisonError::into_inner);
            Seen(Some(entry))
        })
    }

    /// The first number that is nobody's: of who opens windows, one at a time.
    pub(crate) fn first_free(&self) -> Option<usize> {
        self.each().position(|seen| seen.pane().is_none())
    }

    /// Gives a number that is nobody's to a window: of the same.
    pub(crate) fn put(&self, pane: Arc<Pane>) {
        if let Some(entry) = self.0.get(pane.window) {
            *entry.write().unwrap_or_else(PoisonError::into_inner) = Some(pane);
        }
    }

    /// Whether nobody but the pool has some window any more.
    pub(crate) fn is_any_alone(&self) -> bool {
        self.each().any(|seen| seen.pane().is_some_and(|pane| Arc::strong_count(pane) == 1))
    }

    /// Whether nobody but the pool has that window any more, and all that they did is seen: of the keeper.
    pub(crate) fn is_alone(&self, window: usize) -> bool {
        // A look first: who tries an entry keeps others from looking.
        self.at(window).pane().is_some_and(|pane| Arc::strong_count(pane) == 1)
            && self.alone(window, |_| ()).is_some()
    }

    /// Takes the number of a window that is alone. It is dropped where nobody is kept from looking: of the keeper.
    pub(crate) fn take(&self, window: usize) -> Option<Arc<Pane>> {
        self.alone(window, Option::take)?
    }

    fn alone<T>(&self, window: usize, with: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut entry = match self.0.get(window)?.try_write() {
            Ok(entry) => entry,
            Err(TryLockError::Poisoned(entry)) => entry.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let is_alone = entry.as_mut().is_some_and(|pane| Arc::get_mut(pane).is_some());
        is_alone.then(|| with(&mut entry))
    }
}
