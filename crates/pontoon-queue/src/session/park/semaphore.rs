//! Semaphores: names for positions of lanes, by value.

use std::{collections::VecDeque, sync::Arc};

use pontoon_hal::Device;

use super::{Abandoned, Foreign, Refusal, Resolved, SemaphoreId, Session};
use crate::{
    Axis,
    acyclic::Node,
    batch::{Step, StepOf, WaitFor},
    tracker::HOST,
};

/// A counter that batches wait for and signal. Its values are given out at submit, each to one
/// position of one lane; devices never see it.
#[derive(Debug)]
pub(in crate::session) struct Semaphore {
    pub(super) label: Arc<str>,
    /// Values and the positions that signal them, growing.
    pub(super) reached: Vec<(u64, Axis, u64)>,
    /// With so many it is looked which ones nobody can tell apart.
    compact_at: usize,
    /// Values that parked batches will signal, growing.
    pub(super) promised: VecDeque<(u64, Node)>,
    /// Values that parked batches wait for and nobody has promised.
    pub(super) wanted: Vec<(u64, Node)>,
    /// The highest value reached or promised.
    pub(super) last: u64,
    closed: bool,
    /// The highest value promised by who was given up, until somebody signals it anew.
    broken: Option<(u64, Arc<Abandoned>)>,
}

const COMPACT_AT_LEAST: usize = 16;

impl Semaphore {
    /// The highest value that devices or the host have been given the signal of.
    pub(super) fn value(&self) -> u64 {
        self.reached.last().map_or(0, |&(value, ..)| value)
    }

    /// Who will signal the first value that is enough.
    pub(super) fn promiser(&self, value: u64) -> Option<Node> {
        let enough = self.promised.iter().find(|(promised, _)| *promised >= value);
        enough.map(|&(_, node)| node)
    }

    /// A parked batch is to signal it.
    pub(super) fn promise(&mut self, to: u64, node: Node) {
        self.promised.push_back((to, node));
        self.last = self.last.max(to);
    }

    /// Somebody signals it anew: what was promised and broken before no longer counts.
    pub(super) fn renew(&mut self) {
        self.broken = None;
    }

    /// Forgets what a batch promised; whether it had promised something.
    pub(super) fn unpromise(&mut self, node: Node) -> bool {
        let before = self.promised.len();
        self.promised.retain(|&(_, promiser)| promiser != node);
        self.recount();
        self.promised.len() != before
    }

    /// Notes that who promised something was given up.
    pub(super) fn break_promise(&mut self, node: Node, why: &Arc<Abandoned>) {
        let mut promised = self.promised.iter().filter(|(_, promiser)| *promiser == node);
        if let Some(&(value, _)) = promised.next_back()
            && self.broken.as_ref().is_none_or(|&(broken, _)| broken < value)
        {
            self.broken = Some((value, Arc::clone(why)));
        }
    }

    fn recount(&mut self) {
        let promised = self.promised.back().map_or(0, |&(value, _)| value);
        self.last = self.value().max(promised);
    }
}

