//! Tickets: when bytes may be used again.

use core::{fmt, marker::PhantomData};

use pontoon_signal::{Bound, Host, Nanos, Os, Seq, Slot};

use crate::{Mode, SendError, port::Parts};

/// A call that was made. Until it is done its bytes are borrowed: bytes that are sent cannot be
/// written, and bytes that are fetched cannot be used at all.
///
/// Dropping it waits until it is done, as long as the patience of the settings. After that its ring is given up: what
/// was not begun is not begun any more, the ring takes no more tasks, and what was begun is waited for once more so
/// long. If the link has the bytes even then, its way to that peer is ended, for all of this rank, by which it lets
/// go of them. If it is the proxy that stands still, no ending would move it: the link stays as it is, the bytes may
/// yet change, and an error in the log says so. A call without bytes is not waited for. With `mem::forget` the bytes
/// can be had sooner, and then nobody says what was sent, or when what is fetched arrives.
///
/// ```compile_fail,E0506
/// # fn kernel(port: &pontoon_comm::Port, bound: pontoon_signal::Bound) -> Result<(), pontoon_comm::SendError> {
/// let mut bytes = [0_u8; 64]; // as a kernel has them of an access
/// let mut ticket = port.put(&bytes, 0)?;
/// bytes[0] = 1; // does not compile: the proxy may not have read it yet
/// ticket.wait(bound)
/// # }
/// ```
#[must_use = "the bytes are borrowed until it was waited for; dropping it waits"]
pub struct Ticket<'b> {
    parts: &'b Parts,
    until: Until,
    /// When it was made, and of how many bytes, if that is of interest.
    timed: Option<(Nanos, usize)>,
    holds: Holds,
    bytes: PhantomData<&'b mut [u8]>,
}

/// What is done with a ticket's bytes until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// It has none.
    Nothing,
    /// They are read.
    Sent,
    /// They are written.
    Fetched,
}

/// When a call is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// It is done.
    Done,
    /// The lane's counter is there.
    Lane(Seq),
}

impl<'b> Ticket<'b> {
    pub(crate) fn of(parts: &'b Parts, until: Until) -> Self {
        Self { parts, until, timed: None, holds: Holds::Sent, bytes: PhantomData }
    }

    /// The same, of bytes that are fetched.
    pub(crate) fn of_get(self) -> Self {
        Self::with(self, Holds::Fetched)
    }

    /// The same, of no bytes.
    pub(crate) fn without_bytes(self) -> Self {
        Self::with(self, Holds::Nothing)
    }

    fn with(mut self, holds: Holds) -> Self {
        self.holds = holds;
        self
    }

    pub(crate) fn done(parts: &'b Parts) -> Self {
        Self::of(parts, Until::Done)
    }

    pub(crate) fn of_lane(parts: &'b Parts, end: Seq) -> Self {
        Self::of(parts, Until::Lane(end))
    }

    /// The same, whose time is of interest if it is waited for at once.
    pub(crate) fn timed(mut self, bytes: usize, started: Nanos) -> Self {
        self.timed = Some((started, bytes));
        self
    }

    /// Whether its bytes may be used again, without waiting.
    ///
    /// # Errors
    ///
    /// [`SendError::Ended`], [`SendError::Link`]: it will never be done.
    pub fn is_done(&self) -> Result<bool, SendError> {
        let (slot, seq) = match self.until {
            Until::Done => return Ok(true),
            Until::Lane(seq) => (&self.parts.lane().done, seq),
        };
        if slot.acquire().is_at_or_past(seq) {
            return Ok(true);
        }
        match slot.ending() {
            None => Ok(false),
            // It may have come between the two looks.
            Some(_) if slot.acquire().is_at_or_past(seq) => Ok(true),
            Some(ending) => Err(self.parts.ended(self.parts.lane(), ending, slot.value(), seq)),
        }
    }

    /// Waits until its bytes may be used again: what was sent was read, and what was fetched is there. A
    /// ticket that was not done in time may be waited for again.
    ///
    /// # Errors
    ///
    /// [`SendError::TimedOut`]; [`SendError::Stalled`], which comes before if the bound is longer than
    /// what is called standing still; [`SendError::Ended`] or [`SendError::Link`] if it will never be done. That is
    /// told once nothing touches its bytes any more, and to whoever asks again.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn wait(&mut self, bound: Bound) -> Result<(), SendError> {
        // Who comes late does not know how long it took.
        let done = &self.parts.lane().done;
        let is_early = matches!(self.until, Until::Lane(end) if !done.value().is_at_or_past(end));
        let waited = self.parts.wait_until(self.until, bound);
        if waited.is_ok() {
            if let (true, Some((started, bytes))) = (is_early, self.timed) {
                let took = Os.now().since(started).0;
                self.parts.channel.chooser.learn(Mode::Ring, bytes, took);
            }
            self.until = Until::Done;
        }
        waited
    }

    /// Hands the wait to somebody else: a queue, or a later kernel. The bytes are no longer borrowed,
    /// so whoever writes them has to wait for this first; a session knows by its lent bytes. Bytes that are
    /// fetched are waited for as by dropping, since whoever looked at them would see them change.
    pub fn detach(mut self) -> Sent {
        let slot = self.parts.lane().done.clone();
        let seq = match self.until {
            Until::Lane(seq) => seq,
            Until::Done => slot.value(),
        };
        if self.holds == Holds::Fetched {
            self.settle();
        }
        self.until = Until::Done;
        Sent { slot, seq }
    }

    /// The same, to be waited for by who has the port.
    pub(crate) fn into_until(mut self) -> Until {
        core::mem::replace(&mut self.until, Until::Done)
    }

    /// Waits for as long as the patience, and then sees to it that nothing touches the bytes.
    fn settle(&mut self) {
        let Until::Lane(end) = self.until else { return };
        if self.holds == Holds::Nothing {
            return;
        }
        if self.parts.still_open().is_ok() {
            let patience = Bound::within(self.parts.proxy.settings.patience);
            match self.wait(patience) {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(target: "pontoon::comm", %error, "a ticket was dropped undone")
                }
            }
        }
        self.parts.abandon(end);
        self.until = Until::Done;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

impl fmt::Debug for Ticket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket(rank {}, {:?})", self.parts.peer(), self.until)
    }
}

/// When a call that was made will be done: once `slot` is at `seq`.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The counter.
    pub slot: Slot,
    /// Where it has to get.
    pub seq: Seq,
}
