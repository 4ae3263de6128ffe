//! What is remembered of a byte: who wrote it last, who read it since, and which caches have it.

use smallvec::SmallVec;

use super::{Domain, Epoch};

/// Of one byte, the last write and the reads since.
///
/// Invariant B1: all in `readers` came after `writer`; of an axis only the last read is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) writer: Option<Epoch>,
    pub(super) readers: SmallVec<[Epoch; 2]>,
    /// The domain that wrote it last.
    home: Domain,
    /// The domains in which a read finds the last write.
    seen_by: u64,
    /// The last write has not been flushed from its domain's caches.
    dirty: bool,
}

/// Cache maintenance that an access needs: from which domains a flush, and whether an
/// invalidation where it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maintenance {
    pub(crate) flush: u64,
    pub(crate) invalidate: bool,
    /// Flushes and invalidations that were needed before they were merged.
    pub(crate) asked: u32,
    /// Those that an earlier one has done already.
    pub(crate) elided: u32,
}

impl Cell {
    /// Notes a read. `covered` says which earlier reads end before this one starts: they need not
    /// be kept, since whoever comes after this one comes after them.
    pub(super) fn read(&mut self, epoch: Epoch, covered: impl Fn(Epoch) -> bool) {
        self.readers.retain(|&mut reader| reader.axis != epoch.axis && !covered(reader));
        self.readers.push(epoch);
    }

    /// Notes a write.
    pub(super) fn write(&mut self, epoch: Epoch) {
        self.writer = Some(epoch);
        self.readers.clear();
    }

    /// Brings the byte to `domain`, which is about to use it, and notes what that takes.
    pub(super) fn bring_to(&mut self, domain: Domain, writes: bool, needs: &mut Maintenance) {
        if self.writer.is_some() && (self.home != domain || domain.is_shared()) {
            if self.dirty {
                needs.flush |= self.home.bit();
                needs.asked += 1;
                self.dirty = false;
            } else {
                needs.elided += 1;
            }
            if self.seen_by & domain.bit() == 0 || domain.is_shared() {
                needs.invalidate = true;
                needs.asked += 1;
                self.seen_by |= domain.bit();
            } else {
                needs.elided += 1;
            }
        }
        if writes {
            self.home = domain;
            self.seen_by = domain.bit();
            self.dirty = true;
        }
    }
}
