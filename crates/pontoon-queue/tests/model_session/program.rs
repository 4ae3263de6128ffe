//! Random programs.

use std::ops::Range;

use proptest::{collection::vec, option, prelude::*};

/// The sizes of the buffers.
pub(crate) const BUFFERS: [usize; 3] = [8, 12, 1];
pub(crate) const EVENTS: usize = 3;
pub(crate) const SEMAPHORES: usize = 3;
pub(crate) const COLLECTIVES: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) devices: usize,
    pub(crate) queues: Vec<QueueShape>,
    /// The queue of each stream.
    pub(crate) streams: Vec<usize>,
    pub(crate) depth: u32,
    pub(crate) acts: Vec<Act>,
}

#[derive(Clone, Debug)]
pub(crate) struct QueueShape {
    pub(crate) device: usize,
    pub(crate) lanes: usize,
    pub(crate) credits: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Batch(usize, Vec<Step>),
    Host(Touch),
    /// The host waits for the fence of an earlier batch, by number.
    Wait(usize),
    /// The host moves a semaphore on.
    Signal(usize, u64),
    /// So many further commands of a lane end.
    Complete(usize, u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Work(Vec<Touch>),
    /// For an earlier batch, by number.
    Wait(usize),
    WaitEvent(usize),
    Record(usize),
    WaitSemaphore(usize, u64),
    /// By how much.
    Signal(usize, u64),
    Streams(Vec<usize>),
    Device,
    Collective(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) buffer: usize,
    pub(crate) range: Range<usize>,
    pub(crate) writes: bool,
}

impl Touch {
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let (start, end) =
            (self.range.start.max(other.range.start), self.range.end.min(other.range.end));
        self.buffer == other.buffer && (self.writes || other.writes) && start < end
    }
}

/// What a program may have besides commands and accesses of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// Completions at any time.
    Elided,
    /// Waits, events, semaphores, barriers; completions at any time.
    Given,
    /// These, small queues and credits.
    Tight,
    /// Batches that wait for each other, and collectives.
    Stuck,
}

pub(crate) fn program(kind: Kind, acts: usize) -> impl Strategy<Value = Program> {
    let tight = kind == Kind::Tight;
    let depths = if tight { vec![4_u32, 8, 1024] } else { vec![1024] };
    let queues = prop_oneof![vec(queue(tight), 1..=3), vec(queue(tight), 1..=8)];
    let shape = (1..=3_usize, queues, vec(0..8_usize, 0..4), prop::sample::select(depths));
    shape.prop_flat_map(move |(devices, mut queues, more, depth)| {
        queues.iter_mut().for_each(|queue| queue.device %= devices);
        let mut streams: Vec<_> = (0..queues.len()).collect();
        streams.extend(more.iter().map(|at| at % queues.len()));
        let act = act(kind, streams.len());
        // Most are short, so that many are tried.
        let few = acts.min(40);
        let acts = prop_oneof![9 => vec(act.clone(), 1..=few), 1 => vec(act, 1..=acts)];
        acts.prop_map(move |acts| Program {
            devices,
            queues: queues.clone(),
            streams: streams.clone(),
            depth,
            acts,
        })
    })
}

fn queue(tight: bool) -> impl Strategy<Value = QueueShape> {
    let lanes = prop_oneof![3 => Just(1_usize), 1 => 2..=3_usize];
    let credits = option::weighted(0.3, 1..4_u32);
    (0..3_usize, lanes, credits).prop_map(move |(device, lanes, credits)| QueueShape {
        device,
        lanes,
        credits: credits.filter(|_| tight),
    })
}

fn act(kind: Kind, streams: usize) -> BoxedStrategy<Act> {
    let most = if kind == Kind::Stuck { 6 } else { 4 };
    let batch = vec(step(kind, streams), 1..=most);
    let batch = (0..streams, batch).prop_map(|(stream, steps)| Act::Batch(stream, steps));
    let host = touch().prop_map(Act::Host);
    let wait = (0..8_usize).prop_map(Act::Wait);
    let signal = (0..SEMAPHORES, 1..3_u64).prop_map(|(at, by)| Act::Signal(at, by));
    let complete = (0..24_usize, 1..6_u64).prop_map(|(lane, most)| Act::Complete(lane, most));
    match kind {
        Kind::Plain => prop_oneof![12 => batch, 1 => host].boxed(),
        Kind::Elided => prop_oneof![12 => batch, 6 => complete].boxed(),
        Kind::Given | Kind::Tight => {
            prop_oneof![16 => batch, 1 => host, 1 => wait, 1 => signal, 4 => complete].boxed()
        }
        Kind::Stuck => prop_oneof![12 => batch, 1 => signal].boxed(),
    }
}

fn step(kind: Kind, streams: usize) -> BoxedStrategy<Step> {
    let work = vec(touch(), 0..4).prop_map(|all| {
        // Two that meet are no command.
        let mut kept = Vec::<Touch>::new();
        for touch in all {
            if !kept.iter().any(|other| other.conflicts(&touch)) {
                kept.push(touch);
            }
        }
        Step::Work(kept)
    });
    let wait = (0..8_usize).prop_map(Step::Wait);
    let event = (0..EVENTS).prop_map(Step::WaitEvent);
    let record = (0..EVENTS).prop_map(Step::Record);
    let wait_for = (0..SEMAPHORES, 1..7_u64).prop_map(|(at, value)| Step::WaitSemaphore(at, value));
    let signal = (0..SEMAPHORES, 1..3_u64).prop_map(|(at, by)| Step::Signal(at, by));
    let barrier = vec(0..streams, 1..3).prop_map(Step::Streams);
    let collective = (0..COLLECTIVES).prop_map(Step::Collective);
    match kind {
        Kind::Plain | Kind::Elided => work.boxed(),
        Kind::Tight => prop_oneof![
            30 => step(Kind::Given, streams),
            1 => collective,
        ]
        .boxed(),
        Kind::Given => prop_oneof![
            10 => work,
            4 => wait,
            2 => event,
            2 => record,
            2 => wait_for,
            2 => signal,
            1 => barrier,
            1 => Just(Step::Device),
        ]
        .boxed(),
        Kind::Stuck => {
            let work = Just(Step::Work(vec![]));
            prop_oneof![
                2 => work,
                1 => wait,
                1 => event,
                1 => record,
                3 => wait_for,
                3 => signal,
                1 => collective,
            ]
            .boxed()
        }
    }
}

fn touch() -> impl Strategy<Value = Touch> {
    let writes = prop::bool::weighted(0.4);
    (0..BUFFERS.len(), any::<(u16, u16)>(), any::<bool>(), writes).prop_map(
        |(buffer, (a, b), whole, writes)| {
            let size = BUFFERS[buffer];
            let start = usize::from(a) % size;
            let end = start + 1 + usize::from(b) % (size - start);
            Touch { buffer, range: if whole { 0..size } else { start..end }, writes }
        },
    )
}