impl<D: Device> Session<'_, D> {
    /// Makes a semaphore at value 0.
    pub fn semaphore(&mut self, label: &str) -> SemaphoreId {
        self.semaphores.push(Semaphore {
            label: Arc::from(label),
            reached: Vec::new(),
            compact_at: COMPACT_AT_LEAST,
            promised: VecDeque::new(),
            wanted: Vec::new(),
            last: 0,
            closed: false,
            broken: None,
        });
        SemaphoreId::new(self.id, self.semaphores.len() - 1)
    }

    /// Moves a semaphore to `value` from the host.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotGrowing`], [`Refusal::Foreign`]; [`Refusal::Promised`] while a parked batch is
    /// to signal it.
    pub fn signal(&mut self, semaphore: SemaphoreId, value: u64) -> Result<(), Refusal> {
        self.may_signal(semaphore, value, &[])?;
        let at = &self.semaphores[semaphore.index as usize];
        if let Some(&(promised, node)) = at.promised.front() {
            let semaphore = Arc::clone(&at.label);
            let by = self.name(node);
            return Err(Refusal::Promised { semaphore, by, promised, to: value });
        }
        let events = self.tracker.events(HOST);
        self.signalled(semaphore, value, HOST, events);
        self.pump();
        Ok(())
    }

    /// Says that nobody will signal the semaphore any more. What waits for more than it got to fails
    /// at once.
    ///
    /// # Errors
    ///
    /// [`Foreign`].
    pub fn close(&mut self, semaphore: SemaphoreId) -> Result<(), Foreign> {
        let at = semaphore.in_session(self.id)?;
        self.semaphores[at].closed = true;
        self.parked.is_suspect = true;
        self.pump();
        Ok(())
    }

    /// Whether a parked batch waits for a signal of `steps`.
    pub(in crate::session) fn unblocks(&self, steps: &[StepOf<D>]) -> bool {
        !self.parked.is_empty()
            && steps.iter().any(|step| match step {
                Step::Signal(semaphore, to) => {
                    let semaphore = self.semaphores.get(semaphore.index as usize);
                    semaphore.is_some_and(|it| it.wanted.iter().any(|&(value, _)| value <= *to))
                }
                _ => false,
            })
    }

    /// Refuses a signal that would not make a semaphore grow, if it comes after `before`.
    pub(in crate::session) fn may_signal(
        &self,
        semaphore: SemaphoreId,
        to: u64,
        before: &[StepOf<D>],
    ) -> Result<(), Refusal> {
        let it = &self.semaphores[semaphore.in_session(self.id)?];
        let own = before.iter().rev().find_map(|step| match step {
            Step::Signal(other, value) if *other == semaphore => Some(*value),
            _ => None,
        });
        let at = own.unwrap_or_else(|| it.value());
        if to <= at {
            return Err(Refusal::NotGrowing { semaphore: Arc::clone(&it.label), at, to });
        }
        Ok(())
    }

    /// The signals of a semaphore take effect in the order in which they were submitted.
    pub(super) fn promises_grow(&self, steps: &[StepOf<D>]) -> Result<(), Refusal> {
        for (at, step) in steps.iter().enumerate() {
            let &Step::Signal(id, to) = step else { continue };
            let it = &self.semaphores[id.in_session(self.id)?];
            let before = steps[..at].iter().filter_map(|step| match step {
                Step::Signal(other, value) if *other == id => Some(*value),
                _ => None,
            });
            let last = before.max().unwrap_or(0).max(it.last);
            if to <= last {
                return Err(Refusal::NotGrowing { semaphore: Arc::clone(&it.label), at: last, to });
            }
        }
        Ok(())
    }

    /// Whether a parked batch is to signal one of these semaphores first.
    pub(super) fn promised_before(&self, steps: &[StepOf<D>]) -> bool {
        steps.iter().any(|step| match step {
            Step::Signal(id, _) => !self.semaphores[id.index as usize].promised.is_empty(),
            _ => false,
        })
    }

    pub(in crate::session) fn signalled(
        &mut self,
        semaphore: SemaphoreId,
        to: u64,
        axis: Axis,
        count: u64,
    ) {
        let it = &mut self.semaphores[semaphore.index as usize];
        if it.promised.front().is_none_or(|&(first, _)| first != to) {
            it.renew();
        }
        it.reached.push((to, axis, count));
        if it.reached.len() >= it.compact_at {
            let tracker = &self.tracker;
            compact(&mut it.reached, |axis, count| {
                axis == HOST || tracker.host_knows(axis) >= count
            });
            it.compact_at = (2 * it.reached.len()).max(COMPACT_AT_LEAST);
        }
        it.last = it.last.max(to);
        // What later signals are for.
        it.wanted.retain(|&(value, _)| value > to);
    }

    pub(in crate::session) fn resolve_semaphore(
        &self,
        semaphore: SemaphoreId,
        value: u64,
    ) -> Result<Resolved, Refusal> {
        let it = &self.semaphores[semaphore.in_session(self.id)?];
        if value == 0 {
            return Ok(Resolved::Nothing);
        }
        let at = it.reached.partition_point(|&(reached, ..)| reached < value);
        let is_promised = it.promised.back().is_some_and(|&(last, _)| last >= value);
        let broken = it.broken.as_ref().filter(|&&(broken, _)| value <= broken);
        match it.reached.get(at) {
            Some(&(_, HOST, _) | &(_, _, 0)) => Ok(Resolved::Nothing),
            Some(&(_, axis, count)) => Ok(Resolved::At(axis, count)),
            None if is_promised => Ok(Resolved::Open),
            None if let Some((_, why)) = broken => Err(Refusal::Abandoned(Arc::clone(why))),
            None if it.closed => {
                let (semaphore, at) = (Arc::clone(&it.label), it.value());
                Err(Refusal::Closed { semaphore, at, wanted: value })
            }
            None => Ok(Resolved::Open),
        }
    }

    /// Finds anew whom those wait for who waited for what nobody makes any more. Some of them may be
    /// promised more by a batch that waits for them: that circle is noted.
    pub(in crate::session) fn want_again(&mut self) {
        let super::Parked { parcels, graph, stuck, .. } = &mut self.parked;
        for (&node, parcel) in parcels.iter() {
            for step in &parcel.steps {
                let Step::Wait(WaitFor::Semaphore(id, value)) = step else { continue };
                let it = &mut self.semaphores[id.index as usize];
                if it.value() >= *value || it.wanted.contains(&(*value, node)) {
                    continue;
                }
                match it.promiser(*value) {
                    None => it.wanted.push((*value, node)),
                    Some(promiser) => {
                        if let Err(cycle) = graph.order(promiser, parcel.entry) {
                            stuck.push((node, cycle.path));
                        }
                    }
                }
            }
        }
    }

    /// Takes back the signals that a lane was to make after its first `completed` events: who waits
    /// for them waits for them to be submitted again.
    pub(in crate::session) fn take_back_signals(&mut self, lane: usize, completed: u64) {
        for semaphore in &mut self.semaphores {
            let (before, own) = (semaphore.reached.len(), Self::axis(lane));
            semaphore.reached.retain(|&(_, at, count)| at != own || count <= completed);
            if semaphore.reached.len() != before {
                semaphore.recount();
            }
        }
        self.want_again();
    }

    /// Whether a signal would be refused because the semaphore has got there by others.
    pub(in crate::session) fn is_signalled(&self, semaphore: SemaphoreId, value: u64) -> bool {
        let it = self.semaphores.get(semaphore.index as usize);
        it.is_some_and(|it| it.value() >= value)
    }
}

