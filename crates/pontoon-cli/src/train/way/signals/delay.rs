//! Holding a command back for a while, so that who should have waited for it comes first.

use std::{
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};

use pontoon::{Fence, SignalTable, SlotId, TableShape, signal::Seq};

use crate::train::plan::Step;

/// How long: far longer than what follows takes to be submitted and to run.
const DELAY: Duration = Duration::from_millis(20);
/// In which steps: later ones would only make the run longer.
const STEPS: std::ops::Range<usize> = 1..4;

/// Gates that a thread of its own opens, some time after each was asked for.
pub(super) struct Delay {
    last: Fence,
    ask: Sender<Instant>,
}

impl Delay {
    pub(super) fn new() -> Self {
        let table = SignalTable::in_process(TableShape::new(1, 1));
        let slot = SlotId::new(0, 0);
        let free = "a new table has its slot free";
        let mut publisher = table.publisher(slot).expect(free);
        let last = Fence::on(table.slot(slot).expect(free), Seq::new(0), "delay");
        let (ask, asked) = channel::<Instant>();
        // It ends when the sender is dropped. Without a thread the gates end, and say so.
        let started = thread::Builder::new().name("delay".into()).spawn(move || {
            for at in asked {
                thread::sleep((at + DELAY).saturating_duration_since(Instant::now()));
                publisher.pub_release(1);
            }
        });
        drop(started);
        Self { last, ask }
    }

    /// Whether a step is one that is disturbed.
    pub(super) fn is_due(step: &Step) -> bool {
        STEPS.contains(&step.index)
    }

    /// A fence that is reached a while from now.
    pub(super) fn next(&mut self) -> Fence {
        self.last = self.last.later(1);
        // If the thread is gone its signal has ended, and the wait says so.
        let _ = self.ask.send(Instant::now());
        self.last.clone()
    }
}
