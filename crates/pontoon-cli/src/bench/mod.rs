//! Measurements of what handing data over costs, next to what people do without pontoon.
//!
//! Rivals run in the same process on the same CPUs and the ways take turns round by round, so that
//! a machine that is slow for a while is slow for all of them. Every wait is bounded, and every
//! byte handed over is checked.

mod check;
mod fanin;
mod handoff;
pub(crate) mod initiate;
pub(crate) mod link;
pub(crate) mod pin;
pub(crate) mod pingpong;
pub(crate) mod process;
pub(crate) mod ranks;
mod ring;
pub(crate) mod sides;
mod signal;
pub(crate) mod smc;
mod submit;
mod timeout;
mod work;

use std::{
    error, fmt, io,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    FenceError, Refusal, StreamError, WaitFailure,
    comm::{
        CommError, SendError,
        ring::{PushError, RingError},
    },
    cpu::OpenDeviceError,
    hal::{AllocateError, Fault, HostAccessError, OpenQueueError, link::LinkError},
    queue::{CreateError, Malformed},
    signal::{ClaimError, HeapFull, OpenError, SystemError, WaitError},
    smc::{MapError, SmcError},
    world::WorldError,
};

use crate::{
    BAD_INPUT, FAILED,
    counted::counted,
    figures::{Figure, NotFinite, Printer, RatioError, Samples, Skipped, Unit},
    from::from,
    limit,
    train::TrainError,
};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// One signal, one way and there and back, between threads and between processes; and how far
    /// a wait that times out overshoots its deadline
    Signal,
    /// A batch from one device to another, with the producer's device busy with other work too
    Handoff,
    /// Batches from several producers to one consumer
    Fanin,
    /// What a session costs: a submission with derived, checked and trusted edges over the queues
    /// alone, its parts, and a round trip
    Submit,
    /// What checked edges cost: in a buffer of many intervals, and over a whole job
    Check,
    /// A put and its signal from rank to rank, over shared memory and over UCX, beside the bare
    /// machine and `ucx_perftest`; and what a rank takes that waits
    Link,
    /// The ring of tasks that kernels push to and a proxy takes from: how many a second, and that none
    /// is lost when it is full
    Ring,
    /// A message that a kernel sends by itself, by stores or by the ring, beside one that the host
    /// sends once the kernel has ended
    Initiate,
    /// Memory of another rank under plain loads and stores: a miss over the bare fault, what a release sends
    /// and takes, and reads of it beside copies and remote reads
    Smc,
    /// All of them
    All,
}

/// How to measure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// A third of the rounds.
    pub(crate) quick: bool,
}

/// How many rounds a measurement has, and how long after its start no further one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    least: usize,
    most: usize,
    time: Duration,
}

impl Rounds {
    /// Whether `done` rounds since `start` are enough.
    fn are_over(&self, done: usize, start: Instant) -> bool {
        done >= self.most || done >= self.least && start.elapsed() > self.time
    }
}

/// Measures `which` and prints each figure when it is known.
///
/// # Errors
///
/// See [`BenchError`].
pub(crate) fn run<W: Write>(
    which: Which,
    options: &Options,
    printer: &mut Printer<W>,
) -> Result<(), BenchError> {
    if matches!(which, Which::Signal | Which::All) {
        signal::run(options, printer)?;
        timeout::run(options, printer)?;
    }
    if matches!(which, Which::Handoff | Which::All) {
        handoff::run(options, printer)?;
    }
    if matches!(which, Which::Fanin | Which::All) {
        fanin::run(options, printer)?;
    }
    if matches!(which, Which::Submit | Which::All) {
        submit::run(options, printer)?;
    }
    if matches!(which, Which::Check | Which::All) {
        check::run(options, printer)?;
    }
    if matches!(which, Which::Link | Which::All) {
        link::run(options, printer)?;
    }
    if matches!(which, Which::Ring | Which::All) {
        ring::run(options, printer)?;
    }
    if matches!(which, Which::Initiate | Which::All) {
        initiate::run(options, printer)?;
    }
    if matches!(which, Which::Smc | Which::All) {
        smc::run(options, printer)?;
    }
    Ok(())
}

