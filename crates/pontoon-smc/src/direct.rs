//! Values written and read at home, past the pages that are here; what is here becomes what home has.
//!
//! A page that is here is held as long as values of it are on their way, so that several threads' writes reach it
//! in the order in which they reach home.

use core::ops::Range;

use arrayvec::ArrayVec;
use pontoon_hal::paging::{PAGE, PAGE_WORDS};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

use crate::{
    Arrival, SmcError, Value, Window,
    bytes::in_memory,
    clock::Clock,
    extent::{Held, Place},
    hold::is_seen,
    pool::Inner,
    release::{UNSERVED, late},
    stages::{STAGE, Stage},
    table::{SlotIndex, State},
};

/// Bytes that are handed to a link as they are.
const INLINE: usize = 64;
/// Pages that one write can be of.
const PAGES: usize = STAGE / PAGE + 1;

/// Pages that are here, and nobody else's until this goes.
struct Here<'p> {
    inner: &'p Inner,
    pages: ArrayVec<(usize, SlotIndex), PAGES>,
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.pages.iter().for_each(|&(_, slot)| self.inner.table.set(slot, State::Resident));
    }
}

/// How many values from `at` on are one write at most.
pub(crate) fn most<T: Value>(at: usize) -> usize {
    (STAGE - at % 8) / T::BYTES
}

impl Window {
    /// Writes values that are of one extent and no more than one write takes. Which of the extent's homes has them.
    pub(crate) fn write_home<T: Value>(
        &self,
        at: usize,
        values: &[T],
        arrival: Arrival,
        clock: &mut Clock,
    ) -> Result<u64, SmcError> {
        loop {
            match self.write_to(at, values, arrival, clock) {
                // They are written to the one that it has now, too.
                Err(SmcError::Moved { .. }) if !clock.is_over() => {}
                written => return written,
            }
        }
    }

    /// As [`write_home`](Self::write_home), to the home that the extent has now.
    fn write_to<T: Value>(
        &self,
        at: usize,
        values: &[T],
        arrival: Arrival,
        clock: &mut Clock,
    ) -> Result<u64, SmcError> {
        let bytes = at..at + values.len() * T::BYTES;
        let extent = self.extent_of(bytes.clone())?;
        extent.writable()?;
        self.available(extent)?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let unchanged = self.pane().unchanged(clock);
        let _unchanged = unchanged
            .ok_or_else(|| SmcError::Occupied { bytes: extent.bytes(), waited: clock.waited() })?;
        let here = self.hold(extent, pages.clone(), clock)?;
        here.pages.iter().try_for_each(|&(page, _)| is_seen(self.pane(), page))?;
        let mut stage = self.inner().stage(extent, &place, clock)?;
        pack(stage.words, at % 8, values);
        self.send_values(extent, &place, &bytes, arrival, &mut stage, clock)?;
        if arrival == Arrival::AtHome {
            extent.is_still_at(&place)?;
        }
        for &(page, slot) in &here.pages {
            self.put_in(page, slot, &bytes, stage.words)?;
        }
        let held = here.pages.clone();
        drop((here, stage));
        for page in pages.filter(|&page| !held.iter().any(|held| held.0 == page)) {
            self.put_late(extent, &place, page, &bytes, values, arrival, clock)?;
        }
        Ok(place.generation)
    }

    /// Reads values that are of one extent and no more than one write takes.
    pub(crate) fn read_home<T: Value>(
        &self,
        at: usize,
        into: &mut [T],
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let bytes = at..at + into.len() * T::BYTES;
        let extent = self.extent_of(bytes.clone())?;
        self.available(extent)?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let stage = self.read_staged(extent, &place, &bytes, clock)?;
        unpack(stage.words, at % 8, into);
        Ok(())
    }

