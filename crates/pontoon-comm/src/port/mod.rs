//! Ports: what kernels call. `calls.rs` has the calls, `parts.rs` what they wait for, `batch.rs` several calls as one.

mod batch;
mod calls;
mod parts;

pub use batch::Batch;
pub(crate) use parts::Parts;

use core::{fmt, ops::Range};
use std::{
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use pontoon_hal::link::{Explanation, Operation as LinkOperation, Order, RemoteSignal};
use pontoon_signal::{
    Bound, Nanos, Observed, Rank, RecordKind, Seq, WaitError, Waiter, shim::yield_now,
};

use crate::{
    CommError, Operation, Prepare, SendError, Task,
    channel::{Channel, NoSignal, Route},
    chooser::Why,
    proxy::Shared,
};

/// The way that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The calling thread does it itself, by loads and stores in the peer's memory, which is mapped.
    Direct,
    /// The calling thread puts a task in a ring, and the proxy does it.
    Ring,
}

/// The way from registered memory here to a region of one peer, and to a signal there. A handle, for
/// kernels to keep: any number of threads may call it, but those that use its signal at the same time
/// wait for each other. What it was opened over is given back once the last clone is dropped, what it asked for is
/// done and the proxy has come round, which takes milliseconds where that sleeps.
///
/// No call allocates or makes a system call, but to wake a proxy that sleeps. A ring without room, and a
/// signal that another thread uses, are waited for as long as the port's [patience](Self::with_patience).
#[derive(Clone)]
pub struct Port {
    parts: Arc<Parts>,
    /// `None` chooses for each call.
    mode: Option<Mode>,
    patience: Duration,
}

impl Port {
    pub(crate) fn new(
        channel: Arc<Channel>,
        proxy: Arc<Shared>,
        route: Arc<Route>,
    ) -> Result<Self, CommError> {
        let (patience, started) = (proxy.settings.patience, Instant::now());
        let (number, lane) = loop {
            if let Some((number, lane)) = channel.add(&route) {
                break (Some(number), Arc::clone(lane));
            }
            if started.elapsed() >= patience {
                return Err(CommError::TooMany { peer: channel.peer });
            }
            // Those of ports that are gone come back when the proxy gets round.
            proxy.ring_the_bell();
            yield_now();
        };
        let mode = (!channel.capabilities.mapped).then_some(Mode::Ring);
        let parts = Arc::new(Parts { channel, proxy, route, number, lane });
        Ok(Self { parts, mode, patience })
    }

    /// The same port, whose calls take this way, and are not chosen for.
    ///
    /// # Errors
    ///
    /// [`SendError::Impossible`] for [`Mode::Direct`] where the peer's memory is not mapped here.
    pub fn in_mode(&self, mode: Mode) -> Result<Self, SendError> {
        let mapped = self.parts.channel.capabilities.mapped;
        if mode == Mode::Direct && !mapped {
            return Err(SendError::Impossible { peer: self.peer(), what: "mapped memory" });
        }
        Ok(Self { mode: Some(mode), ..self.clone() })
    }

    /// The same port, whose calls wait so long for room in a full ring and for a signal that another thread
    /// uses; that of the settings unless given.
    pub fn with_patience(&self, patience: Duration) -> Self {
        Self { patience, ..self.clone() }
    }

    /// The way that its calls take; `None` if it chooses for each.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Which way a call of so many bytes takes now, and why.
    pub fn why(&self, bytes: usize) -> Why {
        let Channel { chooser, capabilities, .. } = &*self.parts.channel;
        let why = chooser.why(bytes, capabilities.mapped);
        Why { mode: self.mode.unwrap_or(why.mode), ..why }
    }

    /// What the link makes of a call: what it inserts between the bytes and their signal, and what each order
    /// costs. By the ring the proxy hands it to the link first.
    ///
    /// # Errors
    ///
    /// [`SendError::Link`].
    pub fn explain(&self, operation: LinkOperation) -> Result<Explanation, SendError> {
        Ok(self.parts.channel.link.explain(self.peer(), operation)?)
    }

    /// Where it leads.
    pub fn peer(&self) -> Rank {
        self.parts.peer()
    }

