//! Acquire: what others changed at home comes into pages that are here, beside what was written here.

use core::ops::Range;

use arrayvec::ArrayVec;
use pontoon_hal::paging::{PAGE, PAGE_WORDS};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
    undisturbed,
};

use crate::{
    Home, SmcError,
    bytes::{Last, Merged, copy_bytes, merge, whole_words},
    clock::Clock,
    counts::add,
    extent::{Held, Place},
    pane::Pane,
    pool::Inner,
    release::{UNSERVED, late},
    stages::{STAGE, Stage},
    table::{SlotIndex, State, Version},
};

/// Pages whose versions are read at once: the first half of a stage holds them.
const CHUNK: usize = STAGE / 2 / 8;
/// Pages that are read again at once: into the other half.
const AGAIN: usize = STAGE / 2 / PAGE;

/// What an acquire did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcquireReport {
    /// Resident pages whose versions were compared.
    pub checked: u64,
    /// Pages of them that home had changed.
    pub merged: u64,
    /// Bytes in them that had changed. Of pages that are [read only](crate::Extent::read_only) none are counted: they are
    /// fetched whole.
    pub bytes: u64,
    /// Bytes of those that were written here too since the last release, and are home's now.
    pub conflicts: u64,
}

impl core::ops::AddAssign for AcquireReport {
    fn add_assign(&mut self, other: Self) {
        self.checked += other.checked;
        self.merged += other.merged;
        self.bytes += other.bytes;
        self.conflicts += other.conflicts;
    }
}

/// A page that is to be read again.
struct Stale {
    page: usize,
    slot: SlotIndex,
    version: Version,
}

impl Inner {
    /// Acquires the pages `pages` of an extent.
    pub(crate) fn acquire(
        &self,
        pane: &Pane,
        extent: &Held,
        pages: Range<usize>,
        bound: Bound,
    ) -> Result<AcquireReport, SmcError> {
        let mut clock = Clock::bound(bound);
        let mut report = AcquireReport::default();
        let acquired = loop {
            let place = extent.place(&mut clock).ok_or_else(|| late(extent, clock.waited()))?;
            match self.acquire_from(pane, extent, &place, pages.clone(), &mut clock, &mut report) {
                // What is to be seen is what the home has that it has now.
                Err(SmcError::Moved { .. }) if !clock.is_over() => {}
                acquired => break acquired,
            }
        };
        add(&pane.counts.checked, report.checked as usize);
        add(&pane.counts.merged, report.merged as usize);
        add(&pane.counts.conflicts, report.conflicts as usize);
        acquired.map(|()| report)
    }

    /// As [`acquire`](Self::acquire), from that home of the extent.
    fn acquire_from(
        &self,
        pane: &Pane,
        extent: &Held,
        place: &Place,
        pages: Range<usize>,
        clock: &mut Clock,
        report: &mut AcquireReport,
    ) -> Result<(), SmcError> {
        let mut stage = self.stage(extent, place, clock)?;
        let unchanged = pane.unchanged(clock);
        let _unchanged = unchanged
            .ok_or_else(|| SmcError::Occupied { bytes: extent.bytes(), waited: clock.waited() })?;
        for chunk in self.chunks(pane, pages) {
            let (start, bytes) = (chunk.start, chunk.len() * 8);
            let into = stage.at..stage.at + bytes;
            let first = place.at_home(extent, start);
            let number = place.home.post(clock, |home| home.read_versions(first, into.clone()))?;
            stage.wait(extent, place, number, clock)?;
            place.home.fence()?;
            let mut stale = ArrayVec::<Stale, AGAIN>::new();
            for page in chunk {
                let Some(slot) = self.table.find(pane.id(page)) else { continue };
                report.checked += 1;
                let number = stage.words[page - start].load(Relaxed);
                let version = Version { number, generation: place.generation };
                if version == self.table.version(slot) {
                    continue;
                }
                if extent.read_only {
                    report.merged += u64::from(self.renounce(pane, extent, page, slot, clock)?);
                    continue;
                }
                stale.push(Stale { page, slot, version });
                if stale.is_full() {
                    self.renew(pane, extent, place, &mut stale, &mut stage, clock, report)?;
                }
            }
            self.renew(pane, extent, place, &mut stale, &mut stage, clock, report)?;
        }
        // Whoever released did so where it is now.
        extent.is_still_at(place)
    }

    /// Ranges of at most [`CHUNK`] pages that have all resident ones of `pages`.
    fn chunks(&self, pane: &Pane, pages: Range<usize>) -> Vec<Range<usize>> {
        let cut = |range: &Range<usize>| {
            let end = range.end;
            range
                .clone()
                .step_by(CHUNK)
                .map(move |at| at..(at + CHUNK).min(end))
                .collect::<Vec<_>>()
        };
        if pages.len() <= 4 * self.table.len() {
            return cut(&pages);
        }
        let resident = self.table.slots().filter(|&slot| self.table.state(slot) != State::Free);
        let ids = resident.map(|slot| self.table.page(slot));
        let mine = ids.filter(|id| id.window() == pane.window && pages.contains(&id.page()));
        let mut mine: Vec<usize> = mine.map(|id| id.page()).collect();
        mine.sort_unstable();
        let mut chunks: Vec<Range<usize>> = Vec::new();
        for page in mine {
            match chunks.last_mut() {
                Some(chunk) if page < chunk.start + CHUNK => chunk.end = page + 1,
                _ => chunks.push(page..page + 1),
            }
        }
        chunks
    }

