//! Batches that wait for each other: a session refuses exactly those that close a circle, and gives
//! devices exactly what can go on.

use pontoon_queue::{Edges, Refusal};

use crate::{
    Counts,
    bench::{Bench, Given},
    derived::resolve,
    mock::Mock,
    program::{Act, COLLECTIVES, EVENTS, Program, SEMAPHORES, Step},
};

pub(crate) fn is_told(program: &Program, counts: &mut Counts) -> Result<(), String> {
    let devices = Mock::devices(program.devices, program.depth);
    let mut bench = Bench::new(program, &devices, Edges::Check, 0);
    let mut model = Model::new(program);
    let mut works = 0;
    let mut signalled = [0; SEMAPHORES];
    let rest = (0..2 * SEMAPHORES).map(|at| Act::Signal(at % SEMAPHORES, 100));
    for act in program.acts.iter().cloned().chain(rest) {
        match &act {
            Act::Batch(stream, steps) => {
                let mut moved = signalled;
                let mut given = resolve(&bench, steps, &mut works, &mut moved);
                let waits = steps.iter().filter_map(|step| match step {
                    Step::WaitSemaphore(_, value) => Some(*value),
                    _ => None,
                });
                let own = given.iter_mut().filter_map(|step| match step {
                    Given::WaitSemaphore(_, value) => Some(value),
                    _ => None,
                });
                own.zip(waits).for_each(|(own, value)| *own = value);
                let wanted = model.submit(*stream, &given);
                let found = bench.submit(*stream, &given).map_err(|refused| refused.why);
                match (wanted, &found) {
                    (Wanted::Taken, Ok(())) => {
                        signalled = moved;
                        counts.accepted += 1;
                    }
                    (Wanted::Circle, Err(Refusal::Deadlock(_))) => counts.circles += 1,
                    (Wanted::NoMember, Err(Refusal::NotAMember { .. })) => counts.refused += 1,
                    (wanted, found) => {
                        let found = found.as_ref().map_err(ToString::to_string);
                        return Err(format!("{wanted:?} of {given:?}, and the session: {found:?}"));
                    }
                }
            }
            Act::Signal(at, by) => {
                let promised = model.is_promised(*at);
                let to = signalled[*at] + by;
                match bench.session.signal(bench.semaphores[*at], to) {
                    Ok(()) if !promised => signalled[*at] = to,
                    Err(Refusal::Promised { .. }) if promised => continue,
                    other => return Err(format!("promised: {promised}, and {other:?}")),
                }
                model.signal(*at, to);
            }
            _ => continue,
        }
        model.go_on();
        for (batch, fence) in bench.fences.iter().enumerate() {
            let (goes, went) = (model.ran[model.ends[batch]], fence.target().is_some());
            if goes != went {
                return Err(format!("batch {batch} can go on: {goes}; a device has it: {went}"));
            }
        }
    }
    counts.parked += bench.session.counts().parked;
    bench.world().run_all();
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Taken,
    Circle,
    NoMember,
}

/// Every step of what was taken, and which others it comes after.
#[derive(Clone)]
struct Model<'p> {
    program: &'p Program,
    before: Vec<Vec<usize>>,
    ran: Vec<bool>,
    /// Lacks a signal or a member of its collective.
    lacks: Vec<bool>,
    lanes: Vec<Vec<Option<usize>>>,
    turns: Vec<usize>,
    /// Of each batch, what comes after all of its steps.
    ends: Vec<usize>,
    events: [Vec<usize>; EVENTS],
    /// Of each lane, what its next batch comes after since batches of the others do.
    owed: Vec<Vec<Vec<usize>>>,
    /// Values and who signals them; `None` for the host.
    signals: [Vec<(u64, Option<usize>)>; SEMAPHORES],
    waits: Vec<(usize, usize, u64)>,
    /// Streams, steps, and what comes before each in its lane.
    members: [Vec<(usize, usize, Option<usize>)>; COLLECTIVES],
}

impl<'p> Model<'p> {
    fn new(program: &'p Program) -> Self {
        Self {
            program,
            before: Vec::new(),
            ran: Vec::new(),
            lacks: Vec::new(),
            lanes: program.queues.iter().map(|queue| vec![None; queue.lanes]).collect(),
            turns: vec![0; program.queues.len()],
            ends: Vec::new(),
            events: Default::default(),
            owed: program.queues.iter().map(|queue| vec![Vec::new(); queue.lanes]).collect(),
            signals: Default::default(),
            waits: Vec::new(),
            members: Default::default(),
        }
    }

