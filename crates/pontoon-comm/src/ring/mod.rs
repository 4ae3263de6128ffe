//! The ring: tasks from any number of kernels to one proxy.
//!
//! ```text
//!  word 0       1        2        16       18
//!      +--------+--------+--------+--------+--------+- - -
//!      | head   | cached | closed | slot 0 | slot 1 |
//!      |        | tail   |        | 2 words| 2 words|
//!      +--------+--------+--------+--------+--------+- - -
//!       line 0: producers alone    written by producers, read by the consumer
//! ```
//!
//! A slot is full when the parity in its last word is that of the lap: nothing clears it, and no
//! separate position says so. The consumer's own position is a signal, the *credits*: a producer
//! looks at it only when its copy, the cached tail, says that the ring is full, and can wait on it.
//!
//! - R1: `head` moves only over slots that were free: `head - credits` never exceeds the depth.
//! - R2: who moved `head` over a slot writes it, once, and nobody else does in that lap.
//! - R3: the consumer reads a slot of its lap, then gives the credit for it, and never looks again.
//! - R4: a push that is refused has claimed nothing.

mod drain;
mod push;

use core::fmt;

use pontoon_signal::{
    ClaimError, Ending, Publisher, Seq, SignalTable, Slot, SlotId, SystemError, TableShape, Words,
    shim::{AtomicU64, Ordering::*},
};

pub use drain::{Consumer, Taken};
pub use push::{Claimed, PushError};

use crate::task::WIDE;

const HEAD: usize = 0;
const CACHED_TAIL: usize = 1;
const CLOSED: usize = 2;
const SLOTS_AT: usize = 16;
const SLOT_WORDS: usize = 2;

/// The smallest depth: a wide task has to fit.
pub const DEPTH_MIN: u32 = WIDE as u32;
/// The largest: 16 MiB of slots.
pub const DEPTH_MAX: u32 = 1 << 20;

/// Why there is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// The depth is no power of two from [`DEPTH_MIN`] to [`DEPTH_MAX`].
    Depth(u32),
    /// No memory for it.
    System(SystemError),
    /// Its signal cannot be had.
    Claim(ClaimError),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth(depth) => write!(
                f,
                "a ring of depth {depth}: it has to be a power of two from {DEPTH_MIN} to {DEPTH_MAX}"
            ),
            Self::System(error) => write!(f, "no memory for a ring: {error}"),
            Self::Claim(error) => write!(f, "no signal for a ring: {error}"),
        }
    }
}

impl core::error::Error for RingError {}

/// Where kernels push tasks. A handle: clones name the same ring.
#[derive(Clone, Debug)]
pub struct Ring {
    words: Words,
    mask: u64,
    /// How far the consumer is.
    credits: Slot,
}

impl Ring {
    /// A ring of `depth` slots, whose first one is number `start`, and its consumer. Tests start near
    /// 2^64, so that the wrap is met.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    pub fn open(depth: u32, start: Seq) -> Result<(Self, Consumer), RingError> {
        if !depth.is_power_of_two() || !(DEPTH_MIN..=DEPTH_MAX).contains(&depth) {
            return Err(RingError::Depth(depth));
        }
        let words = Words::zeroed(SLOTS_AT + depth as usize * SLOT_WORDS);
        let words = words.map_err(RingError::System)?;
        let table = SignalTable::in_process(TableShape::new(1, 1).starting_at(start));
        let slot = SlotId::new(0, 0);
        let publisher: Publisher = table.publisher(slot).map_err(RingError::Claim)?;
        let credits = table.slot(slot).map_err(RingError::Claim)?;
        let ring = Self { words, mask: u64::from(depth) - 1, credits };
        ring.words[HEAD].store(start.get(), Relaxed);
        ring.words[CACHED_TAIL].store(start.get(), Relaxed);
        for ahead in 0..depth {
            let at = start + ahead;
            ring.last(at).store(if ring.parity(at) { 0 } else { 1 << 63 }, Relaxed);
        }
        let consumer = Consumer::new(ring.clone(), publisher.undated());
        Ok((ring, consumer))
    }

    /// How many slots it has.
    pub fn depth(&self) -> u32 {
        self.mask as u32 + 1
    }

    /// How far producers have claimed, and how far the consumer is.
    pub fn positions(&self) -> (Seq, Seq) {
        // In this order, so that what was claimed meanwhile makes it longer and never negative.
        let credits = self.credits.value();
        (self.head(), credits)
    }

    /// How far producers have claimed.
    #[inline]
    pub fn head(&self) -> Seq {
        Seq::new(self.words[HEAD].load(Relaxed))
    }

    /// How far the consumer is, to be waited on by who found the ring full: for one more than it was before
    /// that push, since all may have come free between.
    pub fn credits(&self) -> &Slot {
        &self.credits
    }

    /// Refuses all pushes from here on with `ending`; those who wait for credits are told. What was
    /// pushed before is the consumer's to take or to leave.
    pub fn close(&self, ending: Ending) {
        self.words[CLOSED].store(1, Relaxed);
        self.credits.end(ending);
    }

    /// Parity of the lap that slot number `at` is of. It goes on over the wrap of the numbers, for
    /// the depth divides 2^63.
    #[inline]
    fn parity(&self, at: Seq) -> bool {
        (at.get() >> self.mask.count_ones()) & 1 == 0
    }

    #[inline]
    fn first(&self, at: Seq) -> &AtomicU64 {
        &self.words[SLOTS_AT + (at.get() & self.mask) as usize * SLOT_WORDS]
    }

    #[inline]
    fn last(&self, at: Seq) -> &AtomicU64 {
        &self.words[SLOTS_AT + (at.get() & self.mask) as usize * SLOT_WORDS + 1]
    }
}
