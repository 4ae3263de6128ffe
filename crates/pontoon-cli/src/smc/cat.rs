//! The bytes of a server's memory, by plain loads.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use super::{ToolError, client::Reach};
use crate::{counted::counted, input::PATIENCE, size, stdout::stdout};

/// Writes bytes of a server's memory to standard output, read by plain loads.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    reach: Reach,
    /// From which byte on.
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = size::bytes)]
    at: usize,
    /// How many; all from there on, unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    bytes: Option<usize>,
    /// Writes to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    let done = options.reach.to_read(|client| {
        let range = client.range(options.at, options.bytes)?;
        let mut output: Box<dyn Write> =
            match &options.output {
                Some(path) => Box::new(create(path, PATIENCE).map_err(|error| {
                    ToolError::File { path: path.clone(), verb: "write", error }
                })?),
                None => Box::new(stdout()),
            };
        let (mut buffer, mut wrote) = (Vec::new(), 0);
        for piece in client.pieces(range) {
            buffer.resize(piece.len(), 0);
            client.get(piece.start, &mut buffer).map_err(|loss| ToolError::Cut { loss, wrote })?;
            match output.write_all(&buffer).and_then(|()| output.flush()) {
                // Who reads it has read enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Err(error) => return Err(ToolError::Output(error)),
                Ok(()) => wrote += buffer.len() as u64,
            }
        }
        Ok(wrote)
    })?;
    done.of_reads(|wrote| format!("{} were read and written", counted(*wrote, "byte")));
    Ok(())
}

/// How long it is until it is looked at again.
const AGAIN: Duration = Duration::from_millis(50);

/// A file to write to. Opening a FIFO would wait for its reader, so that is tried for as long as `patience`.
fn create(path: &Path, patience: Duration) -> io::Result<File> {
    if !fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo()) {
        return File::create(path);
    }
    let (began, flags) = (Instant::now(), OFlags::NONBLOCK.bits() as i32);
    loop {
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if began.elapsed() >= patience {
                    let why =
                        format!("nobody opened it within {patience:?}; does anything read it?");
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                thread::sleep(AGAIN.min(patience));
            }
            Err(error) => return Err(error),
            Ok(file) => {
                // Its reader sets the pace, as that of any pipe does.
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    #[test]
    fn a_reader_of_a_fifo_is_waited_for_within_a_bound() {
        let path = env::temp_dir().join(format!("pontoon-cat-{}", process::id()));
        assert!(process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = create(&path, Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.to_string(), "nobody opened it within 10ms; does anything read it?");

        let reader = thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap().len()
        });
        // More than a pipe holds: a write waits for the reader.
        create(&path, PATIENCE).unwrap().write_all(&vec![7; 1 << 20]).unwrap();
        assert_eq!(reader.join().unwrap(), 1 << 20);
        fs::remove_file(&path).unwrap();
    }
}
