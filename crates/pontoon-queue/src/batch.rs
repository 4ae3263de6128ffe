//! Commands that are recorded, sealed, and submitted together.

use std::{fmt, marker::PhantomData, ops::Range};

use pontoon_hal::{
    Access, Accesses, Arguments, Command, CommandOf, Device, Memory, Mode, RegionId,
};

use crate::{CollectiveId, EventId, Fence, SemaphoreId, StreamId};

/// A batch that is being recorded.
#[derive(Debug)]
pub enum Recorded {}
/// A batch that is complete and well-formed, and can be submitted.
#[derive(Debug)]
pub enum Sealed {}

/// Commands for one stream, submitted together: all of them or none.
///
/// Recorded, then [sealed](Self::seal), then submitted; what cannot run does not seal. A batch that
/// was refused comes back sealed.
///
/// ```
/// # use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
/// # use pontoon_hal::Engine;
/// # use pontoon_queue::{Batch, Buffer, Patience, Session};
/// # use pontoon_signal::Rank;
/// # let device = CpuDevice::open(Rank(0), CpuSpec::default())?;
/// let mut session = Session::auto();
/// let stream = session.stream(&device, Engine::Compute, "work")?;
/// let from = Buffer::<_, u32>::allocate(&device, 4)?;
/// let to = Buffer::<_, u32>::allocate(&device, 4)?;
/// let one = Kernel::new(|kernel| kernel.write::<u32>(0).fill(1));
///
/// let mut batch = Batch::new();
/// batch.launch("fill", &one, [from.write(..)], []);
/// batch.copy("copy", from.read(..), to.write(..));
/// let fence = session.submit(stream, batch.seal()?)?;
/// session.wait(&fence, Patience::default())?;
/// assert_eq!(session.to_vec(&to)?, [1; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0308
/// # use pontoon_cpu::{CpuDevice, CpuSpec};
/// # use pontoon_hal::Engine;
/// # use pontoon_queue::{Batch, Session};
/// # use pontoon_signal::Rank;
/// # let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
/// # let mut session = Session::auto();
/// # let stream = session.stream(&device, Engine::Compute, "work").unwrap();
/// session.submit(stream, Batch::new()); // not sealed: does not compile
/// ```
pub struct Batch<D: Device, S = Recorded> {
    pub(crate) steps: Vec<StepOf<D>>,
    pub(crate) on_failure: OnFailure<D::Memory>,
    mistake: Option<Malformed>,
    idempotent: bool,
    state: PhantomData<fn() -> S>,
}

/// What a batch does, one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Step<C> {
    Work(C),
    Wait(WaitFor),
    Signal(SemaphoreId, u64),
    Record(EventId),
    Barrier(Barrier),
    Collective(CollectiveId),
}

/// A step of a batch for the device `D`.
pub(crate) type StepOf<D> = Step<CommandOf<<D as Device>::Queue>>;

#[derive(Clone, Debug)]
pub(crate) enum WaitFor {
    /// An event that was never recorded.
    Nothing,
    Fence(Fence),
    Semaphore(SemaphoreId, u64),
    Event(EventId),
}

/// Orders what was submitted before it against what comes after it.
#[derive(Clone, Debug)]
pub enum Barrier {
    /// Light: what the stream is given after it comes after all that these streams were given
    /// before it.
    Streams(Vec<StreamId>),
    /// Global: every queue of the stream's device stops for it. For code that is being ported and
    /// to be compared with; edges do better.
    Device,
}

/// What becomes of a batch of which a command failed.
///
/// A session acts on it when it is asked: in [`progress`](crate::Session::progress), in its waits
/// and host accesses, and before the stream is given more. Whatever else had been submitted to the
/// queue by then, or waited for the batch, has failed with it and stays failed, with the batch as
/// its root: submit it again, after the new fence.
///
/// A batch that is retried or rolled back fails as a whole: where edges are derived, what comes after
/// a command of it comes after its end.
///
/// ```
/// # use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
/// # use pontoon_hal::Engine;
/// # use pontoon_queue::{Buffer, OnFailure, Patience, Session};
/// # use pontoon_signal::{Rank, shim::{AtomicU32, Ordering::Relaxed}};
/// # let device = CpuDevice::open(Rank(0), CpuSpec::default())?;
/// let mut session = Session::auto();
/// let stream = session.stream(&device, Engine::Compute, "work")?;
/// let numbers = Buffer::<_, u32>::allocate(&device, 4)?;
/// let runs = AtomicU32::new(0);
/// let flaky = Kernel::new(move |kernel| {
///     kernel.write::<u32>(0).fill(7);
///     assert!(runs.fetch_add(1, Relaxed) > 0, "not the first time");
/// });
///
/// let mut batch = session.batch();
/// batch.launch("flaky", &flaky, [numbers.write(..)], []);
/// batch.idempotent().on_failure(OnFailure::Retry(2));
/// let fence = session.submit(stream, batch.seal()?)?;
/// let done = session.wait(&fence, Patience::default())?;
/// assert_eq!(done.retries, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum OnFailure<M> {
    /// It stays failed, with its cause; whoever waits for it fails with that as the root.
    Error,
    /// It is submitted again, up to so many times, each time with a new fence, if a kernel of it
    /// panicked or a wait of it took too long. For batches whose commands are
    /// [idempotent](Batch::idempotent). What is parked behind it follows the next attempt. There is
    /// none if anything failed that it waited for, whether its own wait ended before or after that.
    Retry(u32),
    /// These bytes, such as `buffer.write(..)`, are given back what they held before the batch, and it
    /// stays failed; its stream is usable again, and what is parked behind it is given up.
    ///
    /// They are copied before the batch's first command, by the same lane, as `copy for rollback`: where edges are checked,
    /// the waits for what wrote them have to come before that.
    Rollback(Vec<Access<M>>),
}

