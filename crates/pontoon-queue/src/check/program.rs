//! What is checked: which devices a program has and what its host threads did with them.

use std::ops::Range;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);
    )*};
}

id! {
    /// A place in [`Program::buffers`].
    BufferId,
    /// A place in [`Program::queues`].
    QueueId,
    /// A place in [`Program::semaphores`].
    SemaphoreId,
    /// A host thread, one of [`Program::threads`].
    ThreadId,
    /// A host mutex, one of [`Program::locks`].
    LockId,
    /// An event, one of [`Program::events`].
    EventId,
    /// A collective: all commands with the same one start together.
    CollectiveId,
    /// A class of accesses, such as `shader`.
    ClassId,
    /// A queue's physical FIFO.
    FifoId,
    /// A place in [`Program::entries`].
    EntryId,
}

/// Devices, and what was asked of them in which order.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Allocations and views of them.
    pub buffers: Vec<Buffer>,
    /// The queues.
    pub queues: Vec<Queue>,
    /// The semaphores.
    pub semaphores: Vec<Semaphore>,
    /// How many host threads there are.
    pub threads: usize,
    /// How many host mutexes there are.
    pub locks: usize,
    /// How many events there are.
    pub events: usize,
    /// What the host threads did.
    pub entries: Vec<Entry>,
}

/// An allocation, or a view of one.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Of a view: what it is a view of, and its first byte there.
    pub of: Option<(BufferId, u64)>,
    /// Bytes.
    pub size: u64,
}

/// A queue of a device.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Whether a command may start before the one before it has completed.
    pub launch_order: bool,
    /// The FIFO that it shares with other queues.
    pub hardware: Option<FifoId>,
    /// The most unfinished commands it holds.
    pub credits: Option<usize>,
    /// The queues with which each command synchronises both ways.
    pub implicit: Vec<QueueId>,
}

/// A monotonic counter.
#[derive(Clone, Debug, Default)]
pub struct Semaphore {
    /// Its value at first.
    pub initial: u64,
    /// Whether somebody whom the program does not show may signal it.
    pub external: bool,
}

/// One thing that a host thread did.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who did it.
    pub thread: ThreadId,
    /// What it did.
    pub act: Act,
}

/// What a host thread did.
#[derive(Clone, Debug)]
pub enum Act {
    /// Gave a command to a queue.
    Submit(QueueId, Command),
    /// Read or wrote bytes itself.
    Access(Vec<Access>),
    /// Blocked until all hold.
    Wait(Vec<HostWait>),
    /// Advanced semaphores.
    Signal(Vec<Signal>),
    /// Gave memory back.
    Free(BufferId),
    /// Took a mutex.
    Lock(LockId),
    /// Gave a mutex back.
    Unlock(LockId),
    /// Was the last that would have signalled the semaphore, and went away.
    Drop(SemaphoreId),
}

/// What a queue is given.
#[derive(Clone, Debug)]
pub enum Command {
    /// A kernel, a copy, a put or a collective.
    Work(Work),
    /// Orders all earlier commands before all later ones.
    Barrier {
        /// The classes that become visible; without it, all.
        from: Option<Vec<ClassId>>,
        /// To which classes; without it, all.
        to: Option<Vec<ClassId>>,
    },
    /// Makes the event stand for all that the queue holds.
    Record(EventId),
    /// Orders later commands after what the event stands for.
    WaitEvent(EventId),
}

/// A command that waits, then accesses, then signals.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The bytes it touches.
    pub accesses: Vec<Access>,
    /// What must hold before it starts.
    pub waits: Vec<SemaphoreWait>,
    /// What it announces when it has ended.
    pub signals: Vec<Signal>,
    /// The class of its accesses; without it, all classes match.
    pub class: Option<ClassId>,
    /// Whether it ends in error and signals nothing.
    pub fails: bool,
    /// The collective of which it is one rank's part.
    pub collective: Option<CollectiveId>,
}

/// Bytes of a buffer and what is done to them.
#[derive(Clone, Debug)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes of the buffer.
    pub range: Range<u64>,
    /// What is done.
    pub mode: Mode,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and writes.
    ReadWrite,
    /// Reads and writes in one step, which other such steps do not disturb.
    Atomic,
}

/// Waits until a semaphore has a value.
#[derive(Clone, Copy, Debug)]
pub struct SemaphoreWait {
    /// The semaphore.
    pub semaphore: SemaphoreId,
    /// The least value.
    pub value: u64,
}

/// What a host thread waits for.
#[derive(Clone, Copy, Debug)]
pub enum HostWait {
    /// A semaphore's value.
    Semaphore(SemaphoreWait),
    /// All that the queue was given so far.
    Queue(QueueId),
    /// What the event stands for.
    Event(EventId),
}

/// Raises a semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// The semaphore.
    pub semaphore: SemaphoreId,
    /// How.
    pub raise: Raise,
}

/// How a semaphore is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// To a value; where it is past that already, it stays.
    To(u64),
    /// By an amount.
    By(u64),
}

impl Raise {
    /// The value after it.
    #[must_use]
    pub fn of(self, value: u64) -> u64 {
        match self {
            Self::To(to) => value.max(to),
            Self::By(by) => value.saturating_add(by),
        }
    }
}

impl Entry {
    /// The queue and the command, if it is a submission.
    #[must_use]
    pub fn submission(&self) -> Option<(QueueId, &Command)> {
        match &self.act {
            Act::Submit(queue, command) => Some((*queue, command)),
            _ => None,
        }
    }

    /// The work, if it is a command that does some.
    #[must_use]
    pub fn work(&self) -> Option<&Work> {
        match &self.act {
            Act::Submit(_, Command::Work(work)) => Some(work),
            _ => None,
        }
    }

    /// The bytes that it touches, but for those of a `free`.
    #[must_use]
    pub fn accesses(&self) -> &[Access] {
        match &self.act {
            Act::Submit(_, Command::Work(work)) => &work.accesses,
            Act::Access(accesses) => accesses,
            _ => &[],
        }
    }

    /// The signals that it makes.
    #[must_use]
    pub fn signals(&self) -> &[Signal] {
        match &self.act {
            Act::Submit(_, Command::Work(work)) if !work.fails => &work.signals,
            Act::Signal(signals) => signals,
            _ => &[],
        }
    }

    /// The semaphores that it waits for.
    pub fn semaphore_waits(&self) -> impl Iterator<Item = SemaphoreWait> + '_ {
        let (device, host): (&[_], &[_]) = match &self.act {
            Act::Submit(_, Command::Work(work)) => (&work.waits, &[]),
            Act::Wait(waits) => (&[], waits),
            _ => (&[], &[]),
        };
        device.iter().copied().chain(host.iter().filter_map(|wait| match wait {
            HostWait::Semaphore(wait) => Some(*wait),
            _ => None,
        }))
    }
}
