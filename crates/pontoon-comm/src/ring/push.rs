//! The producers' side.

use core::fmt;

use pontoon_signal::{
    Ending, Seq,
    shim::{Ordering::*, sync},
};

use super::{CACHED_TAIL, CLOSED, HEAD, Ring};
use crate::task::{NARROW, Task, WIDE};

/// How often a push tries again to move `head` when others move it: each time one of them got on.
const TRIES: u32 = 1 << 16;

/// What a push put in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The first slot.
    pub first: Seq,
    /// Behind the last slot: once the consumer is there, it has taken all.
    pub end: Seq,
}

/// Why a push was refused. Nothing was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// There are not so many free slots now.
    Full {
        /// Slots asked for.
        wanted: u32,
        /// Slots that are free.
        free: u32,
    },
    /// More slots than there are at all.
    TooMany {
        /// Slots asked for.
        wanted: usize,
        /// Slots of the ring.
        depth: u32,
    },
    /// Others pushed all the while.
    Contended,
    /// It was closed, for this reason.
    Ended(Option<Ending>),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { wanted, free } => {
                write!(
                    f,
                    "the ring is full: it has {free} free slots of the {wanted} that are wanted"
                )
            }
            Self::TooMany { wanted, depth } => {
                write!(f, "{wanted} slots are more than the ring's {depth}: push fewer at once")
            }
            Self::Contended => write!(f, "others pushed {TRIES} times meanwhile: use more rings"),
            Self::Ended(Some(ending)) => write!(f, "the ring is closed: {ending}"),
            Self::Ended(None) => f.write_str("the ring is closed"),
        }
    }
}

impl core::error::Error for PushError {}

impl Ring {
    /// Puts `task` in the ring. Whoever takes it sees what this thread wrote before.
    ///
    /// # Errors
    ///
    /// [`PushError`]; nothing was claimed (R4).
    #[inline]
    pub fn push(&self, task: &Task) -> Result<Claimed, PushError> {
        let claimed = self.claim(task.slots())?;
        self.put(claimed.first, task);
        Ok(claimed)
    }

    /// Puts `tasks` in the ring side by side, by one claim.
    ///
    /// # Errors
    ///
    /// [`PushError`]; nothing was claimed (R4).
    #[inline]
    pub fn push_all(&self, tasks: &[Task]) -> Result<Claimed, PushError> {
        let claimed = self.claim(tasks.iter().map(Task::slots).sum())?;
        let mut at = claimed.first;
        for task in tasks {
            at = self.put(at, task);
        }
        Ok(claimed)
    }

    /// Moves `head` over free slots, if there are so many (R1).
    #[inline]
    fn claim(&self, slots: usize) -> Result<Claimed, PushError> {
        let depth = self.depth();
        let Some(wanted) = u32::try_from(slots).ok().filter(|wanted| *wanted <= depth) else {
            return Err(PushError::TooMany { wanted: slots, depth });
        };
        if self.words[CLOSED].load(Relaxed) != 0 {
            return Err(PushError::Ended(self.credits.ending()));
        }
        let head = &self.words[HEAD];
        let mut found = head.load(Relaxed);
        // SYNC(ring-cache) acquire: pairs with `refresh` of another producer: what that one learned
        // from the credits holds for this one, which did not look at them.
        let mut tail = self.words[CACHED_TAIL].load(sync("ring-cache", Acquire));
        for _ in 0..TRIES {
            let first = Seq::new(found);
            let end = first + wanted;
            if end.ahead_of(Seq::new(tail)) > i64::from(depth) {
                let credits = self.refresh();
                if end.ahead_of(credits) > i64::from(depth) {
                    return Err(self.full(first, credits, wanted));
                }
                tail = credits.get();
            }
            match head.compare_exchange_weak(found, end.get(), Relaxed, Relaxed) {
                Ok(_) => return Ok(Claimed { first, end }),
                Err(now) => found = now,
            }
        }
        Err(PushError::Contended)
    }

    /// The credits as they are, which all producers know from here on.
    #[cold]
    fn refresh(&self) -> Seq {
        let credits = self.credits.acquire();
        // SYNC(ring-cache) release: hands on what was acquired. An older value that comes
        // later makes others look once more, and no more than that.
        self.words[CACHED_TAIL].store(credits.get(), sync("ring-cache", Release));
        credits
    }

    #[cold]
    fn full(&self, head: Seq, credits: Seq, wanted: u32) -> PushError {
        match self.credits.ending() {
            Some(ending) => PushError::Ended(Some(ending)),
            None => {
                let used = u32::try_from(head.ahead_of(credits)).unwrap_or(0);
                PushError::Full { wanted, free: self.depth().saturating_sub(used) }
            }
        }
    }

    /// Writes the slots of `task` (R2). Gives the next one's number.
    #[inline]
    fn put(&self, at: Seq, task: &Task) -> Seq {
        if task.slots() == NARROW {
            let [first, last] = task.narrow(self.parity(at));
            self.first(at).store(first, Relaxed);
            self.publish(at, last);
            return at + NARROW as u32;
        }
        let numbers = [0, 1, 2, 3].map(|next| at + next);
        let words = task.wide(numbers.map(|at| self.parity(at)));
        for (at, [first, last]) in numbers.into_iter().zip(words).skip(1) {
            self.first(at).store(first, Relaxed);
            self.last(at).store(last, Relaxed);
        }
        self.first(at).store(words[0][0], Relaxed);
        self.publish(at, words[0][1]);
        at + WIDE as u32
    }

    #[inline]
    fn publish(&self, at: Seq, last: u64) {
        // SYNC(ring-publish) release: the task's other words, and what its producer wrote before, are
        // visible to the consumer that sees the parity of this lap.
        self.last(at).store(last, sync("ring-publish", Release));
    }
}
