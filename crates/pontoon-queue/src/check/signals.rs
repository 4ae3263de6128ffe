//! Which signals a wait for a value must come after.
//!
//! Invariant G1: a signal must come before a wait for n if, without it and all that must come
//! after it, the signals that need not come after the wait's start cannot raise the value to n.
//! So the signals that must are closed downwards: what must come before one of them must too.

use std::collections::BTreeMap;

use super::{
    order::Order,
    program::{Raise, SemaphoreId},
    run::Run,
};

/// The signals of a run and what is known of the waits for them.
#[derive(Debug)]
pub(super) struct Signals<'a> {
    run: &'a Run<'a>,
    /// Of each semaphore, who raises it.
    raises: Vec<Vec<(usize, Raise)>>,
    waits: Vec<(usize, SemaphoreId, u64)>,
    /// Of each entry, signals that must come before it.
    before: Vec<Vec<usize>>,
}

impl<'a> Signals<'a> {
    pub(super) fn of(run: &'a Run<'a>) -> Self {
        let entries = &run.program.entries;
        let mut raises = vec![Vec::new(); run.program.semaphores.len()];
        let mut waits = Vec::new();
        for step in &run.steps {
            let group = match step {
                super::run::Step::Host(at) => std::slice::from_ref(at),
                super::run::Step::Run(group) => group,
                super::run::Step::Submit(_) => continue,
            };
            for &at in group {
                for signal in entries[at].signals() {
                    raises[signal.semaphore.0].push((at, signal.raise));
                }
                for wait in entries[at].semaphore_waits() {
                    let semaphore = &run.program.semaphores[wait.semaphore.0];
                    if !semaphore.external && wait.value > semaphore.initial {
                        waits.push((at, wait.semaphore, wait.value));
                    }
                }
            }
        }
        let mut this = Self { run, raises, waits, before: vec![Vec::new(); entries.len()] };
        this.learn_lines();
        this
    }

    /// Signals that must come before an entry.
    pub(super) fn before(&self, at: usize) -> &[usize] {
        &self.before[at]
    }

    /// Finds more signals that must come before waits, by the order known so far; tells whether
    /// there were any.
    pub(super) fn learn(&mut self, order: &Order<'_>) -> bool {
        let mut found = Vec::new();
        for &(wait, semaphore, value) in &self.waits {
            let may: Vec<_> = self.raises[semaphore.0]
                .iter()
                .copied()
                .filter(|&(at, _)| !order.starts_before(wait, at))
                .collect();
            for line in self.lines_of(&may) {
                let known = |at| order.ends_before(at, wait);
                let must =
                    |&at: &usize| known(at) || !self.can_reach(semaphore, value, &may, at, order);
                // By G1 those that must are the first ones of a line.
                let count = line.partition_point(must);
                let last = count.checked_sub(1).map(|last| line[last]);
                found.extend(last.filter(|&at| !known(at)).map(|at| (wait, at)));
            }
        }
        let any = !found.is_empty();
        for (wait, must) in found {
            self.before[wait].push(must);
        }
        any
    }

    /// Whether a semaphore can reach a value without a signal and what must come after it.
    fn can_reach(
        &self,
        semaphore: SemaphoreId,
        value: u64,
        may: &[(usize, Raise)],
        without: usize,
        order: &Order<'_>,
    ) -> bool {
        let rest: Vec<_> = may
            .iter()
            .filter(|&&(at, _)| at != without && !order.ends_before(without, at))
            .collect();
        let adds = rest.iter().any(|(_, raise)| matches!(raise, Raise::By(_)));
        let sum = |after: Option<(usize, usize)>| {
            if !adds {
                return 0;
            }
            let raises = rest.iter().enumerate().filter(|&(place, &&(at, _))| {
                after.is_none_or(|(set_place, set)| {
                    if at == set { place > set_place } else { !order.ends_before(at, set) }
                })
            });
            raises.fold(0_u64, |sum, (_, &&(_, raise))| match raise {
                Raise::By(by) => sum.saturating_add(by),
                Raise::To(_) => sum,
            })
        };
        let initial = self.run.program.semaphores[semaphore.0].initial;
        // The most that can be added to whatever is set.
        let all = sum(None);
        initial.saturating_add(all) >= value
            || rest.iter().enumerate().any(|(place, &&(at, raise))| match raise {
                Raise::To(to) if to.saturating_add(all) < value => false,
                Raise::To(to) => to >= value || to.saturating_add(sum(Some((place, at)))) >= value,
                Raise::By(_) => false,
            })
    }

    /// The signals by who makes them, each list in the order in which they must come; one that need
    /// not come before or after the others is alone.
    fn lines_of(&self, signals: &[(usize, Raise)]) -> Vec<Vec<usize>> {
        let mut lines = BTreeMap::<_, Vec<_>>::new();
        let mut alone = Vec::new();
        for &(at, _) in signals {
            match self.line(at) {
                Some(line) => lines.entry(line).or_default().push(at),
                None => alone.push(vec![at]),
            }
        }
        lines.into_values().chain(alone).collect()
    }

    /// The in-order queue or the thread that makes a signal.
    fn line(&self, at: usize) -> Option<(bool, usize)> {
        let entry = &self.run.program.entries[at];
        match entry.submission() {
            Some((queue, _)) => {
                (!self.run.program.queues[queue.0].launch_order).then_some((true, queue.0))
            }
            None => Some((false, entry.thread.0)),
        }
    }

    /// Where all signals of a semaphore are made one after the other, by one thread or one in-order
    /// queue, the first that reaches the value is the one, and nothing needs to be known for that.
    fn learn_lines(&mut self) {
        let reached: Vec<Option<Vec<(u64, usize)>>> = self
            .raises
            .iter()
            .enumerate()
            .map(|(semaphore, raises)| {
                let first = self.line(raises.first()?.0)?;
                let mut value = self.run.program.semaphores[semaphore].initial;
                let reach = |&(at, raise): &(usize, Raise)| {
                    value = Raise::of(raise, value);
                    (self.line(at) == Some(first)).then_some((value, at))
                };
                raises.iter().map(reach).collect()
            })
            .collect();
        let mut general = Vec::new();
        for &(wait, semaphore, value) in &self.waits {
            match &reached[semaphore.0] {
                Some(reached) => {
                    let at = reached.partition_point(|&(reached, _)| reached < value);
                    self.before[wait].extend(reached.get(at).map(|&(_, at)| at));
                }
                None => general.push((wait, semaphore, value)),
            }
        }
        self.waits = general;
    }
}
