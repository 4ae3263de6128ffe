//! Edges that a session derives: enough, none too many, and each of them needed.

use pontoon_queue::{Edges, HostError, Refusal};

use crate::{
    Counts,
    bench::{Bench, Given, order, unordered},
    mock::{Mock, Node, label},
    offline,
    program::{Act, Program, QueueShape, SEMAPHORES, Step, Touch},
};

/// Every pair that meets is ordered in the order of release, whenever what completes.
pub(crate) fn are_enough(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let mut bench = Bench::new(program, &devices, Edges::Auto, 0);
    let mut works = 0;
    let mut signalled = [0; SEMAPHORES];
    for act in &program.acts {
        match act {
            Act::Batch(stream, steps) => {
                let mut moved = signalled;
                let steps = resolve(&bench, steps, &mut works, &mut moved);
                for _ in 0..2 {
                    match bench.submit(*stream, &steps).map_err(|refused| refused.why) {
                        Ok(()) => signalled = moved,
                        Err(Refusal::Full { .. }) => {
                            bench.world().run_all();
                            counts.full += 1;
                            continue;
                        }
                        Err(
                            Refusal::Deadlock(_)
                            | Refusal::TooLong { .. }
                            | Refusal::Abandoned(_)
                            | Refusal::NotAMember { .. }
                            | Refusal::Faulted(_),
                        ) => counts.refused += 1,
                        Err(other) => return Err(format!("refused: {other}")),
                    }
                    break;
                }
            }
            Act::Host(touch) => host(&mut bench, touch, counts)?,
            Act::Wait(back) => {
                let Some(at) = bench.fences.len().checked_sub(1 + back) else { continue };
                let fence = bench.fences[at].clone();
                bench.world().run_all();
                let was_given = fence.target().is_some();
                let waited = bench.session.wait(
                    &fence,
                    pontoon_queue::Patience::within(std::time::Duration::from_nanos(1)),
                );
                if let (true, Err(error)) = (was_given, waited) {
                    return Err(format!("what is complete was waited for: {error}"));
                }
            }
            Act::Signal(at, by) => {
                if bench.session.signal(bench.semaphores[*at], signalled[*at] + by).is_ok() {
                    signalled[*at] += by;
                }
            }
            Act::Complete(lane, more) => {
                let mut world = bench.world();
                let lane = lane % world.lanes();
                let most = world.given(lane);
                let over = world.over_of(lane);
                world.run_to(lane, most.min(over + more));
            }
        }
    }
    if program.acts.iter().all(is_plain) {
        let mut fewer = 0;
        none_is_implied(&bench.world(), true, &mut fewer)?;
        counts.needed += fewer;
    }
    bench.world().run_all();
    let did = bench.session.counts();
    counts.edges += did.edges;
    counts.elided += did.complete;
    counts.parked += did.parked;
    let world = bench.world();
    match unordered(&world, &order(&world, true)).first() {
        None => Ok(()),
        Some(&(first, second)) => {
            let (first, second) = (&world.log[first], &world.log[second]);
            let scenario = offline::of_log(&world);
            Err(format!("{first:?} and {second:?} are not ordered\nin {scenario}"))
        }
    }
}

fn is_plain(act: &Act) -> bool {
    match act {
        Act::Batch(_, steps) => steps.iter().all(|step| matches!(step, Step::Work(_))),
        act => matches!(act, Act::Complete(..)),
    }
}

/// The host's access waits exactly while something that it meets is under way.
fn host(bench: &mut Bench<'_>, touch: &Touch, counts: &mut Counts) -> Result<(), String> {
    let meets = |node: &Node| node.touches.iter().any(|other| other.conflicts(touch));
    let mut world = bench.world();
    let log = world.log.clone();
    let mut numbers = vec![0; world.lanes()];
    let mut under_way = Vec::new();
    for node in &log {
        let Some(lane) = node.lane else { continue };
        numbers[lane] += 1;
        if meets(node) && world.over_of(lane) < numbers[lane] {
            under_way.push((lane, numbers[lane]));
        }
    }
    drop(world);
    let early = bench.host(touch);
    match (&early, under_way.is_empty()) {
        (Ok(()), true) | (Err(HostError::Wait(_)), false) => {}
        _ => return Err(format!("{early:?} with {under_way:?} under way")),
    }
    if early.is_err() {
        counts.host_waits += 1;
        world = bench.world();
        under_way.iter().for_each(|&(lane, count)| world.run_to(lane, count));
        drop(world);
        bench.host(touch).map_err(|error| format!("all is over, and yet {error}"))?;
    }
    bench.world().host("host", vec![touch.clone()], Vec::new());
    Ok(())
}

