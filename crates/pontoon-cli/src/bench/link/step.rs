//! What the two ranks of a measurement do next, as one word.

/// What both ranks do next. Rank 0 begins each trip and takes the time; rank 1 answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Sends a pattern each way and compares what arrived.
    Verify { bytes: u32 },
    /// A put and its signal there, and the same back. The time of a block of trips.
    Put { bytes: u32, trips: u32 },
    /// The same, each trip timed by itself.
    PutEach { bytes: u32, trips: u32 },
    /// A bare copy and a release store to another line, there and back, without a protocol.
    Raw { bytes: u32, trips: u32 },
    /// A release store there and back.
    Flag { trips: u32 },
    /// A bare copy within rank 0.
    Copy { bytes: u32, times: u32 },
    /// Puts one after the other, then a flush.
    Stream { bytes: u32, puts: u32 },
    /// Both wait for so long for what never comes.
    Idle { ms: u32 },
    /// Both leave.
    End,
}

/// The most trips of a step: what its word has room for.
const COUNT_BITS: u32 = 24;

impl Step {
    /// ```text
    ///  bit 63      56 55        32 31         0
    ///      +---------+------------+------------+
    ///      |  kind   |   count    |   bytes    |
    ///      +---------+------------+------------+
    /// ```
    pub(super) fn word(self) -> u64 {
        let (kind, count, bytes) = match self {
            Self::Verify { bytes } => (1, 0, bytes),
            Self::Put { bytes, trips } => (2, trips, bytes),
            Self::PutEach { bytes, trips } => (3, trips, bytes),
            Self::Raw { bytes, trips } => (4, trips, bytes),
            Self::Flag { trips } => (5, trips, 0),
            Self::Copy { bytes, times } => (6, times, bytes),
            Self::Stream { bytes, puts } => (7, puts, bytes),
            Self::Idle { ms } => (8, ms, 0),
            Self::End => (9, 0, 0),
        };
        debug_assert!(count < 1 << COUNT_BITS, "{self:?}");
        kind << 56 | u64::from(count) << 32 | u64::from(bytes)
    }

    /// The step of a word; `None` if there is none.
    pub(super) fn of(word: u64) -> Option<Self> {
        let bytes = word as u32;
        let count = (word >> 32) as u32 & ((1 << COUNT_BITS) - 1);
        Some(match word >> 56 {
            1 => Self::Verify { bytes },
            2 => Self::Put { bytes, trips: count },
            3 => Self::PutEach { bytes, trips: count },
            4 => Self::Raw { bytes, trips: count },
            5 => Self::Flag { trips: count },
            6 => Self::Copy { bytes, times: count },
            7 => Self::Stream { bytes, puts: count },
            8 => Self::Idle { ms: count },
            9 => Self::End,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn a_word_is_a_step_and_back() {
        let (bytes, most) = (4 << 20, (1 << 24) - 1);
        for step in [
            Step::Verify { bytes },
            Step::Put { bytes, trips: most },
            Step::PutEach { bytes, trips: 1 },
            Step::Raw { bytes, trips: most },
            Step::Flag { trips: 100 },
            Step::Copy { bytes: u32::MAX, times: most },
            Step::Stream { bytes, puts: 7 },
            Step::Idle { ms: 2000 },
            Step::End,
        ] {
            assert_eq!(Step::of(step.word()), Some(step));
        }
        assert_eq!((Step::of(0), Step::of(u64::MAX)), (None, None));
    }
}
