//! Accesses that go on in equal steps, as misses show them.

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

/// Runs of accesses that are followed at the same time.
const STREAMS: usize = 8;
/// A step of more pages is none.
const STEP_MAX: i64 = 512;

/// One run, in a word: the page of the next miss, the step, how many pages were fetched at the last miss, and
/// whether it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    next: i64,
    step: i64,
    depth: u8,
}

impl Stream {
    const IS_ONE: u64 = 1 << 63;

    fn of(word: u64) -> Option<Self> {
        (word & Self::IS_ONE != 0).then_some(Self {
            next: i64::from(word as u32),
            step: i64::from((word >> 32) as u16 as i16),
            depth: (word >> 48 & 0x7F) as u8,
        })
    }

    fn word(self) -> u64 {
        let step = u64::from(self.step as i16 as u16);
        Self::IS_ONE | u64::from(self.depth & 0x7F) << 48 | step << 32 | u64::from(self.next as u32)
    }

    /// The page of the miss before.
    fn last(self) -> i64 {
        self.next - self.step * i64::from(self.depth)
    }
}

/// What to fetch at a miss: so many pages, in such steps, the missed one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) step: i64,
    pub(crate) depth: usize,
}

/// The runs of a window. Which one a miss belongs to is a guess, and threads may spoil each other's: that costs
/// a fetch, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [AtomicU64; STREAMS],
    turn: AtomicU64,
}

impl Streams {
    /// A miss: what is worth fetching with it, at most `most` pages. At each miss where one was expected it is
    /// twice as much.
    pub(crate) fn missed(&self, page: usize, most: usize) -> Ahead {
        let (alone, at) = (Ahead { step: 1, depth: 1 }, page as i64);
        let mut near = None;
        for (index, word) in self.streams.iter().enumerate() {
            let Some(stream) = Stream::of(word.load(Relaxed)) else { continue };
            if stream.next == at {
                let depth = (usize::from(stream.depth) * 2).clamp(1, most.clamp(1, 64));
                let next = at + stream.step * depth as i64;
                self.set(index, Stream { next, depth: depth as u8, ..stream });
                return Ahead { step: stream.step, depth };
            }
            let step = at - stream.last();
            if step != 0 && step.abs() <= STEP_MAX {
                near = near.or(Some((index, step)));
            }
        }
        let (index, step) = near
            .unwrap_or_else(|| ((self.turn.fetch_add(1, Relaxed) % STREAMS as u64) as usize, 1));
        self.set(index, Stream { next: at + step, step, depth: 1 });
        alone
    }

    fn set(&self, index: usize, stream: Stream) {
        self.streams[index].store(stream.word(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, Streams};

    /// Which pages miss, of accesses in that order, if all that is fetched stays.
    fn misses(accesses: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let (streams, mut there, mut missed) =
            (Streams::default(), std::collections::HashSet::new(), vec![]);
        for page in accesses {
            if !there.contains(&page) {
                missed.push(page);
                let Ahead { step, depth } = streams.missed(page, 64);
                there.extend((0..depth as i64).map(|k| (page as i64 + k * step) as usize));
            }
        }
        missed
    }

    #[test]
    fn what_goes_on_in_steps_misses_ever_less() {
        for step in [1, 2, 7, 300] {
            let missed = misses((0..1000).map(|k| 5000 + k * step));
            assert!(missed.len() <= 25, "step {step}: {missed:?}");
        }
        let missed = misses((0..1000).rev().map(|k| 5000 + k));
        assert!(missed.len() <= 25, "backwards: {missed:?}");
    }

    #[test]
    fn two_runs_at_once_are_two() {
        let missed = misses((0..500).flat_map(|k| [k, 100_000 + 3 * k]));
        assert!(missed.len() <= 50, "{missed:?}");
    }

    #[test]
    fn what_is_nowhere_near_is_fetched_alone() {
        let (streams, mut page, mut fetched) = (Streams::default(), 1_usize, 0);
        for _ in 0..1000 {
            page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            fetched += streams.missed(page >> 36, 64).depth;
        }
        assert!(fetched <= 1010, "{fetched}");
    }

    #[test]
    fn no_more_is_fetched_than_was_asked_for() {
        let streams = Streams::default();
        let mut page = 0;
        for _ in 0..20 {
            let Ahead { step, depth } = streams.missed(page, 5);
            assert!((1..=5).contains(&depth));
            page = (page as i64 + step * depth as i64) as usize;
        }
    }
}
