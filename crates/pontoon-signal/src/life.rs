//! Whether a process still runs, from what the kernel tells of it.
//!
//! A look can fail, for want of a descriptor for one, and that says nothing of the process: it is
//! unknown then, and looked at again. Nobody is taken for dead whom the kernel did not call so.

use alloc::format;
use core::fmt;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, open},
    io::{Errno, read, retry_on_intr},
    process::{Pid, PidfdFlags, getpid, pidfd_open},
};

use crate::SystemError;

/// A process of this machine. The pid alone would name whoever gets it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did: field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

/// What a look at a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs, or is stopped and can go on.
    Runs,
    /// It has ended, whether or not somebody waited for it, and will do nothing any more.
    Gone,
    /// The look failed, and another may show it.
    Unknown(SystemError),
}

impl ProcessId {
    /// This process.
    ///
    /// # Errors
    ///
    /// What the kernel says if it does not tell: `/proc` is not mounted.
    pub fn current() -> Result<Self, SystemError> {
        let pid = getpid().as_raw_pid().cast_unsigned();
        Ok(Self { pid, start_time: stat_of(pid)?.start_time })
    }

    /// The process that has `pid` now, or `None` if none runs. One that has ended and that nobody
    /// has waited for runs no more.
    ///
    /// # Errors
    ///
    /// What the kernel says if it does not tell.
    pub fn of(pid: u32) -> Result<Option<Self>, SystemError> {
        Self::by(pid, stat_of(pid))
    }

    /// What the fields of a process tell, or the failure to read them.
    fn by(pid: u32, stat: Result<Stat, SystemError>) -> Result<Option<Self>, SystemError> {
        match stat {
            Ok(stat) if stat.has_ended() => Ok(None),
            Ok(stat) => Ok(Some(Self { pid, start_time: stat.start_time })),
            // Between opening and reading it may end.
            Err(error) if is(&error, Errno::NOENT) || is(&error, Errno::SRCH) => Ok(None),
            // No descriptor or no memory is left here; of the process that says nothing.
            Err(error) => Err(error),
        }
    }

    /// Whether it runs. A successor with the same pid is not it.
    pub fn look(self) -> Life {
        match Self::of(self.pid) {
            Ok(Some(found)) if found == self => Life::Runs,
            Ok(_) => Life::Gone,
            Err(error) => Life::Unknown(error),
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}", self.pid)
    }
}

/// A process that is looked at again and again, by a descriptor (pidfd) as soon as there is one.
///
/// Invariant V1: `pidfd` is of the process itself and not of a successor of its pid: it was open when
/// the start time was found right.
#[derive(Debug)]
pub struct Vigil {
    process: ProcessId,
    pidfd: Option<OwnedFd>,
}

impl Vigil {
    /// Nobody has looked yet.
    pub fn over(process: ProcessId) -> Self {
        Self { process, pidfd: None }
    }

    /// Looks. Neither waits nor needs a descriptor more, once there is [one](Self::pidfd).
    pub fn look(&mut self) -> Life {
        if let Some(pidfd) = &self.pidfd {
            return look_at(pidfd);
        }
        // Before the start time is read (V1).
        let pid = i32::try_from(self.process.pid).ok().and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let life = self.process.look();
        if life == Life::Runs {
            self.pidfd = pidfd;
        }
        life
    }

    /// What becomes readable when the process has ended. `None` before the first look that showed it
    /// running, and where the kernel or a sandbox gives none: looks at some pace are left then.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }
}

fn look_at(pidfd: &OwnedFd) -> Life {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match retry_on_intr(|| poll(&mut fds, Some(&at_once))) {
        Ok(0) => Life::Runs,
        Ok(_) => Life::Gone,
        Err(errno) => Life::Unknown(SystemError::of("poll")(errno)),
    }
}

fn is(error: &SystemError, errno: Errno) -> bool {
    error.code == errno.raw_os_error()
}

