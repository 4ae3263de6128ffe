//! What the client of a measurement does next, as one word.

/// How bytes of another rank come to where they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By a read into memory of this rank, and a copy from there.
    Copy,
    /// By a read to where they are used.
    Remote,
    /// By plain loads from a window.
    Smc,
    /// Not at all: they are memory of this rank.
    Memory,
    /// By plain loads from a window that is read only.
    ReadOnly,
}

impl How {
    pub(crate) const ALL: [Self; 4] = [Self::Copy, Self::Remote, Self::Smc, Self::Memory];
    /// Each, by the number that it has in a word.
    const EACH: [Self; 5] = [Self::Copy, Self::Remote, Self::Smc, Self::Memory, Self::ReadOnly];
    /// Those that fetch.
    pub(crate) const FETCH: [Self; 3] = [Self::Copy, Self::Remote, Self::Smc];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Remote => "remote",
            Self::Smc => "smc",
            Self::Memory => "memory",
            Self::ReadOnly => "read_only",
        }
    }
}

/// What the client does next. It gives nanoseconds, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads all, and compares it with what home was filled with.
    Verify,
    /// Touches so many pages at random, none of which is here. A page.
    Miss { pages: u32 },
    /// The same of a window that has nothing but the kernel's part.
    Bare { pages: u32 },
    /// Reads so many pages in order. A page.
    Prefetch { pages: u32 },
    /// The same from a window that is read only. A page.
    PrefetchReadOnly { pages: u32 },
    /// Releases so many pages, each with 64 bytes that changed. A page.
    Release { pages: u32 },
    /// Copies as many bytes to the same places of home. A page.
    Place { pages: u32 },
    /// As `Release`: bytes that were sent, over those that changed.
    Sent { pages: u32 },
    /// Four threads that change lines of one page, and release each, so often. As `Sent`.
    Share { times: u32 },
    /// Acquires so many pages that have not changed. A page.
    Acquire { pages: u32 },
    /// Reads 4 MiB.
    Bulk(How),
    /// Reads 64 bytes at each of so many places, of which none is here. A place.
    Cold { how: How, places: u32 },
    /// The same again. A place.
    Warm { how: How, places: u32 },
    /// So many steps of a program over all of the memory, in a small pool. How often memory was registered meanwhile.
    Steps { steps: u32 },
    /// A window of 1 TiB, with so many resident pages in runs of so many. Memory taken, over what they are.
    Memory { pages: u32, run: u16 },
    /// Both leave.
    End,
}

impl Step {
    /// ```text
    ///  bit 63      56 55   48 47       32 31         0
    ///      +---------+-------+-----------+------------+
    ///      |  kind   |  how  |    run    |   count    |
    ///      +---------+-------+-----------+------------+
    /// ```
    pub(crate) fn word(self) -> u64 {
        let (kind, how, run, count) = match self {
            Self::Verify => (1, How::Copy, 0, 0),
            Self::Miss { pages } => (2, How::Copy, 0, pages),
            Self::Bare { pages } => (3, How::Copy, 0, pages),
            Self::Prefetch { pages } => (4, How::Copy, 0, pages),
            Self::Release { pages } => (5, How::Copy, 0, pages),
            Self::Place { pages } => (6, How::Copy, 0, pages),
            Self::Sent { pages } => (7, How::Copy, 0, pages),
            Self::Share { times } => (8, How::Copy, 0, times),
            Self::Acquire { pages } => (9, How::Copy, 0, pages),
            Self::Bulk(how) => (10, how, 0, 0),
            Self::Cold { how, places } => (11, how, 0, places),
            Self::Warm { how, places } => (12, how, 0, places),
            Self::Steps { steps } => (13, How::Copy, 0, steps),
            Self::Memory { pages, run } => (14, How::Copy, run, pages),
            Self::End => (15, How::Copy, 0, 0),
            Self::PrefetchReadOnly { pages } => (16, How::Copy, 0, pages),
        };
        kind << 56 | (how as u64) << 48 | u64::from(run) << 32 | u64::from(count)
    }

    /// The step of a word; `None` if there is none.
    pub(crate) fn of(word: u64) -> Option<Self> {
        let count = word as u32;
        let run = (word >> 32) as u16;
        let how = *How::EACH.get((word >> 48) as usize & 0xFF)?;
        Some(match word >> 56 {
            1 => Self::Verify,
            2 => Self::Miss { pages: count },
            3 => Self::Bare { pages: count },
            4 => Self::Prefetch { pages: count },
            5 => Self::Release { pages: count },
            6 => Self::Place { pages: count },
            7 => Self::Sent { pages: count },
            8 => Self::Share { times: count },
            9 => Self::Acquire { pages: count },
            10 => Self::Bulk(how),
            11 => Self::Cold { how, places: count },
            12 => Self::Warm { how, places: count },
            13 => Self::Steps { steps: count },
            14 => Self::Memory { pages: count, run },
            15 => Self::End,
            16 => Self::PrefetchReadOnly { pages: count },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{How, Step};

    #[test]
    fn a_word_is_a_step_and_back() {
        let most = u32::MAX;
        for step in [
            Step::Verify,
            Step::Miss { pages: 1 },
            Step::Bare { pages: most },
            Step::Prefetch { pages: 3 },
            Step::Release { pages: 4 },
            Step::Place { pages: 5 },
            Step::Sent { pages: 6 },
            Step::Share { times: 7 },
            Step::Acquire { pages: 8 },
            Step::Bulk(How::Smc),
            Step::Bulk(How::ReadOnly),
            Step::PrefetchReadOnly { pages: most },
            Step::Cold { how: How::Remote, places: most },
            Step::Warm { how: How::Memory, places: 9 },
            Step::Steps { steps: 10_000 },
            Step::Memory { pages: most, run: u16::MAX },
            Step::End,
        ] {
            assert_eq!(Step::of(step.word()), Some(step));
        }
        assert_eq!((Step::of(0), Step::of(u64::MAX)), (None, None));
    }
}
