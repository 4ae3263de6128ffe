//! Random programs of commands on several devices leave the memory that they would leave if they
//! ran one after the other; with an edge taken out they fail in one of the ways foreseen.

mod common;

use std::collections::HashMap;

use common::*;
use pontoon_cpu::{CpuQueue, Kernel, Region};
use pontoon_hal::{Access, Cause, Device, Engine, Mode, Queue};
use pontoon_signal::{Bound, Seq};
use proptest::prelude::*;

const DEVICES: usize = 2;
const QUEUES: usize = 4;
const REGIONS: usize = 3;
/// Elements of a region; accesses are of blocks of four.
const ELEMENTS: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Op {
    Fill { region: usize, block: usize, value: u32 },
    Add { from: (usize, usize), to: (usize, usize), value: u32 },
    Copy { from: (usize, usize), to: (usize, usize) },
}

#[derive(Clone, Debug)]
struct Step {
    queue: usize,
    op: Op,
    work: u64,
}

fn block() -> impl Strategy<Value = (usize, usize)> {
    (0..REGIONS, 0..ELEMENTS / 4)
}

fn op() -> impl Strategy<Value = Op> {
    let two = || (block(), block(), any::<u32>()).prop_filter("apart", |(from, to, _)| from != to);
    prop_oneof![
        (block(), any::<u32>()).prop_map(|((region, block), value)| Op::Fill {
            region,
            block,
            value
        }),
        two().prop_map(|(from, to, value)| Op::Add { from, to, value }),
        two().prop_map(|(from, to, _)| Op::Copy { from, to }),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..QUEUES, op(), 0..3000u64).prop_map(|(queue, op, work)| Step { queue, op, work });
    prop::collection::vec(step, 1..60)
}

impl Op {
    /// The blocks it uses, and how.
    fn uses(self) -> Vec<((usize, usize), Mode)> {
        match self {
            Self::Fill { region, block, .. } => vec![((region, block), Mode::Write)],
            Self::Add { from, to, .. } | Self::Copy { from, to } => {
                vec![(from, Mode::Read), (to, Mode::Write)]
            }
        }
    }

    fn apply(self, memory: &mut [[u32; ELEMENTS]; REGIONS]) {
        let read = |memory: &[[u32; ELEMENTS]; REGIONS], (region, block): (usize, usize)| {
            let elements: [u32; 4] = memory[region][4 * block..4 * block + 4].try_into().unwrap();
            elements
        };
        let (to, elements) = match self {
            Self::Fill { region, block, value } => ((region, block), [value; 4]),
            Self::Add { from, to, value } => {
                (to, read(memory, from).map(|e| e.wrapping_add(value)))
            }
            Self::Copy { from, to } => (to, read(memory, from)),
        };
        memory[to.0][4 * to.1..4 * to.1 + 4].copy_from_slice(&elements);
    }
}

fn oracle(program: &[Step]) -> [[u32; ELEMENTS]; REGIONS] {
    let mut memory = [[0; ELEMENTS]; REGIONS];
    for step in program {
        step.op.apply(&mut memory);
    }
    memory
}

/// Where a command was submitted.
type Position = (usize, Seq);

/// Who used a block last: its writer, and everybody who has read it since.
#[derive(Default)]
struct Users {
    writer: Option<Position>,
    readers: Vec<Position>,
}