    /// Several calls as one: they stand side by side in the ring, by one claim, or are made one after
    /// the other where there is no ring. Mostly the last one signals, for all.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Waits until all that was asked of this port's ring before is done: its bytes may be used again.
    ///
    /// # Errors
    ///
    /// As [`Ticket::wait`](crate::Ticket::wait).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn quiet(&self, bound: Bound) -> Result<(), SendError> {
        let (head, _) = self.parts.ring()?.positions();
        self.parts.wait_for_lane(head, bound)
    }

    /// Waits until all that was asked of this port before is performed at the peer.
    ///
    /// # Errors
    ///
    /// As [`Ticket::wait`](crate::Ticket::wait); [`SendError::Link`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn flush(&self, bound: Bound) -> Result<(), SendError> {
        let started = Instant::now();
        self.quiet(bound)?;
        let left = bound.less(Nanos::from(started.elapsed()));
        Ok(self.parts.channel.link.flush(self.peer(), left)?)
    }

    /// Writes a record of the kernel's own, number `code`, about this port's peer to the flight recorder:
    /// readers outside the process find it there whatever becomes of this one. Neither waits nor
    /// allocates; nothing happens where [nobody said](crate::Comm::record_in) to which.
    pub fn record(&self, code: u16, data: [u64; 3]) {
        let kind = RecordKind(RecordKind::USER.0 + u32::from(code));
        self.parts.proxy.record(kind, self.peer(), data);
    }

    /// How far what was asked of this port's ring is.
    pub fn progress(&self) -> Progress {
        let done = self.parts.lane.done.value();
        let Some(ring) = self.parts.lane.ring() else {
            return Progress { asked: done, taken: done, done };
        };
        // In this order, so that what goes on meanwhile makes the later ones larger and never smaller.
        let taken = ring.credits().value();
        Progress { asked: ring.head(), taken, done }
    }

    /// Calls for a trigger to fire.
    pub fn prepare(&self) -> Prepare<'_> {
        Prepare::new(self)
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// A task for a trigger.
    pub(crate) fn prepared(
        &self,
        operation: Operation,
        from: &Range<usize>,
        to: usize,
        n: u32,
        order: Order,
    ) -> Result<Task, SendError> {
        if operation == Operation::Signal {
            self.needs_a_signal(n)?;
        } else {
            let source = self.parts.route.source.block().bytes();
            if from.start > from.end || from.end > source {
                let (peer, asked) = (self.parts.channel.link.rank(), from.clone());
                return Err(SendError::OutOfRange { peer, asked, bytes: source });
            }
            self.within(to, from.len())?;
        }
        Ok(self.numbers(operation, from, to, n, order))
    }

    /// The task of an addition.
    #[inline]
    pub(crate) fn prepared_add(&self, to: usize, n: u64) -> Result<Task, SendError> {
        self.within(to, 8)?;
        let target = &self.parts.route.target;
        target.check_word(to).map_err(|_| SendError::Misaligned { offset: to })?;
        Ok(Task { bytes: n, ..self.plain(Operation::Add, to) })
    }

    /// The rank whose port it is.
    pub(crate) fn own(&self) -> Rank {
        self.parts.channel.link.rank()
    }

    /// How many bytes of memory it sends from.
    pub(crate) fn source_bytes(&self) -> usize {
        self.parts.route.source.block().bytes()
    }

    /// How many bytes the peer's region has.
    pub(crate) fn target_bytes(&self) -> usize {
        self.parts.route.target.bytes()
    }

    /// Waits on a counter that the peer grows here, doing the link's work meanwhile.
    pub(crate) fn wait_on<'w>(
        &self,
        waiter: &'w Waiter,
        target: Seq,
        bound: Bound,
    ) -> Result<Observed<'w>, WaitError> {
        self.parts.channel.link.wait(waiter, target, bound)
    }

    fn plain(&self, operation: Operation, to: usize) -> Task {
        let route = self.parts.number.unwrap_or_default();
        Task { operation, route, strong: false, n: 0, from: 0, to: to as u64, bytes: 0 }
    }

    /// The signal, once no other thread uses it.
    #[inline]
    fn take_signal(&self) -> Result<MutexGuard<'_, RemoteSignal>, SendError> {
        self.parts.route.signal(self.patience).map_err(|no| self.no_signal(&no))
    }

    /// Where `bytes` lie in the memory that the port sends from.
    #[inline]
    fn source(&self, bytes: &[u8]) -> Result<Range<usize>, SendError> {
        if bytes.is_empty() {
            return Ok(0..0);
        }
        let block = self.parts.route.source.block();
        let at = bytes.as_ptr().addr().wrapping_sub(block.base().addr().get());
        match at.checked_add(bytes.len()) {
            Some(end) if end <= block.bytes() => Ok(at..end),
            _ => Err(SendError::NotRegistered { bytes: bytes.len() }),
        }
    }

    /// That the peer's region has `bytes` bytes from `to` on.
    #[inline]
    fn within(&self, to: usize, bytes: usize) -> Result<(), SendError> {
        let region = self.parts.route.target.bytes();
        match to.checked_add(bytes) {
            Some(end) if end <= region => Ok(()),
            end => {
                let asked = to..end.unwrap_or(usize::MAX);
                Err(SendError::OutOfRange { peer: self.peer(), asked, bytes: region })
            }
        }
    }

    /// That it has a signal, which is to grow by `n`.
    pub(crate) fn needs_a_signal(&self, n: u32) -> Result<(), SendError> {
        match (self.parts.route.has_signal(), n) {
            (false, _) => Err(SendError::NoSignal),
            (true, 0) => Err(SendError::Zero),
            (true, _) => Ok(()),
        }
    }

    fn no_signal(&self, no: &NoSignal) -> SendError {
        match no {
            NoSignal::None => SendError::NoSignal,
            NoSignal::Busy => SendError::Busy { peer: self.peer() },
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.parts.channel.link.name();
        match self.mode {
            Some(mode) => write!(f, "Port(rank {} over {link}, {mode:?})", self.peer()),
            None => write!(f, "Port(rank {} over {link}, chosen)", self.peer()),
        }
    }
}

/// How far a ring is: all by the numbers of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What kernels asked for.
    pub asked: Seq,
    /// What the proxy took.
    pub taken: Seq,
    /// What the link is done with.
    pub done: Seq,
}
