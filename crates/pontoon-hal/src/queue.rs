//! An in-order queue of one device.

use core::fmt;

use pontoon_signal::{Nanos, Seq, Slot};

use crate::{Command, Fault, FaultCell, Memory, WaitReport};

/// An in-order queue. Its completions are a counter: the n-th command done moves it to n.
///
/// - Q1: commands complete in the order submitted; each completion publishes one count, wait
///   commands included. The position that `submit` returns is the one the command's completion
///   publishes.
/// - Q2: `submit` neither blocks, allocates nor locks, and makes a system call only to wake a
///   device that sleeps. A full queue gives the command back.
/// - Q3: what a command wrote is readable by whoever acquired its completion, on every device
///   and on the host.
/// - Q4: a wait command holds back the commands after it until its signal is reached, and no
///   other queue. A wait that fails is a fault. Its deadline starts anew whenever the signal moves,
///   and it lasts at most [`WAIT_CAP`](crate::WAIT_CAP) deadlines in all. That either is used up is
///   noticed when a unit looks at the queue: while long kernels have all units, it is as late as
///   the first of them to end.
/// - Q5: after a fault nothing of the queue runs or completes any more, its signal is ended with
///   [`Fault::ending`], and `submit` returns the fault. The fault is readable by whoever saw the
///   ending. Other queues of the device go on, except after `DeviceLost`.
/// - Q6: a kernel reaches the bytes its command declared and nothing else. Two commands that run
///   at the same time never reach common bytes of which one writes: the second fails with a
///   hazard before it starts. A host access counts as one that runs, however short it is (M3).
/// - Q7: dropping the queue waits for nothing. What was submitted still runs; then the signal ends.
/// - Q8: the report has each completed wait under what its label says it was for
///   ([`Purpose`](crate::Purpose)) and under the signal it waited for, with how long it was the
///   queue's next command. What is completed is in it.
pub trait Queue: Send {
    /// The device's memory.
    type Memory: Memory;
    /// A kernel in the device's own language.
    type Kernel: Clone + Send;

    /// Submits `command` and returns the position that its completion will publish.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; the command was not taken.
    fn submit(&mut self, command: CommandOf<Self>) -> Result<Seq, SubmitError<CommandOf<Self>>>;

    /// The counter of completions.
    fn completions(&self) -> &Slot;

    /// The position of the last command submitted.
    fn submitted(&self) -> Seq;

    /// How many commands can be under way at once.
    fn depth(&self) -> u32;

    /// Where the queue records why it stopped.
    fn faults(&self) -> &FaultCell;

    /// Why the queue stopped, if it did.
    fn fault(&self) -> Option<Fault> {
        self.faults().get().cloned()
    }

    /// What the queue did so far.
    fn report(&self) -> QueueReport;
}

/// A command for the queue `Q`.
pub type CommandOf<Q> = Command<<Q as Queue>::Memory, <Q as Queue>::Kernel>;

/// Why a command was not taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubmitError<C> {
    /// As many commands as the queue holds are under way. The command comes back.
    Full(C),
    /// The command names bytes outside a region, the same bytes twice with one a write, copies
    /// between ranges of different lengths, or belongs on another engine.
    Malformed(&'static str),
    /// The queue stopped earlier.
    Faulted(Fault),
}

impl<C> fmt::Display for SubmitError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the queue is full"),
            Self::Malformed(why) => write!(f, "the command cannot be submitted: {why}"),
            Self::Faulted(fault) => fault.fmt(f),
        }
    }
}

impl<C: fmt::Debug> core::error::Error for SubmitError<C> {}

/// What a queue did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Commands completed, waits included.
    pub completed: u64,
    /// Time spent running kernels and copies.
    pub busy: Nanos,
    /// Wait commands completed.
    pub waits: u64,
    /// Time the queue was held back by waits, in all.
    pub held: Nanos,
    /// Time-outs of wait commands.
    pub timeouts: u64,
    /// Q8: the waits by what they were for, and for which signals.
    pub by: WaitReport,
}
