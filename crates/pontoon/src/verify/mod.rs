//! The smallest proof that a device reaches a peer: a kernel writes, sends and signals, and a kernel at
//! the other end finds what it wrote.
//!
//! Both ends are in this process, each with a device, a segment and a link of its own, so that whatever
//! stops can be asked how far it came.

mod pair;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use pontoon_comm::{Comm, CommError, Mode, Port, SendError, Settings, Trigger, Weak};
use pontoon_cpu::{Context, CpuDevice, CpuSpec, Kernel, OpenDeviceError};
use pontoon_hal::{AllocateError, Engine, OpenQueueError};
use pontoon_queue::{Buffer, Fence, Stream, StreamError};
use pontoon_signal::{Bound, Host, Nanos, Os, Rank, SlotId, Waiter};

use pair::{Made, Pair};

/// Words that are sent.
const WORDS: usize = 512;

/// How much longer the host waits than what it waits for.
const MORE: Duration = Duration::from_millis(500);

/// The link that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Shared memory.
    Shm,
    /// UCX over TCP.
    UcxTcp,
    /// UCX over shared memory, which maps the peer's.
    UcxShm,
}

impl Over {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Shm, Self::UcxShm, Self::UcxTcp];
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::UcxTcp => "ucx-tcp",
            Self::UcxShm => "ucx-shm",
        })
    }
}

/// How the kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By stores in mapped memory.
    Direct,
    /// By a task for the proxy.
    Ring,
    /// By firing what was prepared.
    Trigger,
}

impl By {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Ring, Self::Trigger];
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::Trigger => "trigger",
        })
    }
}

/// How far a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nowhere: the kernel did not come to post it.
    Nothing,
    /// The kernel posted it.
    Posted,
    /// The proxy had it for the link, which did not take it.
    SeenByProxy,
    /// The link was given it.
    OnTheLink,
    /// Its signal arrived.
    Arrived,
    /// The kernel at the other end found what was sent.
    Observed,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing was posted",
            Self::Posted => "posted",
            Self::SeenByProxy => "seen by the proxy",
            Self::OnTheLink => "on the link",
            Self::Arrived => "arrived",
            Self::Observed => "observed",
        })
    }
}

/// What came of a verification.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All was found, so long after the kernel began to send.
    Works(Duration),
    /// That way does not exist here, for this reason.
    Absent(String),
    /// The message came so far and no farther.
    Stopped {
        /// The last stage that it reached.
        at: Stage,
        /// What those who waited say.
        why: String,
    },
}