/// Runs `program` with the waits that order every two uses of which one writes, but for wait
/// number `dropped`. Gives the memory, and the faults.
fn execute(
    program: &[Step],
    units: u32,
    depth: u32,
    dropped: Option<usize>,
) -> (Vec<Vec<u32>>, Vec<pontoon_hal::Fault>) {
    let devices: Vec<_> = (0..DEVICES).map(|rank| device(rank as u32, units, depth)).collect();
    let regions: Vec<Region> =
        (0..REGIONS).map(|i| devices[i % DEVICES].allocate(4 * ELEMENTS).unwrap()).collect();
    let mut queues: Vec<CpuQueue> = (0..QUEUES)
        .map(|i| devices[i % DEVICES].open_queue(Engine::Compute, &format!("q{i}")).unwrap())
        .collect();
    let (fill, add) = (slow_fill(), slow_add());
    let mut users: HashMap<(usize, usize), Users> = HashMap::new();
    let mut waits = 0;
    for step in program {
        let mut before: Vec<Position> = Vec::new();
        for (block, mode) in step.op.uses() {
            let users = users.entry(block).or_default();
            before.extend(users.writer);
            if mode == Mode::Write {
                before.extend(&users.readers);
            }
        }
        before.retain(|(queue, _)| *queue != step.queue);
        for (queue, position) in before {
            waits += 1;
            if dropped != Some(waits - 1) {
                let command = wait(&queues[queue].completions().clone(), position);
                // A queue that failed takes nothing, and what waits for it fails too.
                let _ = try_submit(&mut queues[step.queue], command);
            }
        }
        let bytes = |block: usize| 16 * block..16 * block + 16;
        let read = |(region, block): (usize, usize)| Access::read(&regions[region], bytes(block));
        let write = |(region, block): (usize, usize)| Access::write(&regions[region], bytes(block));
        let command = match step.op {
            Op::Fill { region, block, value } => {
                let accesses = [write((region, block))];
                launch("fill", &fill, &accesses, &[u64::from(value), step.work])
            }
            Op::Add { from, to, value } => {
                launch("add", &add, &[read(from), write(to)], &[u64::from(value), step.work])
            }
            Op::Copy { from, to } => copy("copy", read(from), write(to)),
        };
        let Ok(position) = try_submit(&mut queues[step.queue], command) else { continue };
        for (block, mode) in step.op.uses() {
            let users = users.entry(block).or_default();
            match mode {
                Mode::Read => users.readers.push((step.queue, position)),
                Mode::Write => {
                    *users = Users { writer: Some((step.queue, position)), readers: Vec::new() };
                }
            }
        }
    }
    for queue in &queues {
        let all = queue.completions().waiter();
        match all.wait_ge_bounded(queue.submitted(), Bound::within(PATIENCE)) {
            Ok(observed) => drop(observed.acq_fence()),
            Err(error) => assert!(!error.is_timeout(), "a queue hangs: {error}"),
        }
    }
    let faults: Vec<_> = queues.iter().filter_map(Queue::fault).collect();
    // Nothing runs any more once every queue is done or has ended.
    (regions.iter().map(elements).collect(), faults)
}

fn slow_fill() -> Kernel {
    Kernel::new(|context| {
        work(context.argument(1));
        let value = context.argument(0) as u32;
        context.write::<u32>(0).fill(value);
    })
}

fn slow_add() -> Kernel {
    Kernel::new(|context| {
        let (from, value) = (context.read::<u32>(0), context.argument(0) as u32);
        work(context.argument(1));
        for (to, from) in context.write::<u32>(1).iter_mut().zip(from) {
            *to = from.wrapping_add(value);
        }
    })
}

fn work(rounds: u64) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ordered_programs_leave_the_right_memory(
        program in program(),
        units in 1..4u32,
        depth in prop::sample::select(vec![1, 2, 5, 64]),
    ) {
        let (memory, faults) = execute(&program, units, depth, None);
        prop_assert_eq!(faults, vec![]);
        let expected = oracle(&program).map(Vec::from);
        prop_assert_eq!(memory, Vec::from(expected));
    }

    #[test]
    fn a_forgotten_wait_is_a_hazard_or_another_result_and_nothing_worse(
        program in program(),
        dropped in 0..40usize,
    ) {
        let (memory, faults) = execute(&program, 3, 64, Some(dropped));
        // Whether it went well is chance; how it may go wrong is not.
        let _ = memory;
        for fault in faults {
            let foreseen = matches!(&fault.cause, Cause::Hazard(_))
                || matches!(&fault.cause, Cause::Wait(error) if !error.is_timeout());
            prop_assert!(foreseen, "{}", fault);
        }
    }
}
