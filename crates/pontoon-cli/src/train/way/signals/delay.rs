//! Holding a command back until who should have waited for it has come first.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, Fence, SignalTable, SlotId, TableShape,
    signal::{Publisher, Seq},
};

use crate::train::plan::Step;

/// How long at most: who does wait after all is not waited for.
const LONGEST: Duration = Duration::from_millis(100);
/// In which steps: later ones would only make the run longer.
const STEPS: std::ops::Range<usize> = 1..4;

/// Gates that a thread of its own opens in order.
pub(super) struct Delay {
    last: Fence,
    tell: Sender<Told>,
}

/// What the thread is told.
enum Told {
    /// A gate was closed, at that moment.
    Closed(Instant),
    /// The last gate closed may be opened when this is reached.
    Until(Fence),
}

impl Delay {
    pub(super) fn new() -> Self {
        let table = SignalTable::in_process(TableShape::new(1, 1));
        let slot = SlotId::new(0, 0);
        let free = "a new table has its slot free";
        let publisher = table.publisher(slot).expect(free);
        let last = Fence::on(table.slot(slot).expect(free), Seq::new(0), "delay");
        let (tell, told) = channel::<Told>();
        // It ends when the sender is dropped. Without a thread the gates end, and say so.
        let started = thread::Builder::new().name("delay".into());
        drop(started.spawn(move || open_all(&told, publisher)));
        Self { last, tell }
    }

    /// Whether a step is one that is disturbed.
    pub(super) fn is_due(step: &Step) -> bool {
        STEPS.contains(&step.index)
    }

    /// The fence of another gate.
    pub(super) fn next(&mut self) -> Fence {
        self.last = self.last.later(1);
        // If the thread is gone its signal has ended, and the waits say so.
        let _ = self.tell.send(Told::Closed(Instant::now()));
        self.last.clone()
    }

    /// Opens the last gate once `fence` is reached.
    pub(super) fn open_after(&self, fence: &Fence) {
        let _ = self.tell.send(Told::Until(fence.clone()));
    }
}

/// Opens each gate when it was told to, and `LONGEST` after it was closed in any case.
fn open_all(told: &Receiver<Told>, mut publisher: Publisher) {
    let mut next = told.recv().ok();
    while let Some(now) = next.take() {
        // Of a gate that was opened already.
        let Told::Closed(at) = now else {
            next = told.recv().ok();
            continue;
        };
        let left = || (at + LONGEST).saturating_duration_since(Instant::now());
        match told.recv_timeout(left()) {
            Ok(Told::Until(fence)) => {
                let bound = Bound::within(left().max(Duration::from_nanos(1)));
                drop(fence.wait(bound));
            }
            Ok(closed @ Told::Closed(_)) => {
                thread::sleep(left());
                next = Some(closed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(left()),
        }
        publisher.pub_release(1);
        next = next.or_else(|| told.recv().ok());
    }
}
