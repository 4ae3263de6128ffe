//! A compute unit or copy engine: a thread that runs whatever queue can go on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrayvec::ArrayVec;
use pontoon_hal::Engine;
use pontoon_signal::{GROUP_MAX, Host, Nanos, Os, Seq, Wait, Waiter};

use crate::{
    execute::{self, dispose},
    lane::{Lane, Look},
    rest::Rest,
    shared::{QUEUES, RollCall, Shared},
};

/// Commands of one queue run in a row before the unit looks at the others.
const BATCH: u32 = 8;
/// What an idle unit can watch besides the device's changes.
const WATCHED_MAX: usize = GROUP_MAX - 1;
/// How soon a unit looks again at what it could not watch.
const UNWATCHED: Nanos = Nanos(1_000_000);

// One thing of each queue: no unit of a device has more to watch than it can.
const _: () = assert!(QUEUES as usize <= WATCHED_MAX);

/// Runs commands of `engine` until the device ends.
pub(crate) fn run(shared: &Shared, engine: Engine, first: usize) {
    let mut unit = Unit::new(shared, engine, first);
    // Kernels are caught where they run. What unwinds to here was captured by a kernel that never
    // ran, and dropped with its queue; the unit goes on.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| unit.run())) {
        dispose(panic);
    }
}

/// Invariant U1: when a unit sleeps, each queue of its engine is watched by it, or looked at again
/// soon, or is run by another unit that wakes it before turning to something else.
struct Unit<'s> {
    shared: &'s Shared,
    engine: Engine,
    changes: Waiter,
    /// Where `changes` was before the unit last asked for the device's queues.
    seen: Option<Seq>,
    /// Which of the device's lists of queues `lanes` is.
    generation: u64,
    lanes: Vec<Member>,
    turn: usize,
    /// The queue whose command this unit ran last, until it turned to something else.
    last: Option<Arc<Lane>>,
    rest: Rest,
}

/// A queue of the unit's engine.
struct Member {
    lane: Arc<Lane>,
    arrivals: Waiter,
}

impl Member {
    fn new(shared: &Shared, lane: Arc<Lane>) -> Self {
        let arrivals = shared.waiter(&lane.arrivals);
        Self { lane, arrivals }
    }
}

impl<'s> Unit<'s> {
    fn new(shared: &'s Shared, engine: Engine, turn: usize) -> Self {
        let changes = shared.waiter(&shared.changes);
        let (seen, generation, lanes, last) = (None, 0, Vec::new(), None);
        Self { shared, engine, changes, seen, generation, lanes, turn, last, rest: Rest::new() }
    }

    fn run(&mut self) {
        loop {
            // Before the roll call: a change that it misses ends the sleep.
            let changes = self.changes.value();
            if self.seen != Some(changes) && !self.roll_call() {
                return;
            }
            self.seen = Some(changes);
            let (mut watch, mut ran) = (Watch::default(), false);
            for offset in 0..self.lanes.len() {
                let index = (self.turn + offset) % self.lanes.len();
                let lane = Arc::clone(&self.lanes[index].lane);
                ran |= self.run_lane(index, &lane, &mut watch);
            }
            self.turn = self.turn.wrapping_add(1);
            if !ran {
                self.leave_last();
                self.sleep(&watch, changes);
            }
        }
    }

    /// Learns of the device's queues; whether the unit goes on.
    fn roll_call(&mut self) -> bool {
        match self.shared.roll_call(self.engine, self.generation) {
            RollCall::Same => {}
            RollCall::Changed(generation, lanes) => {
                self.generation = generation;
                let lanes = lanes.into_iter();
                self.lanes = lanes.map(|lane| Member::new(self.shared, lane)).collect();
            }
            RollCall::Over => return false,
        }
        true
    }

