//! A session over mocks, and what a program asks of it in the session's words.

use std::time::Duration;

use pontoon_hal::Access;
use pontoon_queue::{
    Barrier, Batch, Buffer, CollectiveId, Completion, Edges, EventId, Fence, HostError,
    Kind as QueueKind, Patience, QueueId, QueueSpec, Refused, Sealed, SemaphoreId, Session,
    StreamId, Unrecorded,
};

use crate::{
    graph::Graph,
    mock::{Mock, Region, World},
    program::{BUFFERS, COLLECTIVES, EVENTS, Program, SEMAPHORES, Touch},
};

/// A step with all its numbers resolved.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Work(&'static str, Vec<Touch>),
    /// For the fence of that number.
    Wait(usize),
    WaitEvent(usize),
    Record(usize),
    WaitSemaphore(usize, u64),
    Signal(usize, u64),
    Streams(Vec<usize>),
    Device,
    Collective(usize),
}

pub(crate) struct Bench<'d> {
    pub(crate) devices: &'d [Mock],
    pub(crate) session: Session<'d, Mock>,
    pub(crate) streams: Vec<StreamId>,
    pub(crate) buffers: Vec<Buffer<Region, u8>>,
    pub(crate) events: Vec<EventId>,
    pub(crate) semaphores: Vec<SemaphoreId>,
    pub(crate) collectives: Vec<CollectiveId>,
    pub(crate) fences: Vec<Fence>,
}

impl<'d> Bench<'d> {
    pub(crate) fn new(program: &Program, devices: &'d [Mock], edges: Edges, events: usize) -> Self {
        // Nobody publishes while a host waits here: what is not there at once never comes.
        let patience = Patience::within(Duration::from_nanos(1));
        let session = Session::new(edges).with_patience(patience);
        let mut session = session.with_unrecorded(Unrecorded::Pass);
        let queues: Vec<QueueId> = program
            .queues
            .iter()
            .map(|queue| {
                let completion = match queue.lanes {
                    1 => Completion::InOrder,
                    lanes => Completion::Launch { lanes: lanes as u32 },
                };
                let spec =
                    QueueSpec { kind: QueueKind::Compute, completion, credits: queue.credits };
                session.queue(&devices[queue.device], spec, "queue").unwrap()
            })
            .collect();
        let streams = program.streams.iter();
        let streams =
            streams.map(|&queue| session.stream_over(queues[queue], "stream").unwrap()).collect();
        let buffers = BUFFERS.map(|size| Buffer::allocate(&devices[0], size).unwrap()).to_vec();
        let events = (0..events.max(EVENTS)).map(|_| session.event("event")).collect();
        let semaphores = (0..SEMAPHORES).map(|_| session.semaphore("semaphore")).collect();
        let collectives = (0..COLLECTIVES).map(|_| session.collective("collective", 2)).collect();
        let fences = Vec::new();
        Self { devices, session, streams, buffers, events, semaphores, collectives, fences }
    }

    pub(crate) fn world(&self) -> std::sync::MutexGuard<'d, World> {
        self.devices[0].world()
    }

    fn access(&self, touch: &Touch) -> Access<Region> {
        let (buffer, range) = (&self.buffers[touch.buffer], touch.range.clone());
        if touch.writes { buffer.write(range) } else { buffer.read(range) }
    }

    pub(crate) fn seal(&mut self, steps: &[Given]) -> Batch<Mock, Sealed> {
        let mut batch = self.session.batch();
        for step in steps {
            match step {
                Given::Work(label, touches) => match touches.as_slice() {
                    [from, to]
                        if !from.writes && to.writes && from.range.len() == to.range.len() =>
                    {
                        batch.copy(label, self.access(from), self.access(to));
                    }
                    all => {
                        batch.launch(label, &(), all.iter().map(|touch| self.access(touch)), []);
                    }
                },
                Given::Wait(at) => {
                    batch.wait(&self.fences[*at]);
                }
                Given::WaitEvent(at) => {
                    batch.wait_event(self.events[*at]);
                }
                Given::Record(at) => {
                    batch.record(self.events[*at]);
                }
                Given::WaitSemaphore(at, value) => {
                    batch.wait_semaphore(self.semaphores[*at], *value);
                }
                Given::Signal(at, value) => {
                    batch.signal(self.semaphores[*at], *value);
                }
                Given::Streams(all) => {
                    let all = all.iter().map(|&at| self.streams[at]).collect();
                    batch.barrier(Barrier::Streams(all));
                }
                Given::Device => {
                    batch.barrier(Barrier::Device);
                }
                Given::Collective(at) => {
                    batch.collective(self.collectives[*at]);
                }
            }
        }
        batch.seal().unwrap()
    }

    pub(crate) fn submit(&mut self, stream: usize, steps: &[Given]) -> Result<(), Refused<Mock>> {
        let batch = self.seal(steps);
        let before = self.world().log.len();
        match self.session.try_submit(self.streams[stream], batch) {
            Ok(fence) => {
                self.fences.push(fence);
                Ok(())
            }
            Err(refused) => {
                assert_eq!(self.world().log.len(), before, "something of it was queued: {refused}");
                Err(refused)
            }
        }
    }

    /// The host reads or writes.
    pub(crate) fn host(&mut self, touch: &Touch) -> Result<(), HostError> {
        let (buffer, mut bytes) = (&self.buffers[touch.buffer], [0; 16]);
        let bytes = &mut bytes[..touch.range.len()];
        if touch.writes {
            self.session.write(buffer, touch.range.start, bytes)
        } else {
            self.session.read(buffer, touch.range.start, bytes)
        }
    }
}

/// The order of a log: by lanes, waits and the host; where time counts, also after what was over when
/// a command was submitted.
pub(crate) fn order(world: &World, time_counts: bool) -> Graph {
    let mut graph = Graph::default();
    let mut last = vec![None; world.lanes()];
    let mut host = None;
    for node in &world.log {
        let mut before: Vec<usize> = host.into_iter().collect();
        before.extend(node.waits.iter().map(|&(lane, count)| world.node(lane, count)));
        before.extend(node.lane.and_then(|lane| last[lane]));
        if time_counts {
            let over = node.over.iter().enumerate().filter(|&(_, &count)| count > 0);
            before.extend(over.map(|(lane, &count)| world.node(lane, count)));
        }
        let at = graph.add(before);
        match node.lane {
            Some(lane) => last[lane] = Some(at),
            None => host = Some(at),
        }
    }
    graph
}

/// The pairs of a log that meet on bytes and are not ordered.
pub(crate) fn unordered(world: &World, graph: &Graph) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (second, node) in world.log.iter().enumerate() {
        for (first, earlier) in world.log[..second].iter().enumerate() {
            let meet =
                node.touches.iter().any(|one| earlier.touches.iter().any(|it| it.conflicts(one)));
            if meet && !graph.leads(first, second) {
                pairs.push((first, second));
            }
        }
    }
    pairs
}
