//! The program run entry by entry, with everything looked up anew.

use std::collections::BTreeSet;

use pontoon_queue::check::{Act, Command, HostWait, Program, QueueId, SemaphoreId, SemaphoreWait};

pub(crate) struct World<'a> {
    pub(crate) program: &'a Program,
    /// What went on, in order; a group of several is one collective.
    pub(crate) log: Vec<Vec<usize>>,
    pub(crate) done: Vec<bool>,
    /// All commands in the order of their submission, to whichever queue.
    pub(crate) submitted: Vec<usize>,
    pub(crate) value: Vec<u64>,
    pub(crate) holder: Vec<Option<usize>>,
    pub(crate) forced: Vec<bool>,
    pub(crate) mended: BTreeSet<(usize, SemaphoreId)>,
    /// How many commands had been submitted when a thread came to an entry.
    pub(crate) came: Vec<Option<usize>>,
}

impl<'a> World<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        let count = program.entries.len();
        Self {
            program,
            log: Vec::new(),
            done: vec![false; count],
            submitted: Vec::new(),
            value: program.semaphores.iter().map(|it| it.initial).collect(),
            holder: vec![None; program.locks],
            forced: vec![false; count],
            mended: BTreeSet::new(),
            came: vec![None; count],
        }
    }

    pub(crate) fn run(&mut self) {
        while self.device() || self.host() {}
    }

    pub(crate) fn on(&self, at: usize) -> Option<QueueId> {
        self.program.entries[at].submission().map(|(queue, _)| queue)
    }

    pub(crate) fn holds(&self, at: usize, wait: SemaphoreWait) -> bool {
        self.program.semaphores[wait.semaphore.0].external
            || self.value[wait.semaphore.0] >= wait.value
            || self.mended.contains(&(at, wait.semaphore))
    }

    /// Whether its thread stands at the entry.
    pub(crate) fn stands_at(&self, at: usize) -> bool {
        let passed = |at: usize| self.done[at] || self.submitted.contains(&at);
        let thread = self.program.entries[at].thread;
        !passed(at) && (0..at).all(|it| self.program.entries[it].thread != thread || passed(it))
    }

    /// The first command that its FIFO has not done.
    pub(crate) fn fifo_head(&self, at: usize) -> Option<usize> {
        let fifo = |at: usize| {
            self.on(at).map(|id| (self.program.queues[id.0].hardware.ok_or(id), id)).map(|it| it.0)
        };
        self.submitted.iter().copied().find(|&it| !self.done[it] && fifo(it) == fifo(at))
    }

    pub(crate) fn ready(&self, at: usize) -> bool {
        self.submitted.contains(&at)
            && self.fifo_head(at) == Some(at)
            && (self.forced[at] || self.own_waits_hold(at))
    }

    /// The commands that an entry waits for by a queue or an event.
    pub(crate) fn targets(&self, at: usize) -> Vec<usize> {
        let Some(count) = self.came[at] else { return Vec::new() };
        let before = &self.submitted[..count];
        let event = |id| {
            let record = |&&it: &&usize| {
                let (_, command) = self.program.entries[it].submission().expect("a command");
                matches!(command, Command::Record(other) if *other == id)
            };
            before.iter().rev().find(record).copied()
        };
        match &self.program.entries[at].act {
            Act::Submit(_, Command::WaitEvent(id)) => event(*id).into_iter().collect(),
            Act::Wait(waits) => waits
                .iter()
                .flat_map(|wait| match wait {
                    HostWait::Queue(id) => {
                        before.iter().copied().filter(|&it| self.on(it) == Some(*id)).collect()
                    }
                    HostWait::Event(id) => event(*id).into_iter().collect::<Vec<_>>(),
                    HostWait::Semaphore(_) => Vec::new(),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The earlier commands of the queues with which a command's own synchronises.
    pub(crate) fn partners_before(&self, at: usize) -> Vec<usize> {
        let (Some(count), Some(own)) = (self.came[at], self.on(at)) else { return Vec::new() };
        let lists = |a: QueueId, b: QueueId| self.program.queues[a.0].implicit.contains(&b);
        let before = self.submitted[..count].iter().copied();
        before
            .filter(|&it| self.on(it).is_some_and(|other| lists(own, other) || lists(other, own)))
            .collect()
    }

    fn own_waits_hold(&self, at: usize) -> bool {
        self.program.entries[at].semaphore_waits().all(|wait| self.holds(at, wait))
            && self.targets(at).iter().all(|&it| self.done[it])
            && self.partners_before(at).iter().all(|&it| self.done[it])
    }

    fn device(&mut self) -> bool {
        for at in self.submitted.clone() {
            if self.done[at] || self.fifo_head(at) != Some(at) {
                continue;
            }
            let collective = self.program.entries[at].work().and_then(|work| work.collective);
            let mut group = vec![at];
            if let (Some(id), false) = (collective, self.forced[at]) {
                group = (0..self.program.entries.len())
                    .filter(|&it| {
                        let work = self.program.entries[it].work();
                        !self.done[it] && work.and_then(|work| work.collective) == Some(id)
                    })
                    .collect();
            }
            if group.iter().all(|&it| self.ready(it)) {
                for &it in &group {
                    self.done[it] = true;
                    self.signal(it);
                }
                self.log.push(group);
                return true;
            }
        }
        false
    }

    fn host(&mut self) -> bool {
        for at in 0..self.program.entries.len() {
            if !self.stands_at(at) {
                continue;
            }
            self.came[at].get_or_insert(self.submitted.len());
            let entry = &self.program.entries[at];
            let passes = match &entry.act {
                _ if self.forced[at] => true,
                Act::Submit(queue, _) => {
                    let held = self
                        .submitted
                        .iter()
                        .filter(|&&it| !self.done[it] && self.on(it) == Some(*queue));
                    let held = held.count();
                    self.program.queues[queue.0].credits.is_none_or(|credits| held < credits)
                }
                Act::Wait(_) => self.own_waits_hold(at),
                Act::Lock(id) => self.holder[id.0].is_none(),
                _ => true,
            };
            if !passes {
                continue;
            }
            match &entry.act {
                Act::Submit(..) => {
                    self.came[at] = Some(self.submitted.len());
                    self.submitted.push(at);
                    return true;
                }
                Act::Lock(id) => self.holder[id.0] = Some(at),
                Act::Unlock(id) => {
                    let holder = self.holder[id.0];
                    if holder.is_some_and(|it| self.program.entries[it].thread == entry.thread) {
                        self.holder[id.0] = None;
                    }
                }
                _ => self.signal(at),
            }
            self.done[at] = true;
            self.log.push(vec![at]);
            return true;
        }
        false
    }

    fn signal(&mut self, at: usize) {
        for signal in self.program.entries[at].signals() {
            let value = &mut self.value[signal.semaphore.0];
            *value = signal.raise.of(*value);
        }
    }
}