/// Drops signals that a wait cannot tell from the next one: those of the same position, and those
/// that the host knows if it knows the next one too, since whoever waits knows both.
///
/// What is left is bounded: at most one known signal between two unknown positions, and a lane has
/// no more of those than its queue is deep, and what the session is patient to learn. Whether an
/// unknown one happens to be over must not count: then a wait for it would come after the next one,
/// and what `Check` accepts would depend on luck.
fn compact(reached: &mut Vec<(u64, Axis, u64)>, is_known: impl Fn(Axis, u64) -> bool) {
    reached.dedup_by(|later, kept| {
        let known = is_known(kept.1, kept.2) && is_known(later.1, later.2);
        let same = known || (kept.1, kept.2) == (later.1, later.2);
        if same {
            *kept = *later;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_cpu::{CpuDevice, CpuSpec};
    use pontoon_hal::Engine;
    use pontoon_signal::Rank;

    use super::compact;
    use crate::{Axis, Edges, Patience, Session};

    #[test]
    fn signals_that_waits_can_tell_apart_are_kept() {
        let [a, b] = [Axis(1), Axis(2)];
        let mut all = vec![(1, a, 1), (2, b, 1), (3, a, 2), (5, a, 2), (6, b, 9), (7, a, 9)];
        compact(&mut all, |axis, count| count <= if axis == a { 1 } else { 2 });
        assert_eq!(all, [(2, b, 1), (5, a, 2), (6, b, 9), (7, a, 9)]);
        compact(&mut all, |axis, _| axis == a);
        assert_eq!(all, [(2, b, 1), (5, a, 2), (6, b, 9), (7, a, 9)]);
        compact(&mut all, |_, _| true);
        assert_eq!(all, [(7, a, 9)]);
    }

    #[test]
    fn signals_of_several_lanes_do_not_pile_up() {
        let device = CpuDevice::open(Rank(0), CpuSpec { depth: 8, ..CpuSpec::default() }).unwrap();
        let patience = Patience::within(Duration::from_secs(30));
        for edges in [Edges::Auto, Edges::Check, Edges::Trust] {
            let mut session = Session::<CpuDevice>::new(edges).with_patience(patience);
            let streams =
                [0, 1].map(|_| session.stream(&device, Engine::Compute, "stream").unwrap());
            let nothing = pontoon_cpu::Kernel::new(|_| {});
            let x = session.semaphore("x");
            for value in 1..=20_000 {
                // The first signals once, and the host never waits for it.
                let mut batch = session.batch();
                batch.launch("work", &nothing, [], []).signal(x, value);
                let stream = streams[usize::from(value > 1)];
                session.submit(stream, batch.seal().unwrap()).unwrap();
                assert!(session.semaphores[0].reached.len() < 5_000, "{edges:?}");
            }
            streams.into_iter().for_each(|stream| session.drain(stream, patience).unwrap());
        }
    }
}