/// Why a measurement ended without its figures.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// The figures could not be written.
    Output(io::Error),
    System {
        call: &'static str,
        error: io::Error,
    },
    /// There is no CPU of that number, whatever the machine.
    NoCpu {
        cpu: usize,
        most: usize,
    },
    /// The other process could not be started.
    Peer(io::Error),
    /// The other process ended by itself; it has said why.
    PeerFailed(std::process::ExitStatus),
    /// This is the other process, and who started it is gone.
    Orphaned {
        parent: i32,
    },
    /// The rival's spin, which knows no deadline, went on for too long.
    RawSilent {
        polls: u64,
    },
    /// A condition variable of the rival's was not notified in time.
    LockSilent,
    /// The two sides of a ping-pong lost count.
    OutOfStep,
    /// The other process said something else than it was asked for.
    PeerSaid(Box<str>),
    /// The other process said nothing for so long.
    PeerSilent {
        waited: Duration,
    },
    World(WorldError),
    Heap(HeapFull),
    Link(LinkError),
    /// There is no window.
    Map(MapError),
    Window(SmcError),
    /// Memory, or a stack.
    Memory(SystemError),
    Comm(CommError),
    /// A call that a kernel made.
    Send(SendError),
    OpenRing(RingError),
    Push(PushError),
    Stream(StreamError),
    Table(OpenError),
    Claim(ClaimError),
    Wait(WaitError),
    OpenDevice(OpenDeviceError),
    OpenQueue(OpenQueueError),
    Allocate(AllocateError),
    HostAccess(HostAccessError),
    /// A queue refused a command of this program's own making.
    Submit(&'static str),
    Fault(Fault),
    Malformed(Malformed),
    /// A session refused a command of this program's own making.
    Refused(Refusal),
    Fence(FenceError),
    Create(CreateError),
    WaitFailure(WaitFailure),
    Train(TrainError),
    /// A measurement did not do what it is named after.
    Count {
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// What was consumed is not what was produced.
    Checksum {
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// A thread of the measurement panicked; it has said why.
    Panicked,
    NotFinite(NotFinite),
    Ratio(RatioError),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(error) => write!(f, "cannot write the figures: {error}"),
            Self::System { call, error } => match limit::of(error) {
                Some(limit) => write!(f, "{call} failed: {limit}"),
                None => write!(f, "{call} failed: {error}"),
            },
            Self::NoCpu { cpu, most } => write!(f, "cpu {cpu} is not in 0..={most}"),
            Self::Peer(error) => write!(f, "cannot start the other process: {error}"),
            Self::PeerFailed(status) => write!(f, "the other process ended early: {status}"),
            Self::Orphaned { parent } => {
                write!(f, "pid {parent}, for which this process was started, is not its parent")
            }
            Self::RawSilent { polls } => {
                write!(f, "the bare ping-pong got no answer in {}", counted(*polls, "poll"))
            }
            Self::LockSilent => f.write_str("the locked queue moved no batch for too long"),
            Self::OutOfStep => f.write_str("the two sides of the ping-pong lost count"),
            Self::PeerSaid(said) => write!(f, "the other process said {said:?} instead of figures"),
            Self::PeerSilent { waited } => {
                write!(f, "the other process said nothing for {} s", waited.as_secs())
            }
            Self::World(error) => error.fmt(f),
            Self::Heap(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Map(error) => error.fmt(f),
            Self::Window(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Comm(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
            Self::OpenRing(error) => error.fmt(f),
            Self::Push(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::Claim(error) => error.fmt(f),
            Self::Wait(error) => error.fmt(f),
            Self::OpenDevice(error) => error.fmt(f),
            Self::OpenQueue(error) => error.fmt(f),
            Self::Allocate(error) => error.fmt(f),
            Self::HostAccess(error) => error.fmt(f),
            Self::Submit(why) => write!(f, "a queue took no command: {why}"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Refused(refusal) => write!(f, "a session took no command: {refusal}"),
            Self::Fence(error) => error.fmt(f),
            Self::Create(error) => error.fmt(f),
            Self::WaitFailure(failure) => failure.fmt(f),
            Self::Train(error) => error.fmt(f),
            Self::Count { what, expected, found } => {
                write!(f, "the measurement is void: {found} {what}, not {expected}")
            }
            Self::Checksum { what, expected, found } => write!(
                f,
                "{what} delivered wrong bytes: their checksum is {found:#018x}, not {expected:#018x}"
            ),
            Self::Panicked => f.write_str("a thread of the measurement panicked"),
            Self::NotFinite(error) => error.fmt(f),
            Self::Ratio(error) => error.fmt(f),
        }
    }
}

impl error::Error for BenchError {}

impl BenchError {
    /// Whether the host has less than was asked for, rather than the measurement failed.
    pub(crate) fn is_limit(&self) -> bool {
        match self {
            Self::System { error, .. } | Self::Peer(error) => limit::of(error).is_some(),
            Self::PeerFailed(status) => status.code() == Some(BAD_INPUT.into()),
            Self::World(error) => error.is_bad_input(),
            Self::Map(_) => true,
            Self::Memory(error) | Self::Table(OpenError::System(error)) => error.is_limit(),
            Self::OpenDevice(error) => limit::of_device(error),
            Self::Allocate(error) => limit::of_memory(error),
            Self::Train(error) => error.status() == BAD_INPUT,
            _ => false,
        }
    }

    /// What the process ends with.
    pub(crate) fn status(&self) -> u8 {
        if self.is_limit() { BAD_INPUT } else { FAILED }
    }
}

from! {
    BenchError:
    AllocateError => Allocate,
    ClaimError => Claim,
    CommError => Comm,
    CreateError => Create,
    FenceError => Fence,
    HeapFull => Heap,
    HostAccessError => HostAccess,
    LinkError => Link,
    Malformed => Malformed,
    MapError => Map,
    NotFinite => NotFinite,
    OpenDeviceError => OpenDevice,
    OpenError => Table,
    OpenQueueError => OpenQueue,
    PushError => Push,
    RatioError => Ratio,
    Refusal => Refused,
    RingError => OpenRing,
    SendError => Send,
    SmcError => Window,
    StreamError => Stream,
    SystemError => Memory,
    TrainError => Train,
    WaitError => Wait,
    WaitFailure => WaitFailure,
    WorldError => World,
}

impl BenchError {
    /// Fails unless a measurement did what it is named after.
    fn unless_equal(what: &'static str, expected: u64, found: u64) -> Result<(), Self> {
        if expected == found { Ok(()) } else { Err(Self::Count { what, expected, found }) }
    }
}

/// Starts a thread of `scope`.
///
/// # Errors
///
/// The system gives none; a bare `scope.spawn` would panic.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, BenchError> {
    let started = thread::Builder::new().spawn_scoped(scope, work);
    started.map_err(|error| BenchError::System { call: "starting a thread", error })
}

/// Prints a figure of `samples`.
fn print<W: Write>(
    printer: &mut Printer<W>,
    name: impl Into<String>,
    unit: Unit,
    samples: &Samples,
) -> Result<(), BenchError> {
    let figure = samples.figure(name, unit).ok_or(RatioError::Empty)?;
    print_figure(printer, &figure)
}

/// Prints the figure of `above / below`, formed round by round.
fn print_ratio<W: Write>(
    printer: &mut Printer<W>,
    name: impl Into<String>,
    above: &Samples,
    below: &Samples,
) -> Result<(), BenchError> {
    print_figure(printer, &crate::figures::ratio(name, above, below)?)
}

fn print_figure<W: Write>(printer: &mut Printer<W>, figure: &Figure) -> Result<(), BenchError> {
    printer.figure(figure).map_err(BenchError::Output)
}

fn skip<W: Write>(printer: &mut Printer<W>, name: &str, why: &str) -> Result<(), BenchError> {
    let skipped = Skipped { name: name.to_owned(), why: why.to_owned() };
    printer.skipped(&skipped).map_err(BenchError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_over_at_the_most_or_when_late_at_the_least() {
        let (start, hour) = (Instant::now(), Duration::from_secs(3600));
        let timely = Rounds { least: 2, most: 5, time: hour };
        assert!(!timely.are_over(4, start) && timely.are_over(5, start));
        let late = Rounds { time: Duration::ZERO, ..timely };
        assert!(!late.are_over(1, start) && late.are_over(2, start));
    }
}