    fn submit(&mut self, stream: usize, steps: &[Given]) -> Wanted {
        let before = self.clone();
        let mut wanted = self.take(stream, steps);
        if self.has_circle() {
            wanted = Wanted::Circle;
        }
        if !matches!(wanted, Wanted::Taken) {
            *self = before;
        }
        wanted
    }

    fn take(&mut self, stream: usize, steps: &[Given]) -> Wanted {
        let queue = self.program.streams[stream];
        let lane = self.turns[queue];
        let mut lasting = Vec::new();
        let begin = self.node(self.lanes[queue][lane]);
        let owed = std::mem::take(&mut self.owed[queue][lane]);
        self.before[begin].extend(owed);
        self.lanes[queue][lane] = Some(begin);
        for step in steps {
            let own = self.lanes[queue][lane];
            let at = self.node(own);
            self.lanes[queue][lane] = Some(at);
            match step {
                Given::Wait(batch) => {
                    self.before[at].push(self.ends[*batch]);
                    lasting.push(self.ends[*batch]);
                }
                Given::WaitEvent(event) => {
                    self.before[at].extend_from_slice(&self.events[*event]);
                    lasting.extend_from_slice(&self.events[*event]);
                }
                Given::Record(event) => {
                    let lanes = self.lanes[queue].iter().enumerate();
                    let beside = lanes.filter(|&(other, _)| other != lane);
                    let beside = beside.filter_map(|(_, &last)| last);
                    self.events[*event] = beside.chain([at]).collect();
                }
                Given::WaitSemaphore(semaphore, value) => {
                    let reached = self.node(None);
                    self.waits.push((reached, *semaphore, *value));
                    self.lacks[reached] = true;
                    self.before[at].push(reached);
                    lasting.push(reached);
                }
                Given::Signal(semaphore, value) => {
                    let all = &mut self.signals[*semaphore];
                    self.before[at].extend(all.last().and_then(|&(_, earlier)| earlier));
                    all.push((*value, Some(at)));
                }
                Given::Collective(id) => {
                    let all = &mut self.members[*id];
                    if all.len() == 2 || all.iter().any(|&(other, ..)| other == stream) {
                        return Wanted::NoMember;
                    }
                    all.push((stream, at, own));
                    self.lacks[at] = true;
                    if let [(_, one, first), (_, other, second)] = all[..] {
                        for at in [one, other] {
                            self.lacks[at] = false;
                            self.before[at].extend(first.into_iter().chain(second));
                        }
                    }
                }
                _ => {}
            }
            self.assign();
        }
        let end = self.node(self.lanes[queue][lane]);
        self.lanes[queue][lane] = Some(end);
        self.ends.push(end);
        for (other, owed) in self.owed[queue].iter_mut().enumerate() {
            if other != lane {
                owed.extend_from_slice(&lasting);
            }
        }
        self.turns[queue] = (lane + 1) % self.lanes[queue].len();
        Wanted::Taken
    }

    fn node(&mut self, before: Option<usize>) -> usize {
        self.before.push(before.into_iter().collect());
        self.ran.push(false);
        self.lacks.push(false);
        self.before.len() - 1
    }

    /// A wait is for the first signal submitted that is enough.
    fn assign(&mut self) {
        let Self { waits, signals, before, lacks, .. } = self;
        waits.retain(|&(at, semaphore, value)| {
            let first = signals[semaphore].iter().find(|&&(reached, _)| reached >= value);
            let Some(&(_, signal)) = first else { return true };
            before[at].extend(signal);
            lacks[at] = false;
            false
        });
    }

    fn signal(&mut self, semaphore: usize, value: u64) {
        self.signals[semaphore].push((value, None));
        self.assign();
    }

    /// Whether a signal has been submitted that cannot be made yet.
    fn is_promised(&self, semaphore: usize) -> bool {
        let signals = self.signals[semaphore].iter();
        signals.filter_map(|&(_, at)| at).any(|at| !self.ran[at])
    }

    fn go_on(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.before.len() {
            let may = !self.lacks[at] && self.before[at].iter().all(|&before| self.ran[before]);
            if may && !self.ran[at] {
                self.ran[at] = true;
                moved = true;
            }
        }
        moved
    }

    /// Whether something comes after itself, whatever is lacking.
    fn has_circle(&self) -> bool {
        let mut free = vec![false; self.before.len()];
        let mut moved = true;
        while moved {
            moved = false;
            for at in 0..free.len() {
                if !free[at] && self.before[at].iter().all(|&before| free[before]) {
                    free[at] = true;
                    moved = true;
                }
            }
        }
        free.contains(&false)
    }
}
