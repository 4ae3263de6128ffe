//! The header of the messages between links.

use pontoon_signal::Rank;

/// What a message is.
///
/// ```text
///   byte 0       4      5       6      8      12     16       24       32      40       48      56
///        +-------+------+-------+------+------+------+--------+--------+-------+--------+-------+-------+
///        | "lnk1"| kind | flags | zero | rank | slot | cookie | number | nonce | offset | first | second|
///        | u8[4] | u8   | u8    | u16  | u32  | u32  | u64    | u64    | u64   | u64    | u64   | u64   |
///        +-------+------+-------+------+------+------+--------+--------+-------+--------+-------+-------+
///
///   kind           number        nonce, offset        slot          first         second
///   1 write        of message    where the data go    if SIGNAL: which signal, and by how much it grows
///   2 signal       of message    –                    which         by how much
///   3 read         of message    from where           –             bytes
///   4 add          of message    which word           –             by how much
///   5 compare-swap of message    which word           –             expected      new
///   6 flush        of message    –                    –             –
///   7 attach       of message    –                    which         –
///   8 detach       of message    –                    which         –
///   9 data         of the read   –                    –             –
///  10 answer       of the ask    see `Answer`         –             what was found
/// ```
///
/// All numbers are little-endian. Messages 1 to 8 of a life of a peer are numbered from 1 and are handled
/// in that order; the data of a write come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// Who sends it.
    pub(crate) rank: Rank,
    pub(crate) slot: u32,
    /// That of the receiver's card for the sender.
    pub(crate) cookie: u64,
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    pub(crate) offset: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
}

/// How many bytes a header has.
pub(crate) const HEADER_BYTES: usize = 64;
const TAG: [u8; 4] = *b"lnk1";
/// A write that a signal follows.
pub(crate) const SIGNAL: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write = 1,
    Signal = 2,
    Read = 3,
    Add = 4,
    CompareSwap = 5,
    Flush = 6,
    Attach = 7,
    Detach = 8,
    Data = 9,
    Answer = 10,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Write,
        Self::Signal,
        Self::Read,
        Self::Add,
        Self::CompareSwap,
        Self::Flush,
        Self::Attach,
        Self::Detach,
        Self::Data,
        Self::Answer,
    ];
}

impl Header {
    pub(crate) fn of(kind: Kind) -> Self {
        let (rank, zero) = (Rank(0), 0);
        Self {
            kind,
            flags: 0,
            rank,
            slot: 0,
            cookie: zero,
            number: zero,
            nonce: zero,
            offset: zero,
            first: zero,
            second: zero,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&TAG);
        (bytes[4], bytes[5]) = (self.kind as u8, self.flags);
        bytes[8..12].copy_from_slice(&self.rank.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.slot.to_le_bytes());
        let Self { cookie, number, nonce, offset, first, second, .. } = *self;
        let words = [cookie, number, nonce, offset, first, second];
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != TAG || bytes[6..8] != [0, 0] {
            return None;
        }
        let kind = *Kind::ALL.get(usize::from(bytes[4]).checked_sub(1)?)?;
        let small =
            |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let word = |at| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
        Some(Self {
            kind,
            flags: bytes[5],
            rank: Rank(small(8)),
            slot: small(12),
            cookie: word(16),
            number: word(24),
            nonce: word(32),
            offset: word(40),
            first: word(48),
            second: word(56),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, Header, Kind, SIGNAL};
    use pontoon_signal::Rank;

    #[test]
    fn every_kind_survives_and_its_number_is_its_own() {
        for (at, kind) in (1..).zip(Kind::ALL) {
            assert_eq!(kind as u8, at);
            let words = Header {
                flags: SIGNAL,
                rank: Rank(0x0102_0304),
                slot: 5,
                cookie: u64::MAX,
                number: 1 << 40,
                nonce: 7,
                offset: 8,
                first: 9,
                second: 10,
                ..Header::of(kind)
            };
            assert_eq!(Header::decode(&words.encode()), Some(words));
        }
    }

    #[test]
    fn other_bytes_are_no_header() {
        let good = Header::of(Kind::Flush).encode();
        for cut in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&good[..cut]), None);
        }
        for (at, byte) in [(0, b'x'), (4, 0), (4, 11), (6, 1), (7, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Header::decode(&bad), None, "byte {at} is {byte}");
        }
    }
}
