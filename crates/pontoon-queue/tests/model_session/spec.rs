//! What a program's own steps order, before any session has seen it.

use crate::{
    bench::Given,
    graph::Graph,
    program::{Program, SEMAPHORES, Touch},
};

/// The steps taken so far, each a node that comes after what it says and nothing else.
pub(crate) struct Spec<'p> {
    program: &'p Program,
    graph: Graph,
    /// Of each queue, its first lane.
    first_lane: Vec<usize>,
    state: State,
    touches: Vec<(usize, &'static str, Touch)>,
    works: Vec<(&'static str, usize)>,
}

#[derive(Clone)]
struct State {
    /// Of each lane, its last node.
    lanes: Vec<Option<usize>>,
    host: Option<usize>,
    turns: Vec<usize>,
    /// Of each device, its last global barrier.
    barriers: Vec<Option<usize>>,
    fences: Vec<Option<usize>>,
    events: Vec<Vec<usize>>,
    /// Of each lane, what its next batch comes after since batches of the others do.
    owed: Vec<Vec<usize>>,
    /// Values and the nodes that signal them.
    signals: [Vec<(u64, Option<usize>)>; SEMAPHORES],
}

/// A command that would meet others, which do not come before it.
#[derive(Clone, Debug)]
pub(crate) struct Unordered {
    pub(crate) later: &'static str,
    /// Each with the bytes on which they meet.
    pub(crate) earlier: Vec<(&'static str, Touch, Touch)>,
}

impl<'p> Spec<'p> {
    pub(crate) fn new(program: &'p Program, events: usize) -> Self {
        let mut first_lane = Vec::new();
        let mut lanes = 0;
        for queue in &program.queues {
            first_lane.push(lanes);
            lanes += queue.lanes;
        }
        let state = State {
            lanes: vec![None; lanes],
            host: None,
            turns: vec![0; program.queues.len()],
            barriers: vec![None; program.devices],
            fences: Vec::new(),
            events: vec![Vec::new(); events],
            owed: vec![Vec::new(); lanes],
            signals: Default::default(),
        };
        Self {
            program,
            graph: Graph::default(),
            first_lane,
            state,
            touches: Vec::new(),
            works: Vec::new(),
        }
    }

    /// Whether the semaphore has been signalled that far.
    pub(crate) fn has_reached(&self, semaphore: usize, value: u64) -> bool {
        self.state.signals[semaphore].last().is_some_and(|&(last, _)| last >= value)
    }

    fn lanes_of(&self, queue: usize) -> std::ops::Range<usize> {
        self.first_lane[queue]..self.first_lane[queue] + self.program.queues[queue].lanes
    }

    /// The lane that has the queue's next batch.
    pub(crate) fn lane(&self, stream: usize) -> usize {
        let queue = self.program.streams[stream];
        self.first_lane[queue] + self.state.turns[queue]
    }

    /// Takes a batch, or changes nothing.
    pub(crate) fn submit(&mut self, stream: usize, steps: &[Given]) -> Result<(), Unordered> {
        self.attempt(stream, steps, |taken| taken.is_ok())
    }

    fn attempt(
        &mut self,
        stream: usize,
        steps: &[Given],
        stays: impl Fn(&Result<(), Unordered>) -> bool,
    ) -> Result<(), Unordered> {
        let (before, nodes) = (self.state.clone(), self.graph.len());
        let (touches, works) = (self.touches.len(), self.works.len());
        let taken = self.take(stream, steps);
        if !stays(&taken) {
            self.state = before;
            self.graph.truncate(nodes);
            self.touches.truncate(touches);
            self.works.truncate(works);
        }
        taken
    }

    /// Each two commands of which one comes before the other.
    pub(crate) fn ordered_works(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.works.iter().enumerate().flat_map(move |(at, &(later, second))| {
            let before = self.works[..at].iter();
            let before = before.filter(move |&&(_, first)| self.graph.leads(first, second));
            before.map(move |&(earlier, _)| (earlier, later))
        })
    }

    fn take(&mut self, stream: usize, steps: &[Given]) -> Result<(), Unordered> {
        let (queue, lane) = (self.program.streams[stream], self.lane(stream));
        let device = self.program.queues[queue].device;
        // Waits for semaphores mean what was there when the batch was submitted.
        let signals = self.state.signals.clone();
        let begin = [self.state.host, self.state.barriers[device], self.state.lanes[lane]];
        let owed = std::mem::take(&mut self.state.owed[lane]);
        let begin: Vec<_> = begin.into_iter().flatten().chain(owed).collect();
        let mut lasting = Vec::new();
        if !begin.is_empty() {
            let node = self.graph.add(begin);
            self.state.lanes[lane] = Some(node);
        }
        for step in steps {
            let own = self.state.lanes[lane];
            let others: Vec<usize> = match step {
                Given::Work(label, touches) => {
                    let node = self.graph.add(own);
                    self.state.lanes[lane] = Some(node);
                    self.works.push((label, node));
                    self.touch(node, label, touches)?;
                    continue;
                }
                Given::Record(at) => {
                    let beside = self.lanes_of(queue).filter(|&other| other != lane);
                    let beside = beside.filter_map(|other| self.state.lanes[other]);
                    self.state.events[*at] = own.into_iter().chain(beside).collect();
                    continue;
                }
                Given::Signal(at, value) => {
                    self.state.signals[*at].push((*value, own));
                    continue;
                }
                Given::Collective(_) => continue,
                Given::Wait(at) => self.state.fences[*at].into_iter().collect(),
                Given::WaitEvent(at) => self.state.events[*at].clone(),
                Given::WaitSemaphore(at, value) => {
                    let first = signals[*at].iter().find(|(reached, _)| reached >= value);
                    first.and_then(|&(_, node)| node).into_iter().collect()
                }
                Given::Streams(streams) => {
                    let queues = streams.iter().map(|&stream| self.program.streams[stream]);
                    queues
                        .flat_map(|at| self.lanes_of(at))
                        .filter_map(|at| self.state.lanes[at])
                        .collect()
                }
                Given::Device => {
                    let queues = 0..self.program.queues.len();
                    let queues = queues.filter(|&at| self.program.queues[at].device == device);
                    queues
                        .flat_map(|at| self.lanes_of(at))
                        .filter_map(|at| self.state.lanes[at])
                        .collect()
                }
            };
            lasting.extend_from_slice(&others);
            if !others.is_empty() {
                self.state.lanes[lane] = Some(self.graph.add(others.into_iter().chain(own)));
            }
            if matches!(step, Given::Device) {
                self.state.barriers[device] = self.state.lanes[lane];
            }
        }
        self.state.fences.push(self.state.lanes[lane]);
        for other in self.lanes_of(queue).filter(|&other| other != lane) {
            self.state.owed[other].extend_from_slice(&lasting);
        }
        let turn = &mut self.state.turns[queue];
        *turn = (*turn + 1) % self.program.queues[queue].lanes;
        Ok(())
    }

    /// What would become of a batch.
    pub(crate) fn would(&mut self, stream: usize, steps: &[Given]) -> Result<(), Unordered> {
        self.attempt(stream, steps, |_| false)
    }

    /// The host reads or writes, or it changes nothing.
    pub(crate) fn host(&mut self, touch: &Touch) -> Result<(), Unordered> {
        let node = self.graph.add(self.state.host);
        match self.touch(node, "host", std::slice::from_ref(touch)) {
            Ok(()) => self.state.host = Some(node),
            Err(unordered) => {
                self.graph.truncate(node);
                return Err(unordered);
            }
        }
        Ok(())
    }

    /// The host waits for the fence of a batch.
    pub(crate) fn wait(&mut self, fence: usize) {
        let before = [self.state.host, self.state.fences[fence]];
        self.state.host = Some(self.graph.add(before.into_iter().flatten()));
    }

    /// The host signals.
    pub(crate) fn signal(&mut self, semaphore: usize, value: u64) {
        let host = self.state.host;
        self.state.signals[semaphore].push((value, host));
    }

    fn touch(
        &mut self,
        node: usize,
        later: &'static str,
        touches: &[Touch],
    ) -> Result<(), Unordered> {
        let mut earlier = Vec::new();
        for touch in touches {
            let met = self
                .touches
                .iter()
                .filter(|(at, _, other)| other.conflicts(touch) && !self.graph.leads(*at, node));
            earlier.extend(met.map(|(_, label, other)| (*label, other.clone(), touch.clone())));
        }
        if !earlier.is_empty() {
            return Err(Unordered { later, earlier });
        }
        self.touches.extend(touches.iter().map(|touch| (node, later, touch.clone())));
        Ok(())
    }
}
