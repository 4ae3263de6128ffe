//! How calls fail.

use core::{error, fmt, ops::Range};
use std::time::Duration;

use pontoon_hal::{link::LinkError, paging::PagingError};
use pontoon_signal::{Rank, SystemError};

/// Why a pool or a window could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// A pool has at least 64 pages, and 16,777,216 at most.
    Pages {
        /// What was asked for.
        asked: usize,
    },
    /// A window has 1,073,741,824 pages at most.
    TooLarge {
        /// What was asked for.
        pages: usize,
    },
    /// A pool has 64 windows at most at the same time, and those that are being closed are not closed yet.
    Windows,
    /// The pages have a window of the pool already, or some of them.
    Twice {
        /// The addresses of the new one.
        new: Range<usize>,
        /// Those of the other.
        other: Range<usize>,
    },
    /// An extent lies outside its window, is empty, or does not begin and end with a page.
    Extent {
        /// Its bytes in the window.
        asked: Range<usize>,
        /// The window's size in bytes.
        bytes: usize,
    },
    /// Two extents of a window have pages in common.
    Overlap {
        /// The bytes of the one.
        one: Range<usize>,
        /// The bytes of the other.
        other: Range<usize>,
    },
    /// An extent is longer than what its home has from there on.
    Short {
        /// Whose memory it is.
        home: Rank,
        /// The bytes that it was to have there.
        asked: Range<usize>,
        /// Those that there are.
        bytes: usize,
    },
    /// A home can be reached only from threads of its own, and the window is served where its accesses fault.
    InHandler {
        /// Whose memory it is.
        home: Rank,
    },
    /// The kernel has no memory for the tables, or no thread.
    System(SystemError),
    /// The link does not take the pool's memory.
    Link(LinkError),
    /// The kernel does not make the pages of an extent read only.
    Paging(PagingError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages { asked } => {
                write!(f, "a pool of {}; it has 64 to 16777216", Counted(*asked as u64))
            }
            Self::TooLarge { pages } => {
                write!(f, "a window of {pages} pages; it has 1073741824 at most")
            }
            Self::Windows => f.write_str(
                "a pool has 64 windows at most at the same time, and this one has; drop one, with who serves it, or \
                 open another pool",
            ),
            Self::Twice { new, other } => write!(
                f,
                "a window at {:#x} to {:#x} over another of the pool at {:#x} to {:#x}; \
                 pages have one window: reserve others, or use that one",
                new.start, new.end, other.start, other.end
            ),
            Self::Extent { asked, bytes } => write!(
                f,
                "bytes {} to {} are no whole pages of a window of {bytes} bytes",
                asked.start, asked.end
            ),
            Self::Overlap { one, other } => write!(
                f,
                "bytes {} to {} and {} to {} of a window are both mapped, and have some in common",
                one.start, one.end, other.start, other.end
            ),
            Self::Short { home, asked, bytes } => write!(
                f,
                "bytes {} to {} of the region of rank {}, which has {bytes}",
                asked.start, asked.end, home.0
            ),
            Self::InHandler { home } => write!(
                f,
                "rank {} cannot be reached from a signal handler; serve the window by threads",
                home.0
            ),
            Self::System(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Paging(error) => error.fmt(f),
        }
    }
}

