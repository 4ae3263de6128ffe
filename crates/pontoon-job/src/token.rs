//! The secret of a job, and how two processes prove to each other that they know it.
//!
//! Invariant K1: the token never crosses a wire, and no text of this crate shows it.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
};

use hmac::{Hmac, KeyInit, Mac};
use pontoon_signal::SystemError;
use rustix::fs::{FileType, fstat};
use sha2::Sha256;

use crate::{hex, sys::system_error};

/// What all processes of a job know, and nobody else: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; Token::BYTES]);

/// A challenge: chosen anew for each connection, so that no proof is good twice.
pub(crate) type Nonce = [u8; 32];
/// A proof: HMAC-SHA256 over the whole handshake.
pub(crate) type Tag = [u8; 32];

impl Token {
    /// The size of a token.
    pub const BYTES: usize = 32;

    /// A new one, from the system's source of randomness.
    ///
    /// # Errors
    ///
    /// [`TokenError::NoRandomness`].
    pub fn random() -> Result<Self, TokenError> {
        random().map(Self)
    }

    /// The token written as 64 hexadecimal digits; spaces and line ends around them are ignored.
    ///
    /// # Errors
    ///
    /// [`TokenError::NotHex`].
    pub fn parse(text: &[u8]) -> Result<Self, TokenError> {
        let digits = text.trim_ascii();
        let mut bytes = [0; Self::BYTES];
        let refused = TokenError::NotHex { length: digits.len() };
        hex::decode(digits, &mut bytes).map(|()| Self(bytes)).ok_or(refused)
    }

    /// The token in a file that nobody but its owner may read.
    ///
    /// # Errors
    ///
    /// [`TokenError`]: what the file lacks.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable =
            |error: io::Error| TokenError::Unreadable { error: system_error("open", &error) };
        // Not blocking, or a pipe of that name would hold us for ever.
        let flags =
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
        let file = File::from(opened.map_err(|errno| unreadable(errno.into()))?);
        // Of the open file: a path could lead elsewhere by the next call.
        let stat = fstat(&file).map_err(|errno| unreadable(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TokenError::NoFile);
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(TokenError::NotPrivate { mode: stat.st_mode & 0o7777 });
        }
        let mut text = Vec::new();
        file.take(Self::BYTES as u64 * 4).read_to_end(&mut text).map_err(unreadable)?;
        Self::parse(&text)
    }

    /// As 64 hexadecimal digits, for the environment of a process that is to know it.
    pub fn reveal(&self) -> String {
        hex::encode(&self.0)
    }

    /// A secret for another `purpose`, which everybody in the job can derive, and which does not
    /// lead back to the token.
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        self.over(Side::Purpose, purpose, &[0; 32]).finalize().into_bytes().into()
    }

    /// The proof of `side` over a handshake.
    pub(crate) fn prove(&self, side: Side, hello: &[u8], challenge: &Nonce) -> Tag {
        self.over(side, hello, challenge).finalize().into_bytes().into()
    }

    /// Whether `tag` is that proof, in a time that does not tell how much of it is right.
    pub(crate) fn verifies(&self, tag: &Tag, side: Side, hello: &[u8], challenge: &Nonce) -> bool {
        self.over(side, hello, challenge).verify_slice(tag).is_ok()
    }

    fn over(&self, side: Side, hello: &[u8], challenge: &Nonce) -> Hmac<Sha256> {
        // HMAC takes a key of any length: this cannot fail.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .unwrap_or_else(|_| unreachable!("HMAC refused a key of 32 bytes"));
        // Each part has a fixed length or its length before it, so that no two handshakes are the
        // same bytes.
        mac.update(side.label());
        mac.update(challenge);
        mac.update(&(hello.len() as u64).to_le_bytes());
        mac.update(hello);
        mac
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// Who proves. Each has its label, so that a proof cannot be sent back to whoever made it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Rank,
    Store,
    /// Nobody: a secret is derived.
    Purpose,
}

impl Side {
    const fn label(self) -> &'static [u8; 16] {
        match self {
            Self::Rank => b"pontoon job rank",
            Self::Store => b"pontoon job hub\0",
            Self::Purpose => b"pontoon purpose\0",
        }
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(bytes)
}

