//! Ids that lead nowhere are found before anything follows them.

use std::{error::Error, fmt, ops::Range};

use super::program::{
    Access, Act, BufferId, Command, EntryId, EventId, HostWait, LockId, Program, QueueId,
    SemaphoreId, ThreadId,
};

/// The program names something that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramError {
    /// No such buffer, or one that is a view of itself, or reaches past what it is a view of.
    Buffer(BufferId),
    /// An entry reaches past its buffer.
    Range(EntryId),
    /// No such queue.
    Queue(QueueId),
    /// No such semaphore.
    Semaphore(SemaphoreId),
    /// No such thread.
    Thread(ThreadId),
    /// No such lock.
    Lock(LockId),
    /// No such event.
    Event(EventId),
    /// More entries than can be counted.
    TooLong,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(id) => write!(f, "buffer {} is not one, or no view of one", id.0),
            Self::Range(id) => write!(f, "entry {} reaches past its buffer", id.0),
            Self::Queue(id) => write!(f, "there is no queue {}", id.0),
            Self::Semaphore(id) => write!(f, "there is no semaphore {}", id.0),
            Self::Thread(id) => write!(f, "there is no thread {}", id.0),
            Self::Lock(id) => write!(f, "there is no lock {}", id.0),
            Self::Event(id) => write!(f, "there is no event {}", id.0),
            Self::TooLong => write!(f, "there are more entries than a 32-bit number counts"),
        }
    }
}

impl Error for ProgramError {}

/// Where each buffer lies: its allocation and its bytes there.
#[derive(Clone, Debug)]
pub(super) struct Places(pub(super) Vec<(BufferId, Range<u64>)>);

impl Places {
    /// Checks every id and range of the program; nothing that follows can be out of range.
    pub(super) fn of(program: &Program) -> Result<Self, ProgramError> {
        let places = (0..program.buffers.len())
            .map(|at| place(program, BufferId(at)))
            .collect::<Result<_, _>>()?;
        let queues = program.queues.iter().flat_map(|queue| &queue.implicit);
        queues
            .copied()
            .try_for_each(|id| known(program.queues.len(), id.0, ProgramError::Queue(id)))?;
        if u32::try_from(program.entries.len()).is_err() {
            return Err(ProgramError::TooLong);
        }
        for at in 0..program.entries.len() {
            entry(program, EntryId(at))?;
        }
        Ok(Self(places))
    }

    /// The allocation and its bytes that an access of `range` of the buffer touches.
    pub(super) fn bytes(&self, buffer: BufferId, range: &Range<u64>) -> (BufferId, Range<u64>) {
        let (allocation, place) = &self.0[buffer.0];
        (*allocation, place.start + range.start..place.start + range.end)
    }
}

fn place(program: &Program, id: BufferId) -> Result<(BufferId, Range<u64>), ProgramError> {
    let wrong = ProgramError::Buffer(id);
    let (mut at, mut offset) = (id, 0_u64);
    let size = program.buffers.get(id.0).ok_or(wrong)?.size;
    for _ in 0..=program.buffers.len() {
        let Some((of, by)) = program.buffers[at.0].of else {
            let end = offset.checked_add(size).ok_or(wrong)?;
            return Ok((at, offset..end));
        };
        let base = program.buffers.get(of.0).ok_or(wrong)?;
        let end = by.checked_add(program.buffers[at.0].size).ok_or(wrong)?;
        if end > base.size {
            return Err(wrong);
        }
        offset = offset.checked_add(by).ok_or(wrong)?;
        at = of;
    }
    Err(wrong)
}

fn entry(program: &Program, id: EntryId) -> Result<(), ProgramError> {
    let entry = &program.entries[id.0];
    known(program.threads, entry.thread.0, ProgramError::Thread(entry.thread))?;
    let semaphore =
        |id: SemaphoreId| known(program.semaphores.len(), id.0, ProgramError::Semaphore(id));
    let queue = |id: QueueId| known(program.queues.len(), id.0, ProgramError::Queue(id));
    let event = |id: EventId| known(program.events, id.0, ProgramError::Event(id));
    match &entry.act {
        Act::Submit(on, command) => {
            queue(*on)?;
            if let Command::Record(id) | Command::WaitEvent(id) = command {
                event(*id)?;
            }
        }
        Act::Wait(waits) => {
            for wait in waits {
                match wait {
                    HostWait::Queue(id) => queue(*id)?,
                    HostWait::Event(id) => event(*id)?,
                    HostWait::Semaphore(_) => {}
                }
            }
        }
        Act::Free(id) => known(program.buffers.len(), id.0, ProgramError::Buffer(*id))?,
        Act::Lock(id) | Act::Unlock(id) => known(program.locks, id.0, ProgramError::Lock(*id))?,
        Act::Drop(id) => semaphore(*id)?,
        Act::Access(_) | Act::Signal(_) => {}
    }
    entry.semaphore_waits().try_for_each(|wait| semaphore(wait.semaphore))?;
    if let Some(work) = entry.work() {
        work.signals.iter().try_for_each(|signal| semaphore(signal.semaphore))?;
    }
    entry.signals().iter().try_for_each(|signal| semaphore(signal.semaphore))?;
    entry.accesses().iter().try_for_each(|access: &Access| {
        let buffer = program.buffers.get(access.buffer.0);
        let size = buffer.ok_or(ProgramError::Buffer(access.buffer))?.size;
        let inside = access.range.start <= access.range.end && access.range.end <= size;
        if inside { Ok(()) } else { Err(ProgramError::Range(id)) }
    })
}

fn known(count: usize, at: usize, otherwise: ProgramError) -> Result<(), ProgramError> {
    if at < count { Ok(()) } else { Err(otherwise) }
}
