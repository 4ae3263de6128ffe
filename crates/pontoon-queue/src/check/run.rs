//! What can run at all: the program is run with devices that take no time.
//!
//! Of the threads that can go on, the one whose next entry comes first in the program does, and
//! then all commands run that can. So the program's own order is kept wherever it is possible, and
//! where a thread blocks the others run on. What is left when nothing moves is stuck for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::program::{
    Act, CollectiveId, Command, HostWait, Program, QueueId, SemaphoreId, SemaphoreWait,
};

/// One step of the run.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A host thread did something that is no submission.
    Host(usize),
    /// A host thread gave a command to a queue.
    Submit(usize),
    /// These commands started together, and ended.
    Run(Vec<usize>),
}

/// What an entry turned out to refer to, known when its thread came to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    /// How far queues had been filled that it waits for: by name, or as implicit partners.
    pub(super) queues: Vec<(QueueId, usize)>,
    /// The records that events stood for.
    pub(super) records: Vec<usize>,
    /// The unlock after which it took its lock.
    pub(super) unlock: Option<usize>,
    /// Its number within its thread or its queue.
    pub(super) number: usize,
    /// Its number among all submissions.
    turn: usize,
    came: bool,
}

/// A run of a program, which can be gone on with after something in its way was taken out.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) program: &'a Program,
    pub(super) steps: Vec<Step>,
    pub(super) met: Vec<Met>,
    /// Of each queue, what it was given, in that order.
    pub(super) given: Vec<Vec<usize>>,
    pub(super) done: Vec<bool>,
    pub(super) submitted: Vec<bool>,
    /// Of each collective, its entries.
    pub(super) together: BTreeMap<CollectiveId, Vec<usize>>,
    /// Of each mutex, the `lock` entry that holds it.
    pub(super) holder: Vec<Option<usize>>,
    pub(super) partners: Vec<Vec<QueueId>>,
    /// Entries that go on although they have to wait.
    forced: Vec<bool>,
    /// Waits that are taken for satisfied.
    mended: BTreeSet<(usize, SemaphoreId)>,
    ran: Vec<usize>,
    turns: usize,
    threads: Vec<Vec<usize>>,
    next: Vec<usize>,
    fifo_of: Vec<usize>,
    fifos: Vec<VecDeque<usize>>,
    values: Vec<u64>,
    unlocked: Vec<Option<usize>>,
    recorded: Vec<Option<usize>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let count = program.entries.len();
        let mut threads = vec![Vec::new(); program.threads];
        let mut together = BTreeMap::<_, Vec<_>>::new();
        for (at, entry) in program.entries.iter().enumerate() {
            threads[entry.thread.0].push(at);
            if let Some(id) = entry.work().and_then(|work| work.collective) {
                together.entry(id).or_default().push(at);
            }
        }
        let mut shared = BTreeMap::new();
        let mut fifos = 0;
        let mut new = || {
            fifos += 1;
            fifos - 1
        };
        let fifo_of = program.queues.iter().map(|queue| match queue.hardware {
            Some(id) => *shared.entry(id).or_insert_with(&mut new),
            None => new(),
        });
        let fifo_of = fifo_of.collect();
        Self {
            program,
            steps: Vec::with_capacity(2 * count),
            met: vec![Met::default(); count],
            given: vec![Vec::new(); program.queues.len()],
            done: vec![false; count],
            submitted: vec![false; count],
            together,
            holder: vec![None; program.locks],
            partners: partners(program),
            forced: vec![false; count],
            mended: BTreeSet::new(),
            ran: vec![0; program.queues.len()],
            turns: 0,
            next: vec![0; threads.len()],
            threads,
            fifo_of,
            fifos: vec![VecDeque::new(); fifos],
            values: program.semaphores.iter().map(|semaphore| semaphore.initial).collect(),
            unlocked: vec![None; program.locks],
            recorded: vec![None; program.events],
        }
    }

    /// Runs until nothing moves.
    pub(super) fn go_on(&mut self) {
        loop {
            self.run_devices();
            let mut heads: Vec<_> =
                (0..self.threads.len()).filter_map(|thread| self.standing(thread)).collect();
            heads.sort_unstable();
            let Some(at) = heads.into_iter().find(|&at| {
                self.come_to(at);
                self.may_pass(at)
            }) else {
                return;
            };
            self.pass(at);
        }
    }

    /// Lets an entry go on although it has to wait.
    pub(super) fn force(&mut self, at: usize) {
        self.forced[at] = true;
    }

    /// Takes an entry's wait for a semaphore for satisfied.
    pub(super) fn mend(&mut self, at: usize, semaphore: SemaphoreId) {
        self.mended.insert((at, semaphore));
    }

    pub(super) fn is_forced(&self, at: usize) -> bool {
        self.forced[at]
    }

    /// The entry at which a thread stands.
    pub(super) fn standing(&self, thread: usize) -> Option<usize> {
        self.threads[thread].get(self.next[thread]).copied()
    }

    /// The command at the head of a queue's FIFO.
    pub(super) fn head(&self, queue: QueueId) -> Option<usize> {
        self.fifos[self.fifo_of[queue.0]].front().copied()
    }

    pub(super) fn value(&self, semaphore: usize) -> u64 {
        self.values[semaphore]
    }

    pub(super) fn holds(&self, at: usize, wait: SemaphoreWait) -> bool {
        let semaphore = wait.semaphore.0;
        self.program.semaphores[semaphore].external
            || self.values[semaphore] >= wait.value
            || self.mended.contains(&(at, wait.semaphore))
    }

    /// What a queue was given first and has not done, if it was filled to `filled` then.
    pub(super) fn unfinished(&self, queue: QueueId, filled: usize) -> &[usize] {
        let given = &self.given[queue.0];
        let to = filled.min(given.len());
        &given[self.ran[queue.0].min(to)..to]
    }

    /// Whether a submission would be the one that a queue has no credit for.
    pub(super) fn lacks_credit(&self, queue: QueueId) -> bool {
        let unfinished = self.given[queue.0].len() - self.ran[queue.0];
        self.program.queues[queue.0].credits.is_some_and(|credits| unfinished >= credits)
    }

    /// Notes what an entry refers to, at the moment when its thread comes to it.
    fn come_to(&mut self, at: usize) {
        if self.met[at].came {
            return;
        }
        self.met[at].came = true;
        let Act::Wait(waits) = &self.program.entries[at].act else { return };
        for wait in waits {
            match wait {
                HostWait::Queue(id) => {
                    self.met[at].queues.push((*id, self.given[id.0].len()));
                }
                HostWait::Event(id) => self.met[at].records.extend(self.recorded[id.0]),
                HostWait::Semaphore(_) => {}
            }
        }
    }

    fn may_pass(&self, at: usize) -> bool {
        self.forced[at]
            || match &self.program.entries[at].act {
                Act::Submit(queue, _) => !self.lacks_credit(*queue),
                Act::Wait(_) => self.waits_hold(at),
                Act::Lock(id) => self.holder[id.0].is_none(),
                _ => true,
            }
    }

    fn waits_hold(&self, at: usize) -> bool {
        let met = &self.met[at];
        self.program.entries[at].semaphore_waits().all(|wait| self.holds(at, wait))
            && met.records.iter().all(|&record| self.done[record])
            && met.queues.iter().all(|&(queue, filled)| self.ran[queue.0] >= filled)
    }

    fn pass(&mut self, at: usize) {
        let entry = &self.program.entries[at];
        let thread = entry.thread.0;
        self.next[thread] += 1;
        if let Act::Submit(queue, command) = &entry.act {
            self.submit(at, *queue, command);
            return;
        }
        self.met[at].number = self.next[thread] - 1;
        self.done[at] = true;
        self.steps.push(Step::Host(at));
        match &entry.act {
            Act::Lock(id) => {
                self.holder[id.0] = Some(at);
                self.met[at].unlock = self.unlocked[id.0];
            }
            Act::Unlock(id) => {
                let held = self.holder[id.0];
                if held.is_some_and(|held| self.program.entries[held].thread == entry.thread) {
                    self.holder[id.0] = None;
                }
                self.unlocked[id.0] = Some(at);
            }
            _ => self.signal(at),
        }
    }

    fn submit(&mut self, at: usize, queue: QueueId, command: &Command) {
        self.steps.push(Step::Submit(at));
        let met = &mut self.met[at];
        met.number = self.given[queue.0].len();
        met.turn = self.turns;
        self.turns += 1;
        met.queues = self.partners[queue.0]
            .iter()
            .map(|&partner| (partner, self.given[partner.0].len()))
            .collect();
        match command {
            Command::Record(id) => self.recorded[id.0] = Some(at),
            Command::WaitEvent(id) => met.records.extend(self.recorded[id.0]),
            _ => {}
        }
        self.submitted[at] = true;
        self.given[queue.0].push(at);
        self.fifos[self.fifo_of[queue.0]].push_back(at);
    }

    fn signal(&mut self, at: usize) {
        for signal in self.program.entries[at].signals() {
            let value = &mut self.values[signal.semaphore.0];
            *value = signal.raise.of(*value);
        }
    }

    /// Of the commands that can start, the one that was submitted first does, and so on.
    fn run_devices(&mut self) {
        loop {
            let heads = self.fifos.iter().filter_map(|fifo| fifo.front().copied());
            let groups =
                heads.filter_map(|head| Some((self.met[head].turn, self.startable(head)?)));
            match groups.min() {
                Some((_, group)) => self.start(group),
                None => return,
            }
        }
    }

    /// The command at a head and those that start with it, if they can.
    fn startable(&self, head: usize) -> Option<Vec<usize>> {
        if self.forced[head] {
            return Some(vec![head]);
        }
        let collective = self.program.entries[head].work().and_then(|work| work.collective);
        let Some(id) = collective else {
            return self.waits_hold(head).then(|| vec![head]);
        };
        let group: Vec<_> =
            self.together[&id].iter().copied().filter(|&member| !self.done[member]).collect();
        group.iter().all(|&member| self.ready(member)).then_some(group)
    }

    /// Whether a command is at the head of its FIFO and its own waits hold.
    pub(super) fn ready(&self, at: usize) -> bool {
        let submission = self.program.entries[at].submission();
        submission.is_some_and(|(queue, _)| self.head(queue) == Some(at))
            && (self.forced[at] || self.waits_hold(at))
    }

    fn start(&mut self, group: Vec<usize>) {
        for &at in &group {
            if let Some((queue, _)) = self.program.entries[at].submission() {
                self.fifos[self.fifo_of[queue.0]].pop_front();
                self.ran[queue.0] += 1;
            }
            self.done[at] = true;
        }
        for &at in &group {
            self.signal(at);
        }
        self.steps.push(Step::Run(group));
    }

    /// The entries that have not gone on yet, in order.
    pub(super) fn to_come(&self) -> Vec<usize> {
        (0..self.done.len()).filter(|&at| !self.done[at]).collect()
    }
}

/// Of each queue, those with which its commands synchronise, whichever of the two says so.
fn partners(program: &Program) -> Vec<Vec<QueueId>> {
    let mut partners = vec![Vec::new(); program.queues.len()];
    for (at, queue) in program.queues.iter().enumerate() {
        for &other in &queue.implicit {
            partners[at].push(other);
            partners[other.0].push(QueueId(at));
        }
    }
    for list in &mut partners {
        list.sort_unstable();
        list.dedup();
    }
    partners
}
