//! Release: what was stored to pages goes home, byte for byte, and no byte that was not stored to.
//!
//! A page that was found stored to is marked before it is looked at, and is marked no more only once its bytes
//! are home and its version says so: whatever fails in between, the next release finds it, and sends what was on its way
//! again, as it is then.

use core::ops::Range;
use std::time::Duration;

use pontoon_hal::paging::{PAGE, PAGE_WORDS, PagingError};
use pontoon_signal::{
    Bound, Seq,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    SmcError,
    bytes::{copy_bytes, diff, whole_words},
    clock::Clock,
    counts::add,
    extent::{Held, Place, locked},
    owed::joined,
    pane::Pane,
    pool::Inner,
    stages::{STAGE, Stage},
    table::{PageId, SlotIndex, State, Version},
};

/// Ranges of pages that are asked for at a time.
const RANGES: usize = 64;
/// Pages that are on their way at a time.
const PAGES: usize = 1024;
/// Words of a stage that bytes are sent from. Behind them the versions land that the pages had come to, a word each.
const SENT: usize = STAGE / 8 - PAGES;
const _: () = assert!(SENT >= PAGE_WORDS);

/// Of a page that cannot be looked at.
pub(crate) const UNSERVED: PagingError = PagingError {
    call: "look",
    code: 16,
    remedy: "nobody serves the window's faults: have them served, or drop the window",
};

/// What a release did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Pages that were stored to.
    pub pages: u64,
    /// Bytes that were sent: those that had changed.
    pub bytes: u64,
    /// Writes that they took.
    pub writes: u64,
}

impl core::ops::AddAssign for Released {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.bytes += other.bytes;
        self.writes += other.writes;
    }
}

/// Changes of pages that are on their way.
struct Sending<'p> {
    stage: Stage<'p>,
    /// Words of the stage that are in use.
    used: usize,
    pages: Vec<Leaf>,
    runs: Vec<Run>,
    last: Option<Seq>,
}

/// A page that is held until its changes are home.
struct Leaf {
    page: usize,
    slot: SlotIndex,
    /// The first of its runs. It is changed if there is any.
    first: usize,
}

/// Bytes of a page that are in a stage.
struct Run {
    slot: SlotIndex,
    bytes: Range<usize>,
    /// Where they are in the stage: as they lie in their words.
    at: usize,
}

impl<'p> Sending<'p> {
    fn by(stage: Stage<'p>) -> Self {
        let (pages, runs) = (Vec::with_capacity(RANGES), Vec::with_capacity(RANGES));
        Self { stage, used: 0, pages, runs, last: None }
    }
}

impl Inner {
    /// Releases the pages `pages` of an extent.
    pub(crate) fn release(
        &self,
        pane: &Pane,
        extent: &Held,
        pages: Range<usize>,
        bound: Bound,
    ) -> Result<Released, SmcError> {
        let (mut clock, mut released) = (Clock::bound(bound), Released::default());
        loop {
            match self.release_to(pane, extent, &pages, &mut clock, &mut released) {
                // What went to its former home goes to this one too.
                Err(SmcError::Moved { .. }) if !clock.is_over() => {}
                done => return done.map(|()| released),
            }
        }
    }

    /// As [`release`](Self::release), to the home that the extent has now.
    fn release_to(
        &self,
        pane: &Pane,
        extent: &Held,
        pages: &Range<usize>,
        clock: &mut Clock,
        all: &mut Released,
    ) -> Result<(), SmcError> {
        let found = self.find(pane, pages)?;
        if found.is_empty() {
            return Ok(());
        }
        let mut released = Released::default();
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let mut sending = Sending::by(self.stage(extent, &place, clock)?);
        let mut sent = Ok(());
        for (page, slot) in found {
            match self.hold(pane, page, slot, clock) {
                Some(true) => {}
                Some(false) => {
                    sent = Err(self.not_had(extent, pane.id(page), clock));
                    break;
                }
                None => continue,
            }
            released.pages += 1;
            self.marks.comparing(slot);
            sending.pages.push(Leaf { page, slot, first: sending.runs.len() });
            let mut send = |live: &[AtomicU64]| {
                sent = self.send(extent, &place, page, slot, live, &mut sending, clock);
                sent.is_ok()
            };
            // What is written through is home, and may not be in its place: what it owes its slot has.
            let is_seen = if pane.is_guarded(page) {
                Some(send(self.twin(slot)))
            } else {
                pane.paging.look(page, &mut send)
            };
            if is_seen.is_none() {
                sent = Err(UNSERVED.into());
            }
            let full = sending.used + PAGE_WORDS > SENT || sending.pages.len() == PAGES;
            if sent.is_ok() && full {
                sent = self.settle(extent, &place, &mut sending, clock, &mut released);
            }
            if sent.is_err() {
                break;
            }
        }
        let sent =
            sent.and_then(|()| self.settle(extent, &place, &mut sending, clock, &mut released));
        if sent.is_err() {
            self.give_up(&place, sending);
        }
        add(&pane.counts.dirty, released.pages as usize);
        add(&pane.counts.sent, released.bytes as usize);
        add(&pane.counts.writes, released.writes as usize);
        *all += released;
        sent
    }

