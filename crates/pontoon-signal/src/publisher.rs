//! The announcing side of a line.

use core::fmt;

use crate::{
    Ending, Host, Os, Producer, Rank, Seq, SignalLine, SlotId, line::Claim, shim::process_id,
    table::LineRef,
};

/// The one producer of a slot.
///
/// Dropping it ends the line: nobody can publish there any more, and every wait that has not been
/// reached fails with `PeerDead`, until a successor claims the slot and opens the line again.
/// [`retire`](Self::retire) leaves the line open for the successor, and waits go on.
#[derive(Debug)]
pub struct Publisher<H: Host = Os> {
    line: LineRef,
    slot: SlotId,
    value: Seq,
    publishes: u64,
    traced: bool,
    date: Date,
    stays_open: bool,
    host: H,
}

/// How exactly a publisher notes when it published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Date {
    Exact,
    Tick,
    None,
}

impl<H: Host> Publisher<H> {
    pub(crate) fn claim(line: LineRef, slot: SlotId, host: H) -> Result<Self, ClaimError> {
        claim(&line, slot, Claim::Sole)?;
        let value = line.value(crate::Load::Native);
        let (publishes, traced) = (line.publishes(), line.is_traced());
        Ok(Self {
            line,
            slot,
            value,
            publishes,
            traced,
            date: Date::Exact,
            stays_open: false,
            host,
        })
    }

    /// The same publisher, noting no times: a publish then costs no look at the clock, and the
    /// time-out of a wait says that there was none. For lines whose waits nobody reads the errors
    /// of. A traced line keeps its times.
    pub fn undated(mut self) -> Self {
        self.date = Date::None;
        self
    }

    /// The same publisher, noting times as of the last tick of the clock, some milliseconds ago at
    /// most ([`Host::tick`]): where a look at the clock would take as long as the publish. A traced
    /// line keeps its times.
    pub fn dated_by_ticks(mut self) -> Self {
        self.date = Date::Tick;
        self
    }

    /// Makes all earlier writes of this thread visible at system scope, then grows the counter by
    /// `n`. Gives the counter after it.
    ///
    /// Writes of other threads are covered only if they were ordered before this call. Neither
    /// allocates nor locks; makes a system call only if a waiter sleeps.
    #[inline]
    pub fn pub_release(&mut self, n: u32) -> Seq {
        self.announce(self.value + n)
    }

    /// As [`pub_release`](Self::pub_release), but moves the counter to `value`.
    ///
    /// [`SharedPublisher`] has no such call: of two producers that set, the slower would take the
    /// counter back.
    ///
    /// # Errors
    ///
    /// [`BehindCounter`] if the counter is past `value` already; nothing was published.
    #[inline]
    pub fn pub_release_set(&mut self, value: Seq) -> Result<(), BehindCounter> {
        if !value.is_at_or_past(self.value) {
            return Err(BehindCounter { slot: self.slot, counter: self.value, asked: value });
        }
        self.announce(value);
        Ok(())
    }

    #[inline]
    fn announce(&mut self, value: Seq) -> Seq {
        self.value = value;
        self.publishes = self.publishes.wrapping_add(1);
        if self.traced {
            self.line.note_time(self.host.now());
        }
        self.line.publish_sole(value);
        self.line.park().notify();
        self.note();
        value
    }

    #[inline]
    fn note(&self) {
        // After the announcement, not before: reading the clock would delay every waiter. What a
        // time-out reports can be one publish old for as long as these two stores take.
        let at = match self.date {
            _ if self.traced => None,
            Date::None => None,
            Date::Exact => Some(self.host.now()),
            Date::Tick => Some(self.host.tick()),
        };
        self.line.note_publish_sole(self.publishes, at);
    }

    /// The counter as this producer left it.
    pub fn value(&self) -> Seq {
        self.value
    }

    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    pub(crate) fn line(&self) -> &LineRef {
        &self.line
    }

    /// Ends the line with `ending` instead of a plain death. Whether this was the first ending.
    pub fn end(self, ending: Ending) -> bool {
        self.line.end_and_wake(ending)
    }

    /// Gives the slot up without ending the line: waits go on for the next producer to reach.
    pub fn retire(mut self) {
        self.stays_open = true;
    }
}

impl<H: Host> Drop for Publisher<H> {
    fn drop(&mut self) {
        let dead = Ending::PeerDead { rank: self.slot.producer };
        self.line.unclaim((!self.stays_open).then_some(dead));
    }
}

