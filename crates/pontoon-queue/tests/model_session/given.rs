//! Edges that are given: a session refuses exactly what they leave unordered, and so does the checker
//! of whole programs.

use pontoon_queue::{
    Edges, HostError, MissingEdge, Patience, Refusal,
    check::{self, Finding, HazardKind},
};

use crate::{
    Counts,
    bench::{Bench, Given, order, unordered},
    derived::resolve,
    mock::Mock,
    offline::Offline,
    program::{Act, EVENTS, Program, SEMAPHORES, Step},
    spec::{Spec, Unordered},
};

pub(crate) fn are_judged(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let mut bench = Bench::new(program, &devices, Edges::Check, 0);
    let mut spec = Spec::new(program, EVENTS);
    let mut offline = Offline::new(program);
    let mut works = 0;
    let mut signalled = [0; SEMAPHORES];
    // Of each batch, its lane and how many events that has with it.
    let mut places = Vec::new();
    let mut first_refused = None;
    for act in &program.acts {
        match act {
            Act::Batch(stream, steps) => {
                let reached = |step: &&Step| match step {
                    Step::WaitSemaphore(at, value) => {
                        spec.has_reached(*at, value % (signalled[*at] + 2))
                    }
                    _ => true,
                };
                let steps: Vec<_> = steps.iter().filter(reached).cloned().collect();
                let mut moved = signalled;
                let steps = resolve(&bench, &steps, &mut works, &mut moved);
                // What a wait names is clamped to what was signalled before the batch.
                let steps: Vec<_> = steps.into_iter().filter(|step| known(&spec, step)).collect();
                without_each(&mut spec, &mut bench, *stream, &steps, counts)?;
                let lane = spec.lane(*stream);
                let wanted = spec.submit(*stream, &steps);
                let found = bench.submit(*stream, &steps).map_err(|refused| refused.why);
                let mut whole = offline.clone();
                whole.submit(lane, &steps);
                match (&wanted, &found) {
                    (Ok(()), Ok(())) => {
                        offline = whole;
                        places.push((lane, bench.world().given(lane)));
                        signalled = moved;
                        counts.accepted += 1;
                    }
                    (Err(unordered), Err(Refusal::Missing(edge))) => {
                        told(unordered, edge)?;
                        counts.refused += 1;
                        first_refused.get_or_insert((whole, edge.later.label));
                    }
                    _ => return Err(differs(&offline, &wanted, &format!("{found:?}"))),
                }
            }
            Act::Host(touch) => {
                let (wanted, found) = (spec.host(touch), bench.host(touch));
                match (&wanted, &found) {
                    (Ok(()), Ok(())) => {
                        bench.world().host("host", vec![touch.clone()], Vec::new());
                        offline.host(touch);
                        counts.accepted += 1;
                    }
                    (Err(_), Err(HostError::Refused(Refusal::Missing(_)))) => counts.refused += 1,
                    _ => return Err(differs(&offline, &wanted, &format!("{found:?}"))),
                }
            }
            Act::Wait(back) => {
                let Some(at) = bench.fences.len().checked_sub(1 + back) else { continue };
                bench.world().run_all();
                let fence = bench.fences[at].clone();
                let waited = bench.session.wait(&fence, Patience::default());
                let _ = waited.map_err(|error| error.to_string())?;
                let place = Some(places[at]).filter(|&(_, count)| count > 0);
                bench.world().host("wait", Vec::new(), place.into_iter().collect());
                spec.wait(at);
                offline.wait(at);
            }
            Act::Signal(at, by) => {
                signalled[*at] += by;
                let id = bench.semaphores[*at];
                bench.session.signal(id, signalled[*at]).map_err(|error| error.to_string())?;
                spec.signal(*at, signalled[*at]);
                offline.signal(*at, signalled[*at]);
            }
            Act::Complete(lane, more) => {
                let mut world = bench.world();
                let lane = lane % world.lanes();
                let most = world.given(lane).min(world.over_of(lane) + more);
                world.run_to(lane, most);
            }
        }
    }
    let world = bench.world();
    if let Some(&(first, second)) = unordered(&world, &order(&world, false)).first() {
        let (first, second) = (&world.log[first], &world.log[second]);
        return Err(format!("{first:?} and {second:?} were accepted\n{}", offline.scenario()));
    }
    whole_programs_agree(&offline, first_refused, counts)
}

/// A batch that lacks one of its waits, events or barriers is refused if something then is unordered
/// that all of them order.
fn without_each(
    spec: &mut Spec<'_>,
    bench: &mut Bench<'_>,
    stream: usize,
    steps: &[Given],
    counts: &mut Counts,
) -> Result<(), String> {
    if spec.would(stream, steps).is_err() {
        return Ok(());
    }
    let orders = |at: &usize| !matches!(steps[*at], Given::Work(..) | Given::Signal(..));
    for at in (0..steps.len()).filter(orders) {
        let mut fewer = steps.to_vec();
        let lost = fewer.remove(at);
        let Err(unordered) = spec.would(stream, &fewer) else { continue };
        counts.deleted += 1;
        match bench.submit(stream, &fewer).map_err(|refused| refused.why) {
            Err(Refusal::Missing(edge)) => told(&unordered, &edge)?,
            other => {
                let other = other.map_err(|why| why.to_string());
                return Err(format!("without {lost:?} of {steps:?}: {other:?}"));
            }
        }
        counts.caught += 1;
    }
    Ok(())
}

fn known(spec: &Spec<'_>, step: &Given) -> bool {
    match step {
        Given::WaitSemaphore(at, value) => *value > 0 && spec.has_reached(*at, *value),
        _ => true,
    }
}

/// The refusal names two commands that meet, and how.
fn told(wanted: &Unordered, edge: &MissingEdge) -> Result<(), String> {
    let names = wanted.earlier.iter().any(|(label, one, other)| {
        let kind = match (one.writes, other.writes) {
            (true, true) => HazardKind::WriteAfterWrite,
            (true, false) => HazardKind::ReadAfterWrite,
            _ => HazardKind::WriteAfterRead,
        };
        let within = |bytes: &std::ops::Range<usize>| {
            bytes.start as u64 <= edge.range.start && edge.range.end <= bytes.end as u64
        };
        edge.earlier.label == *label
            && edge.later.label == wanted.later
            && edge.kind == kind
            && edge.region.0 == one.buffer as u64
            && within(&one.range)
            && within(&other.range)
    });
    if names { Ok(()) } else { Err(format!("{edge:?} is told of {wanted:?}")) }
}

fn differs(offline: &Offline, wanted: &Result<(), Unordered>, found: &str) -> String {
    let scenario = offline.scenario();
    format!("by its steps {wanted:?}, and the session says {found}\nafter {scenario}")
}

/// The checker of whole programs finds nothing in what was accepted, and what was refused first.
fn whole_programs_agree(
    accepted: &Offline,
    refused: Option<(Offline, &'static str)>,
    counts: &mut Counts,
) -> Result<(), String> {
    let findings = check::check(&accepted.program).map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("the checker finds {findings:?}\nin {}", accepted.scenario()));
    }
    let Some((offline, later)) = refused else { return Ok(()) };
    let findings = check::check(&offline.program).map_err(|error| error.to_string())?;
    counts.hazards += 1;
    let tells = findings.iter().any(|finding| match finding {
        Finding::Hazard(hazard) => offline.label(hazard.second) == Some(later),
        _ => false,
    });
    if tells {
        return Ok(());
    }
    Err(format!("the checker finds {findings:?} and not {later}\nin {}", offline.scenario()))
}
