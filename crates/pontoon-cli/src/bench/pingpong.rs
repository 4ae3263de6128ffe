//! The two sides of a ping-pong over signal lines: by pontoon's verbs, and over the bare words.
//!
//! Both sides follow the same plan, so nobody tells the other what comes next. A side publishes on
//! the lines of its own row and waits on those of the other's; each line has 128 bytes of its own,
//! the rival's too.

use std::time::Duration;

use pontoon::signal::{
    Bound, Host, LineRef, Nanos, Os, Publisher, Seq, SignalTable, SlotId, TableShape, WaitError,
    Waiter,
    shim::{AtomicU64, Ordering::*, spin_loop, sync},
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
}

const SIGNAL: u32 = 0;
const RAW_SPIN: u32 = 1;
const RAW_HINT: u32 = 2;
/// When the pinging side published.
const STAMP: u32 = 3;
/// How long the one-way trips of a block took in all, as the echoing side counted.
const SUM: u32 = 4;

/// A table for two sides.
pub(crate) const SHAPE: TableShape = TableShape::new(2, SUM + 1);

/// The longest that one side waits for the other. Generous: the machine may be busy with others.
const PATIENCE: Duration = Duration::from_secs(5);
/// Polls of a bare word that take some seconds, with the hint some more.
const RAW_POLLS: u64 = 1 << 32;
const RAW_HINTED_POLLS: u64 = 1 << 27;

/// One side of the ping-pong.
#[derive(Debug)]
pub(crate) struct Side {
    mine: Publisher,
    theirs: Waiter,
    bound: Bound,
    /// Goes to sleep without a poll more than needed.
    sleepy: Bound,
    raw_spin: RawPair,
    raw_hint: RawPair,
    stamp: LineRef,
    sum: LineRef,
}

#[derive(Debug)]
struct RawPair {
    mine: LineRef,
    theirs: LineRef,
    at: u64,
}

impl Side {
    /// The side that publishes on row `me`, 0 or 1.
    ///
    /// # Errors
    ///
    /// The row is taken or the table has another shape.
    pub(crate) fn claim(table: &SignalTable, me: u32) -> Result<Self, BenchError> {
        let raw = |slot| {
            let mine = table.line(SlotId::new(me, slot))?;
            Ok::<_, BenchError>(RawPair { mine, theirs: table.line(SlotId::new(1 - me, slot))?, at: 0 })
        };
        let bound = Bound::within(PATIENCE);
        Ok(Self {
            mine: table.publisher(SlotId::new(me, SIGNAL))?,
            theirs: table.waiter(SlotId::new(1 - me, SIGNAL))?,
            bound,
            sleepy: bound.spinning(0).yielding(0),
            raw_spin: raw(RAW_SPIN)?,
            raw_hint: raw(RAW_HINT)?,
            stamp: table.line(SlotId::new(0, STAMP))?,
            sum: table.line(SlotId::new(1, SUM))?,
        })
    }

    /// A block of `trips` as the side that begins each. Gives nanoseconds a trip.
    ///
    /// # Errors
    ///
    /// The other side did not answer.
    pub(crate) fn ping(&mut self, kind: Kind, trips: u32) -> Result<f64, BenchError> {
        let start = Os.now();
        match kind {
            Kind::RoundTrip => self.ping_signal::<false>(trips)?,
            Kind::OneWay | Kind::Wake => self.ping_signal::<true>(trips)?,
            Kind::RawRoundTrip(Raw::Spin) => self.ping_raw_spin::<false>(trips)?,
            Kind::RawOneWay(Raw::Spin) => self.ping_raw_spin::<true>(trips)?,
            Kind::RawRoundTrip(Raw::Hint) => self.ping_raw_hint::<false>(trips)?,
            Kind::RawOneWay(Raw::Hint) => self.ping_raw_hint::<true>(trips)?,
        }
        let spent = match kind {
            Kind::RoundTrip | Kind::RawRoundTrip(_) => Os.now().since(start).0,
            // The last answer published it.
            Kind::OneWay | Kind::Wake | Kind::RawOneWay(_) => self.sum.word().load(Relaxed),
        };
        Ok(spent as f64 / f64::from(trips))
    }

    /// A block of `trips` as the side that answers each.
    ///
    /// # Errors
    ///
    /// The other side did not come.
    pub(crate) fn echo(&mut self, kind: Kind, trips: u32) -> Result<(), BenchError> {
        match kind {
            Kind::RoundTrip => self.echo_signal::<false>(trips, self.bound)?,
            Kind::OneWay => self.echo_signal::<true>(trips, self.bound)?,
            Kind::Wake => self.echo_signal::<true>(trips, self.sleepy)?,
            Kind::RawRoundTrip(Raw::Spin) => self.echo_raw_spin::<false>(trips)?,
            Kind::RawOneWay(Raw::Spin) => self.echo_raw_spin::<true>(trips)?,
            Kind::RawRoundTrip(Raw::Hint) => self.echo_raw_hint::<false>(trips)?,
            Kind::RawOneWay(Raw::Hint) => self.echo_raw_hint::<true>(trips)?,
        }
        Ok(())
    }