/// One of several producers of a slot. Each may only add; the last one dropped ends the line.
///
/// ```
/// use pontoon_signal::{Seq, SignalTable, SlotId, TableShape};
///
/// let table = SignalTable::in_process(TableShape::new(1, 1));
/// let first = table.shared_publisher(SlotId::new(0, 0))?;
/// let second = first.clone();
/// std::thread::spawn(move || second.pub_release(1)).join().unwrap();
/// assert_eq!(first.pub_release(1), Seq::new(2));
/// # Ok::<(), pontoon_signal::ClaimError>(())
/// ```
///
/// ```compile_fail,E0599
/// # use pontoon_signal::{Seq, SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// let shared = table.shared_publisher(SlotId::new(0, 0)).unwrap();
/// shared.pub_release_set(Seq::new(2)); // does not compile
/// ```
#[derive(Debug)]
pub struct SharedPublisher<H: Host = Os> {
    line: LineRef,
    slot: SlotId,
    traced: bool,
    noted: bool,
    stays_open: bool,
    host: H,
}

impl<H: Host> SharedPublisher<H> {
    pub(crate) fn claim(line: LineRef, slot: SlotId, host: H) -> Result<Self, ClaimError> {
        claim(&line, slot, Claim::Shared)?;
        let traced = line.is_traced();
        Ok(Self { line, slot, traced, noted: true, stays_open: false, host })
    }

    /// The same publisher, noting neither times nor how many publishes there were: for lines whose
    /// waits nobody reads the errors of. A traced line keeps its times. See [`Publisher::undated`].
    pub fn unnoted(mut self) -> Self {
        self.noted = false;
        self
    }

    /// The counter now. What its producers wrote before they grew it to that is readable by this
    /// thread, and is covered by what this thread publishes next.
    #[inline]
    pub fn acquire(&self) -> Seq {
        let value = self.line.value(crate::Load::Native);
        SignalLine::acquire();
        value
    }

    /// Makes all earlier writes of this thread visible at system scope, then adds `n` to the
    /// counter. Gives the counter after it.
    ///
    /// Neither allocates nor locks; makes a system call only if a waiter sleeps.
    #[inline]
    pub fn pub_release(&self, n: u32) -> Seq {
        if self.traced {
            self.line.note_time(self.host.now());
        }
        let value = self.line.publish_shared(n);
        self.line.park().notify_after_add();
        if self.noted {
            let at = (!self.traced).then(|| self.host.now());
            self.line.note_publish_shared(at);
        }
        value
    }

    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// Gives this claim up without ending the line, even if it is the last.
    pub fn retire(mut self) {
        self.stays_open = true;
    }
}

impl<H: Host> Clone for SharedPublisher<H> {
    /// One more producer of the slot.
    fn clone(&self) -> Self {
        self.line.join();
        let (line, host) = (self.line.clone(), self.host.clone());
        let Self { slot, traced, noted, .. } = *self;
        Self { line, slot, traced, noted, stays_open: false, host }
    }
}

impl<H: Host> Drop for SharedPublisher<H> {
    fn drop(&mut self) {
        let dead = Ending::PeerDead { rank: self.slot.producer };
        self.line.unclaim((!self.stays_open).then_some(dead));
    }
}

pub(crate) fn claim(line: &SignalLine, slot: SlotId, claim: Claim) -> Result<(), ClaimError> {
    line.claim(slot.producer, process_id(), claim).map_err(|by| ClaimError::Taken { slot, by })
}

/// Why a slot could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The table has no such slot.
    NoSuchSlot {
        /// The slot asked for.
        slot: SlotId,
        /// The rank of the table's first producer.
        first: Rank,
        /// How many producers it has.
        producers: u32,
        /// How many slots each has.
        slots: u32,
    },
    /// Another producer has the slot.
    Taken {
        /// The slot.
        slot: SlotId,
        /// Who has it.
        by: Producer,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSlot { slot, first, producers, slots } => write!(
                f,
                "there is no {slot}: the table has {producers} producers from {first} on, with \
                 {slots} slots each"
            ),
            Self::Taken { slot, by } => write!(f, "{slot} is taken by pid {}", by.pid),
        }
    }
}

impl core::error::Error for ClaimError {}

/// A set that would take the counter back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindCounter {
    /// The slot.
    pub slot: SlotId,
    /// Where the counter is.
    pub counter: Seq,
    /// Where the caller wanted it.
    pub asked: Seq,
}

impl fmt::Display for BehindCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is at {}, cannot go back to {}", self.slot, self.counter, self.asked)
    }
}

impl core::error::Error for BehindCounter {}
