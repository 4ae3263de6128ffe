//! Which way a call takes where there are two: by what both cost so far.
//!
//! Calls are put in classes by size. In each class one call in [`EXPLORE`] takes the other way, so that what
//! is known stays true; one in [`SAMPLE`] is timed, from the call until its bytes may be used again. Of two times
//! in a row the shorter counts: a thread that lost its processor once says nothing of the way. The
//! other way is chosen once it was cheaper by a tenth, so that two of the same cost do not alternate. A call by
//! the ring whose ticket is waited for when it is done already teaches nothing, for nobody saw when it was.

use core::fmt;

use pontoon_signal::shim::{AtomicU64, Ordering::*};

use crate::Mode;

/// Sizes from 8 B on, each eight times the one before; the last has all that is larger.
const CLASSES: usize = 9;
/// One in so many calls takes the other way.
const EXPLORE: u64 = 256;
/// One in so many calls is timed.
const SAMPLE: u64 = 32;
/// How much the newest time counts: an eighth.
const WEIGHT: u64 = 8;

/// What is known of one size.
#[derive(Debug, Default)]
struct Class {
    calls: AtomicU64,
    /// Nanoseconds that a call took, by mode; 0 is not known.
    cost: [AtomicU64; 2],
    /// The last time that a call took, by mode.
    last: [AtomicU64; 2],
    /// Whether the ring is the better way.
    ring: AtomicU64,
}

/// The costs of both ways to one peer, as its ports found them. Relaxed throughout: a count that is lost
/// changes nothing but when the next look is.
#[derive(Debug, Default)]
pub(crate) struct Chooser {
    classes: [Class; CLASSES],
}

/// What was chosen for a call, and whether its time is of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) mode: Mode,
    pub(crate) is_timed: bool,
}

/// Why a way is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The way.
    pub mode: Mode,
    /// For calls of so many bytes and less, down to an eighth of it.
    pub bytes: usize,
    /// What a call took in nanoseconds, directly and by the ring; `None` where it is not known.
    pub cost: [Option<u64>; 2],
    /// Whether the peer's memory is mapped, so that there are two ways.
    pub is_mapped: bool,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.mode == Mode::Direct { "direct" } else { "by the ring" };
        write!(f, "{mode} for {} bytes: ", self.bytes)?;
        match (self.is_mapped, self.cost) {
            (false, _) => f.write_str("the peer's memory is not mapped here"),
            (true, [Some(direct), Some(ring)]) => {
                write!(f, "direct takes {direct} ns, the ring {ring} ns")
            }
            (true, _) => f.write_str("mapped memory, and not yet measured both ways"),
        }
    }
}

fn class_of(bytes: usize) -> usize {
    let words = (bytes.max(1) as u64).div_ceil(8);
    (words.next_power_of_two().trailing_zeros().div_ceil(3) as usize).min(CLASSES - 1)
}

fn at(mode: Mode) -> usize {
    usize::from(mode == Mode::Ring)
}

impl Chooser {
    /// The way of the next call of so many bytes.
    #[inline]
    pub(crate) fn choose(&self, bytes: usize) -> Choice {
        let class = &self.classes[class_of(bytes)];
        let call = class.calls.load(Relaxed).wrapping_add(1);
        class.calls.store(call, Relaxed);
        let usual = if class.ring.load(Relaxed) == 0 { Mode::Direct } else { Mode::Ring };
        let is_early = call < EXPLORE && call.is_power_of_two();
        if call.is_multiple_of(EXPLORE) || is_early && call > 2 {
            let other = if usual == Mode::Direct { Mode::Ring } else { Mode::Direct };
            return Choice { mode: other, is_timed: true };
        }
        Choice { mode: usual, is_timed: is_early || call.is_multiple_of(SAMPLE) }
    }

