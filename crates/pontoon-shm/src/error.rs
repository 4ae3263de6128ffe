//! How connecting, handing over and keeping a job's folder fail.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use pontoon_signal::{ClaimError, Rank, SystemError};
use rustix::io::Errno;

/// The failure of `call`.
pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> SystemError {
    move |errno| SystemError { call, code: errno.raw_os_error() }
}

/// Why a link was not connected to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The segment is another rank's.
    Rank {
        /// The rank asked for.
        asked: Rank,
        /// Whose segment it is.
        found: Rank,
    },
    /// The segment is another job's, or of a job of another size.
    Job {
        /// The peer.
        peer: Rank,
        /// How many ranks its job has.
        theirs: u32,
        /// How many this job has.
        ours: u32,
    },
    /// The link has that peer already: one that was started again is reconnected.
    Connected {
        /// The peer.
        peer: Rank,
    },
    /// The segment is not of a later start than the one that is connected.
    Epoch {
        /// The peer.
        peer: Rank,
        /// The start that is connected.
        connected: u32,
        /// The start that the segment is of.
        offered: u32,
    },
    /// No process of this host laid the segment out, or none that still runs.
    NotRunning {
        /// The peer.
        peer: Rank,
        /// The pid that the segment names.
        pid: u32,
    },
    /// The process of the peer's former start still runs: what it claimed here is its own.
    StillRuns {
        /// The peer.
        peer: Rank,
        /// The former start's process.
        pid: u32,
    },
    /// The completions of the peer could not be laid out.
    Completions(ClaimError),
    /// The system refused.
    System(SystemError),
}

impl From<SystemError> for ConnectError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { asked, found } => {
                write!(f, "the segment is of rank {found}, not of rank {asked}")
            }
            Self::Job { peer, theirs, ours } => write!(
                f,
                "the segment of rank {peer} is of another job ({theirs} ranks; this one has {ours})"
            ),
            Self::Connected { peer } => {
                write!(f, "rank {peer} is connected; after a restart of it, reconnect")
            }
            Self::Epoch { peer, connected, offered } => write!(
                f,
                "rank {peer} is connected as of its start {connected}, and the segment is of start \
                 {offered}: fetch its new one"
            ),
            Self::NotRunning { peer, pid } => write!(
                f,
                "rank {peer} does not run: its segment names pid {pid}, which is not, or no more, \
                 that process here (ranks must share a pid namespace)"
            ),
            Self::StillRuns { peer, pid } => write!(
                f,
                "rank {peer} was started again, and its former process, pid {pid}, still runs or is \
                 stopped: end that first"
            ),
            Self::Completions(error) => error.fmt(f),
            Self::System(error) => write!(f, "cannot watch over the peer: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a job's folder cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderError {
    /// The job's name cannot be a file's.
    Name {
        /// The name.
        name: String,
    },
    /// What is there is not a folder of this user's alone.
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Its owner, and its mode.
        found: (u32, u32),
    },
    /// What is there is not a folder: a file, or a symbolic link.
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Somebody removes the folder, and has not come to an end.
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The system refused.
    System {
        /// On what.
        path: PathBuf,
        /// How.
        error: SystemError,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name } => write!(
                f,
                "a job cannot be called {name:?}: 1 to 64 letters, digits, '-', '_' or '.', the \
                 first of them no '.'"
            ),
            Self::NotOurs { path, found: (owner, mode) } => write!(
                f,
                "{} is of user {owner} with mode {mode:04o}, and must be this user's with 0700: \
                 remove it, or set XDG_RUNTIME_DIR",
                path.display()
            ),
            Self::NotAFolder { path } => {
                write!(f, "{} is not a folder: remove it", path.display())
            }
            Self::Busy { path } => {
                write!(f, "{} is being removed by another process: try again", path.display())
            }
            Self::System { path, error } => refused(f, path, error),
        }
    }
}

impl std::error::Error for FolderError {}

/// Of a file system without room, for all or for this user.
const FULL: [Errno; 2] = [Errno::NOSPC, Errno::DQUOT];

/// That `error` came of what was done to `path`, and what to do.
fn refused(f: &mut fmt::Formatter<'_>, path: &Path, error: &SystemError) -> fmt::Result {
    write!(f, "{}: {error}", path.display())?;
    let is = |errnos: &[Errno]| errnos.iter().any(|errno| errno.raw_os_error() == error.code);
    let why = match () {
        () if is(&FULL) => "free some room there, or",
        () if is(&[Errno::ROFS]) => "it can only be read:",
        () if is(&[Errno::ACCESS, Errno::PERM]) => "it is closed to this user:",
        () if is(&[Errno::NOENT]) => "there is no such folder:",
        () => return Ok(()),
    };
    write!(f, "; {why} set XDG_RUNTIME_DIR to a folder of yours with room and mode 0700")
}

/// Why a file was not handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandoverError {
    /// A socket's path cannot be so long.
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// The most bytes there may be.
        most: usize,
    },
    /// Nobody hands anything over there, and none came within the bound.
    NobodyThere {
        /// The socket.
        path: PathBuf,
        /// How the last attempt failed.
        error: SystemError,
    },
    /// The process that hands over is another user's.
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Its user.
        uid: u32,
    },
    /// The owner closed the connection: the secret is wrong, or it is overrun.
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The owner sent something else than a file.
    Garbage {
        /// The socket.
        path: PathBuf,
    },
    /// The owner did not answer within the bound.
    TimedOut {
        /// The socket.
        path: PathBuf,
    },
    /// The owner has no room for one more connection.
    NoRoom {
        /// The socket.
        path: PathBuf,
    },
    /// The system refused.
    System {
        /// The socket.
        path: PathBuf,
        /// How.
        error: SystemError,
    },
}

impl fmt::Display for HandoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PathTooLong { path, most } => write!(
                f,
                "{} is {} bytes long and a socket's path may have {most}: set XDG_RUNTIME_DIR to a \
                 folder with a shorter path, or give the job a shorter name",
                path.display(),
                path.as_os_str().len()
            ),
            Self::NobodyThere { path, error } => {
                write!(f, "nobody hands a segment over at {}: {error}", path.display())
            }
            Self::Stranger { path, uid } => {
                write!(f, "{} is served by user {uid}, not by this user", path.display())
            }
            Self::Refused { path } => write!(
                f,
                "refused at {}: the secret is another job's, or too many ask at once",
                path.display()
            ),
            Self::Garbage { path } => {
                write!(f, "what came from {} is not a file", path.display())
            }
            Self::TimedOut { path } => {
                write!(f, "no answer from {} within the bound", path.display())
            }
            Self::NoRoom { path } => write!(
                f,
                "the process behind {} has no room for a connection: raise its `ulimit -n`",
                path.display()
            ),
            Self::System { path, error } => refused(f, path, error),
        }
    }
}

impl HandoverError {
    /// Whether a process or its host has to be set up otherwise: to try again does not help.
    pub fn is_of_setup(&self) -> bool {
        match self {
            Self::PathTooLong { .. } | Self::NoRoom { .. } => true,
            Self::System { error, .. } => {
                error.is_limit() || FULL.iter().any(|full| full.raw_os_error() == error.code)
            }
            _ => false,
        }
    }
}

impl std::error::Error for HandoverError {}
