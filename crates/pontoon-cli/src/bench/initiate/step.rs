//! What the two ranks of a measurement do next, as one word.

use pontoon::signal::TunedRing;

/// Who sends a message, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    /// The kernel, by stores in the peer's memory.
    Direct,
    /// The kernel, by a task for the proxy.
    Ring,
    /// The kernel, as the port was made.
    Auto,
    /// The host, once the kernel has ended.
    Host,
    /// The kernel, by firing what the host prepared.
    Triggered,
}

impl Led {
    pub(crate) const ALL: [Self; 5] =
        [Self::Direct, Self::Ring, Self::Auto, Self::Host, Self::Triggered];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::Auto => "auto",
            Self::Host => "host",
            Self::Triggered => "triggered",
        }
    }
}

/// What rank 0 knows of what it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nanoseconds of processor time that each message of the last step took its process.
    Cpu,
    /// Percent of the proxy's rounds that were busy, of those since this was asked last.
    Use,
    /// The deepest queue so far.
    Depth,
}

impl Before {
    const ALL: [Self; 3] = [Self::Cpu, Self::Use, Self::Depth];
}

/// What both ranks do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Messages from rank 0, each once the one before was seen. Nanoseconds one way, the median.
    Messages { led: Led, bytes: u32, count: u32 },
    /// Messages, so many under way at a time. How many a second.
    Load { led: Led, bytes: u32, count: u32 },
    /// Puts of 8 bytes by the proxy. Nanoseconds from the first until all are done.
    Puts { puts: u32 },
    /// Puts of so many bytes over rings like these. Nanoseconds from the first until all are done.
    Rings { ring: TunedRing, bytes: u32 },
    /// A wait through a proxy that is gone. Nanoseconds beyond its bound.
    DeadProxy,
    /// Nothing; rank 0 tells.
    Ask(Before),
    /// Both leave.
    End,
}

/// The most messages of a step: what its word has room for.
const COUNT_BITS: u32 = 20;

impl Step {
    /// ```text
    ///  bit 63      56 55     52 51        32 31         0
    ///      +---------+---------+------------+------------+
    ///      |  kind   |  which  |   count    |   bytes    |
    ///      +---------+---------+------------+------------+
    /// ```
    /// The count of rings is the powers of two of their depth and batch, then their number.
    pub(crate) fn word(self) -> u64 {
        let (kind, which, count, bytes) = match self {
            Self::Messages { led, bytes, count } => (1, led as u64, count, bytes),
            Self::Load { led, bytes, count } => (2, led as u64, count, bytes),
            Self::Puts { puts } => (3, 0, 0, puts),
            Self::DeadProxy => (4, 0, 0, 0),
            Self::Ask(before) => (5, before as u64, 0, 0),
            Self::End => (6, 0, 0, 0),
            Self::Rings { ring: TunedRing { depth, batch, rings }, bytes } => {
                let powers = depth.trailing_zeros() << 5 | batch.trailing_zeros();
                (7, 0, powers << 7 | rings, bytes)
            }
        };
        debug_assert!(count < 1 << COUNT_BITS, "{self:?}");
        kind << 56 | which << 52 | u64::from(count) << 32 | u64::from(bytes)
    }

    /// The step of a word; `None` if there is none.
    pub(crate) fn of(word: u64) -> Option<Self> {
        let bytes = word as u32;
        let count = (word >> 32) as u32 & ((1 << COUNT_BITS) - 1);
        let which = (word >> 52) as usize & 0xf;
        let led = || Led::ALL.get(which).copied();
        Some(match word >> 56 {
            1 => Self::Messages { led: led()?, bytes, count },
            2 => Self::Load { led: led()?, bytes, count },
            3 => Self::Puts { puts: bytes },
            4 => Self::DeadProxy,
            5 => Self::Ask(*Before::ALL.get(which)?),
            6 => Self::End,
            7 => {
                let power = |at: u32| 1 << (count >> at & 0x1f);
                let ring = TunedRing { depth: power(12), batch: power(7), rings: count & 0x7f };
                Self::Rings { ring, bytes }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_step_and_back() {
        let (bytes, count) = (64 << 20, (1 << 20) - 1);
        for led in Led::ALL {
            for step in [Step::Messages { led, bytes, count }, Step::Load { led, bytes, count: 1 }]
            {
                assert_eq!(Step::of(step.word()), Some(step));
            }
        }
        for step in Before::ALL.map(Step::Ask) {
            assert_eq!(Step::of(step.word()), Some(step));
        }
        for ring in [
            TunedRing { depth: 4096, batch: 128, rings: 64 },
            TunedRing { depth: 64, batch: 1, rings: 1 },
        ] {
            let step = Step::Rings { ring, bytes };
            assert_eq!(Step::of(step.word()), Some(step));
        }
        for step in [Step::Puts { puts: u32::MAX }, Step::DeadProxy, Step::End] {
            assert_eq!(Step::of(step.word()), Some(step));
        }
        assert_eq!(
            (Step::of(0), Step::of(u64::MAX), Step::of(1 << 56 | 9 << 52)),
            (None, None, None)
        );
    }
}
