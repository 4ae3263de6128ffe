//! A miss: a page that an access did not find is fetched, and with it those that will be asked for next.
//!
//! This runs where the access faults, in a signal handler: nothing here allocates, or waits for what the same
//! thread may hold.

use arrayvec::ArrayVec;
use pontoon_hal::{
    link::LinkError,
    paging::{PAGE, PageFault, Pager, Served},
};
use pontoon_signal::{Block, Seq};

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    counts::add,
    extent::{Held, Place},
    pane::Pane,
    pool::Inner,
    stream::Ahead,
    table::{Claim, PageId, SlotIndex, State, Version},
};

/// How long an access that has waited behind others for as long as it may is given all the same: home may answer, and they
/// may have waited for another.
const A_CHANCE: Duration = Duration::from_millis(10);
/// Pages that are fetched at once.
const BATCH: usize = 64;

type Batch = ArrayVec<(PageId, SlotIndex), BATCH>;

/// Whom a window's accesses ask.
pub(crate) struct Service {
    pub(crate) pool: Arc<Inner>,
    pub(crate) pane: Arc<Pane>,
}

impl Pager for Service {
    fn fault(&self, fault: PageFault) -> Served {
        self.pool.fault(&self.pane, fault, Duration::ZERO)
    }

    fn fault_after(&self, fault: PageFault, waited: Duration) -> Served {
        self.pool.fault(&self.pane, fault, waited)
    }
}

/// Why pages did not come.
enum Missed {
    /// In time. Those up to that number, from that home, may come yet.
    Late(Seq, Place),
    /// By what the link says: nothing of it will come.
    Failed(LinkError),
    /// Nobody could say in time where home is, and nothing was asked for.
    Nowhere,
}

impl Inner {
    fn fault(&self, pane: &Pane, fault: PageFault, waited: Duration) -> Served {
        let extent = pane.extent(fault.page).filter(|extent| !extent.uncached);
        let Some(extent) = extent else { return Served::Refused };
        let deadline = self.settings.deadline;
        let spent = waited.min(deadline.saturating_sub(A_CHANCE));
        let (id, mut clock) = (pane.id(fault.page), Clock::of(deadline).after(spent));
        // What somebody has hold of may take that much more, and whoever that is has a bound of its own.
        let mut more = Some(deadline / 2);
        add(&pane.counts.misses, 1);
        loop {
            let mut is_held = false;
            if extent.is_unavailable() && self.table.find(id).is_none() && !extent.fall_back() {
                return self.poison(pane, extent, id);
            }
            // It has not answered for as many as it may be asked for.
            let is_waited_for = extent.asked() >= self.asked_most();
            if is_waited_for && self.table.find(id).is_none() {
                if clock.pause() {
                    continue;
                }
                extent.failed(&self.settings);
                return self.poison(pane, extent, id);
            }
            match self.table.claim(id) {
                Claim::Mine(slot) => return self.fetch(pane, extent, id, slot, &mut clock),
                Claim::Found(slot) => {
                    if self.put_again(pane, extent, id, slot, &mut clock) {
                        return Served::Again;
                    }
                    is_held = true;
                }
                Claim::NoSlot => {
                    if !self.make_room() {
                        // It is the keeper's now, which may need this processor.
                        clock.give_way();
                    }
                }
                Claim::Crowded => {
                    if !self.make_room_beside(id) {
                        clock.give_way();
                    }
                }
                Claim::Locked => is_held = true,
            }
            if !clock.pause() {
                if is_held {
                    match more.take() {
                        Some(more) => clock.extend(more),
                        None => return self.patch(pane, extent, id),
                    }
                    continue;
                }
                // The pool is full of pages that cannot go: no fault of this home.
                return self.poison(pane, extent, id);
            }
        }
    }

    /// The most pages that an extent's home may be asked for and not have answered for: the rest of the pool is for
    /// others, should it not answer at all.
    fn asked_most(&self) -> usize {
        self.table.len() / 2
    }

