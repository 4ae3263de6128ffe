//! The same program for the checker of whole programs: a lane becomes a queue, and each step an entry
//! that signals a semaphore of its own.

use std::collections::BTreeMap;

use pontoon_queue::check::{
    self, Access, Act, Buffer, BufferId, Command, Entry, HostWait, Mode, Queue, QueueId, Raise,
    Semaphore, SemaphoreId, SemaphoreWait, Signal, ThreadId, Work,
};

use crate::{
    bench::Given,
    mock::World,
    program::{BUFFERS, Program, SEMAPHORES, Touch},
    write,
};

#[derive(Clone)]
pub(crate) struct Offline {
    pub(crate) program: check::Program,
    device_of: Vec<usize>,
    lanes_of: Vec<Vec<usize>>,
    /// Of each lane, the semaphore of its last entry.
    last: Vec<Option<usize>>,
    fences: Vec<Option<usize>>,
    events: BTreeMap<usize, Vec<usize>>,
    /// Of each lane, what its next batch waits for since batches of the others did.
    owed: Vec<Vec<usize>>,
    signals: [Vec<(u64, Option<usize>)>; SEMAPHORES],
    /// Of each device, the last global barrier.
    barriers: Vec<Option<usize>>,
    labels: BTreeMap<usize, &'static str>,
}

impl Offline {
    pub(crate) fn new(program: &Program) -> Self {
        let lanes = || program.queues.iter().enumerate().flat_map(|(at, it)| vec![at; it.lanes]);
        let of_queue = |queue: usize| lanes().enumerate().filter(move |it| it.1 == queue);
        let device_of: Vec<_> = lanes().map(|queue| program.queues[queue].device).collect();
        Self {
            program: check::Program {
                buffers: buffers(),
                queues: vec![Queue::default(); device_of.len()],
                threads: 1,
                ..Default::default()
            },
            lanes_of: program
                .streams
                .iter()
                .map(|&queue| of_queue(queue).map(|(lane, _)| lane).collect())
                .collect(),
            last: vec![None; device_of.len()],
            fences: Vec::new(),
            events: BTreeMap::new(),
            owed: vec![Vec::new(); device_of.len()],
            signals: Default::default(),
            barriers: vec![None; program.devices],
            labels: BTreeMap::new(),
            device_of,
        }
    }

    pub(crate) fn scenario(&self) -> String {
        write::scenario(&self.program)
    }

