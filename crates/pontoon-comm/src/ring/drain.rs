//! The consumer's side.

use pontoon_signal::{
    Publisher, Seq,
    shim::{Ordering::*, sync},
};

use super::Ring;
use crate::task::{Task, is_of, slots};

/// What became of a task that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was taken, and its slots are free.
    Yes,
    /// Not now: it stays, and so do all behind it.
    No,
}

/// The one who takes tasks out of a ring. Dropping it ends the wait for credits.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    at: Seq,
    credits: Publisher,
}

impl Consumer {
    pub(super) fn new(ring: Ring, credits: Publisher) -> Self {
        Self { ring, at: credits.value(), credits }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether nothing is there to be taken.
    pub fn is_empty(&self) -> bool {
        self.head(self.at).is_none()
    }

    /// The second word of the slot, if it was written in this lap.
    #[inline]
    fn head(&self, at: Seq) -> Option<u64> {
        // SYNC(ring-publish) acquire: pairs with the producer's store of this word.
        let word = self.ring.last(at).load(sync("ring-publish", Acquire));
        is_of(word, self.ring.parity(at)).then_some(word)
    }

    /// Offers up to `most` tasks to `take`, oldest first, each with the number behind its last slot;
    /// then gives credit for those that were taken. Gives how many they were.
    ///
    /// An entry that nobody of this version can have written is taken and offered as `None`.
    #[inline]
    pub fn drain(&mut self, most: u32, mut take: impl FnMut(Seq, Option<&Task>) -> Taken) -> u32 {
        let (mut taken, mut freed) = (0, 0);
        while taken < most {
            let at = self.at;
            let Some(head) = self.head(at) else { break };
            let task = Task::read(head, |slot| self.ring.first(at + slot as u32).load(Relaxed));
            let end = at + slots(head) as u32;
            if take(end, task.as_ref()) == Taken::No {
                break;
            }
            self.at = end;
            taken += 1;
            freed += slots(head) as u32;
        }
        if freed > 0 {
            // R3: by a release, so that no producer writes a slot before it was read here.
            self.credits.pub_release(freed);
        }
        taken
    }
}