/// In the session's words, each number within what there is.
pub(crate) fn resolve(
    bench: &Bench<'_>,
    steps: &[Step],
    works: &mut usize,
    signalled: &mut [u64; SEMAPHORES],
) -> Vec<Given> {
    let given = steps.iter().filter_map(|step| match step {
        Step::Work(touches) => {
            *works += 1;
            Some(Given::Work(label(*works - 1), touches.clone()))
        }
        Step::Wait(back) => Some(Given::Wait(bench.fences.len().checked_sub(1 + back)?)),
        Step::WaitEvent(at) => Some(Given::WaitEvent(*at)),
        Step::Record(at) => Some(Given::Record(*at)),
        // Most often for what somebody has signalled.
        Step::WaitSemaphore(at, value) => {
            Some(Given::WaitSemaphore(*at, value % (signalled[*at] + 2)))
        }
        Step::Signal(at, by) => {
            signalled[*at] += by;
            Some(Given::Signal(*at, signalled[*at]))
        }
        Step::Streams(all) => Some(Given::Streams(all.clone())),
        Step::Device => Some(Given::Device),
        Step::Collective(at) => Some(Given::Collective(*at)),
    });
    given.collect()
}

/// The edges that a session derives pass for given ones, none of them is implied by the others, and
/// without any of them the command is refused.
pub(crate) fn are_needed(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let checkers = Mock::devices(program.devices, program.depth);
    let mut auto = Bench::new(program, &devices, Edges::Auto, 0);
    let batches = program.acts.iter().filter(|act| matches!(act, Act::Batch(..))).count();
    let by_lanes = by_lanes(program);
    let mut check = Bench::new(&by_lanes, &checkers, Edges::Check, 4 * batches);
    let mut turns = vec![0; program.queues.len()];
    let (mut works, mut events) = (0, 0);
    // Of each place in the log, the event that stands for it in the second session, and its batch.
    let (mut event_of, mut batch_of) = (Vec::new(), Vec::new());
    for act in &program.acts {
        let from = auto.world().log.len();
        match act {
            Act::Batch(stream, steps) => {
                let first = works;
                let queue = program.streams[*stream];
                let lane = program.queues[..queue].iter().map(|it| it.lanes).sum::<usize>();
                let lane = lane + turns[queue];
                turns[queue] = (turns[queue] + 1) % program.queues[queue].lanes;
                let steps = resolve(&auto, steps, &mut works, &mut [0; SEMAPHORES]);
                auto.submit(*stream, &steps).map_err(|refused| refused.to_string())?;
                let log = auto.world().log[from..].to_vec();
                let (mut waits, mut given, mut places) = (Vec::new(), Vec::new(), Vec::new());
                for node in &log {
                    event_of.push(events);
                    batch_of.push(auto.fences.len() - 1);
                    if let [wait] = node.waits[..] {
                        waits.push(wait);
                        continue;
                    }
                    for (lane, count) in waits.drain(..) {
                        let producer = auto.world().node(lane, count);
                        places.push((given.len(), producer, node.label));
                        given.push(Given::WaitEvent(event_of[producer]));
                    }
                    given.push(Given::Work(node.label, node.touches.clone()));
                    given.push(Given::Record(events));
                    events += 1;
                }
                if works == first || !waits.is_empty() {
                    return Err("a wait without a command".into());
                }
                for &(at, producer, later) in &places {
                    let mut fewer = given.clone();
                    fewer.remove(at);
                    counts.deleted += 1;
                    let earlier = auto.world().log[producer].label;
                    match check.submit(lane, &fewer).map_err(|refused| refused.why) {
                        Err(Refusal::Missing(edge))
                            if (edge.earlier.label, edge.later.label) == (earlier, later)
                                && edge.more == 0 =>
                        {
                            counts.caught += 1;
                        }
                        other => {
                            let other = other.map_err(|why| why.to_string());
                            return Err(format!("without {earlier} -> {later}: {other:?}"));
                        }
                    }
                }
                check.submit(lane, &given).map_err(|refused| {
                    format!("the edges derived do not pass: {refused}; {given:?}")
                })?;
            }
            Act::Host(touch) => {
                event_of.push(usize::MAX);
                batch_of.push(usize::MAX);
                host_after(&mut auto, &mut check, &batch_of, touch, counts)?;
            }
            _ => {}
        }
    }
    let (one, other) = (auto.world(), check.world());
    let same = |(a, b): (&Node, &Node)| {
        (a.lane, a.label, &a.touches, &a.waits) == (b.lane, b.label, &b.touches, &b.waits)
    };
    if one.log.len() != other.log.len() || !one.log.iter().zip(&other.log).all(same) {
        return Err("the same edges, given, lead to other waits".into());
    }
    drop(other);
    none_is_implied(&one, false, &mut counts.needed)
}