    /// Runs what it can of one queue. Whether anything ran.
    fn run_lane(&mut self, index: usize, lane: &Arc<Lane>, watch: &mut Watch) -> bool {
        let mut look = lane.look(self.shared);
        let mut count = 0;
        loop {
            let outcome = match look {
                Look::Ran => None,
                Look::Run(command) => {
                    if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, lane)) {
                        self.leave_last();
                        self.last = Some(Arc::clone(lane));
                    }
                    Some((command.label(), execute::run(command, self.shared)))
                }
                Look::Busy => break,
                Look::Empty(target) => {
                    watch.add(Watched::Arrivals(index, target), None);
                    break;
                }
                Look::Held { waiter, target, deadline } => {
                    watch.add(Watched::Signal(waiter, target), deadline);
                    break;
                }
                Look::Over => {
                    self.shared.close(lane);
                    break;
                }
            };
            count += 1;
            let enough = count == BATCH;
            look = match outcome {
                Some((label, outcome)) if enough => {
                    lane.finish(label, outcome);
                    break;
                }
                Some((label, outcome)) => lane.finish_and_look(label, outcome, self.shared),
                None if enough => break,
                None => lane.look(self.shared),
            };
        }
        count > 0
    }

    /// Turns away from the queue it ran last: others who found it busy look again (U1).
    fn leave_last(&mut self) {
        let Some(last) = self.last.take() else { return };
        if last.was_passed_over() {
            self.shared.wake_units();
        }
        // What is dropped with the queue may panic, and a command of another one is in hand.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(last))) {
            dispose(panic);
        }
    }

    /// Passes the time until something of `watch` changes, or the device does after `changes`.
    fn sleep(&mut self, watch: &Watch, changes: Seq) {
        let mut waits: ArrayVec<_, GROUP_MAX> = ArrayVec::new();
        waits.push(Wait::new(&self.changes, changes + 1));
        waits.extend(watch.watched.iter().map(|watched| match watched {
            Watched::Arrivals(index, target) => Wait::new(&self.lanes[*index].arrivals, *target),
            Watched::Signal(waiter, target) => Wait::new(waiter, *target),
        }));
        self.rest.until_settled(&waits, watch.deadline);
    }
}

/// What an idle unit watches, besides the device's changes.
struct Watch {
    watched: ArrayVec<Watched, WATCHED_MAX>,
    deadline: Nanos,
}

enum Watched {
    /// What is submitted to the unit's queue of this index.
    Arrivals(usize, Seq),
    /// What a wait command waits for.
    Signal(Waiter, Seq),
}

impl Default for Watch {
    fn default() -> Self {
        Self { watched: ArrayVec::new(), deadline: Nanos(u64::MAX) }
    }
}