    fn ping_signal<const STAMPED: bool>(&mut self, trips: u32) -> Result<(), WaitError> {
        for _ in 0..trips {
            if STAMPED {
                self.stamp.word().store(Os.now().0, Relaxed);
            }
            // Each answer brings the other side's counter to where this one's is.
            let target = self.mine.pub_release(1);
            self.theirs.wait_ge_bounded(target, self.bound)?.acq_fence();
        }
        Ok(())
    }

    fn echo_signal<const STAMPED: bool>(&mut self, trips: u32, bound: Bound) -> Result<(), WaitError> {
        let mut sum = 0;
        for _ in 0..trips {
            self.theirs.wait_ge_bounded(self.mine.value() + 1, bound)?.acq_fence();
            if STAMPED {
                sum += since_stamp(&self.stamp);
                self.sum.word().store(sum, Relaxed);
            }
            self.mine.pub_release(1);
        }
        Ok(())
    }

    /// One round trip, polled by the caller: how many polls it took and how long.
    ///
    /// # Errors
    ///
    /// The other side did not answer.
    pub(crate) fn ping_counting_polls(&mut self) -> Result<(u64, Nanos), BenchError> {
        let target = self.mine.pub_release(1);
        let start = Os.now();
        for polls in 1..=RAW_POLLS {
            if let Some(observed) = self.theirs.try_wait(target)? {
                observed.acq_fence();
                return Ok((polls, Os.now().since(start)));
            }
        }
        Err(self.theirs.give_up(target, Os.now().since(start)).into())
    }

    /// Answers `trips` round trips, each after `pace` of work.
    ///
    /// # Errors
    ///
    /// The other side did not come.
    pub(crate) fn echo_at_pace(&mut self, trips: u32, pace: Nanos) -> Result<(), BenchError> {
        for _ in 0..trips {
            let target = self.mine.value() + 1;
            self.theirs.wait_ge_bounded(target, self.bound)?.acq_fence();
            if pace > Nanos(0) {
                let start = Os.now();
                while Os.now().since(start) < pace {}
            }
            self.mine.pub_release(1);
        }
        Ok(())
    }

    fn ping_raw_spin<const STAMPED: bool>(&mut self, trips: u32) -> Result<(), BenchError> {
        self.raw_spin.ping::<STAMPED, false>(trips, &self.stamp)
    }

    fn ping_raw_hint<const STAMPED: bool>(&mut self, trips: u32) -> Result<(), BenchError> {
        self.raw_hint.ping::<STAMPED, true>(trips, &self.stamp)
    }

    fn echo_raw_spin<const STAMPED: bool>(&mut self, trips: u32) -> Result<(), BenchError> {
        self.raw_spin.echo::<STAMPED, false>(trips, &self.stamp, &self.sum)
    }

    fn echo_raw_hint<const STAMPED: bool>(&mut self, trips: u32) -> Result<(), BenchError> {
        self.raw_hint.echo::<STAMPED, true>(trips, &self.stamp, &self.sum)
    }

    /// Leaves without ending the line, for the other side may still be reading it.
    pub(crate) fn leave(self) -> Seq {
        let at = self.mine.value();
        self.mine.retire();
        at
    }
}

fn since_stamp(stamp: &LineRef) -> u64 {
    Os.now().since(Nanos(stamp.word().load(Relaxed))).0
}

impl RawPair {
    fn ping<const STAMPED: bool, const HINT: bool>(
        &mut self,
        trips: u32,
        stamp: &LineRef,
    ) -> Result<(), BenchError> {
        let (mine, theirs, stamp) = (self.mine.word(), self.theirs.word(), stamp.word());
        for _ in 0..trips {
            self.at += 1;
            if STAMPED {
                stamp.store(Os.now().0, Relaxed);
            }
            raw_publish(mine, self.at);
            raw_wait::<HINT>(theirs, self.at)?;
        }
        Ok(())
    }

    fn echo<const STAMPED: bool, const HINT: bool>(
        &mut self,
        trips: u32,
        stamp: &LineRef,
        sum_line: &LineRef,
    ) -> Result<(), BenchError> {
        let (mine, theirs) = (self.mine.word(), self.theirs.word());
        let mut sum = 0;
        for _ in 0..trips {
            self.at += 1;
            raw_wait::<HINT>(theirs, self.at)?;
            if STAMPED {
                sum += since_stamp(stamp);
                sum_line.word().store(sum, Relaxed);
            }
            raw_publish(mine, self.at);
        }
        Ok(())
    }
}

#[inline(always)]
fn raw_publish(word: &AtomicU64, value: u64) {
    // SYNC(slot-publish) release: what the library's own publish does, and nothing else.
    word.store(value, sync("slot-publish", Release));
}

/// The count of polls only keeps a lost peer from hanging the measurement: counting runs beside
/// the load and costs nothing.
#[inline(always)]
fn raw_wait<const HINT: bool>(word: &AtomicU64, target: u64) -> Result<(), BenchError> {
    let polls = if HINT { RAW_HINTED_POLLS } else { RAW_POLLS };
    for _ in 0..polls {
        // SYNC(slot-publish) acquire: pairs with `raw_publish`.
        if word.load(sync("slot-publish", Acquire)) >= target {
            return Ok(());
        }
        if HINT {
            spin_loop();
        }
    }
    Err(BenchError::RawSilent { polls })
}