    /// A call of so many bytes took so long.
    pub(crate) fn learn(&self, mode: Mode, bytes: usize, nanos: u64) {
        let class = &self.classes[class_of(bytes)];
        let cost = &class.cost[at(mode)];
        let (known, nanos) = (cost.load(Relaxed), nanos.max(1));
        let newest = match class.last[at(mode)].swap(nanos, Relaxed) {
            0 => nanos,
            last => nanos.min(last),
        };
        let cost_now = match known {
            0 => newest,
            _ => known - known / WEIGHT + newest / WEIGHT,
        };
        cost.store(cost_now.max(1), Relaxed);
        let [direct, ring] = [0, 1].map(|at| class.cost[at].load(Relaxed));
        if direct == 0 || ring == 0 {
            return;
        }
        let by_ring = class.ring.load(Relaxed) != 0;
        let (usual, other) = if by_ring { (ring, direct) } else { (direct, ring) };
        if other.saturating_add(other / 10) < usual {
            class.ring.store(u64::from(!by_ring), Relaxed);
        }
    }

    /// What calls of so many bytes do, and why.
    pub(crate) fn why(&self, bytes: usize, is_mapped: bool) -> Why {
        let number = class_of(bytes);
        let class = &self.classes[number];
        let by_ring = !is_mapped || class.ring.load(Relaxed) != 0;
        let mode = if by_ring { Mode::Ring } else { Mode::Direct };
        let cost = [0, 1].map(|at| Some(class.cost[at].load(Relaxed)).filter(|cost| *cost != 0));
        Why { mode, bytes: 8 << (3 * number), cost, is_mapped }
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, Chooser, EXPLORE, SAMPLE, class_of};
    use crate::Mode;

    #[test]
    fn sizes_have_their_class() {
        for (bytes, class) in [
            (0, 0),
            (8, 0),
            (9, 1),
            (64, 1),
            (65, 2),
            (512, 2),
            (4096, 3),
            (32 << 10, 4),
            (64 << 20, CLASSES - 1),
            (usize::MAX, CLASSES - 1),
        ] {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn it_begins_directly_looks_around_and_turns_when_that_pays() {
        let chooser = Chooser::default();
        let choices: Vec<_> = (0..EXPLORE).map(|_| chooser.choose(64)).collect();
        let by_ring = choices.iter().filter(|choice| choice.mode == Mode::Ring).count();
        let timed = choices.iter().filter(|choice| choice.is_timed).count() as u64;
        // Calls 4, 8 and so on take the other way; 1 and 2, and each thirty-second, are timed as well.
        let looks = u64::from(EXPLORE.ilog2()) - 1;
        assert_eq!((by_ring as u64, timed), (looks, looks + 2 + EXPLORE / SAMPLE - 4));
        chooser.learn(Mode::Direct, 64, 1000);
        // Cheaper, but not by so much that it would turn.
        chooser.learn(Mode::Ring, 64, 950);
        assert_eq!(chooser.choose(64).mode, Mode::Direct);
        (0..20).for_each(|_| chooser.learn(Mode::Ring, 64, 500));
        assert_eq!(chooser.choose(64).mode, Mode::Ring);
        assert_eq!(chooser.choose(4096).mode, Mode::Direct, "another size");
        // And back, when the ring is slow.
        (0..40).for_each(|_| chooser.learn(Mode::Ring, 64, 5000));
        assert_eq!(chooser.choose(64).mode, Mode::Direct);
    }

    #[test]
    fn a_thread_that_lost_its_processor_once_turns_nothing() {
        let chooser = Chooser::default();
        (0..4).for_each(|_| chooser.learn(Mode::Direct, 8, 100));
        (0..4).for_each(|_| chooser.learn(Mode::Ring, 8, 120));
        chooser.learn(Mode::Direct, 8, 10_000_000);
        assert_eq!(chooser.why(8, true).mode, Mode::Direct);
        // Twice in a row is a way that has become slow.
        chooser.learn(Mode::Direct, 8, 10_000_000);
        assert_eq!(chooser.why(8, true).mode, Mode::Ring);
    }

    #[test]
    fn it_says_why() {
        let chooser = Chooser::default();
        let why = |mapped| chooser.why(4000, mapped).to_string();
        assert_eq!(why(false), "by the ring for 4096 bytes: the peer's memory is not mapped here");
        assert_eq!(
            why(true),
            "direct for 4096 bytes: mapped memory, and not yet measured both ways"
        );
        chooser.learn(Mode::Direct, 4000, 300);
        chooser.learn(Mode::Ring, 4000, 200);
        assert_eq!(why(true), "by the ring for 4096 bytes: direct takes 300 ns, the ring 200 ns");
    }
}
