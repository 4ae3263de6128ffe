//! Bytes of a window in and out, by accesses as any others, and pages that stay for as long as somebody needs them.

use core::{ops::Range, ptr::NonNull};

use pontoon_hal::paging::{PAGE, PAGE_WORDS};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    SmcError, Window,
    clock::Clock,
    pool::Inner,
    table::{SlotIndex, State},
};

impl Window {
    /// Copies the bytes from `offset` on, as many as `into` has, by loads as any others.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`].
    ///
    /// # Blocks
    ///
    /// As those loads would.
    pub fn get(&self, offset: usize, into: &mut [u8]) -> Result<(), SmcError> {
        let len = into.len();
        self.each_word(offset, len, |word, bytes, at| {
            let value = word.load(Relaxed).to_ne_bytes();
            let into = &mut into[at..at + bytes.len()];
            match <&mut [u8; 8]>::try_from(&mut *into) {
                Ok(whole) => *whole = value,
                Err(_) => into.copy_from_slice(&value[bytes]),
            }
        })
    }

    /// Copies `bytes` to the window, from `offset` on, by stores as any others. The bytes beside them in their words
    /// stay whatever others make of them.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`], [`SmcError::ReadOnly`].
    ///
    /// # Blocks
    ///
    /// As those stores would.
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), SmcError> {
        self.writable(&(offset..offset.saturating_add(bytes.len())))?;
        self.each_word(offset, bytes.len(), |word, places, at| {
            let new = &bytes[at..at + places.len()];
            if let Ok(whole) = new.try_into() {
                return word.store(u64::from_ne_bytes(whole), Relaxed);
            }
            let mut seen = word.load(Relaxed);
            loop {
                let mut value = seen.to_ne_bytes();
                value[places.clone()].copy_from_slice(new);
                let value = u64::from_ne_bytes(value);
                match word.compare_exchange_weak(seen, value, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => seen = now,
                }
            }
        })
    }

    /// Each word that has some of the `len` bytes from `offset` on: which of its bytes, and where among all they begin.
    fn each_word(
        &self,
        offset: usize,
        len: usize,
        mut access: impl FnMut(&AtomicU64, Range<usize>, usize),
    ) -> Result<(), SmcError> {
        let asked = offset..offset.saturating_add(len);
        self.mapped(&asked)?;
        let mut at = offset;
        while at < asked.end {
            let words = self.pane().paging.words(at / PAGE);
            let part = asked.end.min((at / PAGE + 1) * PAGE);
            while at < part {
                let end = part.min((at / 8 + 1) * 8);
                access(&words[at / 8 % PAGE_WORDS], at % 8..at % 8 + (end - at), at - offset);
                at = end;
            }
        }
        Ok(())
    }

    /// Has the pages of `bytes` here for as long as `work` takes, which is given the address of the first of those
    /// bytes: for system calls, that fail on pages that are not here. No other call of the window touches them
    /// meanwhile; plain loads and stores do. What is [written through](Self::write_through) can be loaded only: a store to
    /// it waits for this to end, and is lost if it is of this very thread.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`]; [`SmcError::TooMany`] for more than half of the pool, of all such calls together; [`SmcError::Unavailable`] if one holds
    /// the pattern; [`SmcError::TimedOut`]; [`SmcError::Occupied`] if other calls are at a page.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows, and then as long as `work` takes.
    pub fn with_resident<T>(
        &self,
        bytes: Range<usize>,
        bound: Bound,
        work: impl FnOnce(NonNull<u8>) -> T,
    ) -> Result<T, SmcError> {
        self.mapped(&bytes)?;
        let (inner, mut clock) = (self.inner(), Clock::bound(bound));
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let most = inner.table.len() / 2;
        let others = inner.pinned.fetch_add(pages.len() as u64, Relaxed) as usize;
        let mut pinned = Pinned { inner, pages: pages.len(), slots: Vec::new() };
        if others + pages.len() > most {
            return Err(SmcError::TooMany {
                pages: pages.len(),
                most: most.saturating_sub(others),
            });
        }
        pinned.slots.reserve(pages.len());
        for page in pages {
            pinned.slots.push(self.hold_here(page, &mut clock)?);
        }
        let base = self.base();
        // Within the window, as was checked, so that the address does not wrap.
        let first = base.map_addr(|base| base.saturating_add(bytes.start));
        let done = work(first);
        drop(pinned);
        Ok(done)
    }

    /// Takes hold of a page that is here, having fetched it if it was not.
    fn hold_here(&self, page: usize, clock: &mut Clock) -> Result<SlotIndex, SmcError> {
        let (inner, pane) = (self.inner(), self.pane());
        let id = pane.id(page);
        loop {
            let found = inner.table.find(id);
            if let Some(slot) = found {
                if inner.table.turn(slot, id, State::Resident, State::Busy) {
                    // One that nobody writes through is there.
                    let guarded = pane.extent(page).filter(|_| pane.is_guarded(page));
                    let is_there = guarded
                        .map_or(Ok(true), |extent| inner.put_back(pane, extent, page, slot, clock));
                    match is_there {
                        Ok(true) => {
                            inner.table.set(slot, State::Pinned);
                            return Ok(slot);
                        }
                        Ok(false) => {}
                        Err(error) => {
                            inner.table.set(slot, State::Resident);
                            return Err(error.into());
                        }
                    }
                }
                if inner.table.state(slot) == State::Poisoned {
                    self.check(page * PAGE..(page + 1) * PAGE)?;
                }
            } else {
                // An access as any other.
                let _ = pane.paging.words(page)[0].load(Relaxed);
            }
            if !clock.pause() {
                let extent = self.extent_of(page * PAGE..(page + 1) * PAGE)?;
                return Err(inner.not_had(extent, id, clock));
            }
        }
    }
}

/// Pages that stay where they are until this goes.
struct Pinned<'w> {
    inner: &'w Inner,
    /// So many are to be.
    pages: usize,
    slots: Vec<SlotIndex>,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        for &slot in &self.slots {
            self.inner.table.set(slot, State::Resident);
        }
        self.inner.pinned.fetch_sub(self.pages as u64, Relaxed);
    }
}
