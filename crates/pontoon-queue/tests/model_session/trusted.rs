//! Edges that are given and that nobody looks at: what devices are given keeps the whole order of a
//! program's own steps, whatever is complete by then.

use std::collections::BTreeMap;

use pontoon_queue::{Edges, Patience, Refusal};

use crate::{
    Counts,
    bench::{Bench, Given, order},
    derived::resolve,
    mock::Mock,
    program::{Act, EVENTS, Program, SEMAPHORES, Step},
    spec::Spec,
};

pub(crate) fn keep_their_order(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let mut bench = Bench::new(program, &devices, Edges::Trust, 0);
    let mut spec = Spec::new(program, EVENTS);
    let (mut works, mut signalled) = (0, [0; SEMAPHORES]);
    for act in &program.acts {
        match act {
            Act::Batch(stream, steps) => {
                let reached = |step: &&Step| match step {
                    Step::WaitSemaphore(at, value) => {
                        let value = value % (signalled[*at] + 2);
                        value > 0 && spec.has_reached(*at, value)
                    }
                    // Whose members may never all come.
                    Step::Collective(_) => false,
                    _ => true,
                };
                let steps: Vec<_> = steps.iter().filter(reached).cloned().collect();
                let mut moved = signalled;
                let steps = resolve(&bench, &steps, &mut works, &mut moved);
                let reached = |step: &Given| match step {
                    // A wait for no value waits for nothing.
                    Given::WaitSemaphore(at, value) => *value > 0 && spec.has_reached(*at, *value),
                    _ => true,
                };
                // The bytes do not matter here.
                let steps = steps.into_iter().filter(reached).map(|step| match step {
                    Given::Work(label, _) => Given::Work(label, Vec::new()),
                    other => other,
                });
                let steps: Vec<_> = steps.collect();
                match bench.submit(*stream, &steps).map_err(|refused| refused.why) {
                    Ok(()) => {
                        spec.submit(*stream, &steps).map_err(|told| format!("{told:?}"))?;
                        signalled = moved;
                        counts.accepted += 1;
                    }
                    Err(Refusal::Full { .. } | Refusal::TooLong { .. }) => {
                        bench.world().run_all();
                        counts.full += 1;
                    }
                    Err(other) => return Err(other.to_string()),
                }
            }
            Act::Wait(back) => {
                let Some(at) = bench.fences.len().checked_sub(1 + back) else { continue };
                bench.world().run_all();
                let fence = bench.fences[at].clone();
                let waited = bench.session.wait(&fence, Patience::default());
                let _ = waited.map_err(|error| error.to_string())?;
                let mut world = bench.world();
                let all = (0..world.lanes()).map(|lane| (lane, world.given(lane)));
                let all = all.filter(|&(_, given)| given > 0).collect();
                world.host("wait", Vec::new(), all);
                spec.wait(at);
            }
            Act::Signal(at, by) => {
                signalled[*at] += by;
                let id = bench.semaphores[*at];
                bench.session.signal(id, signalled[*at]).map_err(|error| error.to_string())?;
                spec.signal(*at, signalled[*at]);
            }
            Act::Complete(lane, more) => {
                let mut world = bench.world();
                let lane = lane % world.lanes();
                let most = world.given(lane).min(world.over_of(lane) + more);
                world.run_to(lane, most);
            }
            Act::Host(_) => {}
        }
    }
    counts.elided += bench.session.counts().complete;
    let world = bench.world();
    let graph = order(&world, true);
    let places: BTreeMap<_, _> =
        world.log.iter().enumerate().map(|(at, node)| (node.label, at)).collect();
    for (one, other) in spec.ordered_works() {
        counts.edges += 1;
        if !graph.leads(places[one], places[other]) {
            let log = &world.log;
            return Err(format!("{one} does not come before {other}\nin {log:?}"));
        }
    }
    Ok(())
}