    /// Sends home what was stored to a page that is leaving.
    pub(crate) fn send_last(
        &self,
        pane: &Pane,
        extent: &Held,
        page: usize,
        slot: SlotIndex,
        last: &[AtomicU64],
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let mut sending = Sending::by(self.stage(extent, &place, clock)?);
        let sent = self.send(extent, &place, page, slot, last, &mut sending, clock);
        let sent = sent.and_then(|()| {
            if sending.runs.is_empty() {
                return Ok(());
            }
            arrive(extent, &place, &mut sending, clock)?;
            place.home.changed(place.at_home(extent, page), clock.left())?;
            place.home.flush(clock.left())?;
            extent.is_still_at(&place)
        });
        if sent.is_err() {
            self.give_up(&place, sending);
            return sent;
        }
        self.settled(slot);
        add(&pane.counts.sent, sending.runs.iter().map(|run| run.bytes.len()).sum());
        add(&pane.counts.writes, sending.runs.len());
        Ok(())
    }

    /// Takes hold of a page in its slot. Whether it could be had in time; `None` if there is nothing of it to be sent.
    fn hold(&self, pane: &Pane, page: usize, slot: SlotIndex, clock: &mut Clock) -> Option<bool> {
        let id = pane.id(page);
        while !self.table.turn(slot, id, State::Resident, State::Busy) {
            if self.table.find(id) != Some(slot) {
                // It went home when it was evicted.
                return None;
            }
            if self.table.state(slot) == State::Poisoned {
                self.is_gone(slot);
                return None;
            }
            if !clock.pause() {
                return Some(false);
            }
        }
        Some(true)
    }

    /// The pages of `pages` that were stored to and are not known to be home, in order, and their slots.
    pub(crate) fn find(
        &self,
        pane: &Pane,
        pages: &Range<usize>,
    ) -> Result<Vec<(usize, SlotIndex)>, SmcError> {
        let mut found: [Range<usize>; RANGES] = core::array::from_fn(|_| 0..0);
        let finding = locked(&pane.finding);
        let mut at = pages.start;
        while at < pages.end {
            let written = pane.paging.written(at..pages.end, &mut found)?;
            at = written.next;
            for page in found[..written.ranges].iter().cloned().flatten() {
                if let Some(slot) = self.table.find(pane.id(page)) {
                    self.marks.found(slot);
                }
            }
        }
        drop(finding);
        Ok(self.unsent(pane, pages))
    }

    /// Those of `pages` that are marked, in order.
    pub(crate) fn unsent(&self, pane: &Pane, pages: &Range<usize>) -> Vec<(usize, SlotIndex)> {
        let marked = self.marks.unsent().map(|slot| (self.table.page(slot), slot));
        // A mark may have come to a slot whose page had just gone home.
        let marked = marked.filter(|&(id, slot)| self.table.find(id) == Some(slot));
        let its = marked.filter(|(id, _)| id.window() == pane.window && pages.contains(&id.page()));
        let mut found: Vec<_> = its.map(|(id, slot)| (id.page(), slot)).collect();
        found.sort_unstable_by_key(|&(page, _)| page);
        found
    }

    /// Posts what differs between a page and its twin, and what the page owes.
    #[expect(clippy::too_many_arguments, reason = "what, from where, to where, and by what")]
    fn send(
        &self,
        extent: &Held,
        place: &Place,
        page: usize,
        slot: SlotIndex,
        live: &[AtomicU64],
        sending: &mut Sending<'_>,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        debug_assert!(!extent.read_only, "page {page} has no twin");
        let home_page = place.at_home(extent, page) * PAGE;
        let first = sending.runs.len();
        let (mut used, mut word_in_use) = (sending.used, usize::MAX);
        let mut stage = |bytes: Range<usize>| {
            // Runs that share a word share it in the stage too, so that a page never takes more than its size.
            let word = bytes.start / 8;
            let base = if word == word_in_use { used - 1 } else { used };
            let at = base * 8 + bytes.start % 8;
            used = base + (bytes.end - 1) / 8 - word + 1;
            word_in_use = (bytes.end - 1) / 8;
            copy_bytes(live, bytes.clone(), sending.stage.words, at);
            sending.runs.push(Run { slot, bytes, at });
        };
        let mut owed = self.owed.of(slot);
        // A home that was started again may not have what was released of a word before.
        let is_whole = self.is_whole(extent, slot, place.generation);
        if owed.is_empty() && !is_whole {
            diff(live, self.twin(slot), stage);
        } else {
            diff(live, self.twin(slot), |bytes| owed.push(bytes));
            if is_whole {
                owed.iter_mut().for_each(|bytes| *bytes = whole_words(bytes));
            }
            joined(owed).into_iter().for_each(&mut stage);
            // What was given up may be on its way yet: this comes behind it.
            place.home.fence()?;
        }
        sending.used = used;
        for run in &sending.runs[first..] {
            let at = sending.stage.at + run.at;
            let from = at..at + run.bytes.len();
            let to = home_page + run.bytes.start;
            let number = place.home.post(clock, |home| home.write(from.clone(), to))?;
            sending.last = Some(number);
        }
        Ok(())
    }

