//! The clause of [`Queue`] that is about wait commands.

use std::{
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{Seq, WaitError};

use super::{Bench, Checked, Gate, MOMENT, QueueOf, Subject, queue::fault_of};
use crate::{Cause, Queue, WAIT_CAP};

/// Q4: a wait holds back the commands after it and no other queue; a wait that fails is a fault.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q4_a_wait_holds_back_its_own_queue<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q4", 1);
    let (mut held, mut free) = (bench.queue("held"), bench.queue("free"));
    let (behind, beside) = (bench.region(16), bench.region(16));
    let mut gate = Gate::new();
    let start = held.submitted();
    // A depth of one leaves room for the wait alone.
    let room = held.depth() > 1;
    let waiting = bench.submit(&mut held, bench.wait(&gate.slot, gate.opened));
    if room {
        bench.submit(&mut held, bench.fill(&behind, 7));
    }
    for round in 0..50 {
        bench.finish(&mut free, bench.fill(&beside, round));
        bench.holds_true("a wait let its queue go on", held.completions().value() == start);
    }
    bench.holds(&behind, 0);
    gate.open();
    bench.reached(held.completions(), waiting);
    if room {
        bench.reached(held.completions(), waiting + 1);
        bench.holds(&behind, 7);
    }

    let gate = Gate::new();
    let never = bench.submit(&mut held, bench.wait_within(&gate.slot, gate.opened, MOMENT));
    bench.ended(held.completions(), never);
    let fault = fault_of::<S>(&held, "Q4");
    bench.holds_true("a time-out is at another position", fault.at == never);
    let Cause::Wait(error) = fault.cause else { panic!("Q4: a wait failed as {fault}") };
    bench.holds_true("a wait past its bound is no time-out", error.is_timeout());
    bench.holds_true("a time-out names another signal", error.at().slot == gate.slot.id());
    bench.holds_true("the report counts no time-out", held.report().timeouts == 1);

    let mut orphan = bench.queue("orphan");
    let lonely = bench.submit(&mut orphan, bench.wait(&gate.slot, gate.opened));
    drop(gate);
    let error = bench.ended(orphan.completions(), lonely);
    let dead = matches!(error, WaitError::PeerDead { rank, .. } if rank.0 == Gate::RANK);
    bench.holds_true("who waits for a queue does not learn who is dead", dead);
    bench.finish(&mut free, bench.fill(&beside, 1));
    Checked::Yes
}

/// Q4: a wait goes on past its deadline while its signal moves, fails when it stands still, and
/// fails at the cap however much it moves.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn q4_a_deadline_starts_anew_when_the_signal_moves<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "Q4", 1);
    let (start, mut time) = (Instant::now(), 5 * MOMENT);
    loop {
        let mut creep = Creep::new(&bench, time);
        let begun = Instant::now();
        creep.on_until(|_| begun.elapsed() > 3 * time);
        if creep.queue.fault().is_none() {
            let error = creep.timed_out();
            bench.holds_true("a time-out has another position", error.at().found == creep.at);
            break;
        }
        bench.holds_true("a wait failed while its signal moved", creep.stood_still > time / 2);
        // This thread did not get a core for so long.
        bench.still_patient(start, "no signal could be kept moving");
        time *= 2;
    }

    let mut creep = Creep::new(&bench, MOMENT);
    let start = Instant::now();
    creep.on_until(|queue| {
        bench.still_patient(start, "a wait whose signal moves never reached its cap");
        queue.fault().is_some()
    });
    let WaitError::TimedOut { waited, .. } = creep.timed_out() else {
        panic!("Q4: a wait past its cap is no time-out")
    };
    let whole = waited.as_duration() >= WAIT_CAP * MOMENT;
    bench.holds_true("the cap came too early", whole || creep.stood_still > MOMENT / 2);
    Checked::Yes
}

/// A queue that waits for a signal which moves and never gets there.
struct Creep<'b, S: Subject> {
    bench: &'b Bench<'b, S>,
    queue: QueueOf<S>,
    gate: Gate,
    waiting: Seq,
    /// Where the signal is.
    at: Seq,
    moved: Instant,
    /// The longest time between two moves.
    stood_still: Duration,
}

impl<'b, S: Subject> Creep<'b, S> {
    /// More moves than there will be.
    const FAR: u32 = u32::MAX;

    fn new(bench: &'b Bench<'b, S>, time: Duration) -> Self {
        let (mut queue, gate) = (bench.queue("creeping"), Gate::new());
        let (at, moved) = (gate.slot.value(), Instant::now());
        let wait = bench.wait_within(&gate.slot, at + Self::FAR, time);
        let waiting = bench.submit(&mut queue, wait);
        Self { bench, queue, gate, waiting, at, moved, stood_still: Duration::ZERO }
    }

    /// Moves the signal every millisecond or so until `done`.
    fn on_until(&mut self, mut done: impl FnMut(&QueueOf<S>) -> bool) {
        while !done(&self.queue) {
            if self.moved.elapsed() > MOMENT / 20 {
                self.gate.open();
                self.at = self.at + 1;
                self.stood_still = self.stood_still.max(self.moved.elapsed());
                self.moved = Instant::now();
            }
            thread::yield_now();
        }
    }

    /// How the wait fails when the signal moves no more.
    fn timed_out(&self) -> WaitError {
        self.bench.ended(self.queue.completions(), self.waiting);
        let Cause::Wait(error) = fault_of::<S>(&self.queue, "Q4").cause else {
            panic!("Q4: a wait failed as something else")
        };
        self.bench.holds_true("a wait past its bound is no time-out", error.is_timeout());
        error
    }
}
