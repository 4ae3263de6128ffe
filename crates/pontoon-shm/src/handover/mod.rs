//! A segment's file, from its owner to the other ranks of the job, over a Unix socket.
//!
//! ```text
//!  asker  -> owner   "pontoonf" | secret            8 + 16 bytes
//!  owner  -> asker   1          | the file          1 byte, SCM_RIGHTS
//!                 or 2          it has no file left for the connection
//! ```
//!
//! The owner closes the connection on whoever is another user, says something else, or takes too
//! long: nobody is told why, and the owner counts and logs it.

mod ask;
mod serve;

use std::fmt;

pub use ask::fetch;
pub use serve::{Handover, HandoverReport};

/// What proves that who asks is of the job: its ranks agreed on it elsewhere.
#[derive(Clone, Copy)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Its length.
    pub const BYTES: usize = 16;

    /// The secret of these bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Whether `other` is the same; it takes as long wherever they differ.
    fn is(&self, other: &[u8; Self::BYTES]) -> bool {
        let differ = self.0.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

const HELLO: [u8; 8] = *b"pontoonf";
pub(crate) const REQUEST_BYTES: usize = HELLO.len() + Secret::BYTES;
const ANSWER: u8 = 1;
/// Instead of a file: there is no room for the asker's connection.
const NO_ROOM: u8 = 2;
/// The longest path of a socket: the kernel's field, less the zero at its end.
const PATH_MAX: usize = 107;

pub(crate) fn request(secret: &Secret) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..HELLO.len()].copy_from_slice(&HELLO);
    bytes[HELLO.len()..].copy_from_slice(&secret.0);
    bytes
}

/// The secret in a request; `None` if it is none.
pub(crate) fn requested(bytes: &[u8; REQUEST_BYTES]) -> Option<&[u8; Secret::BYTES]> {
    bytes.strip_prefix(&HELLO)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Secret, request, requested};

    #[test]
    fn one_bit_makes_another_secret() {
        let secret = Secret::new(*b"0123456789abcdef");
        let bytes = request(&secret);
        assert!(requested(&bytes).is_some_and(|other| secret.is(other)));
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!requested(&changed).is_some_and(|other| secret.is(other)), "bit {bit}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
