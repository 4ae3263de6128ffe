//! Keys, and what is behind them on both sides.

use std::sync::Arc;

use pontoon_hal::link::{KeyFault, RegionKey};
use pontoon_signal::{Block, Listed, Listing, PublishedRegion, Rank, Segment};

use crate::peer::{Mark, Peer};

/// What a key says: whose region, in which life of its owner, which entry of the owner's table, and
/// what is to be found there.
///
/// ```text
///  byte 0       4      8       12      16      24      32       40      48
///       +-------+------+-------+-------+-------+-------+--------+-------+
///   key | "shm1"| rank | epoch | entry | stamp | nonce | offset | bytes |
///       | u8[4] | u32  | u32   | u32   | u64   | u64   | u64    | u64   |  little-endian
///       +-------+------+-------+-------+-------+-------+--------+-------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) rank: Rank,
    pub(crate) epoch: u32,
    pub(crate) listed: Listed,
    pub(crate) region: PublishedRegion,
}

const TAG: [u8; 4] = *b"shm1";
const KEY_BYTES: usize = 48;

impl Key {
    pub(crate) fn encode(&self) -> Option<RegionKey> {
        let Self { rank, epoch, listed, region } = self;
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(&TAG);
        for (place, word) in bytes[4..16].chunks_exact_mut(4).zip([rank.0, *epoch, listed.at]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let words = [listed.stamp, region.nonce, region.offset, region.bytes];
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        RegionKey::from_bytes(bytes)
    }

    pub(crate) fn decode(key: &RegionKey) -> Option<Self> {
        let bytes: &[u8; KEY_BYTES] = key.as_bytes().try_into().ok()?;
        let (tag, rest) = bytes.split_first_chunk::<4>()?;
        let (small, large) = rest.split_first_chunk::<12>()?;
        let mut small = small.chunks_exact(4).map_while(|four| four.try_into().ok());
        let mut large = large.chunks_exact(8).map_while(|eight| eight.try_into().ok());
        let mut small = || small.next().map(u32::from_le_bytes);
        let mut large = || large.next().map(u64::from_le_bytes);
        let (rank, epoch, at) = (Rank(small()?), small()?, small()?);
        let listed = Listed { at, stamp: large()? };
        let region = PublishedRegion { nonce: large()?, offset: large()?, bytes: large()? };
        (*tag == TAG).then_some(Self { rank, epoch, listed, region })
    }

    /// The bytes in the segment of its owner that `key` opens, and the entry that says so.
    pub(crate) fn open(key: &RegionKey, owner: &Segment) -> Result<(Listing, Block), KeyFault> {
        let key = Self::decode(key).ok_or(KeyFault::Form)?;
        let whose = owner.identity();
        if key.rank != whose.rank {
            return Err(KeyFault::Unknown);
        }
        if key.epoch < whose.epoch {
            return Err(KeyFault::Stale);
        }
        if key.epoch != whose.epoch || owner.regions().find(key.listed) != Some(key.region) {
            return Err(KeyFault::Unknown);
        }
        // The owner's word is not trusted either: what it lists must lie within what is mapped.
        let PublishedRegion { offset, bytes, .. } = key.region;
        let within = || {
            let start = usize::try_from(offset).ok()?;
            owner.heap().part(start..start.checked_add(usize::try_from(bytes).ok()?)?)
        };
        let listing = owner.regions().listing(key.listed).ok_or(KeyFault::Unknown)?;
        Ok((listing, within().ok_or(KeyFault::Unknown)?))
    }
}

/// What the link remembers of a registered block: the registration ends when it is dropped.
pub(crate) struct Registration {
    pub(crate) mark: Arc<Mark>,
    pub(crate) listed: Option<(Segment, Listed)>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some((segment, listed)) = &self.listed {
            segment.regions().withdraw(*listed);
        }
    }
}

/// What the link remembers of a region of a peer's.
pub(crate) struct Opened {
    pub(crate) peer: Arc<Peer>,
    pub(crate) block: Block,
    pub(crate) listed: Listing,
}

#[cfg(test)]
mod tests {
    use super::Key;
    use pontoon_hal::link::RegionKey;
    use pontoon_signal::{Listed, PublishedRegion, Rank};

    #[test]
    fn a_key_survives_its_bytes_and_no_other_length_is_one() {
        let listed = Listed { at: 7, stamp: 1 << 60 };
        let region = PublishedRegion { nonce: u64::MAX - 3, offset: 64, bytes: 1 << 40 };
        let key = Key { rank: Rank(3), epoch: 9, listed, region };
        let bytes = key.encode().unwrap();
        assert_eq!(Key::decode(&bytes), Some(key));
        for cut in 0..bytes.as_bytes().len() {
            let cut = RegionKey::from_bytes(&bytes.as_bytes()[..cut]).unwrap();
            assert_eq!(Key::decode(&cut), None);
        }
    }
}
