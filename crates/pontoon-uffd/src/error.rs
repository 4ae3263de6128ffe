//! How reserving, operations on pages and serving fail.

use core::{fmt, ops::Range};

use pontoon_signal::SystemError;
use rustix::io::Errno;

use crate::Feature;

/// The failure of `call`.
pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> SystemError {
    move |errno| SystemError { call, code: errno.raw_os_error() }
}

/// Why a window was not set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// The kernel, or what confines this process, has no userfaultfd for it.
    Unavailable(SystemError),
    /// The kernel lacks something that such a window cannot do without.
    Lacks(Feature),
    /// The kernel lacks something that memory which comes and goes cannot do without, whatever a bare window can.
    Paged(Feature),
    /// A window has at least a page, and fits the addresses there are.
    Size {
        /// What was asked for, in bytes.
        bytes: usize,
    },
    /// An alias is of all of a mapping that has a file.
    NoFile,
    /// The system refused.
    System(SystemError),
}

impl From<SystemError> for ReserveError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(error) => write!(f, "{error}: {}", Feature::Missing.instead()),
            Self::Lacks(feature) => write!(f, "this kernel lacks {feature}"),
            Self::Paged(feature) => write!(
                f,
                "this kernel lacks {} (Linux {}), without which pages of windows cannot come and go; \
                 use a newer kernel, or copy explicitly",
                feature.purpose(),
                feature.since()
            ),
            Self::Size { bytes } => {
                write!(f, "a window of {bytes} bytes: it needs a page at least, and room for it")
            }
            Self::NoFile => f.write_str("an alias is of all of a mapping that has a file"),
            Self::System(error) => write!(f, "a window was not set aside: {error}"),
        }
    }
}

impl core::error::Error for ReserveError {}

/// Why an operation on pages was not done, or not wholly.
///
/// It holds no memory, so that it can be made and dropped while a fault is served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// The pages are not all within the window.
    Outside {
        /// Those that were asked for.
        pages: Range<usize>,
        /// How many the window has.
        window: usize,
    },
    /// This process is a child of the one that has the window.
    Forked,
    /// The source has not as many bytes as the pages.
    Source {
        /// The bytes that it has.
        bytes: usize,
        /// The bytes that the pages have.
        wanted: usize,
    },
    /// The kernel lacks it, or the window was set aside without it.
    Lacks(Feature),
    /// The kernel refused.
    Refused {
        /// The call.
        call: &'static str,
        /// The pages it was for that were not done.
        pages: Range<usize>,
        /// Its errno.
        code: i32,
    },
    /// The kernel asked to try again so often without getting any further that it was given up.
    Stuck {
        /// The call.
        call: &'static str,
        /// The pages it was for that were not done.
        pages: Range<usize>,
        /// How often it was tried.
        tries: u32,
    },
}

impl PageError {
    pub(crate) fn refused(call: &'static str, pages: Range<usize>, errno: Errno) -> Self {
        Self::Refused { call, pages, code: errno.raw_os_error() }
    }

    /// What the kernel's answer means here, where that is known.
    pub fn meaning(&self) -> Option<&'static str> {
        let Self::Refused { call, code, .. } = self else { return None };
        Some(match (*call, Errno::from_raw_os_error(*code)) {
            (_, Errno::NOMEM) => "memory, or the limit of this control group, is used up",
            ("UFFDIO_COPY", Errno::FAULT) => "the source cannot be read: is it an absent page?",
            ("UFFDIO_CONTINUE", Errno::FAULT) => "nothing was ever stored to the page at home",
            ("UFFDIO_MOVE", Errno::NOENT) => {
                "some of the pages are absent: there is nothing to move"
            }
            ("UFFDIO_MOVE", Errno::EXIST) => "the place they are moved to is not empty",
            ("UFFDIO_MOVE", Errno::BUSY) => "another process shares the page: was there a fork?",
            (_, Errno::NOENT | Errno::INVAL) => {
                "the pages are not served any more: were they replaced?"
            }
            ("UFFDIO_POISON", Errno::EXIST) => "a page is there: drop it first",
            (_, Errno::SRCH) => "the process is about to end",
            _ => return None,
        })
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { pages, window } => {
                write!(f, "pages {pages:?} are not within a window of {window}")
            }
            Self::Forked => {
                f.write_str("the window is another process's: a child does not have it")
            }
            Self::Source { bytes, wanted } => {
                write!(f, "the source has {bytes} bytes for pages of {wanted}")
            }
            Self::Lacks(feature) => write!(f, "this kernel lacks {feature}"),
            Self::Refused { call, pages, code } => {
                write!(f, "{call} of pages {pages:?}: {}", Errno::from_raw_os_error(*code))?;
                self.meaning().map_or(Ok(()), |meaning| write!(f, "; {meaning}"))
            }
            Self::Stuck { call, pages, tries } => {
                write!(f, "{call} of pages {pages:?} got no further in {tries} tries")
            }
        }
    }
}

impl core::error::Error for PageError {}

/// Why faults of a window are not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeError {
    /// The window was set aside for the other way of serving.
    OtherService,
    /// Faults of the window are served already.
    Served,
    /// So many windows are served that no more can be found in time.
    Full {
        /// How many there may be.
        windows: usize,
    },
    /// Others took the signal over so often that no more of them can be remembered.
    TakenOver {
        /// How often.
        times: usize,
    },
    /// The system refused.
    System(SystemError),
}

impl From<SystemError> for ServeError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherService => f.write_str(
                "a window of Service::InThread is attached, one of Service::Served has a server",
            ),
            Self::Served => f.write_str("the faults of this window are served already"),
            Self::Full { windows } => {
                write!(
                    f,
                    "{windows} windows are served in their threads, which is all there is \
                           room for: detach one, or use Service::Served"
                )
            }
            Self::TakenOver { times } => {
                write!(
                    f,
                    "SIGBUS or SIGSEGV was taken over {times} times: who else installs a handler?"
                )
            }
            Self::System(error) => write!(f, "faults cannot be served: {error}"),
        }
    }
}

impl core::error::Error for ServeError {}

#[cfg(test)]
mod tests {
    use super::{PageError, ReserveError, ServeError};
    use crate::Feature;
    use rustix::io::Errno;

    #[test]
    fn a_refusal_names_call_pages_errno_and_meaning() {
        let error = PageError::refused("UFFDIO_COPY", 3..5, Errno::FAULT).to_string();
        for part in ["UFFDIO_COPY", "3..5", "os error 14", "absent page"] {
            assert!(error.contains(part), "{error} does not say {part}");
        }
        assert_eq!(PageError::refused("madvise", 0..1, Errno::PERM).meaning(), None);
    }

    #[test]
    fn what_is_lacking_is_told_with_its_remedy() {
        let error = ReserveError::Lacks(Feature::SigBus).to_string();
        assert!(error.contains("4.14") && error.contains("Served"), "{error}");
        assert!(ServeError::Full { windows: 64 }.to_string().contains("64 windows"));
    }
}
