//! The two sides of a ping-pong over signal lines: by pontoon's verbs, and over the bare words.
//!
//! Both sides follow the same plan, so nobody tells the other what comes next. A side publishes on
//! the lines of its own row and waits on those of the other's. Both ways go over the same lines.

use std::{hint::black_box, time::Duration};

use pontoon::signal::{
    Bound, Host, LineRef, Nanos, Os, Publisher, Seq, SignalTable, SlotId, TableShape, Waiter,
    shim::{AtomicU64, Ordering::*, fence, spin_loop, sync},
};

use super::BenchError;

/// What a block of trips measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There and back by `pub_release`, `wait_ge_bounded`, `acq_fence`.
    RoundTrip,
    /// There and back by a release store and acquire loads of the bare word, without a protocol.
    RawRoundTrip(Raw),
    /// From before the publish until after the other side's fence.
    OneWay,
    RawOneWay(Raw),
    /// One way to a side that sleeps at once.
    Wake,
}

/// How the rival passes the time between two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// Not at all.
    Spin,
    /// By the processor's spin hint.
    Hint,
    /// Not at all, but it stores its own word once more, a fence and a clock's reading after each
    /// publish. That takes the line back while nobody polls it, so the next publish finds it at hand.
    Again,
}

pub(super) const SPIN: u8 = Raw::Spin as u8;
const HINT: u8 = Raw::Hint as u8;
const AGAIN: u8 = Raw::Again as u8;

/// Slots by which the sides call each other. How far a line is from two cores depends on where it
/// lies, so the blocks go round over several.
const CALLS: u32 = 8;
/// When the pinging side published.
const STAMP: u32 = CALLS;
/// How long the one-way trips of a block took in all, as the echoing side counted.
const SUM: u32 = CALLS + 1;
/// Where the pinging side says which round is the last.
const LAST: u32 = CALLS + 2;

/// A table for two sides.
pub(crate) const SHAPE: TableShape = TableShape::new(2, LAST + 1);

/// The longest that one side waits for the other. Generous: the machine may be busy with others.
const PATIENCE: Duration = Duration::from_secs(5);
/// Polls of a bare word that take some seconds, with the hint some more.
const RAW_POLLS: u64 = 1 << 32;
const RAW_HINTED_POLLS: u64 = 1 << 27;

/// One side of the ping-pong.
#[derive(Debug)]
pub(crate) struct Side {
    calls: Vec<Call>,
    /// Blocks so far: the next one takes the next call.
    blocks: usize,
    stamp: LineRef,
    sum: LineRef,
    last: LineRef,
}

/// Two lines, one each way. Both ways of measuring use them, so that neither has the nearer ones.
#[derive(Debug)]
struct Call {
    mine: Publisher,
    theirs: Waiter,
    my_line: LineRef,
    their_line: LineRef,
    /// Where both counters are between trips.
    at: Seq,
}

impl Side {
    /// The side that publishes on row `me`, 0 or 1.
    ///
    /// # Errors
    ///
    /// The row is taken or the table has another shape.
    pub(crate) fn claim(table: &SignalTable, me: u32) -> Result<Self, BenchError> {
        let call = |slot| {
            let (mine, theirs) = (SlotId::new(me, slot), SlotId::new(1 - me, slot));
            Ok::<_, BenchError>(Call {
                mine: table.publisher(mine)?,
                theirs: table.waiter(theirs)?,
                my_line: table.line(mine)?,
                their_line: table.line(theirs)?,
                at: Seq::new(0),
            })
        };
        Ok(Self {
            calls: (0..CALLS).map(call).collect::<Result<_, _>>()?,
            blocks: 0,
            stamp: table.line(SlotId::new(0, STAMP))?,
            sum: table.line(SlotId::new(1, SUM))?,
            last: table.line(SlotId::new(0, LAST))?,
        })
    }

    /// Says, as the side that begins the trips, that round `round` will be the last one. To be
    /// called before that round: its trips carry the news.
    pub(crate) fn announce_last(&self, round: u32) {
        self.last.word().store(u64::from(round) + 1, Relaxed);
    }

    /// Whether `round`, which is over, was announced to be the last one.
    pub(crate) fn was_last(&self, round: u32) -> bool {
        // News of a later round may be here early; it changes nothing for this one.
        self.last.word().load(Relaxed) == u64::from(round) + 1
    }