    /// Waits until all that was sent is there, says at home which pages have changed, and makes their twins what was
    /// sent.
    fn settle(
        &self,
        extent: &Held,
        place: &Place,
        sending: &mut Sending<'_>,
        clock: &mut Clock,
        released: &mut Released,
    ) -> Result<(), SmcError> {
        arrive(extent, place, sending, clock)?;
        for at in 0..sending.pages.len() {
            let Leaf { page, first, .. } = sending.pages[at];
            let next = sending.pages.get(at + 1).map_or(sending.runs.len(), |leaf| leaf.first);
            if first < next {
                let (page, into) =
                    (place.at_home(extent, page), sending.stage.at + (SENT + at) * 8);
                sending.last = Some(place.home.post(clock, |home| home.post_changed(page, into))?);
            }
        }
        gone(extent, place, sending, clock)?;
        // Whoever acquires does so where it is now.
        extent.is_still_at(place)?;
        while let Some(Leaf { page: _, slot, first }) = sending.pages.pop() {
            if sending.runs.len() > first {
                let number = sending.stage.words[SENT + sending.pages.len()].load(Relaxed);
                let before = Version { number, generation: place.generation };
                self.table.has_announced(slot, before);
            }
            for run in sending.runs.drain(first..) {
                let staged = run.at..run.at + run.bytes.len();
                copy_bytes(sending.stage.words, staged, self.twin(slot), run.bytes.start);
                released.bytes += run.bytes.len() as u64;
                released.writes += 1;
            }
            self.settled(slot);
            self.table.set(slot, State::Resident);
        }
        sending.used = 0;
        Ok(())
    }

    /// Whether words of a slot's page are kept and sent whole: they are of a home that was started again since, by the
    /// generation `now`, and may be there without what was released of them before.
    pub(crate) fn is_whole(&self, extent: &Held, slot: SlotIndex, now: u64) -> bool {
        let then = self.table.version(slot).generation;
        then != now && extent.was_started_again_since(then)
    }

    /// Lets go of pages whose changes are not known to be home: they stay marked, and owe what was sent.
    fn give_up(&self, place: &Place, mut sending: Sending<'_>) {
        if let Some(last) = sending.last {
            sending.stage.keep(&place.home, last);
        }
        for run in sending.runs {
            self.owed.add(run.slot, run.bytes);
        }
        for leaf in sending.pages {
            self.marks.keep(leaf.slot);
            self.table.set(leaf.slot, State::Resident);
        }
    }
}

/// Waits until all that was sent has left this side, and keeps what comes after behind it.
fn arrive(
    extent: &Held,
    place: &Place,
    sending: &mut Sending<'_>,
    clock: &mut Clock,
) -> Result<(), SmcError> {
    if gone(extent, place, sending, clock)? {
        place.home.fence()?;
    }
    Ok(())
}

/// Waits until what was posted last is done. Whether anything was.
fn gone(
    extent: &Held,
    place: &Place,
    sending: &mut Sending<'_>,
    clock: &mut Clock,
) -> Result<bool, SmcError> {
    let Some(last) = sending.last else { return Ok(false) };
    while !place.home.is_done(last)? {
        if !clock.pause() {
            return Err(late(extent, clock.waited()));
        }
    }
    sending.last = None;
    Ok(true)
}

impl Inner {
    /// That a page could not be had hold of in time: a call of this process keeps it, or its home does not answer.
    pub(crate) fn not_had(&self, extent: &Held, id: PageId, clock: &Clock) -> SmcError {
        let (waited, at) = (clock.waited(), id.page() * PAGE);
        match self.table.find(id).map(|slot| self.table.state(slot)) {
            Some(State::Pinned) => SmcError::Occupied { bytes: at..at + PAGE, waited },
            _ => late(extent, waited),
        }
    }
}

pub(crate) fn late(extent: &Held, waited: Duration) -> SmcError {
    SmcError::TimedOut { home: extent.rank(), bytes: extent.bytes(), waited }
}

impl Place {
    /// Which page of its home a page of the extent is.
    pub(crate) fn at_home(&self, extent: &Held, page: usize) -> usize {
        self.first + page - extent.pages.start
    }
}