    /// Reads bytes into a stage, as they lie in their words.
    fn read_staged(
        &self,
        extent: &Held,
        place: &Place,
        bytes: &Range<usize>,
        clock: &mut Clock,
    ) -> Result<Stage<'_>, SmcError> {
        let mut stage = self.inner().stage(extent, place, clock)?;
        let into = stage.at + bytes.start % 8;
        let into = into..into + bytes.len();
        let from = place.byte_at_home(extent, bytes.start);
        let number = place.home.post(clock, |home| home.read(from, into.clone()))?;
        stage.wait(extent, place, number, clock)?;
        Ok(stage)
    }

    /// Takes hold of those of `pages` that are here.
    fn hold(
        &self,
        extent: &Held,
        pages: Range<usize>,
        clock: &mut Clock,
    ) -> Result<Here<'_>, SmcError> {
        let (inner, pane) = (self.inner(), self.pane());
        let mut here = Here { inner, pages: ArrayVec::new() };
        for page in pages {
            let id = pane.id(page);
            while let Some(slot) = inner.table.find(id) {
                if inner.table.turn(slot, id, State::Resident, State::Busy) {
                    here.pages.push((page, slot));
                    break;
                }
                if inner.table.state(slot) == State::Poisoned {
                    break;
                }
                if !clock.pause() {
                    return Err(inner.not_had(extent, id, clock));
                }
            }
        }
        Ok(here)
    }

    /// Has the bytes of a stage at home, or on their way there.
    fn send_values(
        &self,
        extent: &Held,
        place: &Place,
        bytes: &Range<usize>,
        arrival: Arrival,
        stage: &mut Stage<'_>,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let (home, to) = (&place.home, place.byte_at_home(extent, bytes.start));
        let lead = bytes.start % 8;
        // What was posted of the same bytes is there before.
        home.fence()?;
        let mut number = None;
        if bytes.len() <= INLINE.min(home.inline_bytes()) {
            let mut all = [0; INLINE + 8];
            for (word, part) in stage.words.iter().zip(all.chunks_exact_mut(8)) {
                part.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
            let all = &all[lead..lead + bytes.len()];
            home.post(clock, |home| home.write_inline(all, to))?;
        } else {
            let from = stage.at + lead;
            let from = from..from + bytes.len();
            number = Some(home.post(clock, |home| home.write(from.clone(), to))?);
        }
        if arrival == Arrival::Posted {
            if let Some(number) = number {
                stage.leave(home, number);
            }
            return Ok(());
        }
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let arrived = self.announce(extent, place, pages, clock);
        if let (Err(_), Some(number)) = (&arrived, number) {
            stage.keep(home, number);
        }
        arrived
    }

    /// Waits until what was written is at home, and whoever acquires has those pages of it.
    pub(crate) fn announce(
        &self,
        extent: &Held,
        place: &Place,
        pages: impl Iterator<Item = usize>,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let (home, nowhere) = (&place.home, self.inner().nowhere().start);
        home.fence()?;
        for page in pages {
            let page = place.at_home(extent, page);
            home.post(clock, |home| home.post_changed(page, nowhere))?;
        }
        Ok(home.flush(clock.left())?)
    }

    /// Puts what a stage has into a page that the caller holds, whatever was stored to those bytes before.
    fn put_in(
        &self,
        page: usize,
        slot: SlotIndex,
        bytes: &Range<usize>,
        staged: &[AtomicU64],
    ) -> Result<(), SmcError> {
        let (pane, twin) = (self.pane(), self.inner().twin(slot));
        if !pane.is_guarded(page) {
            let mut put = |live: &[_]| {
                put_words(page, bytes, staged, &[twin, live]);
                true
            };
            let put = pane.paging.look(page, &mut put);
            return put.map(|_| ()).ok_or_else(|| UNSERVED.into());
        }
        // It may be in its slot alone, and the next access finds it there.
        put_words(page, bytes, staged, &[twin]);
        Ok(pane.paging.discard(page..page + 1)?)
    }

    /// Makes a page that came while its bytes were on their way have them: as home has them by now, as another thread may
    /// have written them too.
    #[expect(clippy::too_many_arguments, reason = "what, of where, and how it was written")]
    fn put_late<T: Value>(
        &self,
        extent: &Held,
        place: &Place,
        page: usize,
        bytes: &Range<usize>,
        values: &[T],
        arrival: Arrival,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let here = self.hold(extent, page..page + 1, clock)?;
        let Some(&(page, slot)) = here.pages.first() else { return Ok(()) };
        let stage = match arrival {
            Arrival::AtHome => self.read_staged(extent, place, bytes, clock)?,
            Arrival::Posted => {
                let stage = self.inner().stage(extent, place, clock)?;
                pack(stage.words, bytes.start % 8, values);
                stage
            }
        };
        self.put_in(page, slot, bytes, stage.words)
    }
}

impl Place {
    /// Where a byte of the extent is at home.
    fn byte_at_home(&self, extent: &Held, at: usize) -> usize {
        self.at_home(extent, at / PAGE) * PAGE + at % PAGE
    }
}

/// Makes words of a page have those of the staged `bytes` that are of it.
fn put_words(page: usize, bytes: &Range<usize>, staged: &[AtomicU64], into: &[&[AtomicU64]]) {
    let within = bytes.start.max(page * PAGE)..bytes.end.min((page + 1) * PAGE);
    for word in within.start / 8..within.end.div_ceil(8) {
        let mine = within.start.max(word * 8) - word * 8..within.end.min(word * 8 + 8) - word * 8;
        let (mask, value) = (in_memory(mine), staged[word - bytes.start / 8].load(Relaxed));
        for words in into {
            let word = &words[word % PAGE_WORDS];
            let mut seen = word.load(Relaxed);
            while let Err(now) =
                word.compare_exchange_weak(seen, seen & !mask | value & mask, Relaxed, Relaxed)
            {
                seen = now;
            }
        }
    }
}

/// Puts values into words, from byte `lead` of the first on.
fn pack<T: Value>(words: &[AtomicU64], lead: usize, values: &[T]) {
    let (mut at, mut word) = (lead, [0; 8]);
    for value in values {
        value.put(&mut word[at % 8..]);
        at += T::BYTES;
        if at.is_multiple_of(8) {
            words[at / 8 - 1].store(u64::from_ne_bytes(word), Relaxed);
        }
    }
    if !at.is_multiple_of(8) {
        words[at / 8].store(u64::from_ne_bytes(word), Relaxed);
    }
}

/// Takes values out of words, from byte `lead` of the first on.
fn unpack<T: Value>(words: &[AtomicU64], lead: usize, into: &mut [T]) {
    let mut at = lead;
    for value in into {
        *value = T::get(&words[at / 8].load(Relaxed).to_ne_bytes()[at % 8..]);
        at += T::BYTES;
    }
}