/// So many pages.
struct Counted(u64);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} page{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl error::Error for OpenError {}

impl From<PagingError> for OpenError {
    fn from(error: PagingError) -> Self {
        Self::Paging(error)
    }
}

impl From<SystemError> for OpenError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

impl From<LinkError> for OpenError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

/// Why a call on a window failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SmcError {
    /// It asks for bytes that no extent has.
    OutOfRange {
        /// The bytes.
        asked: Range<usize>,
        /// The window's size in bytes.
        bytes: usize,
    },
    /// A typed access is not aligned.
    Misaligned {
        /// Where it is in the window.
        offset: usize,
    },
    /// So many pages cannot be here at the same time.
    TooMany {
        /// What was asked for.
        pages: usize,
        /// Half of the pool, less those that other calls keep here.
        most: usize,
    },
    /// A home did not answer in time.
    TimedOut {
        /// Whose memory it is.
        home: Rank,
        /// The bytes of the window that are concerned; what this side wrote there is kept.
        bytes: Range<usize>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// What calls send from and read into was with others all the time, on homes that are slow or do not answer.
    NoStage {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The bytes got another home meanwhile: what was asked for may have been done at the former one alone.
    Moved {
        /// Whose memory they are now.
        home: Rank,
        /// The bytes of the window that are concerned.
        bytes: Range<usize>,
    },
    /// A home is not to be had, and there is no other for these bytes: accesses read the pattern.
    Unavailable {
        /// Whose memory it is.
        home: Rank,
        /// The bytes of the window that are concerned.
        bytes: Range<usize>,
        /// Pages of them that hold the pattern.
        poisoned: u64,
    },
    /// Stores to some of the bytes are written through already.
    Twice {
        /// The bytes, by whole pages.
        asked: Range<usize>,
        /// Those that are.
        other: Range<usize>,
    },
    /// Other calls of this process were at the pages of a window all the time. If it is their home that they wait for, they
    /// say so.
    Occupied {
        /// The bytes.
        bytes: Range<usize>,
        /// How long it was waited for them.
        waited: Duration,
    },
    /// The bytes are of an extent that keeps nothing here, and the access would.
    Uncached {
        /// The bytes of that extent.
        bytes: Range<usize>,
    },
    /// The bytes are of an extent that was opened to be read only.
    ReadOnly {
        /// The bytes of that extent.
        bytes: Range<usize>,
    },
    /// The link to a home cannot do what it takes.
    Unable {
        /// Whose memory it is.
        home: Rank,
        /// The link's name.
        link: &'static str,
        /// What it cannot, and why.
        what: &'static str,
        /// What can be done instead.
        instead: &'static str,
    },
    /// The link failed.
    Link(LinkError),
    /// The kernel failed.
    Paging(PagingError),
}

impl fmt::Display for SmcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { asked, bytes } => write!(
                f,
                "bytes {} to {} are not mapped in a window of {bytes} bytes",
                asked.start, asked.end
            ),
            Self::Misaligned { offset } => {
                write!(f, "byte {offset} of a window is no place for a value of that size")
            }
            Self::TooMany { pages, most } => write!(
                f,
                "{} of a window cannot be held here at the same time; {most} can: half of the pool, \
                 less what other calls keep here",
                Counted(*pages as u64)
            ),
            Self::TimedOut { home, bytes, waited } => write!(
                f,
                "rank {} did not answer within {waited:?} for bytes {} to {} of a window; \
                 what was written there is kept, release it again",
                home.0, bytes.start, bytes.end
            ),
            Self::NoStage { waited } => write!(
                f,
                "no stage of the pool came free within {waited:?}: calls on other homes have them; what was written \
                 is kept, call again"
            ),
            Self::Moved { home, bytes } => write!(
                f,
                "bytes {} to {} of a window are at rank {} now, and what was on its way may be at their former home \
                 alone; store it again",
                bytes.start, bytes.end, home.0
            ),
            Self::Unavailable { home, bytes, poisoned } => write!(
                f,
                "rank {}, home of bytes {} to {} of a window, is unavailable, and the pattern is in {} of \
                 them; heal the window once it is back",
                home.0,
                bytes.start,
                bytes.end,
                Counted(*poisoned)
            ),
            Self::Twice { asked, other } => write!(
                f,
                "bytes {} to {} of a window were to be written through, and bytes {} to {} are already; \
                 use that range, or drop it first",
                asked.start, asked.end, other.start, other.end
            ),
            Self::Occupied { bytes, waited } => write!(
                f,
                "other calls of this process were at the window with bytes {} to {} for {waited:?}; \
                 call again with a longer bound, or when they are over",
                bytes.start, bytes.end
            ),
            Self::Uncached { bytes } => write!(
                f,
                "bytes {} to {} of a window are uncached, and have no page here; \
                 read and write them by cells and slices",
                bytes.start, bytes.end
            ),
            Self::ReadOnly { bytes } => write!(
                f,
                "bytes {} to {} of a window are an extent that is read only; \
                 write at home, or open it without Extent::read_only",
                bytes.start, bytes.end
            ),
            Self::Unable { home, link, what, instead } => {
                write!(f, "no {what}, over {link} to rank {}; {instead}", home.0)
            }
            Self::Link(error) => error.fmt(f),
            Self::Paging(error) => error.fmt(f),
        }
    }
}

impl error::Error for SmcError {}

impl From<LinkError> for SmcError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<PagingError> for SmcError {
    fn from(error: PagingError) -> Self {
        Self::Paging(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, SmcError};
    use pontoon_signal::Rank;

    #[test]
    fn one_page_is_no_pages() {
        let unavailable = |poisoned| {
            SmcError::Unavailable { home: Rank(3), bytes: 0..4096, poisoned }.to_string()
        };
        assert!(unavailable(1).contains("the pattern is in 1 page of them"), "{}", unavailable(1));
        assert!(unavailable(2).contains("in 2 pages of them"), "{}", unavailable(2));
        let pool = OpenError::Pages { asked: 1 }.to_string();
        assert!(pool.starts_with("a pool of 1 page;"), "{pool}");
    }
}
