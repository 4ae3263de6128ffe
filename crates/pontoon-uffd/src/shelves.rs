//! Where pages are that are being taken away, and those that were until their place is needed again.
//!
//! To drop a page interrupts every processor that the process runs on, and so does to move one; that takes several times as
//! long as anything else about it. So pages are moved by runs, and shelves are cleared when they are full.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::{ReserveError, Shelf, Window};

/// So many runs are taken away at the same time.
const SHELVES: usize = 16;

/// Shelves of a window: who takes pages away has one to himself.
#[derive(Debug)]
pub(crate) struct Shelves(Box<[Mutex<Used>]>);

#[derive(Debug)]
struct Used {
    shelf: Shelf,
    /// How many of its places had a page since it was cleared.
    used: usize,
}

/// Empty places of a shelf that follow each other.
pub(crate) struct Room<'s> {
    used: MutexGuard<'s, Used>,
    /// The first.
    pub(crate) at: usize,
}

impl Shelves {
    /// The most pages that there is room for at once.
    pub(crate) const RUN: usize = 16;

    pub(crate) fn of(window: &Arc<Window>) -> Result<Self, ReserveError> {
        let shelf = || window.shelf(Self::RUN).map(|shelf| Mutex::new(Used { shelf, used: 0 }));
        (0..SHELVES).map(|_| shelf()).collect::<Result<_, _>>().map(Self)
    }

    /// Room for so many pages; `None` if others have all shelves. It never waits.
    pub(crate) fn room(&self, pages: usize) -> Option<Room<'_>> {
        let mut free = self.0.iter().filter_map(|shelf| shelf.try_lock().ok());
        free.find_map(|mut used| {
            let all = used.used;
            if all + pages > Self::RUN {
                used.shelf.clear(0..all).ok()?;
                used.used = 0;
            }
            Some(Room { at: used.used, used })
        })
    }
}

impl Room<'_> {
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.used.shelf
    }

    /// So many of the places have a page now.
    pub(crate) fn took(&mut self, pages: usize) {
        self.used.used = self.at + pages;
    }
}
