//! Keys of regions, and what is behind them on both sides.

use std::sync::Arc;

use pontoon_hal::link::{KeyFault, RegionKey};
use pontoon_signal::{Listed, Rank};

use super::{direct::Direct, home::Home, life::Life};
use crate::{
    Region,
    envelope::{self, Kind},
};

/// What a key says: whose region, in which life of its owner, by which number its owner knows it, and
/// how large it is.
///
/// ```text
///        byte 0      4       8       16      24      32      40      44
///             +------+-------+-------+-------+-------+-------+-------+--------+
///   envelope: | rank | epoch | nonce | bytes | place | stamp | entry | behind |   little-endian
///             | u32  | u32   | u64   | u64   | u64   | u64   | u32   | u8     |
///             +------+-------+-------+-------+-------+-------+-------+--------+
/// ```
///
/// Place, stamp and entry are for a peer that has the owner's segment mapped: where in its heap the region
/// begins, and which entry of its table says so; 0 where that cannot be. The last says by how many bytes the
/// region begins behind a word.
///
/// The digest of the envelope tells a spoiled key from a good one without asking. What cannot be guessed
/// is the nonce, which the owner looks up with every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) rank: Rank,
    pub(crate) epoch: u32,
    pub(crate) nonce: u64,
    pub(crate) bytes: u64,
    pub(crate) place: u64,
    pub(crate) listed: Listed,
    pub(crate) behind: u8,
}

impl Key {
    pub(crate) fn seal(&self) -> Option<RegionKey> {
        let Self { rank, epoch, nonce, bytes, place, listed, behind } = self;
        let mut body = Vec::with_capacity(45);
        body.extend(rank.0.to_le_bytes());
        body.extend(epoch.to_le_bytes());
        for word in [*nonce, *bytes, *place, listed.stamp] {
            body.extend(word.to_le_bytes());
        }
        body.extend(listed.at.to_le_bytes());
        body.push(*behind);
        RegionKey::from_bytes(envelope::seal(Kind::Key, &body))
    }

    /// The key that `owner`, in its life `epoch`, gave.
    pub(crate) fn open(key: &RegionKey, owner: Rank, epoch: u32) -> Result<Self, KeyFault> {
        let body = envelope::open(Kind::Key, key.as_bytes()).map_err(|_| KeyFault::Form)?;
        let key = Self::decode(body).ok_or(KeyFault::Form)?;
        if key.rank != owner {
            return Err(KeyFault::Unknown);
        }
        match key.epoch {
            earlier if earlier < epoch => Err(KeyFault::Stale),
            same if same == epoch => Ok(key),
            _ => Err(KeyFault::Unknown),
        }
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (rank, rest) = body.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (stamp, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let &[behind] = rest else { return None };
        let listed = Listed { at: u32::from_le_bytes(*at), stamp: u64::from_le_bytes(*stamp) };
        Some(Self {
            rank: Rank(u32::from_le_bytes(*rank)),
            epoch: u32::from_le_bytes(*epoch),
            nonce: u64::from_le_bytes(*nonce),
            bytes: u64::from_le_bytes(*bytes),
            place: u64::from_le_bytes(*place),
            listed,
            behind,
        })
    }
}

/// Bytes of a UCX region.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) region: Region,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

impl Stretch {
    /// Where `bytes` bytes from `offset` on are in the region, if they are within.
    pub(crate) fn place(&self, offset: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| self.at + offset)
    }
}

/// What the link remembers of a registered block: the registration ends when it is dropped.
pub(crate) struct Registration {
    pub(crate) home: Arc<Home>,
    pub(crate) stretch: Stretch,
    pub(crate) nonce: u64,
    /// Its entry in the segment's table, for peers that have that mapped.
    pub(crate) listed: Option<Listed>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(listed) = self.listed {
            self.home.segment.regions().withdraw(listed);
        }
        self.home.withdraw(self.nonce);
    }
}

/// What the link remembers of a region of a peer's.
pub(crate) struct Opened {
    pub(crate) home: Arc<Home>,
    pub(crate) life: Arc<Life>,
    pub(crate) nonce: u64,
    /// The region itself, where it is mapped here.
    pub(crate) direct: Option<Direct>,
}

#[cfg(test)]
mod tests {
    use super::Key;
    use pontoon_hal::link::{KeyFault, RegionKey};
    use pontoon_signal::{Listed, Rank};

    #[test]
    fn a_key_opens_for_its_owner_and_life_only() {
        let listed = Listed { at: 7, stamp: 1 << 60 };
        let (rank, nonce, bytes, behind) = (Rank(3), u64::MAX - 3, 1 << 40, 5);
        let key = Key { rank, epoch: 9, nonce, bytes, place: 64, listed, behind };
        let sealed = key.seal().unwrap();
        assert_eq!(Key::open(&sealed, Rank(3), 9), Ok(key));
        assert_eq!(Key::open(&sealed, Rank(2), 9), Err(KeyFault::Unknown));
        assert_eq!(Key::open(&sealed, Rank(3), 10), Err(KeyFault::Stale));
        assert_eq!(Key::open(&sealed, Rank(3), 8), Err(KeyFault::Unknown));
        for cut in 0..sealed.as_bytes().len() {
            let cut = RegionKey::from_bytes(&sealed.as_bytes()[..cut]).unwrap();
            assert_eq!(Key::open(&cut, Rank(3), 9), Err(KeyFault::Form));
        }
    }
}