    fn next_call(&mut self) -> (&mut Call, &AtomicU64, &AtomicU64) {
        let index = self.blocks % self.calls.len();
        self.blocks += 1;
        (&mut self.calls[index], self.stamp.word(), self.sum.word())
    }

    /// A block of `trips` as the side that begins each. Gives nanoseconds a trip.
    ///
    /// # Errors
    ///
    /// The other side did not answer.
    pub(crate) fn ping(&mut self, kind: Kind, trips: u32) -> Result<f64, BenchError> {
        let (call, stamp, sum) = self.next_call();
        let start = Os.now();
        match kind {
            Kind::RoundTrip => call.ping::<false>(trips, stamp)?,
            Kind::OneWay | Kind::Wake => call.ping::<true>(trips, stamp)?,
            Kind::RawRoundTrip(Raw::Spin) => call.ping_raw::<false, SPIN>(trips, stamp)?,
            Kind::RawRoundTrip(Raw::Hint) => call.ping_raw::<false, HINT>(trips, stamp)?,
            Kind::RawRoundTrip(Raw::Again) => call.ping_raw::<false, AGAIN>(trips, stamp)?,
            Kind::RawOneWay(Raw::Spin) => call.ping_raw::<true, SPIN>(trips, stamp)?,
            Kind::RawOneWay(Raw::Hint) => call.ping_raw::<true, HINT>(trips, stamp)?,
            Kind::RawOneWay(Raw::Again) => call.ping_raw::<true, AGAIN>(trips, stamp)?,
        }
        let spent = match kind {
            Kind::RoundTrip | Kind::RawRoundTrip(_) => Os.now().since(start).0,
            // The last answer published it.
            Kind::OneWay | Kind::Wake | Kind::RawOneWay(_) => sum.load(Relaxed),
        };
        Ok(spent as f64 / f64::from(trips))
    }

    /// A block of `trips` as the side that answers each.
    ///
    /// # Errors
    ///
    /// The other side did not come.
    pub(crate) fn echo(&mut self, kind: Kind, trips: u32) -> Result<(), BenchError> {
        let (call, stamp, sum) = self.next_call();
        let bound = Bound::within(PATIENCE);
        match kind {
            Kind::RoundTrip => call.echo::<false>(trips, bound, stamp, sum)?,
            Kind::OneWay => call.echo::<true>(trips, bound, stamp, sum)?,
            Kind::Wake => {
                // Goes to sleep without a poll more than needed.
                call.echo::<true>(trips, bound.spinning(0).yielding(0), stamp, sum)?;
            }
            Kind::RawRoundTrip(Raw::Spin) => call.echo_raw::<false, SPIN>(trips, stamp, sum)?,
            Kind::RawRoundTrip(Raw::Hint) => call.echo_raw::<false, HINT>(trips, stamp, sum)?,
            Kind::RawRoundTrip(Raw::Again) => call.echo_raw::<false, AGAIN>(trips, stamp, sum)?,
            Kind::RawOneWay(Raw::Spin) => call.echo_raw::<true, SPIN>(trips, stamp, sum)?,
            Kind::RawOneWay(Raw::Hint) => call.echo_raw::<true, HINT>(trips, stamp, sum)?,
            Kind::RawOneWay(Raw::Again) => call.echo_raw::<true, AGAIN>(trips, stamp, sum)?,
        }
        Ok(())
    }

    /// One round trip, polled by the caller: how many polls it took and how long.
    ///
    /// # Errors
    ///
    /// The other side did not answer.
    pub(crate) fn ping_counting_polls(&mut self) -> Result<(u64, Nanos), BenchError> {
        let call = self.next_call().0;
        let target = call.announce()?;
        let start = Os.now();
        for polls in 1..=RAW_POLLS {
            if let Some(observed) = call.theirs.try_wait(target)? {
                observed.acq_fence();
                return Ok((polls, Os.now().since(start)));
            }
        }
        call.theirs.give_up(target, Os.now().since(start))?.acq_fence();
        Ok((RAW_POLLS, Os.now().since(start)))
    }

    /// Answers one round trip, after `pace` of work.
    ///
    /// # Errors
    ///
    /// The other side did not come.
    pub(crate) fn echo_at_pace(&mut self, pace: Nanos) -> Result<(), BenchError> {
        let call = self.next_call().0;
        call.theirs.wait_ge_bounded(call.at + 1, Bound::within(PATIENCE))?.acq_fence();
        if pace > Nanos(0) {
            let start = Os.now();
            while Os.now().since(start) < pace {}
        }
        call.announce()?;
        Ok(())
    }

