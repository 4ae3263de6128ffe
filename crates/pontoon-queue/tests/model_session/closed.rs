//! Semaphores that are closed while batches wait for them: whatever can go on still does, and of the
//! rest nothing stays parked but what a member of a collective would let go.

use pontoon_queue::{Edges, Held, Reason, Refusal};

use crate::{
    Counts,
    bench::Bench,
    derived::resolve,
    mock::Mock,
    program::{Act, COLLECTIVES, Program, SEMAPHORES},
};

pub(crate) fn leaves_nothing(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let mut bench = Bench::new(program, &devices, Edges::Auto, 0);
    let (mut works, mut signalled) = (0, [0; SEMAPHORES]);
    let mut failed = Vec::<usize>::new();
    for act in &program.acts {
        match act {
            Act::Batch(stream, steps) => {
                let mut moved = signalled;
                let given = resolve(&bench, steps, &mut works, &mut moved);
                match bench.submit(*stream, &given).map_err(|refused| refused.why) {
                    Ok(()) => {
                        signalled = moved;
                        counts.accepted += 1;
                    }
                    Err(Refusal::Abandoned(_)) => {
                        counts.refused += 1;
                        bench
                            .session
                            .reopen(bench.streams[*stream])
                            .map_err(|it| it.to_string())?;
                    }
                    Err(Refusal::NotAMember { .. }) => {
                        let fresh = (0..COLLECTIVES).map(|_| bench.session.collective("next", 2));
                        bench.collectives = fresh.collect();
                    }
                    Err(Refusal::Full { .. }) => counts.full += 1,
                    Err(_) => {}
                }
            }
            Act::Signal(at, 1) => {
                let to = signalled[*at] + 1;
                if bench.session.signal(bench.semaphores[*at], to).is_ok() {
                    signalled[*at] = to;
                }
            }
            Act::Signal(at, _) => {
                bench.session.close(bench.semaphores[*at]).map_err(|it| it.to_string())?;
                bench.semaphores[*at] = bench.session.semaphore("next");
                signalled[*at] = 0;
            }
            Act::Complete(lane, most) => {
                let mut world = bench.world();
                let lane = lane % world.lanes();
                let to = (world.over_of(lane) + most).min(world.given(lane));
                world.run_to(lane, to);
            }
            _ => {}
        }
        if let Some(back) = failed.iter().find(|&&at| bench.fences[at].is_complete().is_ok()) {
            return Err(format!("batch {back} had failed"));
        }
        let now = (0..bench.fences.len()).filter(|&at| bench.fences[at].is_complete().is_err());
        failed = now.collect();
    }
    counts.hazards += failed.len() as u64;
    counts.parked += bench.session.counts().parked;
    for at in 0..SEMAPHORES {
        bench.session.close(bench.semaphores[at]).map_err(|it| it.to_string())?;
    }
    let mut parked = usize::MAX;
    // Each time there is room for at least one more.
    while bench.session.pending().parked.len() < parked {
        parked = bench.session.pending().parked.len();
        bench.world().run_all();
        bench.session.progress();
    }
    bench.world().run_all();
    let held = bench.session.pending().parked;
    if let Some(stays) = (0..held.len()).find(|&at| !may_stay(&held, at, &mut Vec::new())) {
        return Err(format!("{stays} stays parked for nothing: {held:?}"));
    }
    let ended = |at: &usize| match bench.fences[*at].target() {
        Some(_) => bench.fences[*at].is_complete() == Ok(true),
        None => held.is_empty().then(|| bench.fences[*at].is_complete().is_err()) != Some(false),
    };
    match (0..bench.fences.len()).find(|at| !ended(at)) {
        Some(at) => Err(format!("batch {at} has neither gone nor failed")),
        None => Ok(()),
    }
}

/// Whether a collective lacks members that something parked waits for in the end.
fn may_stay(held: &[Held], at: usize, seen: &mut Vec<usize>) -> bool {
    if seen.contains(&at) {
        return false;
    }
    seen.push(at);
    held[at].reasons.iter().any(|reason| match *reason {
        Reason::Collective { .. } => true,
        Reason::Semaphore { promised_by, .. } => {
            promised_by.is_some_and(|other| may_stay(held, other, seen))
        }
        Reason::Turn { after: other, .. } | Reason::Fence { of: other } => {
            may_stay(held, other, seen)
        }
        Reason::Behind { other } => may_stay(held, other, seen),
        // One of its collective may be behind something.
        Reason::Room => held
            .iter()
            .any(|it| it.reasons.iter().any(|reason| matches!(reason, Reason::Collective { .. }))),
        _ => false,
    })
}
