//! What the operating system answered when it refused.

use core::fmt;

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// A system call that failed. Its text says why, and what to do where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemError {
    /// The call.
    pub call: &'static str,
    /// Its errno.
    pub code: i32,
}

impl SystemError {
    pub(crate) fn of(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { call, code: errno.raw_os_error() }
    }

    /// Whether a limit of this process or this machine was met: of open files, of memory or of
    /// threads. To try the same again, or to wait for somebody else, does not help.
    pub fn is_limit(&self) -> bool {
        match self.errno() {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => true,
            Some(Errno::AGAIN) => matches!(self.call, CLONE | "mmap"),
            _ => false,
        }
    }

    /// The errno; none is what came from no system call.
    fn errno(&self) -> Option<Errno> {
        (1..4096).contains(&self.code).then(|| Errno::from_raw_os_error(self.code))
    }

    /// What whoever runs the program can do, where that is known: a text with the limits of this process
    /// as they are now.
    pub fn remedy(&self) -> Option<impl fmt::Display + use<>> {
        Some(match (self.call, self.errno()?) {
            (_, Errno::MFILE) => Remedy::Files(limit(Resource::Nofile)),
            (_, Errno::NFILE) => {
                Remedy::Plain("the system has too many files open: raise `fs.file-max`")
            }
            // A thread without memory for its stack gets the same answer as one too many.
            (CLONE, Errno::AGAIN | Errno::NOMEM) => Remedy::Threads(limit(Resource::As)),
            // All that the program maps is locked, by its own `mlockall`.
            ("mmap", Errno::AGAIN) => Remedy::Locked(limit(Resource::Memlock)),
            ("mmap", Errno::NOMEM) => {
                Remedy::Memory(limit(Resource::As), ", or raise `vm.max_map_count`")
            }
            (_, Errno::NOMEM) => Remedy::Memory(limit(Resource::As), ""),
            (_, Errno::FBIG) if limit(Resource::Fsize).is_some() => {
                Remedy::Plain("a file of this process may not be as long: raise `ulimit -f`")
            }
            _ => return None,
        })
    }
}

/// The call that starts a thread.
const CLONE: &str = "clone";

/// What whoever runs the program can do, and the limits that tell it.
#[derive(Clone, Copy, Debug)]
enum Remedy {
    Plain(&'static str),
    /// The limit of open files.
    Files(Option<u64>),
    /// The limit of the address space, and what else may help.
    Memory(Option<u64>, &'static str),
    /// The limit of what is locked.
    Locked(Option<u64>),
    /// The limit of the address space.
    Threads(Option<u64>),
}

/// The limit of this process; `None` where there is none.
fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Plain(text) => f.write_str(text),
            Self::Files(Some(files)) => {
                write!(f, "the process may have {files} files open: raise `ulimit -n`")
            }
            Self::Files(None) => {
                f.write_str("the process has too many files open: raise `ulimit -n`")
            }
            Self::Memory(None, more) => write!(f, "free memory{more}"),
            Self::Memory(Some(bytes), more) => {
                write!(f, "raise `ulimit -v`, which is {} KiB, or free memory{more}", bytes / 1024)
            }
            Self::Locked(bytes) => {
                f.write_str("`mlockall` has this process lock what it maps, beyond `ulimit -l`")?;
                match bytes {
                    Some(bytes) => write!(f, ", which is {} KiB: raise it", bytes / 1024),
                    None => f.write_str(": raise it"),
                }
            }
            Self::Threads(None) => {
                f.write_str("raise `ulimit -u`, or the limit of the container on processes")
            }
            Self::Threads(Some(bytes)) => write!(
                f,
                "raise `ulimit -v`, which is {} KiB and has to hold the stack of each thread, or \
                 `ulimit -u`",
                bytes / 1024
            ),
        }
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno() {
            Some(errno) => write!(f, "{}: {errno}", self.call)?,
            None => write!(f, "{}: unknown error {}", self.call, self.code)?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl core::error::Error for SystemError {}

#[cfg(test)]
mod tests {
    use super::{Remedy, SystemError};
    use rustix::io::Errno;
    use std::string::ToString;

    #[test]
    fn a_refusal_says_what_failed_why_and_what_to_do() {
        for (call, errno, parts) in [
            ("memfd_create", Errno::MFILE, ["memfd_create", "os error 24", "ulimit -n"]),
            ("mmap", Errno::NOMEM, ["mmap", "os error 12", "free memory"]),
            ("clone", Errno::AGAIN, ["clone", "os error 11", "ulimit -u"]),
            ("mmap", Errno::AGAIN, ["mmap", "os error 11", "ulimit -l"]),
            ("ftruncate", Errno::FBIG, ["ftruncate", "os error 27", ""]),
        ] {
            let text = SystemError::of(call)(errno).to_string();
            for part in parts {
                assert!(text.contains(part), "{text:?} does not say {part:?}");
            }
        }
    }

    #[test]
    fn what_is_no_errno_is_told_all_the_same() {
        for code in [0, -1, 4096, i32::MAX, i32::MIN] {
            let error = SystemError { call: "read", code };
            assert_eq!(error.to_string(), std::format!("read: unknown error {code}"));
            assert!(!error.is_limit());
        }
    }

    #[test]
    fn a_limit_is_named_with_its_value_where_it_is_the_one_that_was_met() {
        for (remedy, said) in [
            (Remedy::Files(Some(20)), "the process may have 20 files open: raise `ulimit -n`"),
            (
                Remedy::Memory(Some(2 << 20), ""),
                "raise `ulimit -v`, which is 2048 KiB, or free memory",
            ),
            (Remedy::Memory(None, ""), "free memory"),
            (
                Remedy::Threads(Some(1 << 20)),
                "raise `ulimit -v`, which is 1024 KiB and has to hold",
            ),
            (
                Remedy::Locked(Some(1 << 20)),
                "`mlockall` has this process lock what it maps, beyond `ulimit -l`, which is 1024 KiB",
            ),
            (Remedy::Threads(None), "raise `ulimit -u`, or the limit of the container"),
        ] {
            let text = remedy.to_string();
            assert!(text.starts_with(said), "{text}");
        }
    }

    #[test]
    fn only_what_waiting_does_not_change_is_a_limit() {
        let is_limit = |call, errno| SystemError::of(call)(errno).is_limit();
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_limit("socket", errno), "{errno}");
        }
        assert!(
            is_limit("clone", Errno::AGAIN)
                && is_limit("mmap", Errno::AGAIN)
                && !is_limit("connect", Errno::AGAIN)
        );
        assert!(!is_limit("connect", Errno::CONNREFUSED));
    }
}
