//! Accesses that must be ordered and are not.
//!
//! First every access, in the order of the run, is held against the last ones of its bytes, which
//! tells for each byte whether all is well. Only where it is not are all pairs looked at, since the
//! earliest pair by the program's order may be one that the run came to later.
//!
//! Invariant H1: while a byte is well, each of `now` comes after each of `before`, which comes after
//! all that conflicted with it; so what comes after all of `now` comes after everything.

use std::ops::Range;

use super::{
    finding::{Hazard, HazardKind},
    order::{Order, Relation},
    program::BufferId,
    run::{Run, Step},
    touch::{Company, Effect, Touch},
};
use crate::intervals::Intervals;

/// Of one byte, what was done to it last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Last {
    /// What conflicts with all of `now`, and ended before.
    before: Vec<(usize, Effect)>,
    /// What was done since, none of it in conflict with the rest.
    now: Vec<(usize, Effect)>,
    /// The last entry, in the program's order, that freed the byte.
    free: Option<usize>,
    /// Whether all pairs must be looked at.
    wrong: bool,
}

/// The hazards among the touches of one allocation.
pub(super) fn hazards(
    run: &Run<'_>,
    order: &Order<'_>,
    ranks: &[usize],
    allocation: BufferId,
    touches: &[Touch],
) -> Vec<Hazard> {
    let size = run.program.buffers[allocation.0].size;
    let mut last = Intervals::<Last>::new(size);
    let mut by_run: Vec<_> = touches.iter().filter(|touch| order.has(touch.entry)).collect();
    by_run.sort_by_key(|touch| ranks[touch.entry]);
    for touch in by_run {
        last.update(touch.range.clone(), |_, last| last.take(order, touch));
    }
    for touch in touches.iter().filter(|touch| !touch.freed_by.is_empty()) {
        last.update(touch.range.clone(), |_, last| last.wrong = true);
    }
    let mut wrong = Vec::<Range<u64>>::new();
    last.update(0..size, |range, last| {
        if last.wrong {
            match wrong.last_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => wrong.push(range),
            }
        }
    });
    let pairs = Pairs { order, ranks, allocation };
    wrong.into_iter().flat_map(|range| pairs.of(&range, touches)).collect()
}

/// Of each entry, when the run came to it.
pub(super) fn ranks(run: &Run<'_>) -> Vec<usize> {
    let mut ranks = vec![usize::MAX; run.program.entries.len()];
    for (rank, step) in run.steps.iter().enumerate() {
        match step {
            Step::Host(at) => ranks[*at] = rank,
            Step::Run(group) => group.iter().for_each(|&at| ranks[at] = rank),
            Step::Submit(_) => {}
        }
    }
    ranks
}

impl Last {
    fn take(&mut self, order: &Order<'_>, touch: &Touch) {
        let own = (touch.entry, touch.effect);
        // A command that only starts after the free has not been seen to end before it.
        self.wrong |= self.free.is_some_and(|free| free > touch.entry);
        if touch.is_free {
            self.free = self.free.max(Some(touch.entry));
        }
        if self.wrong {
            return;
        }
        let joins = touch.effect.company() != Company::Alone
            && self.now.iter().all(|(_, effect)| effect.company() == touch.effect.company());
        let against = if joins { &self.before } else { &self.now };
        let well =
            |&(at, _): &(usize, Effect)| order.relation(at, touch.entry) == Relation::Ordered;
        if !against.iter().all(well) {
            self.wrong = true;
            self.before.clear();
            self.now.clear();
        } else if joins {
            self.now.retain(|&(at, _)| order.relation(at, touch.entry) != Relation::Ordered);
            self.now.push(own);
        } else {
            self.before = std::mem::replace(&mut self.now, vec![own]);
        }
    }
}

/// Looks at all pairs.
struct Pairs<'a> {
    order: &'a Order<'a>,
    ranks: &'a [usize],
    allocation: BufferId,
}

impl Pairs<'_> {
    /// The hazards of a range: of each byte the earliest pair.
    fn of(&self, range: &Range<u64>, touches: &[Touch]) -> Vec<Hazard> {
        let near: Vec<_> = touches
            .iter()
            .filter(|touch| touch.range.start < range.end && range.start < touch.range.end)
            .collect();
        let mut bounds: Vec<_> =
            near.iter().flat_map(|touch| [touch.range.start, touch.range.end]).collect();
        bounds.retain(|bound| range.contains(bound));
        bounds.extend([range.start, range.end]);
        bounds.sort_unstable();
        bounds.dedup();
        let mut found = Vec::<Hazard>::new();
        for pair in bounds.windows(2) {
            let here: Vec<_> = near
                .iter()
                .copied()
                .filter(|touch| touch.range.start <= pair[0] && pair[1] <= touch.range.end)
                .collect();
            let Some(hazard) = self.earliest(pair[0]..pair[1], &here) else { continue };
            match found.last_mut() {
                Some(last) if last.goes_on(&hazard) => {
                    last.range.end = hazard.range.end;
                    last.more = last.more.max(hazard.more);
                }
                _ => found.push(hazard),
            }
        }
        found
    }

    /// The earliest of the pairs that touch the same bytes, and how many others there are.
    fn earliest(&self, range: Range<u64>, here: &[&Touch]) -> Option<Hazard> {
        let mut earliest: Option<Hazard> = None;
        for (place, second) in here.iter().enumerate() {
            for first in &here[..place] {
                let Some(kind) = self.kind(first, second) else { continue };
                if let Some(earliest) = &mut earliest {
                    earliest.more += 1;
                    continue;
                }
                earliest = Some(Hazard {
                    kind,
                    buffer: self.allocation,
                    range: range.clone(),
                    first: first.entry,
                    second: second.entry,
                    more: 0,
                });
            }
        }
        earliest
    }

    /// What is wrong with a pair, of which `first` comes first in the program.
    fn kind(&self, first: &Touch, second: &Touch) -> Option<HazardKind> {
        if second.freed_by.binary_search(&first.entry).is_ok() {
            return Some(HazardKind::UseAfterFree);
        }
        let both = [first, second].iter().all(|touch| self.order.has(touch.entry));
        if !both || !first.effect.conflicts(second.effect) {
            return None;
        }
        let kind = match (first.effect.writes(), second.effect.writes()) {
            (true, true) => HazardKind::WriteAfterWrite,
            (true, false) => HazardKind::ReadAfterWrite,
            _ => HazardKind::WriteAfterRead,
        };
        let forwards = second.is_free || self.ranks[first.entry] <= self.ranks[second.entry];
        let relation = if forwards {
            self.order.relation(first.entry, second.entry)
        } else {
            self.order.relation(second.entry, first.entry)
        };
        match relation {
            Relation::Ordered | Relation::Chained => None,
            Relation::Unseen => Some(HazardKind::Visibility),
            Relation::Unordered => Some(kind),
        }
    }
}