/// The same with a queue and a stream for each lane: there, what is given to one holds for no other.
fn by_lanes(program: &Program) -> Program {
    let lanes = program.queues.iter().flat_map(|queue| {
        let lane = QueueShape { lanes: 1, ..queue.clone() };
        std::iter::repeat_n(lane, queue.lanes)
    });
    let queues: Vec<_> = lanes.collect();
    Program { streams: (0..queues.len()).collect(), queues, ..program.clone() }
}

/// The host waits for the batches that its access meets, in both sessions, and not before.
fn host_after<'d>(
    auto: &mut Bench<'d>,
    check: &mut Bench<'d>,
    batch_of: &[usize],
    touch: &Touch,
    counts: &mut Counts,
) -> Result<(), String> {
    let world = auto.world();
    let graph = order(&world, false);
    let host = world.log.iter().rposition(|node| node.lane.is_none());
    let meets = |at: usize| world.log[at].touches.iter().any(|other| other.conflicts(touch));
    let known = |at: usize| host.is_some_and(|host| graph.leads(at, host));
    let mut batches: Vec<_> =
        (0..world.log.len()).filter(|&at| meets(at) && !known(at)).map(|at| batch_of[at]).collect();
    let last = |batch: usize| batch_of.iter().rposition(|&other| other == batch);
    batches.dedup();
    let places: Vec<_> = batches.iter().filter_map(|&batch| last(batch)).collect();
    let waits: Vec<_> = places
        .iter()
        .filter_map(|&at| {
            let lane = world.log[at].lane?;
            let number = world.log[..=at].iter().filter(|node| node.lane == Some(lane)).count();
            Some((lane, number as u64))
        })
        .collect();
    drop(world);
    if !batches.is_empty() {
        counts.deleted += 1;
        match check.host(touch) {
            Err(HostError::Refused(Refusal::Missing(_))) => counts.caught += 1,
            other => return Err(format!("without a wait, the host's access: {other:?}")),
        }
    }
    for bench in [auto, check] {
        for (&(lane, count), &batch) in waits.iter().zip(&batches) {
            bench.world().run_to(lane, count);
            let fence = bench.fences[batch].clone();
            let waited = bench.session.wait(&fence, pontoon_queue::Patience::default());
            let _ = waited.map_err(|error| error.to_string())?;
        }
        bench.host(touch).map_err(|error| format!("after all waits: {error}"))?;
        bench.world().host("host", vec![touch.clone()], waits.clone());
    }
    Ok(())
}

/// No wait brings what the command's lane, the host or another of its waits brings; where time counts,
/// nor what was over when the command was submitted.
fn none_is_implied(
    world: &crate::mock::World,
    time_counts: bool,
    needed: &mut u64,
) -> Result<(), String> {
    let graph = order(world, time_counts);
    let mut waits = vec![Vec::new(); world.lanes()];
    let mut last = vec![None; world.lanes()];
    let mut host = None;
    for (at, node) in world.log.iter().enumerate() {
        let Some(lane) = node.lane else {
            host = Some(at);
            continue;
        };
        if let [(other, count)] = node.waits[..] {
            waits[lane].push(world.node(other, count));
            continue;
        }
        let own: Vec<usize> = waits[lane].drain(..).collect();
        for &edge in &own {
            let others = own.iter().copied().filter(|&other| other != edge);
            let over = node.over.iter().enumerate().filter(|&(_, &count)| count > 0 && time_counts);
            let over = over.map(|(lane, &count)| world.node(lane, count));
            let mut before = others.chain(last[lane]).chain(host).chain(over);
            *needed += 1;
            if before.any(|other| graph.leads(edge, other)) {
                return Err(format!(
                    "the wait for {:?} before {node:?} is implied",
                    world.log[edge]
                ));
            }
        }
        last[lane] = Some(at);
    }
    Ok(())
}
