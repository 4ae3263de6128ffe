//! Bytes for a server's memory, by plain stores.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use pontoon::smc::Released;

use super::{
    ToolError,
    client::{Client, Reach},
};
use crate::{
    counted::counted, figures::closed_pipe_is_no_fault, input::Input, size, stdout::stdout,
};

/// Stores bytes to a server's memory by plain stores, and releases them: those of standard input, unless others are
/// given. A pipe or a terminal that says nothing for 30 s ends it, as the server has no other client meanwhile.
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
    let (stored, all) = options.reach.with(|client| {
        // All of it, so that what does not fit changes nothing.
        let new = match input {
            None => New::Byte(options.byte.unwrap_or_default()),
            Some((path, mut input)) => New::Bytes(read(client, options.at, &path, &mut input)?),
        };
        let range = match &new {
            New::Byte(_) => client.range(options.at, options.bytes)?,
            New::Bytes(bytes) => client.range(options.at, Some(bytes.len()))?,
        };
        let (mut sent, mut buffer) = (Released::default(), Vec::new());
        let stored = range.len();
        for piece in client.pieces(range) {
            let bytes = match &new {
                New::Byte(byte) => {
                    buffer.resize(piece.len(), *byte);
                    &buffer[..]
                }
                New::Bytes(bytes) => &bytes[piece.start - options.at..piece.end - options.at],
            };
            let done = client.put(piece.start, bytes);
            sent += done.map_err(|loss| ToolError::Torn { loss, sent })?;
        }
        Ok((stored as u64, sent))
    })?;
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

/// What is stored.
enum New {
    Byte(u8),
    Bytes(Vec<u8>),
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
    let mut bytes = Vec::new();
    input.take(room as u64 + 1).read_to_end(&mut bytes).map_err(unreadable(path))?;
    if bytes.len() > room {
        return Err(ToolError::NoRoom { at, all: client.bytes() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::byte;

    #[test]
    fn bytes_are_numbers() {
        assert_eq!((byte("0"), byte("255"), byte("0xfF")), (Ok(0), Ok(255), Ok(255)));
        for text in ["", "256", "-1", "+1", "0x", "0x100", "0x+1", "a"] {
            assert!(byte(text).is_err(), "{text:?}");
        }
    }
}