    /// The command's label, if the entry is one.
    pub(crate) fn label(&self, entry: usize) -> Option<&'static str> {
        self.labels.get(&entry).copied()
    }

    pub(crate) fn submit(&mut self, lane: usize, steps: &[Given]) {
        let signals = self.signals.clone();
        let barrier = self.barriers[self.device_of[lane]];
        let owed = std::mem::take(&mut self.owed[lane]);
        self.entry(lane, &[], owed.into_iter().chain(barrier));
        let beside = self.lanes_of.iter().find(|lanes| lanes.contains(&lane)).cloned();
        let beside: Vec<_> = beside.into_iter().flatten().filter(|&other| other != lane).collect();
        let mut lasting = Vec::new();
        for step in steps {
            let own = self.last[lane];
            let waits: Vec<_> = match step {
                Given::Work(label, touches) => {
                    self.labels.insert(self.program.entries.len(), label);
                    self.entry(lane, touches, None);
                    continue;
                }
                Given::Record(at) => {
                    let others = beside.iter().filter_map(|&other| self.last[other]);
                    self.events.insert(*at, own.into_iter().chain(others).collect());
                    continue;
                }
                Given::Signal(at, value) => {
                    self.signals[*at].push((*value, own));
                    continue;
                }
                Given::Collective(_) => continue,
                Given::Wait(at) => vec![self.fences[*at]],
                Given::WaitEvent(at) => {
                    let all = self.events.get(at).cloned().unwrap_or_default();
                    all.into_iter().map(Some).collect()
                }
                Given::WaitSemaphore(at, value) => {
                    let first = signals[*at].iter().find(|(reached, _)| reached >= value);
                    vec![first.and_then(|&(_, at)| at)]
                }
                Given::Streams(all) => {
                    let lanes = all.iter().flat_map(|&stream| &self.lanes_of[stream]);
                    lanes.map(|&lane| self.last[lane]).collect()
                }
                Given::Device => {
                    let same = |at: &usize| self.device_of[*at] == self.device_of[lane];
                    (0..self.last.len()).filter(same).map(|at| self.last[at]).collect()
                }
            };
            lasting.extend(waits.iter().copied().flatten());
            self.entry(lane, &[], waits.into_iter().flatten());
            if matches!(step, Given::Device) {
                self.barriers[self.device_of[lane]] = self.last[lane];
            }
        }
        self.fences.push(self.last[lane]);
        for &other in &beside {
            self.owed[other].extend_from_slice(&lasting);
        }
    }

    pub(crate) fn host(&mut self, touch: &Touch) {
        self.act(Act::Access(accesses(std::slice::from_ref(touch))));
    }

    pub(crate) fn wait(&mut self, fence: usize) {
        if let Some(at) = self.fences[fence] {
            self.act(Act::Wait(vec![HostWait::Semaphore(wait(at))]));
        }
    }

    /// What is submitted after it comes after it: nobody waits for it.
    pub(crate) fn signal(&mut self, semaphore: usize, value: u64) {
        self.signals[semaphore].push((value, None));
    }

    fn entry(&mut self, lane: usize, touches: &[Touch], waits: impl IntoIterator<Item = usize>) {
        let own = self.program.semaphores.len();
        self.program.semaphores.push(Semaphore::default());
        let signals = vec![Signal { semaphore: SemaphoreId(own), raise: Raise::To(1) }];
        let waits = waits.into_iter().map(wait).collect();
        let work = Work { accesses: accesses(touches), waits, signals, ..Work::default() };
        self.act(Act::Submit(QueueId(lane), Command::Work(work)));
        self.last[lane] = Some(own);
    }

    fn act(&mut self, act: Act) {
        self.program.entries.push(Entry { thread: ThreadId(0), act });
    }
}

/// What devices were given, as a scenario.
pub(crate) fn of_log(world: &World) -> String {
    let mut program = check::Program { threads: 1, ..check::Program::default() };
    program.buffers = buffers();
    program.queues = vec![Queue::default(); world.lanes()];
    for (own, node) in world.log.iter().enumerate() {
        program.semaphores.push(Semaphore::default());
        let waits = node.waits.iter().map(|&(lane, count)| wait(world.node(lane, count)));
        let accesses = accesses(&node.touches);
        let signals = vec![Signal { semaphore: SemaphoreId(own), raise: Raise::To(1) }];
        let mut act = |act| program.entries.push(Entry { thread: ThreadId(0), act });
        match node.lane {
            Some(lane) => {
                let work = Work { accesses, waits: waits.collect(), signals, ..Work::default() };
                act(Act::Submit(QueueId(lane), Command::Work(work)));
            }
            None => {
                act(Act::Wait(waits.map(HostWait::Semaphore).collect()));
                act(Act::Access(accesses));
            }
        }
    }
    write::scenario(&program)
}

fn buffers() -> Vec<Buffer> {
    BUFFERS.iter().map(|&size| Buffer { of: None, size: size as u64 }).collect()
}

fn wait(at: usize) -> SemaphoreWait {
    SemaphoreWait { semaphore: SemaphoreId(at), value: 1 }
}

fn accesses(touches: &[Touch]) -> Vec<Access> {
    let access = |touch: &Touch| Access {
        buffer: BufferId(touch.buffer),
        range: touch.range.start as u64..touch.range.end as u64,
        mode: if touch.writes { Mode::Write } else { Mode::Read },
    };
    touches.iter().map(access).collect()
}
