//! What a link reaches: registered memory here, regions and signals there.

use core::{any::Any, fmt, ops::Range};
use std::sync::Arc;

use pontoon_signal::{Block, Rank, Seq, SlotId};

use super::{LinkError, kept::Kept};

/// Memory of this rank that a link knows. A handle; the registration ends with the last one.
///
/// From then on its key opens nothing, and what peers opened by it before is refused. What was under
/// way goes on: an operation that this rank posted ends as if the handle were there, and one of a
/// peer's that had found the registration in force may still touch the bytes, where the peer has them
/// mapped, until its call returns. The memory stays mapped for both. So bytes are used for something
/// else only when the peers that had the key are known to be done with it.
#[derive(Clone)]
pub struct Registered {
    block: Block,
    key: Option<RegionKey>,
    link: Kept<Arc<dyn Any + Send + Sync>>,
}

impl Registered {
    /// For links: `data` is what they remember of it. Without a `key` it is of use to this rank only.
    pub fn new(block: Block, key: Option<RegionKey>, data: Arc<dyn Any + Send + Sync>) -> Self {
        Self { block, key, link: Kept::shared(data) }
    }

    /// The memory.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// What opens it to a peer; `None` if this link cannot open that memory to others.
    pub fn key(&self) -> Option<&RegionKey> {
        self.key.as_ref()
    }

    /// For links: what they remember of it, if it is theirs.
    #[inline]
    pub fn data<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.link.get()
    }

    /// For links: that `range` is within it.
    ///
    /// # Errors
    ///
    /// [`LinkError::OutOfRange`], as of `rank`.
    #[inline]
    pub fn check(&self, rank: Rank, range: &Range<usize>) -> Result<(), LinkError> {
        within(rank, range.start, range.end.checked_sub(range.start), self.block.bytes())
    }

    /// For links: that an aligned word is at `offset`.
    ///
    /// # Errors
    ///
    /// [`LinkError::OutOfRange`], as of `rank`; [`LinkError::Misaligned`].
    #[inline]
    pub fn check_word(&self, rank: Rank, offset: usize) -> Result<(), LinkError> {
        within(rank, offset, Some(8), self.block.bytes())?;
        is_word(self.block.base().addr().get(), offset)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({})", self.block)
    }
}

/// What opens a region to a peer: bytes for that peer's link of the same name. Whoever has it may
/// read and write the region, so its text shows its length only.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionKey {
    bytes: Arc<[u8]>,
}

impl RegionKey {
    /// The longest that there are.
    pub const BYTES_MAX: usize = 1024;

    /// A key of these bytes, as they came from its owner; `None` if they are too many.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= Self::BYTES_MAX).then_some(Self { bytes })
    }

    /// The bytes to hand over.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionKey({} bytes)", self.bytes.len())
    }
}

/// A region of a peer. A handle.
#[derive(Clone)]
pub struct Remote {
    peer: Rank,
    bytes: usize,
    /// By how many bytes it begins behind a word.
    behind: u8,
    link: Kept<Arc<dyn Any + Send + Sync>>,
}

impl Remote {
    /// For links: `data` is what they remember of it.
    pub fn new(peer: Rank, bytes: usize, data: Arc<dyn Any + Send + Sync>) -> Self {
        Self { peer, bytes, behind: 0, link: Kept::shared(data) }
    }

    /// For links: the same, which begins at `address` of its owner's. Not said, it begins with a word.
    #[must_use]
    pub fn beginning_at(self, address: usize) -> Self {
        Self { behind: (address % 8) as u8, ..self }
    }

    /// Whose it is.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// For links: what they remember of it, if it is theirs.
    #[inline]
    pub fn data<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.link.get()
    }

    /// For links: that `bytes` bytes from `offset` on are within it.
    ///
    /// # Errors
    ///
    /// [`LinkError::OutOfRange`].
    #[inline]
    pub fn check(&self, offset: usize, bytes: usize) -> Result<(), LinkError> {
        within(self.peer, offset, Some(bytes), self.bytes)
    }

    /// That an aligned word is at `offset`.
    ///
    /// # Errors
    ///
    /// [`LinkError::OutOfRange`], [`LinkError::Misaligned`].
    #[inline]
    pub fn check_word(&self, offset: usize) -> Result<(), LinkError> {
        self.check(offset, 8)?;
        is_word(self.behind.into(), offset)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({} bytes of rank {})", self.bytes, self.peer)
    }
}

#[inline]
fn within(rank: Rank, offset: usize, bytes: Option<usize>, size: usize) -> Result<(), LinkError> {
    match bytes.and_then(|bytes| offset.checked_add(bytes)) {
        Some(end) if end <= size => Ok(()),
        end => {
            let asked = offset..end.unwrap_or(usize::MAX);
            Err(LinkError::OutOfRange { rank, asked, bytes: size })
        }
    }
}

/// That `offset` from `base` is the place of a word.
#[inline]
fn is_word(base: usize, offset: usize) -> Result<(), LinkError> {
    if base.wrapping_add(offset).is_multiple_of(8) {
        Ok(())
    } else {
        Err(LinkError::Misaligned { offset })
    }
}

/// A slot of a peer's signal table that this rank is the producer of. Dropping it gives the slot up.
pub struct RemoteSignal {
    peer: Rank,
    slot: SlotId,
    value: Seq,
    link: Kept<Box<dyn Any + Send>>,
}

impl RemoteSignal {
    /// For links: the slot, where its counter is, and what they remember of it.
    pub fn new(peer: Rank, slot: SlotId, value: Seq, data: Box<dyn Any + Send>) -> Self {
        Self { peer, slot, value, link: Kept::sole(data) }
    }

    /// In whose table.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Which slot of it.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// Where its counter will be once all that was posted has arrived.
    pub fn value(&self) -> Seq {
        self.value
    }

    /// For links: notes that the counter was told to grow to `value`.
    pub fn set_value(&mut self, value: Seq) {
        self.value = value;
    }

    /// For links: what they remember of it, if it is theirs.
    #[inline]
    pub fn data<T: Any + Send>(&mut self) -> Option<&mut T> {
        self.link.get_mut()
    }
}

impl fmt::Debug for RemoteSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSignal({} at rank {}, {})", self.slot, self.peer, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkError, RegionKey, Remote};
    use pontoon_signal::Rank;
    use std::sync::Arc;

    #[test]
    fn a_key_keeps_its_bytes_to_itself() {
        let key = RegionKey::from_bytes(*b"secret").unwrap();
        assert_eq!(format!("{key:?}"), "RegionKey(6 bytes)");
        assert!(RegionKey::from_bytes(vec![0; RegionKey::BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn a_range_is_within_or_is_named() {
        let remote = Remote::new(Rank(3), 64, Arc::new(()));
        assert_eq!((remote.check(64, 0), remote.check(0, 64)), (Ok(()), Ok(())));
        assert_eq!((remote.check_word(56), remote.data::<u8>()), (Ok(()), None));
        let behind = remote.clone().beginning_at(4);
        assert_eq!(behind.check_word(48), Err(LinkError::Misaligned { offset: 48 }));
        assert_eq!(behind.check_word(52), Ok(()));
        assert_eq!(remote.check_word(52), Err(LinkError::Misaligned { offset: 52 }));
        for (offset, bytes, asked) in
            [(60, 8, 60..68), (65, 0, 65..65), (8, usize::MAX, 8..usize::MAX)]
        {
            let refused = LinkError::OutOfRange { rank: Rank(3), asked, bytes: 64 };
            assert_eq!(remote.check(offset, bytes), Err(refused));
        }
    }
}
