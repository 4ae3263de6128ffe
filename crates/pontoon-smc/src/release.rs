//! Release: what was stored to pages goes home, byte for byte, and no byte that was not stored to.
//!
//! A page that was found stored to is marked before it is looked at, and is marked no more only once its bytes
//! are home: whatever fails in between, the next release finds it.

use core::ops::Range;
use std::time::Duration;

use pontoon_hal::paging::{PAGE, PAGE_WORDS};
use pontoon_signal::{Bound, Seq, shim::AtomicU64};

use crate::{
    SmcError,
    bytes::{copy_bytes, diff},
    clock::Clock,
    counts::add,
    extent::{Held, Place, locked},
    pane::Pane,
    pool::{Inner, STAGE, Stage},
    table::{SlotIndex, State},
};

/// Ranges of pages that are asked for at a time.
const RANGES: usize = 64;

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
    /// Whether others have to be told of it.
    changed: bool,
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
        let mut clock = Clock::bound(bound);
        let mut released = Released::default();
        let found = self.find(pane, &pages)?;
        if found.is_empty() {
            return Ok(released);
        }
        let place = extent.place(&mut clock).ok_or_else(|| late(extent, clock.waited()))?;
        let stage = self.stage(&mut clock).ok_or_else(|| late(extent, clock.waited()))?;
        let mut sending = Sending::by(stage);
        let mut sent = Ok(());
        for (page, slot) in found {
            match self.hold(pane, page, slot, &mut clock) {
                Some(true) => {}
                Some(false) => {
                    sent = Err(late(extent, clock.waited()));
                    break;
                }
                None => continue,
            }
            let unannounced = self.marks.unannounced.is_set(slot);
            released.pages += 1;
            sending.pages.push(Leaf { page, slot, changed: unannounced });
            // Of what is written through all is home, and it may not be in its place.
            if !pane.is_guarded(page) {
                let live = pane.paging.words(page);
                sent = self.send(extent, &place, page, slot, live, &mut sending, &mut clock);
            }
            if sent.is_ok() && sending.used + PAGE_WORDS > STAGE / 8 {
                sent = self.settle(extent, &place, &mut sending, &mut clock, &mut released);
            }
            if sent.is_err() {
                break;
            }
        }
        let sent = sent
            .and_then(|()| self.settle(extent, &place, &mut sending, &mut clock, &mut released));
        if sent.is_err() {
            self.give_up(&place, &mut sending);
        }
        add(&pane.counts.dirty, released.pages as usize);
        add(&pane.counts.sent, released.bytes as usize);
        add(&pane.counts.writes, released.writes as usize);
        sent.map(|()| released)
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
        let stage = self.stage(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let (mut sending, mut released) = (Sending::by(stage), Released::default());
        let sent = self.send(extent, &place, page, slot, last, &mut sending, clock);
        let changed = sending.last.is_some() || self.marks.unannounced.is_set(slot);
        let sent =
            sent.and_then(|()| self.arrive(extent, &place, &mut sending, clock, &mut released));
        if sent.is_err() {
            self.give_up(&place, &mut sending);
            return sent;
        }
        if !changed {
            return Ok(());
        }
        // Should this fail the page stays, and the next release says it.
        self.marks.unannounced.set(slot);
        self.marks.unsent.set(slot);
        place.home.changed(place.at_home(extent, page), clock.left())?;
        place.home.flush(clock.left())?;
        self.marks.clear(slot);
        add(&pane.counts.sent, released.bytes as usize);
        add(&pane.counts.writes, released.writes as usize);
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
                self.marks.clear(slot);
                return None;
            }
            if !clock.pause() {
                return Some(false);
            }
        }
        Some(true)
    }

    /// The pages of `pages` that were stored to and are not known to be home, in order, and their slots.
    fn find(&self, pane: &Pane, pages: &Range<usize>) -> Result<Vec<(usize, SlotIndex)>, SmcError> {
        let mut found: [Range<usize>; RANGES] = core::array::from_fn(|_| 0..0);
        let finding = locked(&pane.finding);
        let mut at = pages.start;
        while at < pages.end {
            let written = pane.paging.written(at..pages.end, &mut found)?;
            at = written.next;
            for page in found[..written.ranges].iter().cloned().flatten() {
                if let Some(slot) = self.table.find(pane.id(page)) {
                    self.marks.unsent.set(slot);
                }
            }
        }
        drop(finding);
        Ok(self.unsent(pane, pages))
    }

    /// Those of `pages` that are marked, in order.
    pub(crate) fn unsent(&self, pane: &Pane, pages: &Range<usize>) -> Vec<(usize, SlotIndex)> {
        let marked = self.marks.unsent.slots().map(|slot| (self.table.page(slot), slot));
        let its = marked.filter(|(id, _)| id.window() == pane.window && pages.contains(&id.page()));
        let mut found: Vec<_> = its.map(|(id, slot)| (id.page(), slot)).collect();
        found.sort_unstable_by_key(|&(page, _)| page);
        found
    }

    /// Posts what differs between a page and its twin.
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
        let home_page = place.at_home(extent, page) * PAGE;
        let first = sending.runs.len();
        let (mut used, mut word_in_use) = (sending.used, usize::MAX);
        diff(live, self.twin(slot), |bytes| {
            // Runs that share a word share it in the stage too, so that a page never takes more than its size.
            let word = bytes.start / 8;
            let base = if word == word_in_use { used - 1 } else { used };
            let at = base * 8 + bytes.start % 8;
            used = base + (bytes.end - 1) / 8 - word + 1;
            word_in_use = (bytes.end - 1) / 8;
            copy_bytes(live, bytes.clone(), sending.stage.words, at);
            sending.runs.push(Run { slot, bytes, at });
        });
        sending.used = used;
        if let Some(leaf) = sending.pages.last_mut() {
            leaf.changed |= sending.runs.len() > first;
        }
        for run in &sending.runs[first..] {
            let at = sending.stage.at + run.at;
            let from = at..at + run.bytes.len();
            let to = home_page + run.bytes.start;
            let number = place.home.post(clock, |home| home.write(from.clone(), to))?;
            sending.last = Some(number);
        }
        Ok(())
    }

    /// Waits until all that was sent has left this side, and makes the twins what was sent.
    fn arrive(
        &self,
        extent: &Held,
        place: &Place,
        sending: &mut Sending<'_>,
        clock: &mut Clock,
        released: &mut Released,
    ) -> Result<(), SmcError> {
        if let Some(last) = sending.last {
            while !place.home.is_done(last)? {
                if !clock.pause() {
                    return Err(late(extent, clock.waited()));
                }
            }
        }
        for run in sending.runs.drain(..) {
            let staged = run.at..run.at + run.bytes.len();
            copy_bytes(sending.stage.words, staged, self.twin(run.slot), run.bytes.start);
            released.bytes += run.bytes.len() as u64;
            released.writes += 1;
        }
        if sending.last.take().is_some() {
            place.home.fence()?;
        }
        sending.used = 0;
        Ok(())
    }

    /// As [`arrive`](Self::arrive), and says at home which pages have changed.
    fn settle(
        &self,
        extent: &Held,
        place: &Place,
        sending: &mut Sending<'_>,
        clock: &mut Clock,
        released: &mut Released,
    ) -> Result<(), SmcError> {
        self.arrive(extent, place, sending, clock, released)?;
        for leaf in sending.pages.iter().filter(|leaf| leaf.changed) {
            self.marks.unannounced.set(leaf.slot);
        }
        let left = clock.left();
        while let Some(&Leaf { page, slot, changed }) = sending.pages.last() {
            if changed {
                let known = self.table.version(slot);
                let found = place.home.changed(place.at_home(extent, page), left)?;
                // If it was another by then, somebody else has changed the page too, and it is to be merged.
                if found == known {
                    self.table.set_version(slot, found.wrapping_add(1));
                }
            }
            self.marks.clear(slot);
            self.table.set(slot, State::Resident);
            sending.pages.pop();
        }
        Ok(())
    }

    /// Lets go of pages whose changes are not known to be home: they stay marked.
    fn give_up(&self, place: &Place, sending: &mut Sending<'_>) {
        if let Some(last) = sending.last {
            sending.stage.keep(&place.home, last);
        }
        for leaf in sending.pages.drain(..) {
            self.table.set(leaf.slot, State::Resident);
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