/// Why there is no token. None of these holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// The system has no random bytes to give.
    NoRandomness,
    /// Not 64 hexadecimal digits.
    NotHex {
        /// How many bytes there were.
        length: usize,
    },
    /// The file cannot be read.
    Unreadable {
        /// Why.
        error: SystemError,
    },
    /// A directory, a pipe or a device.
    NoFile,
    /// Others may read or write the file.
    NotPrivate {
        /// Its permissions.
        mode: u32,
    },
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRandomness => f.write_str("the system has no random bytes for a token"),
            Self::NotHex { length } => write!(
                f,
                "a token is 64 hexadecimal digits, and this has a length of {length}; `openssl rand \
                 -hex 32` makes one"
            ),
            Self::Unreadable { error } => write!(
                f,
                "the file cannot be read: {error}; make it where all ranks can read it, by `openssl \
                 rand -hex 32` and with mode 0600, or name another"
            ),
            Self::NoFile => f.write_str("it is no regular file"),
            Self::NotPrivate { mode } => write!(
                f,
                "others than its owner may read or change the file (mode {mode:04o}): `chmod 600` \
                 it, and make a new token"
            ),
        }
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::{FileType, Side, Token, TokenError};
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, text: &str, mode: u32) -> Self {
            let name = format!("pontoon-token-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_proof_is_of_one_token_side_hello_and_challenge() {
        let (token, other) = (Token::random().unwrap(), Token::random().unwrap());
        let tag = token.prove(Side::Rank, b"hello", &[1; 32]);
        assert!(token.verifies(&tag, Side::Rank, b"hello", &[1; 32]));
        assert!(!other.verifies(&tag, Side::Rank, b"hello", &[1; 32]));
        assert!(!token.verifies(&tag, Side::Store, b"hello", &[1; 32]));
        assert!(!token.verifies(&tag, Side::Rank, b"hellp", &[1; 32]));
        assert!(!token.verifies(&tag, Side::Rank, b"hello", &[2; 32]));
        for byte in 0..32 {
            let mut wrong = tag;
            wrong[byte] ^= 1;
            assert!(!token.verifies(&wrong, Side::Rank, b"hello", &[1; 32]), "byte {byte}");
        }
    }

    /// Computed by Python's `hmac` over the bytes as `over` lays them out.
    #[test]
    fn the_proof_is_hmac_sha256_as_others_compute_it() {
        let tag = Token([0; 32]).prove(Side::Rank, b"hello", &[1; 32]);
        assert_eq!(
            crate::hex::encode(&tag),
            "59b89f158746e5ccc558c83fde403198c39fc705c092039b6b92862db8c156d5"
        );
    }

    #[test]
    fn no_text_shows_a_token() {
        let token = Token::random().unwrap();
        let digits = token.reveal();
        assert!(!format!("{token:?} {token:#?}").contains(&digits[..8]));
        let error = Token::parse(&digits.as_bytes()[1..]).unwrap_err();
        assert_eq!(error, TokenError::NotHex { length: 63 });
        assert!(!format!("{error:?} {error}").contains(&digits[1..9]));
        assert_eq!(Token::parse(format!(" {digits}\n").as_bytes()), Ok(token));
    }

    #[test]
    fn two_tokens_differ() {
        assert_ne!(Token::random().unwrap().reveal(), Token::random().unwrap().reveal());
    }

    #[test]
    fn a_file_others_may_read_is_refused() {
        let token = Token::random().unwrap();
        let private = Scratch::new("private", &format!("{}\n", token.reveal()), 0o600);
        assert_eq!(Token::read(&private.0), Ok(token.clone()));
        for mode in [0o640, 0o604, 0o620, 0o610, 0o777] {
            let open = Scratch::new(&format!("{mode:o}"), &token.reveal(), mode);
            let error = Token::read(&open.0).unwrap_err();
            assert_eq!(error, TokenError::NotPrivate { mode });
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_with_a_token_is_refused() {
        let dir = std::env::temp_dir();
        assert_eq!(Token::read(&dir), Err(TokenError::NoFile));
        let pipe = dir.join(format!("pontoon-token-{}-pipe", std::process::id()));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let path = pipe.clone();
        std::thread::spawn(move || tell.send(Token::read(&path)));
        let read = told.recv_timeout(std::time::Duration::from_secs(10));
        fs::remove_file(&pipe).unwrap();
        assert_eq!(read, Ok(Err(TokenError::NoFile)), "a pipe is not waited for");
        let missing = Token::read(&dir.join("pontoon-no-such-token"));
        assert!(matches!(missing, Err(TokenError::Unreadable { .. })), "{missing:?}");
        let long = Scratch::new("long", &"0".repeat(10_000), 0o600);
        assert_eq!(Token::read(&long.0), Err(TokenError::NotHex { length: 128 }));
    }
}