    /// Reads pages again and merges them, while nobody else works on them.
    #[expect(clippy::too_many_arguments, reason = "what, of where, by what, and what it came to")]
    fn renew(
        &self,
        pane: &Pane,
        extent: &Held,
        place: &Place,
        stale: &mut ArrayVec<Stale, AGAIN>,
        stage: &mut Stage<'_>,
        clock: &mut Clock,
        report: &mut AcquireReport,
    ) -> Result<(), SmcError> {
        let mut held = ArrayVec::<Stale, AGAIN>::new();
        let renewed = self.renew_held(pane, extent, place, stale, &mut held, stage, clock, report);
        for page in held {
            self.table.set(page.slot, State::Resident);
        }
        stale.clear();
        renewed
    }

    #[expect(clippy::too_many_arguments, reason = "as of its only caller")]
    fn renew_held(
        &self,
        pane: &Pane,
        extent: &Held,
        place: &Place,
        stale: &mut ArrayVec<Stale, AGAIN>,
        held: &mut ArrayVec<Stale, AGAIN>,
        stage: &mut Stage<'_>,
        clock: &mut Clock,
        report: &mut AcquireReport,
    ) -> Result<(), SmcError> {
        let mut last = None;
        let mut asked = Ok(());
        for page in stale.drain(..) {
            if !self.hold_resident(pane, page.page, page.slot, clock) {
                if clock.is_over() {
                    asked = Err(self.not_had(extent, pane.id(page.page), clock));
                    break;
                }
                // It is gone, and comes as it is then, or holds the pattern.
                continue;
            }
            let at = stage.at + STAGE / 2 + held.len() * PAGE;
            held.push(page);
            let page = held[held.len() - 1].page;
            let home_page = place.at_home(extent, page);
            let read = |home: &Home| home.read(home_page * PAGE, at..at + PAGE);
            match place.home.post(clock, read) {
                Ok(number) => last = Some(number),
                Err(error) => {
                    asked = Err(error.into());
                    break;
                }
            }
        }
        let Some(last) = last else { return asked };
        if asked.is_err() {
            // What was asked for before comes yet.
            stage.keep(&place.home, last);
            return asked;
        }
        stage.wait(extent, place, last, clock)?;
        extent.is_still_at(place)?;
        for (index, Stale { page, slot, version }) in held.iter().enumerate() {
            let first = STAGE / 2 / 8 + index * PAGE_WORDS;
            let new = &stage.words[first..first + PAGE_WORDS];
            let twin = self.twin(*slot);
            let is_guarded = pane.is_guarded(*page);
            let is_other = self.table.version(*slot).generation != version.generation;
            let is_whole = self.is_whole(extent, *slot, version.generation);
            let last = match (is_other, is_whole) {
                (false, _) => Last::Home,
                (true, false) => Last::Here,
                (true, true) => Last::HereWhole,
            };
            // To a guarded one nobody has stored here: the next access finds the twin.
            let mut merged = Merged::default();
            let mut renew = |live: &[AtomicU64]| {
                for mut bytes in self.owed.of(*slot) {
                    if is_whole {
                        bytes = whole_words(&bytes);
                        self.owed.add(*slot, bytes.clone());
                    }
                    // Home may have what was sent of them, which is no news, and gets what is here.
                    copy_bytes(twin, bytes.clone(), new, bytes.start);
                }
                merged = merge(live, new, twin, last);
                true
            };
            if is_guarded {
                renew(twin);
                pane.paging.discard(*page..*page + 1)?;
            } else if pane.paging.look(*page, &mut renew).is_none() {
                return Err(UNSERVED.into());
            }
            self.table.set_version(*slot, *version);
            report.merged += 1;
            report.bytes += merged.bytes;
            report.conflicts += merged.conflicts;
        }
        Ok(())
    }

    /// Lets go of a page that is read only, and that home has another version of: the next access brings that. Whether it
    /// was here.
    fn renounce(
        &self,
        pane: &Pane,
        extent: &Held,
        page: usize,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> Result<bool, SmcError> {
        // A handler of the program's may miss that very page.
        loop {
            let (held, gone) = undisturbed(|| {
                let held = self.table.turn(slot, pane.id(page), State::Resident, State::Busy);
                (held, held && self.let_go(pane, page, slot))
            });
            if gone {
                return Ok(true);
            }
            let is_there = self.table.find(pane.id(page)) == Some(slot);
            if !held && (!is_there || self.table.state(slot) == State::Poisoned) {
                return Ok(false);
            }
            if !clock.pause() {
                return Err(self.not_had(extent, pane.id(page), clock));
            }
        }
    }

    /// Takes hold of a resident page. Whether it is there to be had, in time.
    fn hold_resident(&self, pane: &Pane, page: usize, slot: SlotIndex, clock: &mut Clock) -> bool {
        let id = pane.id(page);
        while !self.table.turn(slot, id, State::Resident, State::Busy) {
            let is_there = self.table.find(id) == Some(slot);
            if !is_there || self.table.state(slot) == State::Poisoned || !clock.pause() {
                return false;
            }
        }
        true
    }
}
