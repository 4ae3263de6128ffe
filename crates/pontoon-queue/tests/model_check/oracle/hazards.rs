//! Hazards byte by byte, over a graph of every submission, start and end.

use std::collections::{BTreeMap, BTreeSet};

use pontoon_queue::check::{
    Act, BufferId, ClassId, Command, Finding, Hazard, HazardKind, Mode, Program, Raise,
};

use super::world::World;
use crate::graph::Graph;

const fn submitted(at: usize) -> usize {
    3 * at
}

const fn start(at: usize) -> usize {
    3 * at + 1
}

const fn end(at: usize) -> usize {
    3 * at + 2
}

struct Events<'a, 'b> {
    world: &'a World<'b>,
    graph: Graph,
    /// Edges but for those of barriers with classes and of starts in order.
    plain: Vec<(usize, usize)>,
}

pub(crate) fn findings(world: &World<'_>) -> Vec<Finding> {
    let events = Events::of(world);
    let program = world.program;
    let mut found = Vec::<Hazard>::new();
    for (at, buffer) in program.buffers.iter().enumerate() {
        if buffer.of.is_none() {
            let mut last: Option<Hazard> = None;
            for byte in 0..buffer.size {
                let hazard = events.earliest(BufferId(at), byte);
                match (&mut last, hazard) {
                    (Some(last), Some(hazard))
                        if (last.kind, last.first, last.second)
                            == (hazard.kind, hazard.first, hazard.second) =>
                    {
                        last.range.end = byte + 1;
                        last.more = last.more.max(hazard.more);
                    }
                    (_, hazard) => found.extend(std::mem::replace(&mut last, hazard)),
                }
            }
            found.extend(last);
        }
    }
    found.into_iter().map(Finding::Hazard).collect()
}

impl<'a, 'b> Events<'a, 'b> {
    fn of(world: &'a World<'b>) -> Self {
        let program = world.program;
        let ran = |at: usize| world.done[at];
        let mut plain = Vec::new();
        let (mut classed, mut in_order) = (Vec::new(), Vec::new());
        let count = program.entries.len();
        for at in 0..count {
            plain.extend([(submitted(at), start(at)), (start(at), end(at))]);
            if program.entries[at].submission().is_none() {
                plain.push((end(at), submitted(at)));
            }
            let thread = program.entries[at].thread;
            let next = (at + 1..count).find(|&it| program.entries[it].thread == thread);
            plain.extend(next.map(|next| (submitted(at), submitted(next))));
            for target in world.targets(at).into_iter().chain(world.partners_before(at)) {
                plain.push((end(target), start(at)));
                // An event stands for all before its record.
                let queue = world.on(target);
                let number = place(world, target);
                let earlier = world.submitted[..number].iter();
                let earlier = earlier.filter(|&&it| world.on(it) == queue);
                plain.extend(earlier.map(|&it| (end(it), start(at))));
            }
        }
        for (second, &at) in world.submitted.iter().enumerate() {
            let queue = world.on(at);
            let launch = queue.is_some_and(|id| program.queues[id.0].launch_order);
            let mut barrier: Option<bool> = None;
            for &earlier in world.submitted[..second].iter().rev() {
                if world.on(earlier) != queue {
                    continue;
                }
                match program.entries[earlier].submission() {
                    Some((_, Command::Barrier { from: None, to: None })) => barrier = Some(true),
                    Some((_, Command::Barrier { .. })) => barrier = barrier.or(Some(false)),
                    _ => {}
                }
                in_order.push((start(earlier), start(at)));
                match barrier {
                    _ if !launch => plain.push((end(earlier), start(at))),
                    Some(true) => plain.push((end(earlier), start(at))),
                    Some(false) => classed.push((end(earlier), start(at))),
                    None => {}
                }
            }
        }
        let mut shared = Vec::new();
        for group in &world.log {
            for &one in group {
                for &other in group.iter().filter(|&&other| other != one) {
                    let into = |edges: &[(usize, usize)]| -> Vec<_> {
                        let before = edges.iter().filter(|edge| edge.1 == start(one));
                        before.map(|edge| (edge.0, start(other))).collect()
                    };
                    let all = [into(&plain), into(&classed), into(&in_order)].concat();
                    shared.extend(all);
                }
            }
        }
        plain.extend(shared);
        for (second, group) in world.log.iter().enumerate() {
            let Act::Lock(id) = program.entries[group[0]].act else { continue };
            let unlock = world.log[..second]
                .iter()
                .rev()
                .find(|it| matches!(program.entries[it[0]].act, Act::Unlock(other) if other == id));
            plain.extend(unlock.map(|unlock| (end(unlock[0]), start(group[0]))));
        }
        // What has not run has no events that anything is ordered by.
        let known = |edge: &(usize, usize)| {
            let ok = |node: usize| {
                node.is_multiple_of(3) && program.entries[node / 3].submission().is_some()
                    || ran(node / 3)
            };
            ok(edge.0) && ok(edge.1)
        };
        plain.retain(known);
        classed.retain(known);
        in_order.retain(known);
        let all = [plain.clone(), classed.clone(), in_order.clone()].concat();
        let mut this = Self { world, graph: Graph::new(3 * count, all), plain };
        while this.learn() {}
        this
    }