/// Why nothing could be tried.
#[derive(Debug)]
pub enum VerifyError {
    /// A device could not be opened.
    Device(OpenDeviceError),
    /// A queue could not be opened.
    Queue(OpenQueueError),
    /// There was no memory.
    Memory(AllocateError),
    /// A command was refused.
    Stream(StreamError),
    /// Another reason, said in full.
    Setup(String),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Setup(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for VerifyError {}

macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {$(
        impl From<$error> for VerifyError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from! {
    OpenDeviceError => Device,
    OpenQueueError => Queue,
    AllocateError => Memory,
    StreamError => Stream,
}

/// What is made to fail, so that it can be seen that this is found.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    None,
    /// The kernel sends nothing.
    Silent,
    /// The proxy stands still.
    Proxy,
    /// The proxy has ended.
    Closed,
    /// The peer is ended.
    Peer,
    /// Other bytes are sent than were written.
    Bytes,
}

/// Tries one way, each step within `bound`.
///
/// # Errors
///
/// [`VerifyError`]: this process lacks what it takes to try.
///
/// # Blocks
///
/// Some times as long as `bound` allows.
pub fn verify(over: Over, by: By, bound: Bound) -> Result<Outcome, VerifyError> {
    verify_with(over, by, bound, Sabotage::None)
}

/// What the sending kernel leaves behind.
#[derive(Default)]
struct Sender {
    began: OnceLock<Nanos>,
    /// Set once its call was taken on, whatever became of it.
    posted: OnceLock<()>,
    ended: OnceLock<Result<(), SendError>>,
}

/// As [`verify`], with something made to fail.
///
/// # Errors
///
/// As [`verify`].
#[doc(hidden)]
pub fn verify_with(
    over: Over,
    by: By,
    bound: Bound,
    sabotage: Sabotage,
) -> Result<Outcome, VerifyError> {
    let pair = match Pair::make(over)? {
        Made::Pair(pair) => pair,
        Made::Absent(why) => return Ok(Outcome::Absent(why)),
    };
    let setup = |error: CommError| VerifyError::Setup(error.to_string());
    let mut settings = Settings::default();
    settings.patience = Duration::from_millis(100);
    let comm = Comm::open(Rank(0), settings).map_err(setup)?;
    let port = pair.port(&comm)?;
    let port = match by {
        By::Direct => match port.in_mode(Mode::Direct) {
            Ok(port) => port,
            Err(error) => return Ok(Outcome::Absent(error.to_string())),
        },
        By::Ring | By::Trigger => {
            port.in_mode(Mode::Ring).map_err(|error| VerifyError::Setup(error.to_string()))?
        }
    };
    let trigger = match by {
        By::Trigger => {
            let prepared = port.prepare().put(0..WORDS * 8, 0).and_then(|calls| calls.signal(1));
            let prepared = prepared.map_err(|error| VerifyError::Setup(error.to_string()))?;
            Some(prepared.arm().map_err(setup)?)
        }
        _ => None,
    };
    if sabotage == Sabotage::Proxy {
        comm.stop_proxy(true);
    }
    // Otherwise kept as long as it is used.
    let comm = (sabotage != Sabotage::Closed).then_some(comm);
    if sabotage == Sabotage::Peer {
        pair.end_peer();
    }
    let device = |rank| CpuDevice::open(Rank(rank), CpuSpec::default());
    let (sends, receives) = (device(0)?, device(1)?);
    let from = Buffer::<_, u64>::over(sends.region_over(pair.source())?);
    let to = Buffer::<_, u64>::over(receives.region_over(pair.landing())?);
    let incoming = pair.incoming()?;
    let start = incoming.value();

    let sender = Arc::new(Sender::default());
    let kernel = sending(Arc::clone(&sender), port.clone(), trigger, bound, sabotage);
    let mut send = Stream::open(&sends, Engine::Compute, "send")?;
    let mut receive = Stream::open(&receives, Engine::Compute, "receive")?;
    // The kernel that looks is submitted first: it waits on its device for what is to come.
    let arrived = Fence::on(pair.incoming()?.slot(), start + 1, "the message");
    receive.wait(&arrived, bound)?;
    let (found, seen) = (Arc::new(Mutex::new(None)), Arc::new(OnceLock::new()));
    let look = looking(Arc::clone(&found), Arc::clone(&seen));
    let looked = receive.launch("look", &look, [to.read(..)], [])?;
    let sent = send.launch("send", &kernel, [from.write(..)], [])?;
    // Longer than what waits on the devices, which says more.
    let longer = bound.deadline().map_or(bound, |it| Bound::within(it * 2 + MORE));
    let looked = looked.wait(longer);
    let _ = sent.wait(longer);

    let found = *found.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Ok(_), Some(0), Some(began), Some(seen)) =
        (&looked, found, sender.began.get(), seen.get())
    {
        let took: &Nanos = seen;
        return Ok(Outcome::Works(Duration::from_nanos(took.since(*began).0)));
    }
    let has_arrived = incoming.value() != start;
    let refused = comm.as_ref().map_or(0, |comm| comm.report().refused);
    let at = stage(&sender, &pair, has_arrived, refused);
    let mut why = Vec::new();
    if let Some(Err(error)) = sender.ended.get() {
        why.push(error.to_string());
    }
    match (found, &looked) {
        (Some(wrong), _) if wrong > 0 => {
            why.push(format!("{wrong} of {WORDS} words are not what was written"));
        }
        (_, Err(error)) => why.push(error.to_string()),
        _ => {}
    }
    Ok(Outcome::Stopped { at, why: why.join("; ") })
}

/// How far the message came that was not observed.
fn stage(sender: &Sender, pair: &Pair, has_arrived: bool, refused: u64) -> Stage {
    if has_arrived {
        return Stage::Arrived;
    }
    if sender.posted.get().is_none() {
        return Stage::Nothing;
    }
    if pair.posted() > 0 {
        return Stage::OnTheLink;
    }
    if refused > 0 { Stage::SeenByProxy } else { Stage::Posted }
}

/// The kernel that writes, sends and signals.
fn sending(
    sender: Arc<Sender>,
    port: Port,
    trigger: Option<Trigger>,
    bound: Bound,
    sabotage: Sabotage,
) -> Kernel {
    Kernel::new(move |kernel: &mut Context<'_>| {
        let words = kernel.write::<u64>(0);
        for (word, number) in words.iter_mut().zip(0..) {
            *word = pattern(number) ^ u64::from(sabotage == Sabotage::Bytes && number == 7);
        }
        if sabotage == Sabotage::Silent {
            return;
        }
        let _ = sender.began.set(Os.now());
        let words = &words[..WORDS];
        let ticket = match &trigger {
            Some(trigger) => trigger.fire(),
            None => port.put_signal(words, 0, 1, Weak),
        };
        if ticket.is_ok() {
            let _ = sender.posted.set(());
        }
        let _ = sender.ended.set(ticket.and_then(|mut ticket| ticket.wait(bound)));
    })
}

/// The kernel that looks: how many words are wrong, and when it had looked.
fn looking(found: Arc<Mutex<Option<u64>>>, seen: Arc<OnceLock<Nanos>>) -> Kernel {
    Kernel::new(move |kernel: &mut Context<'_>| {
        let words = kernel.read::<u64>(0);
        let _ = seen.set(Os.now());
        let sent = words.iter().take(WORDS).zip(0..);
        let wrong = sent.filter(|(word, number)| **word != pattern(*number)).count() as u64;
        *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(wrong);
    })
}

/// Words that no memory holds by chance.
fn pattern(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The slot of rank 0 that tells of the message.
const SLOT: SlotId = SlotId::new(0, 0);

impl Pair {
    fn incoming(&self) -> Result<Waiter, VerifyError> {
        let waiter = self.signals().waiter(SLOT);
        waiter.map_err(|error| VerifyError::Setup(error.to_string()))
    }
}
