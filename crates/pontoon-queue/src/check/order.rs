//! What must be ordered: which end comes before which start in every run.
//!
//! The steps of the run are gone through once, and each start gets a clock joined from all that it
//! must come after. The run is one of many: which signal satisfied a wait in it is no proof, so a
//! wait joins only the signals without which its value cannot be reached (`signals.rs`). An edge
//! found makes more signals descend from waits, which can make more edges; the passes are repeated
//! until there are none.

use super::{
    program::{Act, ClassId, Command, QueueId},
    run::{Run, Step},
    signals::Signals,
};
use crate::clock::{Axis, Clock};

/// How two entries stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// One ends, and is visible, before the other starts.
    Ordered,
    /// The same, by the classes of barriers: what is after the second need not be after the first.
    Chained,
    /// One ends before the other starts, but is not visible to it.
    Unseen,
    /// Nothing orders them.
    Unordered,
}

/// The clocks of a run.
#[derive(Debug)]
pub(super) struct Order<'a> {
    run: &'a Run<'a>,
    /// Of each entry, what must have happened when it starts: of a host entry, itself included.
    starts: Vec<Option<Clock>>,
    /// Of each command of a queue in launch order, what must be visible when it starts.
    visible: Vec<Option<Clock>>,
}

impl<'a> Order<'a> {
    pub(super) fn of(run: &'a Run<'a>) -> Self {
        let mut signals = Signals::of(run);
        loop {
            let order = Self::pass(run, &signals);
            if !signals.learn(&order) {
                return order;
            }
        }
    }

    /// Whether the entry has run.
    pub(super) fn has(&self, at: usize) -> bool {
        self.starts[at].is_some() && self.run.done[at]
    }

    /// Whether `first` must have ended when `second` starts.
    pub(super) fn ends_before(&self, first: usize, second: usize) -> bool {
        let (axis, number) = self.end(first);
        first != second
            && self.starts[second].as_ref().is_some_and(|clock| clock.covers(axis, number))
    }

    /// Whether `first` must have started when `second` does; an entry starts before itself.
    pub(super) fn starts_before(&self, first: usize, second: usize) -> bool {
        let axis = match self.run.program.entries[first].submission() {
            Some((queue, _)) => self.starts_axis(queue),
            None => self.end(first).0,
        };
        let number = self.number(first);
        self.starts[second].as_ref().is_some_and(|clock| clock.covers(axis, number))
    }

    /// The axis and the number of an entry's end.
    pub(super) fn end(&self, at: usize) -> (Axis, u64) {
        let entry = &self.run.program.entries[at];
        let axis = match entry.submission() {
            Some((queue, _)) => self.ends_axis(queue),
            None => Axis(index(entry.thread.0)),
        };
        (axis, self.number(at))
    }

    /// How an entry stands to one that the run came to later.
    pub(super) fn relation(&self, earlier: usize, later: usize) -> Relation {
        if !self.ends_before(earlier, later) {
            return Relation::Unordered;
        }
        let (Some(visible), Some((queue, _))) =
            (&self.visible[later], self.run.program.entries[earlier].submission())
        else {
            return Relation::Ordered;
        };
        let (axis, number) = self.end(earlier);
        let same = self.run.program.entries[later].submission().is_some_and(|at| at.0 == queue);
        if !same || visible.covers(axis, number) {
            Relation::Ordered
        } else if self.chained(queue, earlier, later) {
            Relation::Chained
        } else {
            Relation::Unseen
        }
    }

    /// Whether the barriers between two commands of a queue hand one's accesses to the other.
    fn chained(&self, queue: QueueId, earlier: usize, later: usize) -> bool {
        let entries = &self.run.program.entries;
        let class = |at: usize| entries[at].work().and_then(|work| work.class);
        let between = self.run.met[earlier].number + 1..self.run.met[later].number;
        let mut seen = Seen::Only(Vec::new());
        for &at in self.run.given[queue.0].get(between).unwrap_or(&[]) {
            if let Some((_, Command::Barrier { from, to })) = entries[at].submission() {
                let own = match (class(earlier), from) {
                    (Some(class), Some(from)) => from.contains(&class),
                    (None, Some(from)) => !from.is_empty(),
                    (_, None) => true,
                };
                if own || seen.meets(from.as_deref()) {
                    seen.add(to.as_deref());
                }
            }
        }
        match class(later) {
            Some(class) => seen.meets(Some(&[class])),
            None => seen.meets(None),
        }
    }

    fn number(&self, at: usize) -> u64 {
        event(self.run.met[at].number)
    }

    fn starts_axis(&self, queue: QueueId) -> Axis {
        Axis(index(self.run.program.threads + 2 * queue.0))
    }

    fn ends_axis(&self, queue: QueueId) -> Axis {
        Axis(self.starts_axis(queue).0 + 1)
    }

    fn pass(run: &'a Run<'a>, signals: &Signals<'_>) -> Self {
        let count = run.program.entries.len();
        let mut order = Self { run, starts: vec![None; count], visible: vec![None; count] };
        let axes = run.program.threads + 2 * run.program.queues.len();
        let mut threads = vec![Clock::new(axes); run.program.threads];
        let mut events = vec![0; run.program.threads];
        let mut submissions = vec![None; count];
        for step in &run.steps {
            match step {
                Step::Host(at) | Step::Submit(at) => {
                    let thread = run.program.entries[*at].thread.0;
                    let clock = &mut threads[thread];
                    if matches!(step, Step::Host(_)) {
                        order.join_waits(clock, *at, signals);
                    }
                    // Numbers within a thread count its submissions too.
                    events[thread] += 1;
                    clock.advance(Axis(index(thread)), events[thread]);
                    if matches!(step, Step::Host(_)) {
                        order.starts[*at] = Some(clock.clone());
                    } else {
                        submissions[*at] = Some(clock.clone());
                    }
                }
                Step::Run(group) => order.start(group, &mut submissions, signals),
            }
        }
        order
    }