impl<D: Device> Batch<D> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::with_storage(Vec::new())
    }

    /// An empty batch that uses `steps` again.
    pub(crate) fn with_storage(steps: Vec<StepOf<D>>) -> Self {
        let (on_failure, mistake, idempotent) = (OnFailure::Error, None, false);
        Self { steps, on_failure, mistake, idempotent, state: PhantomData }
    }

    /// Adds a kernel over `accesses`, numbered in this order, with scalar `arguments`.
    pub fn launch(
        &mut self,
        label: &'static str,
        kernel: &D::Kernel,
        accesses: impl IntoIterator<Item = Access<D::Memory>>,
        arguments: impl IntoIterator<Item = u64>,
    ) -> &mut Self {
        match launch::<D>(label, kernel, accesses, arguments) {
            Ok(command) => self.work(command),
            Err(mistake) => self.mistaken(mistake),
        }
    }

    /// Adds a copy of `from` (read) to `to` (written), of the same length in bytes.
    pub fn copy(
        &mut self,
        label: &'static str,
        from: Access<D::Memory>,
        to: Access<D::Memory>,
    ) -> &mut Self {
        self.work(Command::Copy { label, from, to })
    }

    fn work(&mut self, command: CommandOf<D::Queue>) -> &mut Self {
        if let Some(mistake) = wrong_with(&command) {
            return self.mistaken(mistake);
        }
        self.push(Step::Work(command))
    }

    /// What follows comes after `fence`.
    pub fn wait(&mut self, fence: &Fence) -> &mut Self {
        self.push(Step::Wait(WaitFor::Fence(fence.clone())))
    }

    /// What follows comes after `semaphore` has got to `value`. The signal may be submitted later:
    /// until then no device is given what follows.
    pub fn wait_semaphore(&mut self, semaphore: SemaphoreId, value: u64) -> &mut Self {
        self.push(Step::Wait(WaitFor::Semaphore(semaphore, value)))
    }

    /// Moves `semaphore` to `value` when what precedes is complete; of a stream over several lanes,
    /// what precedes on the batch's lane.
    pub fn signal(&mut self, semaphore: SemaphoreId, value: u64) -> &mut Self {
        self.push(Step::Signal(semaphore, value))
    }

    /// What follows comes after what `event` stands for when the batch is submitted, or after what the
    /// batch itself recorded it for before.
    pub fn wait_event(&mut self, event: EventId) -> &mut Self {
        self.push(Step::Wait(WaitFor::Event(event)))
    }

    /// Makes `event` stand for all that precedes, in the batch and in the stream.
    pub fn record(&mut self, event: EventId) -> &mut Self {
        self.push(Step::Record(event))
    }

    /// What follows comes after what the barrier names.
    pub fn barrier(&mut self, barrier: Barrier) -> &mut Self {
        self.push(Step::Barrier(barrier))
    }

    /// What follows starts when all members of `collective` have come this far.
    pub fn collective(&mut self, collective: CollectiveId) -> &mut Self {
        self.push(Step::Collective(collective))
    }

    /// Declares that running the batch again, after it ran in part, does no harm.
    pub fn idempotent(&mut self) -> &mut Self {
        self.idempotent = true;
        self
    }

    /// Says what becomes of the batch if a command of it fails.
    pub fn on_failure(&mut self, policy: OnFailure<D::Memory>) -> &mut Self {
        self.on_failure = policy;
        self
    }

    /// Ends the recording.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the first command that could never run; a retry of what was not declared
    /// idempotent; or a batch to be retried or rolled back that others can meet in its middle, by a
    /// collective, or by a command or a wait after a signal or a record: it has to fail as a whole.
    pub fn seal(mut self) -> Result<Batch<D, Sealed>, Malformed> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        if matches!(self.on_failure, OnFailure::Retry(_)) && !self.idempotent {
            let why = "only a batch declared idempotent can be retried";
            return Err(Malformed::new("batch", why));
        }
        if !matches!(self.on_failure, OnFailure::Error)
            && let Some(why) = undivided(&self.steps)
        {
            return Err(Malformed::new("batch", why));
        }
        if let OnFailure::Rollback(ranges) = &self.on_failure
            && !ranges.iter().all(Access::is_within_region)
        {
            return Err(Malformed::new("batch", "a range to roll back is not within its region"));
        }
        let Self { steps, on_failure, idempotent, .. } = self;
        Ok(Batch { steps, on_failure, mistake: None, idempotent, state: PhantomData })
    }

    fn push(&mut self, step: StepOf<D>) -> &mut Self {
        self.steps.push(step);
        self
    }

    fn mistaken(&mut self, mistake: Malformed) -> &mut Self {
        self.mistake.get_or_insert(mistake);
        self
    }
}

