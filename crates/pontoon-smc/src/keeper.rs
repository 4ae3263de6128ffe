//! The keeper: a thread of the pool that makes room before it is needed, gives back what transfers were late
//! for, and says in the log what went wrong where an access could not.

use std::{sync::Arc, time::Duration};

use pontoon_hal::link::LinkError;
use pontoon_signal::{Bound, Host, Nanos, Os, Seq, shim::Ordering::Relaxed, undisturbed};

use crate::{
    Home,
    clock::Clock,
    close::Closing,
    evict::LOOKS,
    extent::{Held, Place},
    pane::Pane,
    pool::Inner,
    table::{Claim, PageId, SlotIndex, State},
};

/// The longest that it sleeps.
const NAP: Duration = Duration::from_millis(50);
/// How long a page that is to go may take, at most: half as long as an access waits for it.
const A_PAGE: Duration = Duration::from_millis(200);
/// How long a home is listened to that did not answer.
const A_KNOCK: Duration = Duration::from_millis(20);

impl Inner {
    pub(crate) fn keep(&self) {
        let bell = self.bell_slot.uncounted_waiter();
        let mut closing = Closing::default();
        while self.stop.load(Relaxed) == 0 {
            let next = bell.value() + 1;
            self.make_rooms();
            self.give_back_stuck();
            self.stages.sweep();
            for seen in self.panes.all() {
                let Some(pane) = seen.pane() else { continue };
                let is_open = Arc::strong_count(pane) > 1;
                for extent in &pane.extents {
                    self.tell(pane, extent);
                    if is_open {
                        self.see_to(pane, extent);
                    }
                    if extent.has_former() {
                        extent.leave_former(|generation| self.is_late(pane, extent, generation));
                    }
                }
            }
            let is_more = self.close_windows(&mut closing);
            self.leave_homes();
            if is_more {
                continue;
            }
            let _ = bell.wait_ge_bounded(next, Bound::within(NAP).spinning(0)).map(|_| ());
        }
        self.close_last(&mut closing);
    }

    /// What an extent of a window that somebody has needs.
    fn see_to(&self, pane: &Pane, extent: &Held) {
        self.see_to_triggers(pane, extent, &self.a_page());
        if extent.has_moved() {
            self.heal(pane, extent);
        }
        if extent.may_be_sick() {
            self.knock(pane, extent);
        }
    }

    pub(crate) fn a_page(&self) -> Clock {
        Clock::of(A_PAGE.min(self.settings.deadline / 2))
    }

    /// Makes room up to twice the low mark, once it is below.
    pub(crate) fn make_rooms(&self) {
        if let Some(wanted) = PageId::of_number(self.wanted.swap(0, Relaxed)) {
            let mut beside = self.table.beside(wanted);
            beside.any(|slot| self.evict(slot, &mut self.a_page()));
        }
        let low = self.settings.low.max(1);
        if self.table.free() >= low {
            return;
        }
        for _ in 0..self.table.len() {
            if self.table.free() >= 2 * low || self.stop.load(Relaxed) != 0 {
                return;
            }
            self.evict(self.next(), &mut self.a_page());
        }
    }

    /// Frees the slots whose transfers were late, once nothing of them can come any more.
    pub(crate) fn give_back_stuck(&self) {
        for slot in self.table.stuck() {
            let id = self.table.page(slot);
            let (number, generation) = self.table.late(slot);
            // W1: of the window that it was of then.
            let seen = self.panes.at(id.window());
            let extent = seen.pane().and_then(|pane| pane.extent(id.page()));
            let place = extent.and_then(|extent| extent.place_of(generation));
            if place.is_some_and(|Place { home, .. }| home.is_over(number)) {
                self.table.give_back(slot);
                if let Some(extent) = extent {
                    extent.has_answered(1);
                }
            }
        }
    }

    /// Whether transfers of that home of an extent are late.
    fn is_late(&self, pane: &Pane, extent: &Held, generation: u64) -> bool {
        let mut late = self.table.stuck().filter(|&slot| self.table.late(slot).1 == generation);
        late.any(|slot| {
            let id = self.table.page(slot);
            id.window() == pane.window && extent.pages.contains(&id.page())
        })
    }

    /// Writes a line for each burst of accesses that waited in vain.
    fn tell(&self, pane: &Pane, extent: &Held) {
        let health = extent.health();
        let (vain, told) = (health.vain.load(Relaxed), health.told.load(Relaxed));
        let (now, burst) = (Os.now(), Nanos::from(self.settings.burst));
        let told_at = Nanos(health.told_at.load(Relaxed));
        if vain == told || told != 0 && now.since(told_at).0 < burst.0 {
            return;
        }
        health.told.store(vain, Relaxed);
        health.told_at.store(now.0, Relaxed);
        let (home, bytes) = (extent.rank().0, extent.bytes());
        tracing::warn!(
            target: "pontoon::smc",
            home,
            window = pane.window,
            ?bytes,
            accesses = vain - told,
            unavailable = extent.is_unavailable(),
            "accesses waited for pages in vain and read the pattern"
        );
    }

