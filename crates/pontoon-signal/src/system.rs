//! What the operating system answered when it refused.

use core::fmt;

use rustix::io::Errno;

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

    /// What whoever runs the program can do.
    fn remedy(&self) -> Option<&'static str> {
        match (self.call, Errno::from_raw_os_error(self.code)) {
            (_, Errno::MFILE) => Some("the process has too many files open: raise `ulimit -n`"),
            (_, Errno::NFILE) => Some("the system has too many files open: raise `fs.file-max`"),
            ("mmap", Errno::NOMEM) => {
                Some("free memory, or raise `ulimit -v` or `vm.max_map_count`")
            }
            (_, Errno::NOMEM) => Some("free memory"),
            ("clone", Errno::AGAIN) => {
                Some("raise `ulimit -u`, or the limit of the container on processes")
            }
            _ => None,
        }
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, Errno::from_raw_os_error(self.code))?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl core::error::Error for SystemError {}

#[cfg(test)]
mod tests {
    use super::SystemError;
    use rustix::io::Errno;
    use std::string::ToString;

    #[test]
    fn a_refusal_says_what_failed_why_and_what_to_do() {
        for (call, errno, parts) in [
            ("memfd_create", Errno::MFILE, ["memfd_create", "os error 24", "ulimit -n"]),
            ("mmap", Errno::NOMEM, ["mmap", "os error 12", "free memory"]),
            ("clone", Errno::AGAIN, ["clone", "os error 11", "ulimit -u"]),
            ("ftruncate", Errno::FBIG, ["ftruncate", "os error 27", ""]),
        ] {
            let text = SystemError::of(call)(errno).to_string();
            for part in parts {
                assert!(text.contains(part), "{text:?} does not say {part:?}");
            }
        }
    }
}
