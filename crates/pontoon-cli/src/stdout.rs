//! The standard output, which holds what the command itself says and nothing else.
//!
//! A library may print there as well: the part of UCX that watches memory writes its warnings to
//! descriptor 1, whatever `UCX_LOG_FILE` says, and would put them between the lines of an object or
//! the bytes of `smc cat`. So that descriptor becomes another name of standard error, and the
//! command writes to the one that it kept.

use std::{
    fs::File,
    io::{self, IsTerminal, LineWriter, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::OnceLock,
};

/// The standard output as this process was given it.
static KEPT: OnceLock<File> = OnceLock::new();

/// From now on what others print goes to standard error, and [`stdout`] where it always went. Not
/// for a process that becomes another program.
///
/// # Errors
///
/// No descriptor is left.
pub(crate) fn keep() -> io::Result<()> {
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    if KEPT.set(own.into()).is_ok() {
        rustix::stdio::dup2_stdout(io::stderr())?;
    }
    Ok(())
}

/// Writes to the standard output, a line at a time.
pub(crate) fn stdout() -> LineWriter<Out> {
    LineWriter::new(out())
}

/// The stream itself.
pub(crate) fn out() -> Out {
    KEPT.get().map_or_else(|| Out::Given(io::stdout()), Out::Kept)
}

/// Where the command's own output goes.
#[derive(Debug)]
pub(crate) enum Out {
    Kept(&'static File),
    /// Nothing has been put in its place.
    Given(io::Stdout),
}

impl Out {
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Self::Kept(file) => file.is_terminal(),
            Self::Given(stdout) => stdout.is_terminal(),
        }
    }
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(file) => file.as_fd(),
            Self::Given(stdout) => stdout.as_fd(),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kept(file) => file.write(bytes),
            Self::Given(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Kept(file) => file.flush(),
            Self::Given(stdout) => stdout.flush(),
        }
    }
}