    /// Gives their clocks to commands that start together.
    fn start(&mut self, group: &[usize], submissions: &mut [Option<Clock>], signals: &Signals<'_>) {
        let mut all = Clock::default();
        for &at in group {
            let mut clock = submissions[at].take().unwrap_or_default();
            self.join_waits(&mut clock, at, signals);
            let Some((queue, _)) = self.run.program.entries[at].submission() else { continue };
            let number = self.run.met[at].number;
            clock.advance(self.starts_axis(queue), event(number + 1));
            // What does not come by this queue's own order is visible to all classes.
            let mut visible = clock.clone();
            if let Some(&before) =
                number.checked_sub(1).and_then(|n| self.run.given[queue.0].get(n))
            {
                self.join_queue(&mut clock, &mut visible, queue, before);
            }
            all.join(&clock);
            self.starts[at] = Some(clock);
            self.visible[at] = Some(visible);
        }
        for &at in group {
            let Some((queue, _)) = self.run.program.entries[at].submission() else { continue };
            if !self.run.program.queues[queue.0].launch_order {
                self.visible[at] = None;
            }
            if group.len() > 1 {
                let mut others = Clock::default();
                for other in group.iter().filter(|&&other| other != at) {
                    others.join(self.starts[*other].as_ref().unwrap_or(&all));
                }
                if let Some(visible) = &mut self.visible[at] {
                    visible.join(&others);
                }
            }
        }
        if group.len() > 1 {
            for &at in group {
                self.starts[at] = Some(all.clone());
            }
        }
    }

    /// Joins what the queue's order puts before the command after `before`.
    fn join_queue(&self, clock: &mut Clock, visible: &mut Clock, queue: QueueId, before: usize) {
        let number = self.run.met[before].number;
        let barrier = match self.run.program.entries[before].submission() {
            Some((_, Command::Barrier { from: None, to: None })) => Some(true),
            Some((_, Command::Barrier { .. })) => Some(false),
            _ => None,
        };
        if !self.run.program.queues[queue.0].launch_order {
            self.join_drained(clock, queue, number + 1);
            return;
        }
        for (clock, known) in [(&mut *clock, &self.starts), (&mut *visible, &self.visible)] {
            if let Some(started) = &known[before] {
                clock.join(started);
            }
        }
        if barrier.is_some() {
            clock.advance(self.ends_axis(queue), event(number + 1));
        }
        if barrier == Some(true) {
            visible.advance(self.ends_axis(queue), event(number + 1));
        }
    }

    /// Joins what is known when a queue has done the first `count` commands that it was given.
    ///
    /// Each start knows those before it, so the last one's knows all but the ends.
    fn join_drained(&self, clock: &mut Clock, queue: QueueId, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        if let Some(started) =
            self.run.given[queue.0].get(last).and_then(|&at| self.starts[at].as_ref())
        {
            clock.join(started);
            clock.advance(self.ends_axis(queue), event(count));
        }
    }

    /// Joins what an entry's own waits, locks and partners put before it.
    fn join_waits(&self, clock: &mut Clock, at: usize, signals: &Signals<'_>) {
        let met = &self.run.met[at];
        for &(queue, filled) in &met.queues {
            self.join_drained(clock, queue, filled);
        }
        for &record in &met.records {
            if let Some((queue, _)) = self.run.program.entries[record].submission() {
                self.join_drained(clock, queue, self.run.met[record].number + 1);
            }
        }
        if let (Act::Lock(_), Some(unlock)) = (&self.run.program.entries[at].act, met.unlock) {
            self.join_end(clock, unlock);
        }
        for &signal in signals.before(at) {
            self.join_end(clock, signal);
        }
    }

    fn join_end(&self, clock: &mut Clock, at: usize) {
        if let Some(started) = &self.starts[at] {
            clock.join(started);
            let (axis, number) = self.end(at);
            clock.mark(axis, number);
        }
    }
}

/// The classes to which an access is visible.
enum Seen<'a> {
    All,
    Only(Vec<&'a [ClassId]>),
}

impl<'a> Seen<'a> {
    fn meets(&self, classes: Option<&[ClassId]>) -> bool {
        match (self, classes) {
            (Self::All, classes) => classes.is_none_or(|classes| !classes.is_empty()),
            (Self::Only(seen), None) => seen.iter().any(|to| !to.is_empty()),
            (Self::Only(seen), Some(classes)) => {
                seen.iter().any(|to| to.iter().any(|class| classes.contains(class)))
            }
        }
    }

    fn add(&mut self, classes: Option<&'a [ClassId]>) {
        match (self, classes) {
            (Self::All, _) => {}
            (Self::Only(seen), Some(classes)) => seen.push(classes),
            (this, None) => *this = Self::All,
        }
    }
}

/// Each axis has a place in every clock, so memory ends long before this is cut.
fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Entries are fewer than 2^32 (`validate.rs`), so that this is never cut.
fn event(number: usize) -> u64 {
    number as u64
}