impl<D: Device> Batch<D, Sealed> {
    /// How many commands a device is given for it, waits apart.
    pub fn commands(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Work(_))).count()
    }
}

impl<D: Device> Default for Batch<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Device, S> fmt::Debug for Batch<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a batch of {} steps", self.steps.len())
    }
}

/// A kernel's command, if it fits in one.
pub(crate) fn launch<D: Device>(
    label: &'static str,
    kernel: &D::Kernel,
    accesses: impl IntoIterator<Item = Access<D::Memory>>,
    arguments: impl IntoIterator<Item = u64>,
) -> Result<CommandOf<D::Queue>, Malformed> {
    let mut declared = Accesses::new();
    for access in accesses {
        let why = "it declares too many accesses";
        declared.try_push(access).map_err(|_| Malformed::new(label, why))?;
    }
    let mut scalars = Arguments::new();
    for argument in arguments {
        let why = "it has too many arguments";
        scalars.try_push(argument).map_err(|_| Malformed::new(label, why))?;
    }
    let kernel = kernel.clone();
    Ok(Command::Launch { label, kernel, accesses: declared, arguments: scalars })
}

/// Why steps cannot be given to a device, or fail, as a whole.
fn undivided<C>(steps: &[Step<C>]) -> Option<&'static str> {
    let (mut worked, mut told) = (false, false);
    for step in steps {
        match step {
            Step::Collective(_) => {
                return Some("a batch with a collective can be neither retried nor rolled back");
            }
            Step::Wait(_) if told => {
                return Some("what is retried or rolled back cannot wait after a signal: split it");
            }
            Step::Work(_) if told => {
                return Some(
                    "what is retried or rolled back has no commands after a signal, a record or a \
                     global barrier in its middle: split it",
                );
            }
            Step::Work(_) => worked = true,
            Step::Signal(..) | Step::Record(_) => told = true,
            Step::Barrier(Barrier::Device) => told |= worked,
            _ => {}
        }
    }
    None
}

/// Why a command could run on no device.
pub(crate) fn wrong_with<M: Memory, K>(command: &Command<M, K>) -> Option<Malformed> {
    let label = command.label();
    if let Some(beyond) = beyond(command) {
        return Some(beyond);
    }
    let why = match command {
        Command::Copy { from, to, .. } => {
            if from.mode != Mode::Read || to.mode != Mode::Write {
                "a copy reads its source and writes its destination"
            } else if from.range.len() != to.range.len() {
                "source and destination differ in length"
            } else if from.conflicts_with(to) {
                "source and destination overlap"
            } else {
                return None;
            }
        }
        Command::Launch { accesses, .. } => {
            let mut pairs = accesses.iter().enumerate();
            let conflict = |(at, one): (usize, &Access<M>)| {
                accesses[at + 1..].iter().any(|other| one.conflicts_with(other))
            };
            if !pairs.any(conflict) {
                return None;
            }
            "two of its accesses overlap and one writes"
        }
        _ => return None,
    };
    Some(Malformed::new(label, why))
}

/// The first access of a command that is not within its region.
pub(crate) fn beyond<M: Memory, K>(command: &Command<M, K>) -> Option<Malformed> {
    let access = accesses(command).find(|access| !access.is_within_region())?;
    let (region, range, bytes) = (access.memory.id(), access.range.clone(), access.memory.bytes());
    let beyond = Some(Beyond { region, range, bytes });
    Some(Malformed { label: command.label(), why: "an access is not within its region", beyond })
}

/// The bytes that a command touches.
pub(crate) fn accesses<M, K>(command: &Command<M, K>) -> impl Iterator<Item = &Access<M>> {
    let (list, pair): (&[Access<M>], _) = match command {
        Command::Launch { accesses, .. } => (accesses, [None, None]),
        Command::Copy { from, to, .. } => (&[], [Some(from), Some(to)]),
        _ => (&[], [None, None]),
    };
    list.iter().chain(pair.into_iter().flatten())
}

/// A batch that could never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The command.
    pub label: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
    /// The bytes that there are none of, if that is what is wrong.
    pub beyond: Option<Beyond>,
}

/// A range that is not within its region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The region.
    pub region: RegionId,
    /// The bytes asked for, from its start.
    pub range: Range<usize>,
    /// How many it has.
    pub bytes: usize,
}

impl Malformed {
    pub(crate) fn new(label: &'static str, why: &'static str) -> Self {
        Self { label, why, beyond: None }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, why, beyond } = self;
        match beyond {
            Some(Beyond { region, range, bytes }) => write!(
                f,
                "{label} cannot be submitted: bytes {}..{} are not within {region} of {bytes} bytes",
                range.start, range.end
            ),
            None => write!(f, "{label} cannot be submitted: {why}"),
        }
    }
}

impl std::error::Error for Malformed {}