    /// Adds edges from signals without which a wait cannot have ended.
    fn learn(&mut self) -> bool {
        let program = self.world.program;
        let mut new = Vec::new();
        for wait in (0..program.entries.len()).filter(|&at| self.world.done[at]) {
            for it in program.entries[wait].semaphore_waits() {
                let semaphore = &program.semaphores[it.semaphore.0];
                if semaphore.external || semaphore.initial >= it.value {
                    continue;
                }
                // A collective's ranks start together.
                let group = self.world.log.iter().find(|group| group.contains(&wait));
                let group = group.expect("it has run");
                let after = |at| group.iter().any(|&it| self.graph.leads(start(it), end(at)));
                let may: Vec<_> = (0..program.entries.len())
                    .filter(|&at| self.world.done[at] && !after(at))
                    .filter(|&at| {
                        program.entries[at].signals().iter().any(|s| s.semaphore == it.semaphore)
                    })
                    .collect();
                for &must in &may {
                    if self.graph.leads(end(must), start(wait)) {
                        continue;
                    }
                    let rest: Vec<_> = may
                        .iter()
                        .copied()
                        .filter(|&at| !self.graph.leads(end(must), end(at)))
                        .collect();
                    if self.most(it.semaphore.0, &rest) < it.value {
                        new.extend(group.iter().map(|&other| (end(must), start(other))));
                    }
                }
            }
        }
        let any = !new.is_empty();
        self.plain.extend_from_slice(&new);
        self.graph.add(new);
        any
    }

    /// The most that these signals can raise a semaphore to, in whichever order they can come.
    fn most(&self, semaphore: usize, signals: &[usize]) -> u64 {
        let program = self.world.program;
        let raise = |at: usize, value: u64| {
            let own = program.entries[at].signals().iter();
            own.filter(|it| it.semaphore.0 == semaphore).fold(value, |value, it| match it.raise {
                Raise::To(to) => value.max(to),
                Raise::By(by) => value + by,
            })
        };
        let initial = program.semaphores[semaphore].initial;
        if signals.len() > 10 {
            return self.most_of_many(semaphore, signals);
        }
        let mut best = vec![None; 1 << signals.len()];
        best[0] = Some(initial);
        for set in 1..best.len() {
            for (bit, &last) in signals.iter().enumerate() {
                let others = set & !(1 << bit);
                let is_last = set != others
                    && (0..signals.len()).all(|other| {
                        others >> other & 1 == 0
                            || !self.graph.leads(end(last), end(signals[other]))
                    });
                if let (true, Some(value)) = (is_last, best[others]) {
                    best[set] = best[set].max(Some(raise(last, value)));
                }
            }
        }
        best.into_iter().flatten().max().unwrap_or(initial)
    }

    /// The same where there are too many to try: each raise to a value and what may follow it.
    fn most_of_many(&self, semaphore: usize, signals: &[usize]) -> u64 {
        let program = self.world.program;
        let raises = |at: usize| {
            let own = program.entries[at].signals().iter();
            own.filter(|it| it.semaphore.0 == semaphore).map(|it| it.raise).collect::<Vec<_>>()
        };
        let sum = |raises: &[Raise]| {
            let by = raises.iter().map(|it| if let Raise::By(by) = it { *by } else { 0 });
            by.sum::<u64>()
        };
        let mut most = program.semaphores[semaphore].initial;
        most += signals.iter().map(|&at| sum(&raises(at))).sum::<u64>();
        for &set in signals {
            let free = signals
                .iter()
                .filter(|&&at| at != set && !self.graph.leads(end(at), end(set)))
                .map(|&at| sum(&raises(at)))
                .sum::<u64>();
            let own = raises(set);
            for (place, raise) in own.iter().enumerate() {
                if let Raise::To(to) = raise {
                    most = most.max(to + free + sum(&own[place + 1..]));
                }
            }
        }
        most
    }

