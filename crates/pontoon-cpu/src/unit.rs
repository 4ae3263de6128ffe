//! A compute unit or copy engine: a thread that runs whatever queue can go on.

use std::sync::Arc;

use arrayvec::ArrayVec;
use pontoon_hal::Engine;
use pontoon_signal::{Bound, GROUP_MAX, Host, Nanos, Os, Seq, Slot, Wait, Waiter, wait_settled};

use crate::{
    device::Shared,
    queue::{Lane, Step},
};

/// Commands of one queue run in a row before the unit looks at the others.
const BATCH: u32 = 8;
/// Looks at all signals before an idle unit first gives its core away. Units outnumber cores, so
/// an idle one must not keep a busy one waiting: this is some microseconds.
const SPIN: u32 = 64;
/// Times that an idle unit gives its core away before it sleeps.
const YIELDS: u32 = 4;
/// The longest sleep without anything happening.
const LONGEST: Nanos = Nanos(1_000_000_000);

/// Runs commands of `engine` until the device ends.
pub(crate) fn run(shared: &Shared, engine: Engine, first: usize) {
    let mut seen = shared.changes.value();
    let mut lanes = shared.lanes(engine);
    let mut turn = first;
    while !shared.is_over() {
        let now = shared.changes.value();
        if now != seen {
            seen = now;
            lanes = shared.lanes(engine);
        }
        let mut watch = Watch::new(&shared.changes, seen + 1);
        let mut ran = false;
        for offset in 0..lanes.len() {
            let lane = &lanes[(turn + offset) % lanes.len()];
            ran |= run_lane(lane, shared, &mut watch);
        }
        turn = turn.wrapping_add(1);
        if !ran {
            watch.sleep();
        }
    }
}

/// Runs what it can of one queue. Whether anything ran.
fn run_lane(lane: &Arc<Lane>, shared: &Shared, watch: &mut Watch) -> bool {
    // The unit that has the queue looks at it again when its command is done.
    let Some(mut runner) = lane.try_runner() else { return false };
    for count in 0..BATCH {
        match runner.step(lane, shared) {
            Step::Ran => {}
            Step::Idle { slot, target, deadline } => {
                watch.add(slot, target, deadline);
                return count > 0;
            }
            Step::Over => {
                drop(runner);
                shared.close(lane);
                return count > 0;
            }
        }
    }
    true
}

/// What an idle unit sleeps on.
struct Watch {
    waits: ArrayVec<(Waiter, Seq), GROUP_MAX>,
    deadline: Nanos,
}

impl Watch {
    fn new(changes: &Slot, target: Seq) -> Self {
        let mut waits = ArrayVec::new();
        waits.push((changes.uncounted_waiter(), target));
        Self { waits, deadline: Nanos(u64::MAX) }
    }

    fn add(&mut self, slot: Slot, target: Seq, deadline: Option<Nanos>) {
        // A device has fewer queues than a group may have members.
        let _ = self.waits.try_push((slot.uncounted_waiter(), target));
        self.deadline = self.deadline.min(deadline.unwrap_or(Nanos(u64::MAX)));
    }

    fn sleep(&self) {
        let left = self.deadline.since(Os.now()).min(LONGEST).max(Nanos(1));
        let bound = Bound::within(left.as_duration()).spinning(SPIN).yielding(YIELDS);
        let waits: ArrayVec<_, GROUP_MAX> =
            self.waits.iter().map(|(waiter, target)| Wait::new(waiter, *target)).collect();
        // A time-out is as good as a wake: the unit looks at its queues again.
        let _ = wait_settled(&waits, bound);
    }
}
