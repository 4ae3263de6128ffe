//! Releases that nobody asked for: of pages of which much was changed, or because many were.

use core::ops::Range;

use pontoon_hal::paging::PAGE;
use pontoon_signal::shim::Ordering::Relaxed;

use crate::{
    Triggers,
    bytes::diff,
    clock::Clock,
    counts::add,
    extent::Held,
    pane::Pane,
    pool::Inner,
    table::{SlotIndex, State},
};

impl Inner {
    /// Releases pages of an extent whose changes are many by now, as far as that takes no longer than `clock` has. What
    /// does not go home is kept, as by any release.
    pub(crate) fn see_to_triggers(&self, pane: &Pane, extent: &Held, clock: &Clock) {
        let triggers = self.settings.triggers;
        if triggers.is_none() || extent.uncached || extent.read_only || extent.is_unavailable() {
            return;
        }
        let Ok(found) = self.find(pane, &extent.pages) else { return };
        // One that somebody holds is left to them: this waits for nobody.
        let idle = |slot| self.table.state(slot) == State::Resident;
        let found: Vec<_> = found.into_iter().filter(|&(_, slot)| idle(slot)).collect();
        let many = triggers.pages.is_some_and(|pages| found.len() >= pages);
        let full = |&(page, slot): &(usize, SlotIndex)| {
            many || triggers.bytes.is_some_and(|bytes| self.changed(pane, page, slot) >= bytes)
        };
        let ripe = found.into_iter().filter(full).map(|(page, _)| page);
        for pages in runs(ripe) {
            if clock.is_over() || self.stop.load(Relaxed) != 0 {
                return;
            }
            add(&pane.counts.triggered, pages.len());
            if let Err(error) = self.release(pane, extent, pages.clone(), clock.left()) {
                tracing::debug!(
                    target: "pontoon::smc",
                    home = extent.rank().0,
                    window = pane.window,
                    bytes = ?(pages.start * PAGE..pages.end * PAGE),
                    %error,
                    "pages that were to go home by themselves did not; the next release sends them"
                );
                return;
            }
        }
    }

    /// How many bytes of a page were changed, as far as nobody holds it.
    fn changed(&self, pane: &Pane, page: usize, slot: SlotIndex) -> usize {
        let id = pane.id(page);
        if pane.is_guarded(page) || !self.table.turn(slot, id, State::Resident, State::Busy) {
            return 0;
        }
        let mut changed = 0;
        let mut count = |live: &[_]| {
            diff(live, self.twin(slot), |bytes| changed += bytes.len());
            true
        };
        // One that cannot be looked at goes home when it can.
        let _ = pane.paging.look(page, &mut count);
        self.table.set(slot, State::Resident);
        changed
    }
}

impl Triggers {
    fn is_none(self) -> bool {
        self.bytes.is_none() && self.pages.is_none()
    }
}

/// Those pages, in order, as ranges.
fn runs(pages: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}