    /// A page that is resident, and yet was missed: it came meanwhile, or somebody else took it away. Whether it is
    /// in place.
    pub(crate) fn put_again(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> bool {
        for (state, is_poison) in [(State::Resident, false), (State::Poisoned, true)] {
            if self.table.turn(slot, id, state, State::Busy) {
                let page = id.page();
                let placed = match is_poison {
                    true => pane.paging.place(page, &extent.poison, &mut |_| ()).map(|()| true),
                    false => self.put_back(pane, extent, page, slot, clock),
                };
                if placed == Ok(false) {
                    return false;
                }
                self.table.set(slot, state);
                if is_poison {
                    // Whoever healed the extent meanwhile has passed it over.
                    extent.is_sick();
                }
                return placed.is_ok();
            }
        }
        false
    }

    /// Fetches a page into its slot, with those that belong to it.
    fn fetch(
        &self,
        pane: &Pane,
        extent: &Held,
        id: PageId,
        slot: SlotIndex,
        clock: &mut Clock,
    ) -> Served {
        let mut batch = Batch::new();
        batch.push((id, slot));
        self.add_neighbours(pane, extent, id.page(), &mut batch);
        // Of pages that had these slots before, and had gone home.
        batch.iter().for_each(|&(_, slot)| self.marks.clear(slot));
        extent.ask_for(batch.len());
        let place = extent.place(clock);
        let asked = place.as_ref().map(|place| place.generation);
        let brought = match place {
            Some(place) => self.bring(extent, &place, &batch, clock).map(|()| place),
            None => Err(Missed::Nowhere),
        };
        match brought {
            Ok(place) => {
                extent.has_answered(batch.len());
                add(&pane.counts.fetched, batch.len());
                add(&pane.counts.ahead, batch.len() - 1);
                let placed = self.put_in_place(pane, extent, &place, &batch);
                if self.table.free() < self.settings.low {
                    self.ring();
                }
                if placed {
                    return Served::Again;
                }
                // Its memory may be nobody's any more, since it answered.
                if self.origin(extent, &place, id.page(), slot, 1).is_none() {
                    return self.in_vain(pane, extent, id, asked, true);
                }
                self.poison(pane, extent, id)
            }
            Err(missed) => {
                for &(id, slot) in &batch {
                    self.table.forget(id, slot);
                    if let Missed::Late(number, place) = &missed {
                        // What was asked for may come yet: nobody else has the slot until then.
                        self.table.set_late(slot, *number, place.generation);
                    } else {
                        self.table.give_back(slot);
                        extent.has_answered(1);
                    }
                }
                let gone = matches!(missed, Missed::Failed(LinkError::PeerDead { .. }));
                self.in_vain(pane, extent, id, asked, gone)
            }
        }
    }

    /// Claims what is worth fetching with a page, as far as there is room.
    fn add_neighbours(&self, pane: &Pane, extent: &Held, page: usize, batch: &mut Batch) {
        let quarter = (self.table.len() / 4).saturating_sub(extent.asked()).max(1);
        let most = self.settings.ahead.min(BATCH).min(quarter);
        let Ahead { step, depth } = pane.streams.missed(page, most);
        // In a small pool a large group would push itself out.
        let group = extent.group_of(page, BATCH.min(quarter));
        let grouped = group.clone().filter(|&other| other != page);
        let ahead = (1..depth as i64).map(|k| page as i64 + k * step);
        let ahead = ahead.filter_map(|page| usize::try_from(page).ok());
        let ahead = ahead.filter(|page| extent.pages.contains(page) && !group.contains(page));
        for page in grouped.chain(ahead) {
            if batch.len() >= most.max(group.len()).min(quarter).min(BATCH) {
                return;
            }
            let id = pane.id(page);
            let mut claim = self.table.claim(id);
            if claim == Claim::NoSlot && self.make_room() {
                claim = self.table.claim(id);
            }
            match claim {
                Claim::Mine(slot) => batch.push((id, slot)),
                Claim::Found(_) | Claim::Crowded | Claim::Locked => {}
                Claim::NoSlot => return,
            }
        }
    }

    /// Has the pages of a batch read into their slots, but for those that are put in place from elsewhere, and their
    /// versions before.
    fn bring(
        &self,
        extent: &Held,
        place: &Place,
        batch: &Batch,
        clock: &mut Clock,
    ) -> Result<(), Missed> {
        let Place { home, generation, .. } = place;
        let at_home = |id: PageId| place.at_home(extent, id.page());
        let late = |number| Missed::Late(number, place.clone());
        let mut read = || -> Result<Option<Seq>, (LinkError, Option<Seq>)> {
            let mut last = None;
            for run in runs(batch) {
                let (id, slot) = batch[run.start];
                let versions = self.version_bytes(slot, run.len());
                let read =
                    home.post(clock, |home| home.read_versions(at_home(id), versions.clone()));
                last = Some(read.map_err(|error| (error, last))?);
            }
            home.fence().map_err(|error| (error, last))?;
            for run in runs(batch).filter(|_| !place.is_direct(extent)) {
                let (id, slot) = batch[run.start];
                let bytes =
                    Self::twin_bytes(slot).start..Self::twin_bytes(slot).start + run.len() * PAGE;
                let read = home.post(clock, |home| home.read(at_home(id) * PAGE, bytes.clone()));
                last = Some(read.map_err(|error| (error, last))?);
            }
            Ok(last)
        };
        let last = match read() {
            Ok(Some(last)) => last,
            Ok(None) => return Ok(()),
            Err((error, None)) => return Err(Missed::Failed(error)),
            Err((_, Some(posted))) => return Err(late(posted)),
        };
        loop {
            match home.is_done(last) {
                Ok(true) => break,
                Ok(false) => {
                    if !clock.pause() {
                        return Err(late(last));
                    }
                }
                Err(_) => return Err(late(last)),
            }
        }
        for &(_, slot) in batch {
            let (number, generation) = (self.landed_version(slot), *generation);
            self.table.set_version(slot, Version { number, generation });
        }
        Ok(())
    }

    /// Puts what was fetched in its place. Whether the first page is there.
    fn put_in_place(&self, pane: &Pane, extent: &Held, place: &Place, batch: &Batch) -> bool {
        let origin = |page, slot, count| self.origin(extent, place, page, slot, count);
        let paging = &pane.paging;
        let mut first_is_there = true;
        for run in runs(batch) {
            let (first, slot) = batch[run.start];
            // What is there already is nobody's: the pattern of a time without room.
            let mut strays = ArrayVec::<usize, BATCH>::new();
            let placed = origin(first.page(), slot, run.len()).is_some_and(|from| {
                let mut stray = |page| strays.push(page);
                paging.place(first.page(), &from, &mut stray).is_ok()
            });
            for at in run {
                let (id, slot) = batch[at];
                let page = id.page();
                let there = match placed {
                    _ if strays.contains(&page) => {
                        replace(pane, page, origin(page, slot, 1).as_ref())
                    }
                    true => true,
                    false => place_one(pane, extent, page, origin(page, slot, 1)),
                };
                if there {
                    self.table.set(slot, State::Resident);
                } else {
                    first_is_there &= at != 0;
                    self.table.forget(id, slot);
                    self.table.give_back(slot);
                }
            }
        }
        first_is_there
    }
}

/// Puts a page in its place that may be there already, as it was put there with others of which one could not be: then
/// threads use it. Whether it is there.
fn place_one(pane: &Pane, extent: &Held, page: usize, from: Option<Block>) -> bool {
    if pane.has_pattern(page) {
        return replace(pane, page, from.as_ref());
    }
    if from.is_some_and(|from| pane.paging.place(page, &from, &mut |_| ()).is_ok()) {
        return true;
    }
    // Nobody knows whether it is there: it must not be where the table knows of no such page.
    pane.drop_unknown(extent, page);
    false
}

/// Puts a page in the place of the pattern. Whether it is there. To be asked for undisturbed.
pub(crate) fn replace(pane: &Pane, page: usize, from: Option<&Block>) -> bool {
    let Some(from) = from else { return false };
    let mut is_other = false;
    let paging = &pane.paging;
    pane.take_pattern(page)
        && paging.place(page, from, &mut |_| is_other = true).is_ok()
        && !is_other
}

/// The runs of a batch whose pages and slots follow each other.
fn runs(batch: &Batch) -> impl Iterator<Item = core::ops::Range<usize>> + '_ {
    let mut start = 0;
    core::iter::from_fn(move || {
        let first = start;
        let (mut id, mut slot) = *batch.get(first)?;
        start += 1;
        while let Some(&(next, beside)) = batch.get(start)
            && next.page() == id.page() + 1
            && beside.0 == slot.0 + 1
        {
            (id, slot) = (next, beside);
            start += 1;
        }
        Some(first..start)
    })
}
