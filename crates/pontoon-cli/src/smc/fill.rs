//! Bytes for a server's memory, by plain stores.

use std::{
    io::{self, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use pontoon::smc::Released;

use super::{
    ToolError,
    client::{Client, Reach},
    error::{Loss, Whole},
};
use crate::{
    counted::counted, figures::closed_pipe_is_no_fault, input::Input, size, stdout::stdout,
};

/// Stores bytes to a server's memory by plain stores, and releases them: those of standard input, unless others are
/// given. A file of more than 1 MiB is read and stored piece by piece, once it is known to fit. All else is kept here
/// until it ends, up to 1 GiB, so that nothing is stored if it does not fit. A pipe or a terminal that says nothing for 30 s ends
/// this, as the server has no other client meanwhile.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    reach: Reach,
    /// From which byte on.
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = size::bytes)]
    at: usize,
    /// This byte, over and over.
    #[arg(long, value_name = "BYTE", value_parser = byte, conflicts_with = "file")]
    byte: Option<u8>,
    /// How often; to the end of the memory, unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, requires = "byte")]
    bytes: Option<usize>,
    /// The bytes of this file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// What is read as a whole is all stored or not at all, and some small files are not as long as they say.
const SMALL: u64 = 1 << 20;
/// The most bytes that are kept of what has no length.
const KEPT: usize = 1 << 30;

fn byte(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u8::from_str_radix(hex, 16).ok()
        }
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| "expected a byte: 0 to 255, or 0x00 to 0xff".into())
}

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    let input = match (options.byte, &options.file) {
        (Some(_), _) => None,
        (None, Some(path)) => Some((path.clone(), Input::open(path).map_err(unreadable(path))?)),
        (None, None) => {
            let path = PathBuf::from("standard input");
            let input = Input::stdin().map_err(unreadable(&path))?;
            Some((path, input))
        }
    };
    let done = options.reach.with(|client| {
        let pieces = |bytes| client.range(options.at, bytes).map(|range| client.pieces(range));
        let put = |at, bytes: &[u8]| client.put(at, bytes);
        let Some((path, mut input)) = input else {
            let same = io::repeat(options.byte.unwrap_or_default());
            return store(pieces(options.bytes)?, same, Path::new("a byte"), put);
        };
        let left = input.left().map_err(unreadable(&path))?;
        let Some(left) = left.filter(|left| *left > SMALL) else {
            let bytes = read(client, options.at, &path, &mut input)?;
            return store(pieces(Some(bytes.len()))?, &bytes[..], &path, put);
        };
        let room = client.range(options.at, None)?.len();
        let left = usize::try_from(left).ok().filter(|left| *left <= room);
        let left = left.ok_or(ToolError::NoRoom { at: options.at, all: client.bytes() })?;
        let all = store(pieces(Some(left))?, &mut input, &path, put)?;
        match read_some(&mut input, 1, &mut Vec::new()) {
            Ok(0) => Ok(all),
            Ok(_) => Err(ToolError::Part { path, stored: all.0, why: Whole::Grew }),
            Err(error) => Err(ToolError::Part { path, stored: all.0, why: Whole::Unread(error) }),
        }
    })?;
    let (stored, all) = done.work;
    if let Some(loss) = done.loss {
        return Err(ToolError::Torn { loss, sent: all });
    }
    let told = writeln!(
        stdout(),
        "stored {}: {} changed in {}, sent home by {}",
        counted(stored, "byte"),
        counted(all.bytes, "byte"),
        counted(all.pages, "page"),
        counted(all.writes, "write")
    );
    closed_pipe_is_no_fault(told).map_err(|error| ToolError::Untold { stored, error })
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> ToolError {
    |error| ToolError::File { path: path.into(), verb: "read", error }
}

