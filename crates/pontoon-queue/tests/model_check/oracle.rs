//! Findings by definition: slow, and without a thought for it.

mod hazards;
mod world;

use std::collections::BTreeSet;

use pontoon_queue::check::{Act, Command, Finding, Program, Raise, SemaphoreWait};

use world::World;

pub(crate) fn findings(program: &Program) -> Vec<Finding> {
    let mut world = World::new(program);
    world.run();
    let mut findings = hazards::findings(&world);
    findings.extend(stuck(&mut world));
    findings
}

fn stuck(world: &mut World<'_>) -> Vec<Finding> {
    let program = world.program;
    let mut findings = Vec::new();
    let mut reported = BTreeSet::new();
    loop {
        let left: Vec<_> = (0..program.entries.len()).filter(|&at| !world.done[at]).collect();
        if left.is_empty() {
            return findings;
        }
        let mut mended = false;
        let waiting: Vec<_> = left.iter().copied().filter(|&at| !world.forced[at]).collect();
        for at in waiting {
            for wait in program.entries[at].semaphore_waits() {
                let (at_most, _) = bounds(world.value[wait.semaphore.0], &left, world, wait);
                if !world.holds(at, wait) && at_most < wait.value {
                    world.mended.insert((at, wait.semaphore));
                    mended = true;
                    if !reported.contains(&at) {
                        let first = program.entries[at]
                            .semaphore_waits()
                            .filter(|it| {
                                let most = bounds(world.value[it.semaphore.0], &left, world, *it).0;
                                !has_value(world, *it) && most < it.value
                            })
                            .find_map(|it| culprit(program, it));
                        findings.push(Finding::NeverSignalled { first, second: at });
                        reported.insert(at);
                    }
                }
            }
            if let Act::Lock(id) = program.entries[at].act
                && world.stands_at(at)
                && world.holder[id.0].is_some_and(|it| unlock(program, it).is_none())
            {
                world.forced[at] = true;
                mended = true;
                if reported.insert(at) {
                    findings.push(Finding::NeverSignalled { first: None, second: at });
                }
            }
        }
        if !mended {
            for cycle in cycles(world, &left) {
                cycle.iter().for_each(|&at| world.forced[at] = true);
                findings.push(Finding::Deadlock { cycle });
            }
        }
        world.run();
    }
}

/// Whether the value is there, whatever has been mended.
fn has_value(world: &World<'_>, wait: SemaphoreWait) -> bool {
    let semaphore = wait.semaphore.0;
    world.program.semaphores[semaphore].external || world.value[semaphore] >= wait.value
}

/// The most that the entries left can raise a value to, and whether any of them adds.
fn bounds(value: u64, left: &[usize], world: &World<'_>, wait: SemaphoreWait) -> (u64, bool) {
    let signals = left.iter().flat_map(|&at| world.program.entries[at].signals());
    let own = signals.filter(|signal| signal.semaphore == wait.semaphore);
    let mut most = value;
    let mut adds = 0;
    for signal in own {
        match signal.raise {
            Raise::To(to) => most = most.max(to),
            Raise::By(by) => adds += by,
        }
    }
    (most + adds, adds > 0)
}

fn culprit(program: &Program, wait: SemaphoreWait) -> Option<usize> {
    let mut best = None;
    let mut value = program.semaphores[wait.semaphore.0].initial;
    let mut adds = 0;
    let raises = |at: usize| {
        let signals = match program.entries[at].work() {
            Some(work) => &work.signals,
            None => program.entries[at].signals(),
        };
        signals.iter().filter(|it| it.semaphore == wait.semaphore).map(|it| it.raise)
    };
    for at in 0..program.entries.len() {
        for raise in raises(at) {
            match raise {
                Raise::To(to) => value = value.max(to),
                Raise::By(by) => adds += by,
            }
        }
    }
    for at in 0..program.entries.len() {
        let fails = program.entries[at].work().is_some_and(|work| work.fails);
        let would = raises(at).any(|raise| match raise {
            Raise::To(to) => to >= wait.value,
            Raise::By(_) => true,
        });
        let dropped = matches!(program.entries[at].act, Act::Drop(id) if id == wait.semaphore);
        if dropped || fails && would && value + adds >= wait.value {
            best = Some(at);
        }
    }
    best
}