    fn earliest(&self, allocation: BufferId, byte: u64) -> Option<Hazard> {
        let program = self.world.program;
        let mut wrong = Vec::new();
        let modes: Vec<_> =
            (0..program.entries.len()).map(|at| modes(program, at, allocation, byte)).collect();
        for (second, theirs) in modes.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            for (first, mine) in modes[..second].iter().enumerate().filter(|(_, it)| !it.is_empty())
            {
                if let Some(kind) = self.kind((first, mine), (second, theirs)) {
                    wrong.push((second, first, kind));
                }
            }
        }
        let &(second, first, kind) = wrong.iter().min_by_key(|it| (it.0, it.1))?;
        let more = wrong.len() - 1;
        Some(Hazard { kind, buffer: allocation, range: byte..byte + 1, first, second, more })
    }

    fn kind(
        &self,
        (first, mine): (usize, &Vec<(Mode, BufferId)>),
        (second, theirs): (usize, &Vec<(Mode, BufferId)>),
    ) -> Option<HazardKind> {
        let program = self.world.program;
        let is_free = |at: usize| match program.entries[at].act {
            Act::Free(buffer) => Some(buffer),
            _ => None,
        };
        if let Some(freed) = is_free(first)
            && theirs.iter().any(|&(_, through)| is_view(program, through, freed))
        {
            return Some(HazardKind::UseAfterFree);
        }
        let conflict = mine.iter().any(|a| {
            theirs.iter().any(|b| a.0 != b.0 || matches!(a.0, Mode::Write | Mode::ReadWrite))
        });
        if !conflict || !self.world.done[first] || !self.world.done[second] {
            return None;
        }
        let writes = |it: &Vec<(Mode, BufferId)>| it.iter().any(|it| it.0 != Mode::Read);
        let kind = match (writes(mine), writes(theirs)) {
            (true, true) => HazardKind::WriteAfterWrite,
            (true, false) => HazardKind::ReadAfterWrite,
            _ => HazardKind::WriteAfterRead,
        };
        let forwards = self.graph.leads(end(first), start(second));
        let backwards = self.graph.leads(end(second), start(first)) && is_free(second).is_none();
        match (forwards, backwards) {
            (true, _) => (!self.visible(first, second)).then_some(HazardKind::Visibility),
            (_, true) => (!self.visible(second, first)).then_some(HazardKind::Visibility),
            _ => Some(kind),
        }
    }

    /// Whether a way from one's end to the other's start shows its accesses.
    fn visible(&self, first: usize, second: usize) -> bool {
        let world = self.world;
        let program = world.program;
        let own = |edge: &(usize, usize)| edge.0 % 3 == 1 && edge.1 == edge.0 + 1;
        let full = self.plain.iter().filter(|edge| !own(edge)).any(|&(from, to)| {
            self.graph.leads(end(first), from) && self.graph.leads(to, start(second))
        });
        if full || program.entries[first].submission().is_none() {
            return true;
        }
        let class = |at: usize| program.entries[at].work().and_then(|work| work.class);
        let between = &world.submitted[place(world, first) + 1..place(world, second)];
        let mut shown: BTreeSet<Option<ClassId>> = BTreeSet::new();
        for &at in between.iter().filter(|&&at| world.on(at) == world.on(first)) {
            let Some((_, Command::Barrier { from, to })) = program.entries[at].submission() else {
                continue;
            };
            // Three classes are in use; none given stands for them and for whatever else there is.
            let all = || (0..4).map(|class| Some(ClassId(class))).collect::<BTreeSet<_>>();
            let some = |list: &Option<Vec<ClassId>>| match list {
                None => all(),
                Some(list) => list.iter().copied().map(Some).collect(),
            };
            let source = class(first).map_or_else(all, |class| BTreeSet::from([Some(class)]));
            if source.union(&shown).any(|class| some(from).contains(class)) {
                shown.extend(some(to));
            }
        }
        match class(second) {
            None => !shown.is_empty(),
            class => shown.contains(&class),
        }
    }
}

fn place(world: &World<'_>, at: usize) -> usize {
    world.place[at].expect("submitted")
}

/// What an entry does to a byte, and through which buffers.
fn modes(program: &Program, at: usize, allocation: BufferId, byte: u64) -> Vec<(Mode, BufferId)> {
    let base = |mut buffer: BufferId| {
        let mut offset = 0;
        while let Some((of, by)) = program.buffers[buffer.0].of {
            offset += by;
            buffer = of;
        }
        (buffer, offset)
    };
    let mut accesses = BTreeMap::new();
    let mut all: Vec<_> = program.entries[at]
        .accesses()
        .iter()
        .map(|access| (access.buffer, access.range.clone(), access.mode))
        .collect();
    if let Act::Free(buffer) = program.entries[at].act {
        all.push((buffer, 0..program.buffers[buffer.0].size, Mode::Write));
    }
    for (number, (buffer, range, mode)) in all.into_iter().enumerate() {
        let (on, offset) = base(buffer);
        if on == allocation && (range.start + offset..range.end + offset).contains(&byte) {
            accesses.insert(number, (mode, buffer));
        }
    }
    accesses.into_values().collect()
}

fn is_view(program: &Program, buffer: BufferId, of: BufferId) -> bool {
    buffer == of || program.buffers[buffer.0].of.is_some_and(|(it, _)| is_view(program, it, of))
}
