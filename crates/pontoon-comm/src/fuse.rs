//! A fuse: the proxy's end of a trigger.

use pontoon_signal::{Seq, Slot};

use crate::{Task, ring::Taken};

/// Tasks that were prepared, and how often they were fired.
///
/// Invariant U1: `fired` is what was taken of whole rounds of the tasks; `next` is the task of the round that
/// is under way.
#[derive(Debug)]
pub(crate) struct Fuse {
    tasks: Box<[Task]>,
    counter: Slot,
    fired: Seq,
    next: usize,
}

impl Fuse {
    /// For at least one task, which each step of `counter` fires.
    pub(crate) fn new(tasks: Box<[Task]>, counter: Slot) -> Self {
        let fired = counter.value();
        Self { tasks, counter, fired, next: 0 }
    }

    /// Where its counter was when it was made.
    pub(crate) fn start(&self) -> Seq {
        self.fired
    }

    /// Whether it was fired and something is left to do.
    pub(crate) fn is_lit(&self) -> bool {
        self.counter.value() != self.fired
    }

    /// Whether its counter never moves again, and all that was fired was taken.
    pub(crate) fn is_spent(&self) -> bool {
        // In this order: the counter of a trigger that is gone is the last there is.
        self.counter.ending().is_some() && !self.is_lit()
    }

    /// Offers up to `most` tasks to `take`, each with the round that is done with it. Gives how many were
    /// taken.
    pub(crate) fn drain(
        &mut self,
        most: u32,
        mut take: impl FnMut(Seq, Option<&Task>) -> Taken,
    ) -> u32 {
        // What the kernel wrote before it fired is read by the link on this thread.
        let counter = self.counter.acquire();
        let mut taken = 0;
        while taken < most && counter != self.fired {
            let Some(task) = self.tasks.get(self.next) else { break };
            let is_last = self.next + 1 == self.tasks.len();
            let done_with = if is_last { self.fired + 1 } else { self.fired };
            if take(done_with, Some(task)) == Taken::No {
                break;
            }
            taken += 1;
            (self.fired, self.next) =
                if is_last { (done_with, 0) } else { (self.fired, self.next + 1) };
        }
        taken
    }
}
