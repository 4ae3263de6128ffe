//! What the two ranks of a pair do while it is their turn.
//!
//! The lower rank leads: it calls by a put and a signal, and the other answers in the same way. A
//! signal that grows by one is a call, one that grows by two the end; so the other need not know
//! beforehand how many calls there are, and the leader chooses that by how long they take. Puts of
//! bandwidth need no answer: while they come, the other waits for the next call.

use std::time::Duration;

use pontoon_hal::link::{Order, Remote, RemoteSignal};
use pontoon_job::Membership;
use pontoon_signal::{Bound, Host, Nanos, Os, Seq, Waiter};

use super::{BytesPerSecond, Figures};
use crate::world::{Shared, Way, WorldError, alive::Left};

/// Bytes of a put whose latency is measured.
const WORD: usize = 8;
/// Bytes of a put whose bandwidth is measured.
pub(super) const PUT: usize = 1 << 20;
/// What a block is to last, about: long beside a look at the clock, and short beside a time slice, so that
/// most are not disturbed where others are at work.
const BLOCK: Duration = Duration::from_micros(400);
/// The most trips or puts of a block.
const BLOCK_MOST: u64 = 1 << 16;
/// Trips or puts before the first block, by which it is chosen how many that has.
const TRIES: u32 = 8;
/// How many puts go between two flushes, if the link allows as many.
const BURST: u32 = 8;
/// Polls before a wait gives way, some 50 us: more than an answer takes of a peer that runs, and little
/// where the two have come to share a processor.
const SPIN: u32 = 20_000;
/// How many answers go between two looks at what is left of the bound.
const LOOK: u32 = 256;
/// What the counter grows by for a call, and for the end of them.
const CALL: u32 = 1;
const END: u32 = 2;

/// What a rank has for its trips with one other.
pub(super) struct Trips<'m> {
    pub(super) way: Way,
    pub(super) signal: RemoteSignal,
    pub(super) waiter: Waiter,
    /// Where the other's counter is here.
    pub(super) heard: Seq,
    /// This rank's memory: its first half is sent from.
    pub(super) own: &'m Shared,
    /// The other's: its second half is sent to.
    pub(super) its: Remote,
    /// Whether both have a processor to spin on.
    pub(super) spins: bool,
    /// All ranks: the death of a third one ends the turn too.
    pub(super) ranks: &'m Membership,
}

impl Trips<'_> {
    /// Measures, with `blocks` blocks of each kind, and ends the calls.
    pub(super) fn lead(&mut self, blocks: u32, left: &Left) -> Result<Figures, WorldError> {
        let trip = median(blocks, |count| self.call(count, left))?;
        let put = median(blocks, |count| self.put(count, left))?;
        self.way.tell(&mut self.signal, END, Order::Weak)?;
        let bandwidth = PUT as f64 * 1e9 / put.max(1.0);
        Ok(Figures {
            latency: Nanos((trip / 2.0).round() as u64),
            bandwidth: BytesPerSecond(bandwidth.round() as u64),
            blocks,
        })
    }

    /// Answers until the calls end.
    pub(super) fn follow(&mut self, left: &Left) -> Result<(), WorldError> {
        loop {
            let bound = self.bound(left)?;
            for _ in 0..LOOK {
                let next = self.heard + CALL;
                self.heard = self.wait(next, bound)?;
                if self.heard != next {
                    return Ok(());
                }
                self.send()?;
            }
        }
    }

    /// Nanoseconds of so many round trips.
    fn call(&mut self, count: u32, left: &Left) -> Result<u64, WorldError> {
        let bound = self.bound(left)?;
        let start = Os.now();
        for _ in 0..count {
            self.send()?;
            self.heard = self.wait(self.heard + CALL, bound)?;
        }
        Ok(Os.now().since(start).0)
    }

    /// Nanoseconds of so many large puts, until the last is performed there.
    fn put(&mut self, count: u32, left: &Left) -> Result<u64, WorldError> {
        let burst = BURST.min(self.way.capabilities()?.depth).max(1);
        let start = Os.now();
        let mut to_go = count;
        while to_go > 0 {
            let now = to_go.min(burst);
            for _ in 0..now {
                self.way.write(self.own, 0..PUT, &self.its, PUT)?;
            }
            self.way.flush(self.bound(left)?)?;
            to_go -= now;
        }
        Ok(Os.now().since(start).0)
    }

    fn send(&mut self) -> Result<(), WorldError> {
        let Self { way, own, its, signal, .. } = self;
        way.write_signal(own, 0..WORD, its, PUT, signal, CALL, Order::Weak)?;
        Ok(())
    }

    fn wait(&self, target: Seq, bound: Bound) -> Result<Seq, WorldError> {
        let observed = self.way.wait(&self.waiter, target, bound, "topology")?;
        Ok(observed.acq_fence().value())
    }

    /// What is left, unless a rank is gone: the table would have no end.
    fn bound(&self, left: &Left) -> Result<Bound, WorldError> {
        match self.ranks.first_gone() {
            Some((rank, ending)) => Err(WorldError::Gone { rank, ending, error: None }),
            None if self.spins => Ok(left.now().spinning(SPIN)),
            None => Ok(left.now()),
        }
    }
}

/// The median of `blocks` blocks, in nanoseconds each: one in which the processor was taken away does
/// not count. `work` says how long so many took. How many are a block is found first.
fn median(
    blocks: u32,
    mut work: impl FnMut(u32) -> Result<u64, WorldError>,
) -> Result<f64, WorldError> {
    // The shortest of some: the first waits for the other to come, and any may be disturbed.
    let mut one = u64::MAX;
    for _ in 0..TRIES {
        one = one.min(work(1)?);
    }
    let count = (Nanos::from(BLOCK).0 / one.max(1)).clamp(1, BLOCK_MOST);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let block = |_| Ok(work(count)? as f64 / f64::from(count));
    let mut each = (0..blocks).map(block).collect::<Result<Vec<f64>, WorldError>>()?;
    each.sort_unstable_by(f64::total_cmp);
    Ok(each.get(each.len() / 2).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_and_one_that_was_disturbed_does_not_count() {
        let mut took = Vec::new();
        // Each takes 1 us; all tries but one are disturbed, and two of the blocks.
        let each = median(5, |count| {
            took.push(count);
            let is_disturbed = ![TRIES as usize, 10, 12, 13].contains(&took.len());
            Ok(u64::from(count) * if is_disturbed { 500_000 } else { 1_000 })
        });
        assert_eq!(each.unwrap(), 1_000.0);
        assert_eq!(took[TRIES as usize..], [400; 5], "{took:?}");
    }

    #[test]
    fn what_takes_no_time_and_what_takes_much_is_a_block_too() {
        for (time, count) in [(0, BLOCK_MOST as u32), (u64::MAX >> 16, 1)] {
            let mut last = 0;
            let each = median(5, |count| {
                last = count;
                Ok(time)
            });
            assert_eq!((last, each.unwrap()), (count, time as f64 / f64::from(count)));
        }
    }
}