    /// Whether a home that did not answer does; then its extent is healed.
    fn knock(&self, pane: &Pane, extent: &Held) {
        let (health, mut clock) = (extent.health(), Clock::of(A_KNOCK));
        let Some(Place { home, first, generation, .. }) = extent.place(&mut clock) else { return };
        let asked = health.asked.load(Relaxed);
        let number = if asked != 0 && health.asked_of.load(Relaxed) == generation {
            // It is not asked again before it has answered.
            clock = Clock::of(Duration::ZERO);
            Seq::new(asked)
        } else {
            let Ok(number) = self.ask(&home, first) else { return };
            health.asked_of.store(generation, Relaxed);
            number
        };
        let answered = loop {
            match home.is_done(number) {
                Ok(false) if clock.pause() => {}
                other => break other,
            }
        };
        health.asked.store(if answered == Ok(false) { number.get() } else { 0 }, Relaxed);
        if answered == Ok(true) {
            self.heal(pane, extent);
        }
    }

    /// Asks a home for the version of a page. The answer goes where nobody looks, whenever it comes.
    pub(crate) fn ask(&self, home: &Home, page: usize) -> Result<Seq, LinkError> {
        home.read_versions(page, self.nowhere())
    }

    /// Its home answers: the pattern goes, and the next accesses fetch. A page that cannot be had just now is sick yet, and
    /// goes another time.
    pub(crate) fn heal(&self, pane: &Pane, extent: &Held) {
        // Before the first look: who puts the pattern in place, or back, behind it says so after.
        extent.is_healed();
        for slot in self.table.poisoned() {
            let id = self.table.page(slot);
            if id.window() == pane.window && extent.pages.contains(&id.page()) {
                // A handler of the program's may miss that very page.
                undisturbed(|| {
                    if self.table.turn(slot, id, State::Poisoned, State::Leaving) {
                        self.leave_poison(pane, id, slot);
                    }
                });
            }
        }
        for page in pane.patterns(extent, extent.pages.clone()) {
            if !undisturbed(|| self.discard_stray(pane, page)) {
                extent.is_sick();
            }
        }
        if extent.may_be_sick() {
            return;
        }
        let (home, bytes) = (extent.rank().0, extent.bytes());
        let lost = pane.lost.all().filter(|page| extent.pages.contains(page)).count();
        if lost > 0 {
            tracing::warn!(
                target: "pontoon::smc",
                home,
                window = pane.window,
                ?bytes,
                pages = lost,
                "what was stored to pages with the pattern is lost: Window::lost tells which"
            );
        }
        tracing::info!(target: "pontoon::smc", home, window = pane.window, ?bytes, "a home is back");
    }

    /// Takes away the pattern of a page that no table knows of. Whether it is none any more.
    fn discard_stray(&self, pane: &Pane, page: usize) -> bool {
        let id = pane.id(page);
        // Claimed, so that nobody fetches it meanwhile; there was no room once, and may be none now.
        let slot = match self.table.claim(id) {
            Claim::Mine(slot) => slot,
            Claim::Found(slot) => return self.outgrow(pane, id, slot),
            Claim::Locked => return false,
            Claim::NoSlot | Claim::Crowded => {
                let mut clock = self.a_page();
                let any = (0..LOOKS.min(self.table.len())).map(|_| self.next());
                let gone =
                    self.table.beside(id).chain(any).any(|slot| self.evict(slot, &mut clock));
                match self.table.claim(id) {
                    Claim::Mine(slot) if gone => slot,
                    Claim::Mine(slot) => {
                        self.drop_claim(id, slot);
                        return false;
                    }
                    _ => return false,
                }
            }
        };
        let gone = pane.take_pattern(page);
        self.drop_claim(id, slot);
        gone
    }

    fn drop_claim(&self, id: PageId, slot: SlotIndex) {
        self.table.forget(id, slot);
        self.table.give_back(slot);
    }

    /// A page that holds the pattern is in its table by now. Whether it is no stray any more.
    fn outgrow(&self, pane: &Pane, id: PageId, slot: SlotIndex) -> bool {
        if self.table.state(slot) == State::Poisoned {
            return true;
        }
        // Who fetches it puts it in place of the pattern, or fails to; and who takes it away puts it back.
        if !self.table.turn(slot, id, State::Resident, State::Busy) {
            return false;
        }
        // It may have been in its slot alone, as stores that are written through leave it: then the next access finds that.
        let has_none = pane.take_any_pattern(id.page());
        self.table.set(slot, State::Resident);
        has_none
    }
}
