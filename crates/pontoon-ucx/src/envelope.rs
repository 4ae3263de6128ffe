//! Bytes of UCX as they travel between processes: sealed, so that others are refused.
//!
//! UCX reads addresses and keys without looking where they end, and follows what they say. So a
//! worker's address and a region's key, and what a link gives its peers, carry a header with their length and a digest, and nothing
//! reaches UCX that did not come whole from an envelope of this version. That guards against
//! accidents; against strangers the job's own token does.
//!
//! ```text
//! 0      4       5        6         8          12        16       24
//! +------+-------+--------+---------+----------+---------+--------+------
//! | pUCX | form  | kind   | zero    | length   | zero    | digest | body
//! +------+-------+--------+---------+----------+---------+--------+------
//! ```
//!
//! All numbers are little-endian; the digest is FNV-1a of 64 bits over the first sixteen bytes and
//! the body.

use std::fmt;

const MAGIC: [u8; 4] = *b"pUCX";
const FORM: u8 = 1;
const HEADER: usize = 24;

/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A worker's address.
    Address = 1,
    /// A region's base, size and key.
    Region = 2,
    /// What a peer's link needs to connect: see `link/card.rs`.
    Card = 3,
    /// What opens a region to a peer's link: see `link/key.rs`.
    Key = 4,
}

/// Seals `body`.
pub(crate) fn seal(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(MAGIC);
    bytes.extend([FORM, kind as u8, 0, 0]);
    // Longer than 4 GiB no address is; such a one would not open again.
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    let digest = digest(&bytes, body);
    bytes.extend(digest.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The body of an envelope of this kind.
pub(crate) fn open(kind: Kind, bytes: &[u8]) -> Result<&[u8], EnvelopeError> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return Err(EnvelopeError::Short { bytes: bytes.len(), wanted: HEADER });
    };
    if header[..4] != MAGIC {
        return Err(EnvelopeError::Foreign);
    }
    if header[4] != FORM {
        return Err(EnvelopeError::Form { theirs: header[4], ours: FORM });
    }
    if header[5] != kind as u8 {
        return Err(EnvelopeError::Kind { found: header[5], wanted: kind as u8 });
    }
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length != body.len() {
        return Err(EnvelopeError::Short { bytes: body.len(), wanted: length });
    }
    // A digest that is right over other bytes than these is somebody's who means harm.
    if header[6..8] != [0; 2] || header[12..16] != [0; 4] {
        return Err(EnvelopeError::Spoiled);
    }
    if digest(&header[..16], body).to_le_bytes() != header[16..] {
        return Err(EnvelopeError::Spoiled);
    }
    Ok(body)
}

/// The bytes with their length and digest made right, for fuzzing what is behind.
#[cfg(any(test, pontoon_fuzz))]
pub(crate) fn resealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Some((header, body)) = bytes.split_at_mut_checked(HEADER) else { return bytes };
    header[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let digest = digest(&header[..16], body);
    header[16..].copy_from_slice(&digest.to_le_bytes());
    bytes
}

fn digest(header: &[u8], body: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    header.iter().chain(body).fold(0xcbf2_9ce4_8422_2325, step)
}

/// Why bytes from a peer are no address or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// They are not what pontoon writes.
    Foreign,
    /// There are fewer or more than they say.
    Short {
        /// How many there are.
        bytes: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// They are of another version of pontoon.
    Form {
        /// The peer's form.
        theirs: u8,
        /// The form that this version writes.
        ours: u8,
    },
    /// They are something else: a key where an address is due, or the other way round.
    Kind {
        /// What they are.
        found: u8,
        /// What they should be: 1 is an address, 2 a region, 3 a card, 4 a key.
        wanted: u8,
    },
    /// They were changed on the way.
    Spoiled,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("these bytes are no address or key of pontoon's"),
            Self::Short { bytes, wanted } => {
                write!(f, "an address or key of {wanted} bytes came with {bytes}")
            }
            Self::Form { theirs, ours } => write!(
                f,
                "the peer's addresses have form {theirs}, ours {ours}: run one version of pontoon \
                 on all hosts"
            ),
            Self::Kind { found, wanted } => {
                write!(
                    f,
                    "kind {found} came where kind {wanted} is due (1 address, 2 region, \
                     3 card, 4 key)"
                )
            }
            Self::Spoiled => f.write_str("an address or key was changed on the way"),
        }
    }
}

impl core::error::Error for EnvelopeError {}

#[cfg(test)]
mod tests {
    use super::{EnvelopeError, HEADER, Kind, open, resealed, seal};

    #[test]
    fn what_was_sealed_opens_as_that_and_nothing_else() {
        let sealed = seal(Kind::Address, b"somewhere");
        assert_eq!(open(Kind::Address, &sealed), Ok(&b"somewhere"[..]));
        assert_eq!(open(Kind::Region, &sealed), Err(EnvelopeError::Kind { found: 1, wanted: 2 }));
        assert_eq!(open(Kind::Address, b"GET / HTTP/1.1\r\nHost: pontoon\r\n\r\n").unwrap_err(), {
            EnvelopeError::Foreign
        });
        let mut other = sealed.clone();
        other[4] = 9;
        let error = open(Kind::Address, &other).unwrap_err();
        assert_eq!(error, EnvelopeError::Form { theirs: 9, ours: 1 });
        assert!(error.to_string().contains("form 9") && error.to_string().contains("ours 1"));
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_refused() {
        let sealed = seal(Kind::Region, &[7; 40]);
        for cut in 0..sealed.len() {
            assert!(open(Kind::Region, &sealed[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..8 * sealed.len() {
            let mut spoiled = sealed.clone();
            spoiled[bit / 8] ^= 1 << (bit % 8);
            assert!(open(Kind::Region, &spoiled).is_err(), "bit {bit}");
        }
        for zero in [6, 7, 12, 13, 14, 15] {
            let mut spoiled = sealed.clone();
            spoiled[zero] = 1;
            assert_eq!(open(Kind::Region, &resealed(&spoiled)), Err(EnvelopeError::Spoiled));
        }
        assert_eq!(open(Kind::Region, &[]).unwrap_err(), {
            EnvelopeError::Short { bytes: 0, wanted: HEADER }
        });
    }
}
