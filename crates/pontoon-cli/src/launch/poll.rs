//! Waiting for several files at once, and writing without waiting.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};

/// What to wait for on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Bytes, or the end.
    Input,
    /// Room, or that nobody reads any more.
    Room,
}

/// The tags of the files that are ready; none after `timeout`, or when a signal came.
///
/// # Errors
///
/// Those of `poll`: no memory, or more files than the process may have open.
///
/// # Blocks
///
/// At most for `timeout`.
pub(super) fn ready<T: Copy>(
    files: &[(T, BorrowedFd<'_>, For)],
    timeout: Duration,
) -> io::Result<Vec<T>> {
    let flags = |to: For| if to == For::Input { PollFlags::IN } else { PollFlags::OUT };
    let mut polled: Vec<_> =
        files.iter().map(|&(_, fd, to)| PollFd::from_borrowed_fd(fd, flags(to))).collect();
    // A timeout that rounds to nothing would spin.
    let timeout = timeout.max(Duration::from_micros(100));
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok(files.iter().zip(&polled).filter(|(_, fd)| is_ready(fd)).map(|(file, _)| file.0).collect())
}

/// Makes reads and writes return rather than wait.
///
/// # Errors
///
/// The kernel refuses it.
pub(super) fn never_block(file: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&file)?;
    Ok(fcntl_setfl(&file, flags | OFlags::NONBLOCK)?)
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Bytes(usize),
    NothingYet,
    End,
}

/// Reads what is there. A file that fails has ended: a broken pipe and a lost peer alike.
pub(super) fn read(file: &mut File, into: &mut [u8]) -> Got {
    match file.read(into) {
        Ok(0) => Got::End,
        Ok(bytes) => Got::Bytes(bytes),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Got::NothingYet
        }
        Err(_) => Got::End,
    }
}

/// Bytes on their way to a reader that may be slow or gone.
#[derive(Debug)]
pub(super) struct Outbox {
    file: File,
    pending: Vec<u8>,
    at: usize,
    gone: bool,
}

impl Outbox {
    /// Writes to `file`, which never blocks from here on.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub(super) fn new(file: OwnedFd) -> io::Result<Self> {
        never_block(&file)?;
        Ok(Self { file: file.into(), pending: Vec::new(), at: 0, gone: false })
    }

    /// Adds `bytes`, and writes what goes without waiting. They are lost if the reader is gone.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.gone {
            self.pending.extend_from_slice(bytes);
            self.flush();
        }
    }

    /// Writes what goes without waiting.
    pub(super) fn flush(&mut self) {
        while self.at < self.pending.len() {
            match self.file.write(&self.pending[self.at..]) {
                Ok(written) => self.at += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.gone = true;
                    self.at = self.pending.len();
                }
            }
        }
        // What was written goes once it is half, so that each byte moves once on average.
        if self.at * 2 >= self.pending.len() {
            self.pending.drain(..self.at);
            self.at = 0;
        }
    }

    /// How many bytes wait for the reader.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len() - self.at
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_what_does_not_fit_and_loses_what_nobody_reads() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut outbox = Outbox::new(writer.into()).expect("an outbox");
        let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
        outbox.push(&sent);
        assert!(outbox.waiting() > 0, "a pipe is smaller than that");
        let mut reader = File::from(OwnedFd::from(reader));
        let mut got = vec![0; sent.len()];
        let mut at = 0;
        while at < got.len() {
            let Got::Bytes(bytes) = read(&mut reader, &mut got[at..]) else { panic!("at {at}") };
            at += bytes;
            outbox.flush();
        }
        assert!(got == sent, "the bytes are others");
        assert_eq!(outbox.waiting(), 0);
        drop(reader);
        outbox.push(b"to nobody");
        assert_eq!(outbox.waiting(), 0);
    }

    #[test]
    fn a_wait_for_what_does_not_come_ends() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let files = [((), reader.as_fd(), For::Input)];
        assert_eq!(ready(&files, Duration::from_millis(1)).expect("polled"), []);
        drop(writer);
        assert_eq!(ready(&files, Duration::from_secs(60)).expect("polled"), [()]);
    }
}