fn read(
    client: &Client,
    at: usize,
    path: &Path,
    input: &mut impl Read,
) -> Result<Vec<u8>, ToolError> {
    let room = client.range(at, None)?.len();
    let (most, mut bytes) = (room.min(KEPT), Vec::new());
    input.take(most as u64 + 1).read_to_end(&mut bytes).map_err(unreadable(path))?;
    match bytes.len() <= most {
        true => Ok(bytes),
        false if most < room => Err(ToolError::TooLong { path: path.into(), most }),
        false => Err(ToolError::NoRoom { at, all: client.bytes() }),
    }
}

/// Stores what `input` has, for as many bytes as there are pieces for. How many those were, and what that did.
fn store(
    pieces: impl Iterator<Item = Range<usize>>,
    mut input: impl Read,
    path: &Path,
    mut put: impl FnMut(usize, &[u8]) -> Result<Released, Loss>,
) -> Result<(u64, Released), ToolError> {
    let (mut stored, mut sent, mut buffer) = (0, Released::default(), Vec::new());
    for piece in pieces {
        let read = read_some(&mut input, piece.len(), &mut buffer);
        if !buffer.is_empty() {
            sent += put(piece.start, &buffer).map_err(|loss| ToolError::Torn { loss, sent })?;
            stored += buffer.len() as u64;
        }
        let why = match read {
            Ok(read) if read == piece.len() => continue,
            Ok(_) => Whole::Ended,
            Err(error) if stored == 0 => return Err(unreadable(path)(error)),
            Err(error) => Whole::Unread(error),
        };
        return Err(ToolError::Part { path: path.into(), stored, why });
    }
    Ok((stored, sent))
}

/// Reads `most` bytes, or all that there are. How many; what was read before an error is in `into` as well.
fn read_some(input: &mut impl Read, most: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    into.clear();
    input.take(most as u64).read_to_end(into)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn bytes_are_numbers() {
        assert_eq!((byte("0"), byte("255"), byte("0xfF")), (Ok(0), Ok(255), Ok(255)));
        for text in ["", "256", "-1", "+1", "0x", "0x100", "0x+1", "a"] {
            assert!(byte(text).is_err(), "{text:?}");
        }
    }

    /// Stores to a memory of 20 bytes in pieces of 8. What that gave, and what the memory is then.
    fn stored(input: impl Read) -> (Result<u64, String>, Vec<u8>) {
        let (mut memory, mut at) = (vec![0; 20], 0);
        let pieces = iter::from_fn(|| {
            let piece = at..20.min(at + 8);
            at = piece.end;
            (!piece.is_empty()).then_some(piece)
        });
        let all = store(pieces, input, Path::new("it"), |at, bytes| {
            memory[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(Released::default())
        });
        (all.map(|(stored, _)| stored).map_err(|error| error.to_string()), memory)
    }

    /// Has that many bytes, and then fails.
    struct Broken(usize);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let some = buffer.len().min(self.0);
            buffer[..some].fill(7);
            self.0 -= some;
            if some == 0 { Err(io::Error::other("gone")) } else { Ok(some) }
        }
    }

    #[test]
    fn what_is_read_before_a_file_ends_early_is_stored_and_counted() {
        assert_eq!(stored(io::repeat(7)), (Ok(20), vec![7; 20]));
        for bytes in [0, 1, 8, 13, 19] {
            let memory = [vec![7; bytes], vec![0; 20 - bytes]].concat();
            let (error, ended) = stored(&vec![7; bytes][..]);
            assert_eq!(ended, memory);
            let told = counted(bytes as u64, "byte");
            let error = error.unwrap_err();
            assert!(error.starts_with(&format!("it ended after {told}, ")), "{error}");

            let (error, broken) = stored(Broken(bytes));
            assert_eq!(broken, memory);
            let wanted = match bytes {
                0 => "cannot read it: gone".into(),
                _ => format!("{told} of it stored, and no more can be read: gone"),
            };
            assert_eq!(error, Err(wanted));
        }
    }
}