fn unlock(program: &Program, lock: usize) -> Option<usize> {
    let Act::Lock(id) = program.entries[lock].act else { return None };
    program.entries.iter().enumerate().skip(lock).find_map(|(at, entry)| {
        let own = entry.thread == program.entries[lock].thread;
        (own && matches!(entry.act, Act::Unlock(other) if other == id)).then_some(at)
    })
}

/// Whether `at` cannot go on before `other` has.
fn waits_for(world: &World<'_>, left: &[usize], at: usize, other: usize) -> bool {
    let program = world.program;
    let (one, two) = (&program.entries[at], &program.entries[other]);
    let given = world.place[at].is_some();
    // What costs little is asked first: this is asked of all pairs.
    let in_thread = one.thread == two.thread;
    if !given && at != other && in_thread && world.stands_at(other) {
        return true;
    }
    let in_fifo = world.fifo(at) == world.fifo(other);
    if given && at != other && in_fifo && world.fifo_head(at) == Some(other) {
        return true;
    }
    if world.forced[at] {
        return false;
    }
    let signals = one.semaphore_waits().any(|wait| {
        let mut raises = two.signals().iter().filter(|it| it.semaphore == wait.semaphore);
        let adds = || bounds(0, left, world, wait).1;
        !world.holds(at, wait)
            && raises.any(|it| match it.raise {
                Raise::To(to) => to >= wait.value || adds(),
                Raise::By(_) => true,
            })
    });
    let rank = |at: usize| program.entries[at].work().and_then(|work| work.collective);
    if signals
        || at != other && rank(at).is_some() && rank(at) == rank(other) && !world.ready(other)
    {
        return true;
    }
    match &one.act {
        _ if !given && !world.stands_at(at) => false,
        Act::Submit(queue, _) if !given => {
            let mine = world.pending.iter().find(|&&it| world.on(it) == Some(*queue));
            mine == Some(&other)
        }
        Act::Submit(_, command) => {
            let event = matches!(command, Command::WaitEvent(_));
            event && world.targets(at).contains(&other)
                || at != other && world.partners_before(at).contains(&other)
        }
        Act::Wait(_) => world.targets(at).contains(&other),
        Act::Lock(id) => world.holder[id.0].and_then(|it| unlock(program, it)) == Some(other),
        _ => false,
    }
}

/// The shortest circle of each set of entries that wait for each other and for nobody else.
fn cycles(world: &World<'_>, left: &[usize]) -> Vec<Vec<usize>> {
    let count = left.len();
    let mut edge = vec![vec![false; count]; count];
    for (from, &at) in left.iter().enumerate() {
        for (to, &other) in left.iter().enumerate() {
            edge[from][to] = waits_for(world, left, at, other);
        }
    }
    let mut reach = edge.clone();
    for middle in 0..count {
        for from in 0..count {
            if reach[from][middle] {
                let more = reach[middle].clone();
                reach[from].iter_mut().zip(more).for_each(|(to, more)| *to |= more);
            }
        }
    }
    let mut cycles = Vec::new();
    let mut taken = vec![false; count];
    for start in 0..count {
        // All that it reaches reaches it: the set is its own, and waits for nobody else.
        let last = (0..count).all(|to| !reach[start][to] || reach[to][start]);
        if taken[start] || !reach[start][start] || !last {
            continue;
        }
        let set: Vec<_> = (0..count).filter(|&to| reach[start][to]).collect();
        set.iter().for_each(|&at| taken[at] = true);
        let cycle = (1..=set.len())
            .find_map(|length| set.iter().find_map(|&from| way(&edge, &mut vec![from], length)));
        cycles.extend(cycle.map(|cycle| cycle.into_iter().map(|at| left[at]).collect::<Vec<_>>()));
    }
    cycles
}

/// A circle of this length that goes on from the way so far and has no lower entry than its first.
fn way(edge: &[Vec<bool>], so_far: &mut Vec<usize>, length: usize) -> Option<Vec<usize>> {
    let (first, last) = (so_far[0], so_far[so_far.len() - 1]);
    if so_far.len() == length {
        return edge[last][first].then(|| so_far.clone());
    }
    for next in first + 1..edge.len() {
        if edge[last][next] && !so_far.contains(&next) {
            so_far.push(next);
            if let Some(cycle) = way(edge, so_far, length) {
                return Some(cycle);
            }
            so_far.pop();
        }
    }
    None
}