impl Watch {
    fn add(&mut self, watched: Watched, deadline: Option<Nanos>) {
        self.deadline = self.deadline.min(deadline.unwrap_or(Nanos(u64::MAX)));
        if self.watched.try_push(watched).is_err() {
            // Nothing would wake the unit for it, so it looks by itself (U1).
            self.deadline = self.deadline.min(Os.now().saturating_add(UNWATCHED));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pontoon_hal::{Access, Cause, Command, Engine, Mode, Queue, RegionId};
    use pontoon_signal::{Bound, Host, Load, Nanos, Os, Rank, Seq};

    use super::{BATCH, Member, UNWATCHED, Unit, WATCHED_MAX, Watch, Watched};
    use crate::{
        execute,
        kernel::Kernel,
        lane::Look,
        memory::{HOST, Region},
        queue::{CpuQueue, Number},
        shared::{Shared, new_signal},
    };

    fn shared() -> Shared {
        Shared::new(Rank(1), Seq::new(u64::MAX), Load::CompareSwap)
    }

    fn queue(shared: &Shared, slot: u32) -> CpuQueue {
        let signal = new_signal(Rank(1), slot, Seq::new(u64::MAX));
        CpuQueue::new(shared, Engine::Compute, "q", signal, Number::default(), 4)
    }

    fn submit(queue: &mut CpuQueue, kernel: Kernel) {
        let (accesses, arguments) = Default::default();
        queue.submit(Command::Launch { label: "k", kernel, accesses, arguments }).unwrap();
    }

    /// U1, where timing alone would seldom get: a unit passes a busy queue and goes to sleep, and
    /// the other one then turns to another queue.
    #[test]
    fn who_passed_a_busy_queue_is_woken_before_another_queue_runs() {
        let shared = shared();
        let (mut first, mut second) = (queue(&shared, 1), queue(&shared, 2));
        submit(&mut first, Kernel::new(|_| {}));
        let changes_seen = Arc::new(Mutex::new(None));
        submit(&mut second, {
            let (seen, changes) = (Arc::clone(&changes_seen), shared.changes.clone());
            Kernel::new(move |_| *seen.lock().unwrap() = Some(changes.value()))
        });
        let before = shared.changes.value();
        let mut busy = Unit::new(&shared, Engine::Compute, 0);
        let mut passing = Unit::new(&shared, Engine::Compute, 1);
        let mut watch = Watch::default();

        let Look::Run(command) = first.lane().look(&shared) else { panic!("it can run") };
        busy.last = Some(Arc::clone(first.lane()));
        assert!(!passing.run_lane(0, first.lane(), &mut watch));
        assert!(watch.watched.is_empty(), "a busy queue has nothing to be watched");
        first.lane().finish("k", execute::run(command, &shared));
        assert_eq!(shared.changes.value(), before, "nobody needs to be woken yet");

        assert!(busy.run_lane(1, second.lane(), &mut watch));
        assert_eq!(*changes_seen.lock().unwrap(), Some(before + 1));
        busy.leave_last();
        assert_eq!(shared.changes.value(), before + 1, "the second queue was passed by nobody");
        assert_eq!(first.completions().value(), first.submitted());
    }

    #[test]
    fn who_passed_a_busy_queue_is_woken_before_the_other_sleeps() {
        let shared = shared();
        let mut first = queue(&shared, 1);
        submit(&mut first, Kernel::new(|_| {}));
        let before = shared.changes.value();
        let Look::Run(command) = first.lane().look(&shared) else { panic!("it can run") };
        assert!(matches!(first.lane().look(&shared), Look::Busy));
        first.lane().finish("k", execute::run(command, &shared));
        let mut unit = Unit::new(&shared, Engine::Compute, 0);
        unit.last = Some(Arc::clone(first.lane()));
        unit.leave_last();
        assert_eq!(shared.changes.value(), before + 1);
    }

    #[test]
    fn a_queue_that_panics_when_it_is_let_go_takes_no_other_s_command_along() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped a bomb");
            }
        }
        let shared = shared();
        let (mut first, mut second) = (queue(&shared, 1), queue(&shared, 2));
        let bomb = Bomb;
        submit(&mut first, Kernel::new(move |_| assert_eq!(size_of_val(&bomb), 0)));
        submit(&mut second, Kernel::new(|_| {}));
        let mut unit = Unit::new(&shared, Engine::Compute, 0);
        unit.last = Some(Arc::clone(first.lane()));
        drop(first);
        let mut watch = Watch::default();
        assert!(unit.run_lane(1, second.lane(), &mut watch));
        assert_eq!(second.completions().value(), second.submitted());
    }

    /// A unit turns to the others after a batch, and the next command is still there.
    #[test]
    fn no_command_is_lost_between_two_batches() {
        let shared = shared();
        let (engine, depth) = (Engine::Compute, 2 * BATCH + 1);
        // The last of a batch is a wait, and then a kernel.
        for waits_at in [1, 0] {
            let signal = new_signal(Rank(1), 1, Seq::new(u64::MAX));
            let mut queue = CpuQueue::new(&shared, engine, "q", signal, Number::default(), depth);
            for index in 0..depth {
                if index % 2 == waits_at {
                    let (slot, target) = (queue.completions().clone(), queue.submitted());
                    let (label, bound) = ("w", Bound::default());
                    queue.submit(Command::Wait { label, slot, target, bound }).unwrap();
                } else {
                    submit(&mut queue, Kernel::new(|_| {}));
                }
            }
            let (first, lane) = (queue.completions().value(), Arc::clone(queue.lane()));
            let mut unit = Unit::new(&shared, engine, 0);
            for done in [BATCH, 2 * BATCH, depth] {
                assert!(unit.run_lane(0, &lane, &mut Watch::default()));
                assert_eq!(queue.completions().value(), first + done);
            }
            assert!(!unit.run_lane(0, &lane, &mut Watch::default()));
        }
    }

    /// U1, where a device had more queues than a group has members.
    #[test]
    fn what_cannot_be_watched_is_looked_at_again_soon() {
        let shared = shared();
        let mut watch = Watch::default();
        for index in 0..WATCHED_MAX {
            watch.add(Watched::Arrivals(index, Seq::new(0)), None);
        }
        assert_eq!(watch.deadline, Nanos(u64::MAX), "all that is watched wakes the unit");
        let before = Os.now();
        watch.add(Watched::Signal(shared.waiter(&shared.changes), Seq::new(0)), None);
        assert_eq!(watch.watched.len(), WATCHED_MAX);
        let latest = Os.now().saturating_add(UNWATCHED);
        assert!((before..=latest).contains(&watch.deadline), "{:?}", watch.deadline);
    }

    /// What a kernel completes after its device was lost stays out: the ending is the last word.
    #[test]
    fn nothing_completes_after_a_loss() {
        let shared = shared();
        let mut first = queue(&shared, 1);
        submit(&mut first, Kernel::new(|_| {}));
        let Look::Run(command) = first.lane().look(&shared) else { panic!("it can run") };
        first.lane().lose();
        first.lane().finish("k", execute::run(command, &shared));
        assert_eq!(first.completions().value(), Seq::new(u64::MAX));
        assert!(matches!(first.lane().look(&shared), Look::Over));
        assert_eq!(first.report().completed, 0);
    }

    /// C3, where no result would show it.
    #[test]
    fn whatever_is_polled_is_polled_as_the_device_says() {
        let shared = shared();
        let (first, mut second) = (queue(&shared, 1), queue(&shared, 2));
        let (slot, target, bound) =
            (first.completions().clone(), first.submitted() + 1, Bound::default());
        second.submit(Command::Wait { label: "w", slot, target, bound }).unwrap();
        let mut unit = Unit::new(&shared, Engine::Compute, 0);
        let mut watch = Watch::default();
        unit.run_lane(0, first.lane(), &mut watch);
        unit.run_lane(1, second.lane(), &mut watch);
        assert_eq!(unit.changes.load(), Load::CompareSwap);
        let [Watched::Arrivals(0, _), Watched::Signal(waiter, _)] = &watch.watched[..] else {
            panic!("an arrival and a wait")
        };
        assert_eq!(waiter.load(), Load::CompareSwap);
        let member = Member::new(&shared, Arc::clone(first.lane()));
        assert_eq!(member.arrivals.load(), Load::CompareSwap);
    }

    /// M3: while the host has bytes, a command that starts and needs them is the one that fails.
    #[test]
    fn a_command_that_starts_during_a_host_access_meets_a_hazard() {
        let shared = shared();
        let region = Region::allocate(RegionId(7), Rank(1), 64).unwrap();
        for (mode, refused) in [(Mode::Write, true), (Mode::Read, false)] {
            let mut queue = queue(&shared, 1);
            let access = Access { memory: region.clone(), range: 0..4, mode: Mode::Read };
            let (label, kernel) = ("k", Kernel::new(|_| {}));
            let (accesses, arguments) = ([access].into_iter().collect(), Default::default());
            queue.submit(Command::Launch { label, kernel, accesses, arguments }).unwrap();
            let host = region.borrow(0..64, mode, HOST).unwrap();
            let mut unit = Unit::new(&shared, Engine::Compute, 0);
            unit.run_lane(0, queue.lane(), &mut Watch::default());
            drop(host);
            match queue.fault().map(|fault| fault.cause) {
                Some(Cause::Hazard(hazard)) => assert!(refused && hazard.on.is_none()),
                None => assert!(!refused, "the host was writing"),
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}
