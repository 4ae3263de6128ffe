//! Ports: what kernels call. `parts.rs` has what a call waits for, `batch.rs` several calls as one.

mod batch;
mod parts;

pub use batch::Batch;
pub(crate) use parts::Parts;

use core::{fmt, ops::Range};
use std::{
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use bytemuck::Pod;
use pontoon_hal::link::{Explanation, LinkError, Operation as LinkOperation, Order, RemoteSignal};
use pontoon_signal::{
    Bound, Host, Nanos, Observed, Os, Rank, RecordKind, Seq, WaitError, Waiter, shim::yield_now,
};

use crate::{
    CommError, Operation, Prepare, SendError, Task, Ticket, Vouches,
    channel::{Channel, NoSignal, Route},
    chooser::{Choice, Why},
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

    /// The way of the next call. What is in the ring stays before what comes after it: no call goes
    /// directly past it.
    #[inline]
    fn choose(&self, bytes: usize) -> Choice {
        if let Some(mode) = self.mode {
            return Choice { mode, is_timed: false };
        }
        let choice = self.parts.channel.chooser.choose(bytes);
        if choice.mode == Mode::Direct && !Parts::is_quiet(&self.parts.lane) {
            return Choice { mode: Mode::Ring, is_timed: false };
        }
        choice
    }

    /// Notes what a call that was made directly took.
    fn learn(&self, choice: Choice, bytes: usize, started: Option<Nanos>) {
        if let Some(started) = started {
            let took = Os.now().since(started).0;
            self.parts.channel.chooser.learn(choice.mode, bytes, took);
        }
    }

    /// Where it leads.
    pub fn peer(&self) -> Rank {
        self.parts.peer()
    }

    /// Writes `bytes`, which lie in the memory of the port, to the peer's region, from `to` on.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was sent.
    ///
    /// # Blocks
    ///
    /// Only for room in a full ring, as long as the patience.
    #[inline]
    pub fn put<'b, T: Pod>(&'b self, bytes: &'b [T], to: usize) -> Result<Ticket<'b>, SendError> {
        let range = self.source(bytemuck::cast_slice(bytes))?;
        self.within(to, range.len())?;
        self.made(range.len(), Order::Weak, |choice| match choice.mode {
            Mode::Ring => self.task(Operation::Put, &range, to, 0, Order::Weak),
            Mode::Direct => {
                let Route { source, target, .. } = &*self.parts.route;
                self.posted(self.parts.channel.link.write(source, range.clone(), target, to))
            }
        })
    }

    /// As [`put`](Self::put), then grows the port's signal by `n`, which vouches for what `order` says:
    /// [`Strong`](crate::Strong) for all that this thread asked of ports to that peer before, by whatever ring
    /// and mode, and [`Weak`](crate::Weak) for these bytes alone. Firings of triggers are nobody's calls in
    /// this.
    ///
    /// # Errors
    ///
    /// [`SendError`]; neither was done.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_signal<'b, T: Pod, O: Vouches>(
        &'b self,
        bytes: &'b [T],
        to: usize,
        n: u32,
        _: O,
    ) -> Result<Ticket<'b>, SendError> {
        let order = O::ORDER;
        let range = self.source(bytemuck::cast_slice(bytes))?;
        self.within(to, range.len())?;
        self.needs_a_signal(n)?;
        let Parts { route, channel, .. } = &*self.parts;
        self.made(range.len(), order, |choice| match choice.mode {
            Mode::Ring => self.task(Operation::PutSignal, &range, to, n, order),
            Mode::Direct => {
                let mut signal = self.take_signal()?;
                let (Route { source, target, .. }, link) = (&**route, &channel.link);
                let range = range.clone();
                self.posted(link.write_signal(source, range, target, to, &mut signal, n, order))
            }
        })
    }

    /// Grows the port's signal by `n`.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was done.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn signal<O: Vouches>(&self, n: u32, _: O) -> Result<Ticket<'_>, SendError> {
        let order = O::ORDER;
        self.needs_a_signal(n)?;
        let channel = &self.parts.channel;
        let made = self.made(0, order, |choice| match choice.mode {
            Mode::Ring => self.task(Operation::Signal, &(0..0), 0, n, order),
            Mode::Direct => {
                let mut signal = self.take_signal()?;
                self.posted(channel.link.signal(&mut signal, n, order))
            }
        });
        made.map(Ticket::without_bytes)
    }

    /// Reads from the peer's region, from `from` on, into `bytes`, which lie in the memory of the port.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was done.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn get<'b, T: Pod>(
        &'b self,
        from: usize,
        bytes: &'b mut [T],
    ) -> Result<Ticket<'b>, SendError> {
        let range = self.source(bytemuck::cast_slice_mut::<T, u8>(bytes))?;
        self.within(from, range.len())?;
        let made = self.made(range.len(), Order::Weak, |choice| match choice.mode {
            Mode::Ring => self.task(Operation::Get, &range, from, 0, Order::Weak),
            Mode::Direct => {
                let Route { source, target, .. } = &*self.parts.route;
                self.posted(self.parts.channel.link.read(target, from, source, range.clone()))
            }
        });
        made.map(Ticket::of_get)
    }

    /// Writes the eight bytes of `value` to the peer's region, at `to`, which may be any place: at a multiple of eight
    /// they come as one. It need not lie in any memory.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was sent.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_value(&self, value: u64, to: usize) -> Result<Ticket<'_>, SendError> {
        self.within(to, 8)?;
        let Parts { route, channel, .. } = &*self.parts;
        if channel.capabilities.inline_bytes < 8 {
            return Err(SendError::Impossible { peer: self.peer(), what: "writes of values" });
        }
        let made = self.made(8, Order::Weak, |choice| match choice.mode {
            Mode::Ring => {
                let from = value;
                let task = Task { from, bytes: 8, ..self.plain(Operation::PutValue, to) };
                Ok(Ticket::of_lane(&self.parts, self.parts.push(&[task], self.patience)?.end))
            }
            Mode::Direct => {
                let bytes = value.to_ne_bytes();
                self.posted(channel.link.write_inline(&bytes, &route.target, to))
            }
        });
        made.map(Ticket::without_bytes)
    }

    /// Adds `n` to the word at `to` of the peer's region, atomically, and wraps. Additions of any rank to one
    /// word meet each other, so ranks count there without asking whose turn it is.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was done.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn atomic_add(&self, to: usize, n: u64) -> Result<Ticket<'_>, SendError> {
        let task = self.prepared_add(to, n)?;
        let Parts { route, channel, .. } = &*self.parts;
        let made = self.made(8, Order::Weak, |choice| match choice.mode {
            Mode::Ring => self.pushed(task),
            Mode::Direct => self.posted(channel.link.post_add(&route.target, to, n, None)),
        });
        made.map(Ticket::without_bytes)
    }

    /// As [`atomic_add`](Self::atomic_add), and what the word was is in `into` once the ticket is done: a
    /// number that no other addition found, as long as none adds 0. `into` lies in the memory of the port.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was done.
    ///
    /// # Blocks
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn atomic_fetch_add<'b>(
        &'b self,
        to: usize,
        n: u64,
        into: &'b mut u64,
    ) -> Result<Ticket<'b>, SendError> {
        // A word of Rust's lies where a word may lie.
        let at = self.source(bytemuck::bytes_of_mut(into))?.start;
        let task = self.prepared_add(to, n)?;
        let Parts { route, channel, .. } = &*self.parts;
        let made = self.made(8, Order::Weak, |choice| match choice.mode {
            Mode::Ring => {
                self.pushed(Task { operation: Operation::FetchAdd, from: at as u64, ..task })
            }
            Mode::Direct => {
                let reply = Some((&route.source, at));
                self.posted(channel.link.post_add(&route.target, to, n, reply))
            }
        });
        made.map(Ticket::of_get)
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
    /// As [`Ticket::wait`].
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
    /// As [`Ticket::wait`]; [`SendError::Link`].
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

    /// As [`put_signal`](Self::put_signal), of bytes by their place, which nobody borrows: what is done with
    /// them is known by [`quiet`](Self::quiet).
    pub(crate) fn send_range(
        &self,
        from: Range<usize>,
        to: usize,
        n: u32,
    ) -> Result<(), SendError> {
        let task = self.prepared(Operation::Put, &from, to, n, Order::Strong)?;
        self.needs_a_signal(n)?;
        let Parts { route, channel, .. } = &*self.parts;
        let made = self.made(from.len(), Order::Strong, |choice| match choice.mode {
            Mode::Ring => {
                let task = Task { operation: Operation::PutSignal, ..task };
                Ok(Ticket::of_lane(&self.parts, self.parts.push(&[task], self.patience)?.end))
            }
            Mode::Direct => {
                let mut signal = self.take_signal()?;
                let (Route { source, target, .. }, link) = (&**route, &channel.link);
                let (from, strong) = (from.clone(), Order::Strong);
                self.posted(link.write_signal(source, from, target, to, &mut signal, n, strong))
            }
        });
        made.map(|ticket| drop(ticket.detach()))
    }

    /// How many bytes of memory it sends from.
    pub(crate) fn source_bytes(&self) -> usize {
        self.parts.route.source.block().bytes()
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

    /// Makes a call of so many bytes, by the way that is chosen for it.
    #[inline]
    fn made<'b>(
        &'b self,
        bytes: usize,
        order: Order,
        call: impl FnOnce(Choice) -> Result<Ticket<'b>, SendError>,
    ) -> Result<Ticket<'b>, SendError> {
        let choice = self.choose(bytes);
        if order == Order::Strong {
            self.parts.catch_up(choice.mode, self.patience)?;
        }
        let started = choice.is_timed.then(|| Os.now());
        let made = call(choice);
        match choice.mode {
            Mode::Ring => {
                made.map(
                    |ticket| if let Some(at) = started { ticket.timed(bytes, at) } else { ticket },
                )
            }
            Mode::Direct => {
                self.learn(choice, bytes, started);
                made
            }
        }
    }

    #[inline]
    fn pushed(&self, task: Task) -> Result<Ticket<'_>, SendError> {
        Ok(Ticket::of_lane(&self.parts, self.parts.push(&[task], self.patience)?.end))
    }

    #[inline]
    fn task(
        &self,
        operation: Operation,
        range: &Range<usize>,
        to: usize,
        n: u32,
        order: Order,
    ) -> Result<Ticket<'_>, SendError> {
        let task = self.numbers(operation, range, to, n, order);
        Ok(Ticket::of_lane(&self.parts, self.parts.push(&[task], self.patience)?.end))
    }

    #[inline]
    fn numbers(
        &self,
        operation: Operation,
        range: &Range<usize>,
        to: usize,
        n: u32,
        order: Order,
    ) -> Task {
        let (from, bytes) = (range.start as u64, range.len() as u64);
        Task { strong: order == Order::Strong, n, from, bytes, ..self.plain(operation, to) }
    }

    /// A call that was made directly: over mapped memory, where it is done when it returns.
    #[inline]
    fn posted(&self, posted: Result<Seq, LinkError>) -> Result<Ticket<'_>, SendError> {
        posted?;
        Ok(Ticket::done(&self.parts))
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
    fn needs_a_signal(&self, n: u32) -> Result<(), SendError> {
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