    /// Leaves without ending the lines, for the other side may still be reading them.
    pub(crate) fn leave(self) {
        for call in self.calls {
            call.mine.retire();
        }
    }
}

fn since(stamp: &AtomicU64) -> u64 {
    Os.now().since(Nanos(stamp.load(Relaxed))).0
}

impl Call {
    /// Moves this side's counter one on. The bare stores of a block before are unknown to the
    /// publisher, so it is told where to.
    #[inline(always)]
    fn announce(&mut self) -> Result<Seq, BenchError> {
        self.at = self.at + 1;
        self.mine.pub_release_set(self.at).map_err(|_| BenchError::OutOfStep)?;
        Ok(self.at)
    }

    fn ping<const STAMPED: bool>(
        &mut self,
        trips: u32,
        stamp: &AtomicU64,
    ) -> Result<(), BenchError> {
        let bound = Bound::within(PATIENCE);
        for _ in 0..trips {
            if STAMPED {
                stamp.store(Os.now().0, Relaxed);
            }
            let target = self.announce()?;
            self.theirs.wait_ge_bounded(target, bound)?.acq_fence();
        }
        Ok(())
    }

    fn echo<const STAMPED: bool>(
        &mut self,
        trips: u32,
        bound: Bound,
        stamp: &AtomicU64,
        sum: &AtomicU64,
    ) -> Result<(), BenchError> {
        let mut total = 0;
        for _ in 0..trips {
            self.theirs.wait_ge_bounded(self.at + 1, bound)?.acq_fence();
            if STAMPED {
                total += since(stamp);
                sum.store(total, Relaxed);
            }
            self.announce()?;
        }
        Ok(())
    }

    fn ping_raw<const STAMPED: bool, const RAW: u8>(
        &mut self,
        trips: u32,
        stamp: &AtomicU64,
    ) -> Result<(), BenchError> {
        let (mine, theirs) = (self.my_line.word(), self.their_line.word());
        let from = self.at.get();
        self.at = self.at + trips;
        for at in from + 1..=from + u64::from(trips) {
            if STAMPED {
                stamp.store(Os.now().0, Relaxed);
            }
            raw_publish::<RAW>(mine, at);
            raw_wait::<RAW>(theirs, at)?;
        }
        Ok(())
    }

    fn echo_raw<const STAMPED: bool, const RAW: u8>(
        &mut self,
        trips: u32,
        stamp: &AtomicU64,
        sum: &AtomicU64,
    ) -> Result<(), BenchError> {
        let (mine, theirs) = (self.my_line.word(), self.their_line.word());
        let (from, mut total) = (self.at.get(), 0);
        self.at = self.at + trips;
        for at in from + 1..=from + u64::from(trips) {
            raw_wait::<RAW>(theirs, at)?;
            if STAMPED {
                total += since(stamp);
                sum.store(total, Relaxed);
            }
            raw_publish::<RAW>(mine, at);
        }
        Ok(())
    }
}

/// The rival's publish.
#[inline(always)]
pub(super) fn raw_publish<const RAW: u8>(word: &AtomicU64, value: u64) {
    // SYNC(slot-publish) release: what the library's own publish does, and nothing else.
    word.store(value, sync("slot-publish", Release));
    if RAW == AGAIN {
        // SYNC(slot-park) full: where the library's publish has its own. Nobody sleeps here; it
        // keeps the second store from merging with the first.
        fence(sync("slot-park", SeqCst));
        black_box(Os.now());
        // SYNC(slot-publish) release: the same once more, for whoever sees only this store.
        word.store(value, sync("slot-publish", Release));
    }
}

/// The rival's wait.
///
/// The count of polls only keeps a lost peer from hanging the measurement: counting runs beside
/// the load and costs nothing.
#[inline(always)]
pub(super) fn raw_wait<const RAW: u8>(word: &AtomicU64, target: u64) -> Result<(), BenchError> {
    let polls = if RAW == HINT { RAW_HINTED_POLLS } else { RAW_POLLS };
    for _ in 0..polls {
        // SYNC(slot-publish) acquire: pairs with `raw_publish`.
        if word.load(sync("slot-publish", Acquire)) >= target {
            return Ok(());
        }
        if RAW == HINT {
            spin_loop();
        }
    }
    Err(BenchError::RawSilent { polls })
}
