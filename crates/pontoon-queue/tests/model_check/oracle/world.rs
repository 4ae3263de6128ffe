//! The program run entry by entry, with everything looked up anew.

use std::collections::{BTreeSet, VecDeque};

use pontoon_queue::check::{
    Act, Command, FifoId, HostWait, Program, QueueId, SemaphoreId, SemaphoreWait,
};

pub(crate) struct World<'a> {
    pub(crate) program: &'a Program,
    /// What went on, in order; a group of several is one collective.
    pub(crate) log: Vec<Vec<usize>>,
    pub(crate) done: Vec<bool>,
    /// The entries that each thread has before it.
    ahead: Vec<VecDeque<usize>>,
    /// All commands in the order of their submission, to whichever queue.
    pub(crate) submitted: Vec<usize>,
    /// Where in `submitted` an entry's command is.
    pub(crate) place: Vec<Option<usize>>,
    /// Of the commands submitted, those that have not run.
    pub(crate) pending: Vec<usize>,
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
        let mut ahead = vec![VecDeque::new(); program.threads];
        for (at, entry) in program.entries.iter().enumerate() {
            ahead[entry.thread.0].push_back(at);
        }
        Self {
            program,
            log: Vec::new(),
            done: vec![false; count],
            ahead,
            submitted: Vec::new(),
            place: vec![None; count],
            pending: Vec::new(),
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
        self.ahead[self.program.entries[at].thread.0].front() == Some(&at)
    }

    /// The FIFO that a command goes through: one that queues share, or its queue's own.
    pub(crate) fn fifo(&self, at: usize) -> Option<Result<FifoId, QueueId>> {
        self.on(at).map(|id| self.program.queues[id.0].hardware.ok_or(id))
    }

    /// The first command that its FIFO has not done.
    pub(crate) fn fifo_head(&self, at: usize) -> Option<usize> {
        let own = self.fifo(at);
        self.pending.iter().copied().find(|&it| self.fifo(it) == own)
    }

    pub(crate) fn ready(&self, at: usize) -> bool {
        self.place[at].is_some()
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
        for next in 0..self.pending.len() {
            let at = self.pending[next];
            if self.fifo_head(at) != Some(at) {
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
                self.pending.retain(|it| !group.contains(it));
                self.log.push(group);
                return true;
            }
        }
        false
    }

    fn host(&mut self) -> bool {
        let mut stands: Vec<_> = self.ahead.iter().filter_map(|it| it.front().copied()).collect();
        stands.sort_unstable();
        for at in stands {
            self.came[at].get_or_insert(self.submitted.len());
            let entry = &self.program.entries[at];
            let passes = match &entry.act {
                _ if self.forced[at] => true,
                Act::Submit(queue, _) => {
                    let held = self.pending.iter().filter(|&&it| self.on(it) == Some(*queue));
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
            self.ahead[entry.thread.0].pop_front();
            match &entry.act {
                Act::Submit(..) => {
                    self.came[at] = Some(self.submitted.len());
                    self.place[at] = Some(self.submitted.len());
                    self.submitted.push(at);
                    self.pending.push(at);
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
