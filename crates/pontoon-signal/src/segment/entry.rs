//! A sheet that is lent to one writer after the other, and read by anybody.

use crate::{
    segment::Sheet,
    shim::{AtomicU64, Ordering::*, sync},
};

/// A [`Sheet`] with the number of who has it, 0 while nobody does. Of its stamps no two are the same,
/// whoever wrote: one that was seen tells which use of the entry that was.
///
/// Invariant N1: only who took the entry writes, so the last stamp is that writer's or of one who gave
/// the entry back before.
#[repr(C)]
#[derive(Debug)]
pub struct Entry<const N: usize> {
    owner: AtomicU64,
    sheet: Sheet<N>,
}

impl<const N: usize> Default for Entry<N> {
    /// An entry that nobody has and that was never written.
    fn default() -> Self {
        Self { owner: AtomicU64::new(0), sheet: Sheet::default() }
    }
}

impl<const N: usize> Entry<N> {
    /// Takes the entry for `owner`, which is not 0. Whether it was free.
    pub fn take(&self, owner: u64) -> bool {
        debug_assert_ne!(owner, 0, "0 is nobody");
        // SYNC(entry-turn) acquire: pairs with `give_back`: the stamps go on from the last one.
        let order = sync("entry-turn", Acquire);
        self.owner.load(Relaxed) == 0
            && self.owner.compare_exchange(0, owner, order, Relaxed).is_ok()
    }

    /// Writes all words, by who has the entry. Gives the stamp; `None` if a foreign process left the
    /// sheet half-written, which is then lost: so is the entry, for nobody gives it back.
    pub fn write(&self, words: [u64; N]) -> Option<u64> {
        let last = self.sheet.stamp();
        if last & 1 == 1 {
            return None;
        }
        // 0 is of a sheet that was never written.
        let stamp = last.wrapping_add(2).max(2);
        self.sheet.write(stamp, words).then_some(stamp)
    }

    /// Lets the next one have the entry.
    pub fn give_back(&self) {
        // SYNC(entry-turn) release: pairs with `take`: what was written here comes before.
        self.owner.store(0, sync("entry-turn", Release));
    }

    /// As by a writer that is killed half-way.
    #[cfg(all(test, not(pontoon_loom)))]
    pub(crate) fn tear(&self) {
        self.sheet.tear();
    }

    /// The stamp and the words, as one writer left them: see [`Sheet::read`].
    pub fn read(&self) -> Option<(u64, [u64; N])> {
        self.sheet.read()
    }

    /// Whether `stamp` is still the last: see [`Sheet::is_at`].
    #[inline]
    pub fn is_at(&self, stamp: u64) -> bool {
        self.sheet.is_at(stamp)
    }
}
