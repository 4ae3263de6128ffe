//! What one rank gives to each other, so that the other can connect: over a channel that only the job
//! can read.

use pontoon_signal::Rank;

use crate::envelope::{self, EnvelopeError, Kind};

/// Whose card it is, what messages to it must carry, and where its worker is.
///
/// ```text
///        byte 0      4       8        16     20      24             24 + a
///             +------+-------+--------+------+-------+--------------+---------
///   envelope: | rank | epoch | cookie | pid  | a     | address      | segment
///             | u32  | u32   | u64    | u32  | u32   | an envelope  | a region's key, an envelope, or nothing
///             +------+-------+--------+------+-------+--------------+---------
/// ```
///
/// All numbers are little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) rank: Rank,
    pub(crate) epoch: u32,
    /// A random number that the card's owner made for the one it gives the card to: it shows that a
    /// message is that one's.
    pub(crate) cookie: u64,
    /// Under which it claims slots in mapped tables.
    pub(crate) pid: u32,
    pub(crate) address: Vec<u8>,
    /// What opens the owner's segment to loads and stores, where UCX allocated it.
    pub(crate) segment: Vec<u8>,
}

impl Card {
    pub(crate) fn seal(&self) -> Vec<u8> {
        let Self { rank, epoch, cookie, pid, address, segment } = self;
        let mut body = Vec::with_capacity(24 + address.len() + segment.len());
        body.extend(rank.0.to_le_bytes());
        body.extend(epoch.to_le_bytes());
        body.extend(cookie.to_le_bytes());
        body.extend(pid.to_le_bytes());
        // Longer than 4 GiB no address is; such a one would not open again.
        body.extend((address.len() as u32).to_le_bytes());
        body.extend(address);
        body.extend(segment);
        envelope::seal(Kind::Card, &body)
    }

    pub(crate) fn open(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let body = envelope::open(Kind::Card, bytes)?;
        let short = EnvelopeError::Short { bytes: body.len(), wanted: 24 };
        let (rank, rest) = body.split_first_chunk().ok_or(short)?;
        let (epoch, rest) = rest.split_first_chunk().ok_or(short)?;
        let (cookie, rest) = rest.split_first_chunk().ok_or(short)?;
        let (pid, rest) = rest.split_first_chunk().ok_or(short)?;
        let (length, rest) = rest.split_first_chunk().ok_or(short)?;
        let length = u32::from_le_bytes(*length) as usize;
        let cut = EnvelopeError::Short { bytes: rest.len(), wanted: length };
        let (address, segment) = rest.split_at_checked(length).ok_or(cut)?;
        Ok(Self {
            rank: Rank(u32::from_le_bytes(*rank)),
            epoch: u32::from_le_bytes(*epoch),
            cookie: u64::from_le_bytes(*cookie),
            pid: u32::from_le_bytes(*pid),
            address: address.to_vec(),
            segment: segment.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Card;
    use crate::envelope::{Kind, seal};
    use pontoon_signal::Rank;

    #[test]
    fn a_card_survives_and_bytes_that_are_none_are_refused() {
        let (address, segment) = (vec![7; 90], vec![8; 40]);
        let (cookie, pid) = (u64::MAX - 9, 17);
        let card = Card { rank: Rank(3), epoch: 2, cookie, pid, address, segment };
        assert_eq!(Card::open(&card.seal()), Ok(card.clone()));
        for cut in 0..card.seal().len() {
            assert!(Card::open(&card.seal()[..cut]).is_err(), "cut at {cut}");
        }
        for body in [&[][..], &[0; 23], &[255; 24]] {
            assert!(Card::open(&seal(Kind::Card, body)).is_err(), "{body:?}");
        }
    }
}