/// What of `/proc/PID/stat` tells life from death (`man 5 proc_pid_stat`).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    threads: i64,
    start_time: u64,
}

fn stat_of(pid: u32) -> Result<Stat, SystemError> {
    let path = format!("/proc/{pid}/stat");
    let file = retry_on_intr(|| open(&*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
        .map_err(SystemError::of("open"))?;
    // The fields that count are within the first 64 bytes for the name and 22 numbers.
    let mut text = [0; 1024];
    let bytes = retry_on_intr(|| read(&file, &mut text)).map_err(SystemError::of("read"))?;
    Stat::parse(&text[..bytes]).ok_or(SystemError::of("read")(Errno::ILSEQ))
}

impl Stat {
    /// The name of the program, field 2, may hold spaces, parentheses and line ends; so fields are
    /// counted from the last parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|&byte| byte == b')')?;
        let rest = core::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        // The first of these is field 3.
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let threads = fields.nth(16)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        Some(Self { state, threads, start_time })
    }

    /// A first thread that ended before the others is a zombie too, of a process that runs.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::{Errno, Life, ProcessId, Stat, SystemError, Vigil};
    use std::{format, process::Command};

    const TAIL: &str = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 17 0 4242 1 2 3";

    #[test]
    fn a_name_may_hold_anything() {
        for name in ["cat", "a b", "x) S 1 (y", "new\nline) Z 9", ") ) )", "\u{fffd}"] {
            let text = format!("77 ({name}) {TAIL}");
            let stat = Stat::parse(text.as_bytes()).unwrap();
            assert_eq!(stat, Stat { state: b'S', threads: 17, start_time: 4242 }, "{name:?}");
        }
        let text = format!("77 (cat) {TAIL}");
        for end in 0..text.len() - " 4242 1 2 3".len() {
            assert_eq!(Stat::parse(&text.as_bytes()[..end]), None, "{:?}", &text[..end]);
        }
    }

    #[test]
    fn a_zombie_has_ended_unless_threads_of_it_run() {
        let stat = |state, threads| Stat { state, threads, start_time: 1 };
        assert!(stat(b'Z', 1).has_ended() && stat(b'X', 0).has_ended());
        assert!(!stat(b'Z', 2).has_ended() && !stat(b'T', 1).has_ended());
    }

    #[test]
    fn only_what_says_so_ends_a_process() {
        let by = |stat| ProcessId::by(77, stat).map(|found| found.is_some());
        let failed = |errno| by(Err(SystemError::of("open")(errno)));
        for errno in [Errno::NOENT, Errno::SRCH] {
            assert_eq!(failed(errno), Ok(false), "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::ILSEQ] {
            assert!(failed(errno).is_err(), "{errno}");
        }
        let stat = |state| Ok(Stat { state, threads: 1, start_time: 4242 });
        assert_eq!((by(stat(b'S')), by(stat(b'Z'))), (Ok(true), Ok(false)));
    }

    #[test]
    fn this_process_runs_and_no_other_has_its_start_time() {
        let me = ProcessId::current().unwrap();
        assert_eq!(ProcessId::of(std::process::id()), Ok(Some(me)));
        assert_eq!(me.look(), Life::Runs);
        let other = ProcessId { start_time: me.start_time + 1, ..me };
        assert_eq!((other.look(), Vigil::over(other).look()), (Life::Gone, Life::Gone));
        assert_eq!(ProcessId::of(u32::MAX), Ok(None));
    }

    #[test]
    fn an_end_is_seen_before_anybody_waited_for_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap().unwrap();
        let mut vigil = Vigil::over(process);
        assert_eq!((vigil.look(), process.look()), (Life::Runs, Life::Runs));
        child.kill().unwrap();
        let start = std::time::Instant::now();
        while vigil.look() != Life::Gone || process.look() != Life::Gone {
            assert!(start.elapsed().as_secs() < 60, "a killed process still runs: {vigil:?}");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!((vigil.look(), process.look()), (Life::Gone, Life::Gone));
    }
}
