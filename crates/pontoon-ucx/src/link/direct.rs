//! A peer whose segment is mapped here: operations are copies and publishes in it, as over shared memory.

use core::ops::Range;

use pontoon_hal::link::{KeyFault, LinkError};
use pontoon_signal::{
    Block, ClaimError, Identity, Listed, PublishedRegion, Publisher, Rank, Segment, SlotId, Span,
    shim::AtomicU64,
};

use super::key::Key;

/// A region of a peer's that is mapped here.
pub(crate) struct Direct {
    block: Block,
    listed: Listed,
    segment: Segment,
}

impl Direct {
    /// The bytes in the segment of its owner that `key` opens.
    pub(crate) fn open(segment: &Segment, key: &Key) -> Result<Self, KeyFault> {
        let Key { nonce, bytes, place: offset, listed, .. } = *key;
        let region = PublishedRegion { nonce, offset, bytes };
        if segment.regions().find(listed) != Some(region) {
            return Err(KeyFault::Unknown);
        }
        // The owner's word is not trusted either: what it lists must lie within what is mapped.
        let within = || {
            let start = usize::try_from(offset).ok()?;
            segment.heap().part(start..start.checked_add(usize::try_from(bytes).ok()?)?)
        };
        let block = within().ok_or(KeyFault::Unknown)?;
        Ok(Self { block, listed, segment: segment.clone() })
    }

    /// `bytes` bytes from `offset` on, which are within, as long as they are registered.
    #[inline]
    pub(crate) fn span(
        &self,
        peer: Rank,
        offset: usize,
        bytes: usize,
    ) -> Result<Span<'_>, LinkError> {
        if !self.segment.regions().is_listed(self.listed) {
            return Err(LinkError::Key { peer, why: KeyFault::Unknown });
        }
        span(&self.block, offset..offset + bytes, "a region")
    }

    /// The word at `offset`.
    pub(crate) fn word(&self, peer: Rank, offset: usize) -> Result<&AtomicU64, LinkError> {
        // Aligned in the region is not aligned in memory, if the region begins anywhere.
        self.span(peer, offset, 8)?.word(0).ok_or(LinkError::Misaligned { offset })
    }
}

/// The bytes `range` of `block`, within which they are.
#[inline]
pub(crate) fn span<'b>(
    block: &'b Block,
    range: Range<usize>,
    what: &'static str,
) -> Result<Span<'b>, LinkError> {
    Span::of(block, range).ok_or(LinkError::Foreign(what))
}

/// The slot of `rank`'s row in the table of `segment`, claimed.
pub(crate) fn publisher(segment: &Segment, rank: Rank, slot: u32) -> Result<Publisher, ClaimError> {
    segment.signals().publisher(SlotId { producer: rank, slot })
}

/// Whether a segment that was found where `peer` said is that of `peer`, in this life of the same job.
pub(crate) fn is_of(found: &Identity, ours: &Identity, peer: Rank, epoch: u32) -> bool {
    (found.job, found.world, found.rank, found.epoch) == (ours.job, ours.world, peer, epoch)
}
