//! What a kernel asks of a port.

use core::ops::Range;

use bytemuck::Pod;
use pontoon_hal::link::{LinkError, Order};
use pontoon_signal::{Host, Nanos, Os, Seq};

use super::{Mode, Parts, Port};
use crate::{Operation, SendError, Task, Ticket, Vouches, channel::Route, chooser::Choice};

impl Port {
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
    /// [`Strong`](crate::Strong) for all that this thread asked of ports to that peer over that link before, by
    /// whatever ring and mode, and [`Weak`](crate::Weak) for these bytes alone. Firings of triggers are nobody's
    /// calls in this.
    ///
    /// # Errors
    ///
    /// [`SendError`]; neither was done. A strong call fails for good [where it cannot vouch](crate::Vouches).
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
                self.pushed(Task { from, bytes: 8, ..self.plain(Operation::PutValue, to) })
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
            Mode::Ring => self.pushed(Task { operation: Operation::PutSignal, ..task }),
            Mode::Direct => {
                let mut signal = self.take_signal()?;
                let (Route { source, target, .. }, link) = (&**route, &channel.link);
                let (from, strong) = (from.clone(), Order::Strong);
                self.posted(link.write_signal(source, from, target, to, &mut signal, n, strong))
            }
        });
        made.map(|ticket| drop(ticket.detach()))
    }

    /// The way of the next call. What is in the ring stays before what comes after it: no call goes
    /// directly past it.
    #[inline]
    pub(super) fn choose(&self, bytes: usize) -> Choice {
        if let Some(mode) = self.mode {
            return Choice { mode, is_timed: false };
        }
        let choice = self.parts.channel.chooser.choose(bytes);
        if choice.mode == Mode::Direct && !self.parts.lane.is_quiet() {
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

    /// Makes a call of so many bytes, by the way that is chosen for it.
    #[inline]
    fn made<'b>(
        &'b self,
        bytes: usize,
        order: Order,
        call: impl FnOnce(Choice) -> Result<Ticket<'b>, SendError>,
    ) -> Result<Ticket<'b>, SendError> {
        let choice = self.choose(bytes);
        if choice.mode == Mode::Direct {
            // By the ring the push finds out.
            self.parts.still_open()?;
        }
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
            Mode::Direct => made.inspect(|_| self.learn(choice, bytes, started)),
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
        self.pushed(self.numbers(operation, range, to, n, order))
    }

    #[inline]
    pub(super) fn numbers(
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
}
