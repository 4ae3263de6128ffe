//! What a user's file holds, read within a limit and without waiting for ever.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
};

/// The most that is read of a file, in bytes; of a packed one, once it is unpacked.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// How long a pipe or a terminal may be silent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A file to read: an ordinary one, or a pipe or device, of which each read is bounded.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// How long it may be silent, if it is none that has all its bytes already.
    patience: Option<Duration>,
}

impl Input {
    /// Opens it, whether there is a writer or not.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::open_within(path, PATIENCE)
    }

    fn open_within(path: &Path, patience: Duration) -> io::Result<Self> {
        // Opening a FIFO without a writer would wait for one.
        let flags = OFlags::NONBLOCK.bits() as i32;
        Self::of(OpenOptions::new().read(true).custom_flags(flags).open(path)?, patience)
    }

    /// Standard input.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn stdin() -> io::Result<Self> {
        Self::of(io::stdin().as_fd().try_clone_to_owned()?.into(), PATIENCE)
    }

    fn of(file: File, patience: Duration) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let waits = kind.is_fifo() || kind.is_char_device() || kind.is_socket();
        Ok(Self { file, patience: waits.then_some(patience) })
    }

    /// How many bytes a file has from where it is read on; `None` for what does not tell, as a pipe.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn left(&mut self) -> io::Result<Option<u64>> {
        let data = self.file.metadata()?;
        if !data.is_file() {
            return Ok(None);
        }
        Ok(Some(data.len().saturating_sub(self.file.stream_position()?)))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One that never had a writer reads as ended, so it is asked first.
        if let Some(patience) = self.patience {
            let within = Timespec::try_from(patience).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut fds, Some(&within))? == 0 {
                let why = format!("nothing came within {patience:?}; does anything write to it?");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        self.file.read(buffer)
    }
}

/// All that `input` holds; `None` if that is more than `limit`.
///
/// # Errors
///
/// Those of reading.
pub(crate) fn read_to_limit(input: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, process::Command, thread};

    use super::*;

    #[test]
    fn a_limit_is_what_may_be_read() {
        assert_eq!(read_to_limit(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(read_to_limit(&b"abcd"[..], 3).unwrap(), None);
        let endless = Input::open(Path::new("/dev/zero")).unwrap();
        assert_eq!(read_to_limit(endless, 1 << 16).unwrap(), None);
    }

    #[test]
    fn a_fifo_is_read_to_its_end_and_waited_for_within_a_bound() {
        let path = std::env::temp_dir().join(format!("pontoon-input-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut silent = Input::open_within(&path, Duration::from_millis(50)).unwrap();
        let error = silent.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "nothing came within 50ms; does anything write to it?");
        drop(silent);

        let input = Input::open(&path).unwrap();
        let writer = thread::spawn({
            let path = path.clone();
            move || File::options().write(true).open(path).unwrap().write_all(b"rows").unwrap()
        });
        assert_eq!(read_to_limit(input, 100).unwrap(), Some(b"rows".to_vec()));
        writer.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
