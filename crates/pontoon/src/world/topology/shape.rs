//! How many ranks are best reached: one after the other, or along a ring.
//!
//! The model is that of Hockney (1994): a message of `m` bytes over a link takes `α + m / β`, with the
//! link's latency `α` and bandwidth `β`. Thakur, Rabenseifner and Gropp (2005) compare collectives of
//! MPI by it. A flat broadcast sends all `m` bytes to each other rank in turn:
//!
//! ```text
//! flat = Σ (α + m / β)              over the links of the root
//! ```
//!
//! A ring passes them on in `k` chunks from the root to the next rank, and so on to the last. The
//! first chunk crosses each link in turn; the others follow, one each time the slowest link is done:
//!
//! ```text
//! ring = Σ t + (k - 1) max t        over the links along the ring, with t = α + m / (k β)
//! ```
//!
//! For links that are all alike that is `(p + k - 2) (α + m / (k β))`, the pipeline of Pješivac-Grbović
//! and others (2007). `k` is the power of two that gives the least, with chunks of at least 4 KiB. A
//! reduce goes the same ways backwards; what adding takes is left out on both sides.
//!
//! What the model does not know: that links share a memory or a cable, that a rank on the way needs
//! a processor, and that the way back may differ.

use std::{fmt, iter::successors};

use pontoon_signal::{Nanos, Rank};

use super::{Figures, Topology};

/// The smallest chunk that a message is cut into.
const CHUNK_MIN: u64 = 4096;

/// How the bytes of a broadcast or a reduce travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// From the root to each other rank in turn, or from each of them to it.
    Flat,
    /// In chunks from each rank to the next, beginning or ending at the root.
    Ring,
}

/// What both shapes would take.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    root: Rank,
    size: u32,
    bytes: u64,
    times: Result<Times, Gap>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    flat_ns: f64,
    ring_ns: f64,
    chunks: u64,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    NoSuchRank,
    NotMeasured([Rank; 2]),
}

pub(super) fn estimate(topology: &Topology, root: Rank, bytes: u64) -> Estimate {
    let size = topology.places.len() as u32;
    Estimate { root, size, bytes, times: times(topology, root, bytes) }
}

fn times(topology: &Topology, root: Rank, bytes: u64) -> Result<Times, Gap> {
    let size = topology.places.len() as u32;
    if root.0 >= size {
        return Err(Gap::NoSuchRank);
    }
    // Ranks in the order of the ring, from the root on.
    let ring: Vec<Rank> = (root.0..size).chain(0..root.0).map(Rank).collect();
    let figures = |one: Rank, other: Rank| {
        let figures = topology.pair(one, other).and_then(|pair| pair.figures().ok());
        figures.ok_or(Gap::NotMeasured([one.min(other), one.max(other)]))
    };
    let spokes = ring[1..].iter().map(|&peer| figures(root, peer));
    let spokes: Vec<Figures> = spokes.collect::<Result<_, _>>()?;
    let links = ring.windows(2).map(|pair| figures(pair[0], pair[1]));
    let links: Vec<Figures> = links.collect::<Result<_, _>>()?;
    let flat_ns = spokes.iter().map(|link| time(link, bytes)).sum();
    let cut = |chunks: &u64| chunks.checked_mul(2).filter(|chunks| bytes / chunks >= CHUNK_MIN);
    let (chunks, ring_ns) = successors(Some(1), cut)
        .map(|chunks| (chunks, along(&links, bytes, chunks)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .unwrap_or((1, flat_ns));
    Ok(Times { flat_ns, ring_ns, chunks })
}

/// Nanoseconds of a message.
fn time(link: &Figures, bytes: u64) -> f64 {
    link.latency.0 as f64 + bytes as f64 * 1e9 / link.bandwidth.0.max(1) as f64
}

/// Nanoseconds of a message in so many chunks, along these links.
fn along(links: &[Figures], bytes: u64, chunks: u64) -> f64 {
    let each = links.iter().map(|link| time(link, bytes.div_ceil(chunks)));
    let (sum, most) = each.fold((0.0, 0.0), |(sum, most), it| (sum + it, f64::max(most, it)));
    sum + (chunks - 1) as f64 * most
}

impl Estimate {
    /// The shape that takes less; [`Shape::Flat`] if both take the same, or nobody knows.
    pub fn shape(&self) -> Shape {
        match self.times {
            Ok(Times { flat_ns, ring_ns, .. }) if ring_ns < flat_ns => Shape::Ring,
            _ => Shape::Flat,
        }
    }

    /// The same for a [`Team`](pontoon_comm::Team) of all ranks, with pieces of whole elements of so many
    /// bytes each.
    pub fn of_team(&self, element: usize) -> pontoon_comm::Shape {
        match (self.shape(), self.chunk_bytes()) {
            (Shape::Ring, Some(chunk)) => {
                let chunk = usize::try_from(chunk).unwrap_or(usize::MAX - element.max(1));
                pontoon_comm::Shape::Ring { piece: chunk.next_multiple_of(element.max(1)) }
            }
            _ => pontoon_comm::Shape::Flat,
        }
    }

    /// What sending to each in turn would take; `None` if the table has gaps.
    pub fn flat(&self) -> Option<Nanos> {
        self.times.ok().map(|times| Nanos(times.flat_ns as u64))
    }

    /// What the ring would take; `None` if the table has gaps.
    pub fn ring(&self) -> Option<Nanos> {
        self.times.ok().map(|times| Nanos(times.ring_ns as u64))
    }

    /// The chunks of the ring, in bytes: the last may be smaller. `None` if the table has gaps.
    pub fn chunk_bytes(&self) -> Option<u64> {
        self.times.ok().map(|times| self.bytes.div_ceil(times.chunks))
    }
}

impl fmt::Display for Estimate {
    /// One line: the choice, and what both would take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, size, bytes, times } = self;
        let shape = self.shape();
        write!(f, "{bytes} bytes between rank {root} and the others of {size}: {shape}; ")?;
        match (times, self.flat(), self.ring(), self.chunk_bytes()) {
            (Ok(Times { chunks, .. }), Some(flat), Some(ring), Some(chunk)) => write!(
                f,
                "flat takes {flat}, a ring {ring} in {chunks} chunk{} of at most {chunk} bytes",
                if *chunks == 1 { "" } else { "s" }
            ),
            (Err(Gap::NotMeasured([one, other])), ..) => {
                write!(f, "the pair {one}-{other} is not measured, so there is no estimate")
            }
            _ => write!(f, "there is no such rank, so there is no estimate"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flat => "flat",
            Self::Ring => "ring",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::Unmeasured,
        super::tests::{figures, made_up, places},
        *,
    };

    const MIB: u64 = 1 << 20;

    /// Ranks whose links are all alike: 1 us, 1 GB/s.
    fn alike(count: u32) -> Topology {
        made_up(places(count), |_, _| Ok(figures(1_000, 1_000_000_000)))
    }

    #[test]
    fn much_goes_along_a_ring_and_little_goes_flat() {
        let many = alike(4);
        assert_eq!(many.shape(Rank(0), 8), Shape::Flat);
        assert_eq!(many.shape(Rank(0), 64 * MIB), Shape::Ring);
    }

    #[test]
    fn times_are_those_of_the_formulas() {
        let estimate = alike(4).estimate(Rank(2), MIB);
        let of = |chunks: u64| (4 + chunks - 2) * (1_000 + MIB / chunks);
        let best = (0..9).map(|power| of(1 << power)).min().unwrap();
        assert_eq!(estimate.flat(), Some(Nanos(3 * (1_000 + MIB))));
        assert_eq!(estimate.ring(), Some(Nanos(best)));
        assert_eq!(best, of(MIB / estimate.chunk_bytes().unwrap()));
        assert_eq!(
            estimate.to_string(),
            "1048576 bytes between rank 2 and the others of 4: ring; flat takes 3.1 ms, a ring 1.1 \
             ms in 64 chunks of at most 16384 bytes"
        );
    }

    #[test]
    fn a_slow_link_on_the_ring_is_avoided_and_one_of_the_root_is_not() {
        let slow = |a, b| {
            made_up(places(4), move |one, other| {
                let rate = if (one, other) == (a, b) { 10_000_000 } else { 1_000_000_000 };
                Ok(figures(1_000, rate))
            })
        };
        // The ring from 0 passes 1-2; rank 0 itself reaches all at full speed.
        assert_eq!(slow(1, 2).shape(Rank(0), 64 * MIB), Shape::Flat);
        // Flat passes 0-2; the ring does not.
        assert_eq!(slow(0, 2).shape(Rank(0), 64 * MIB), Shape::Ring);
        // From rank 2 on the ring is 2, 3, 0, 1, and flat passes 1-2.
        assert_eq!(slow(1, 2).shape(Rank(2), 64 * MIB), Shape::Ring);
    }

    #[test]
    fn a_team_goes_the_same_way_in_whole_elements() {
        let table = alike(8);
        let large = table.estimate(Rank(0), 64 << 20);
        let pontoon_comm::Shape::Ring { piece } = large.of_team(24) else {
            panic!("{large}");
        };
        let chunk = large.chunk_bytes().expect("measured") as usize;
        assert!(
            piece.is_multiple_of(24) && piece >= chunk && piece < chunk + 24,
            "{piece} {chunk}"
        );
        assert_eq!(table.estimate(Rank(0), 8).of_team(8), pontoon_comm::Shape::Flat);
    }

    #[test]
    fn one_rank_and_two_go_flat() {
        for bytes in [0, 8, 64 * MIB, u64::MAX] {
            assert_eq!(alike(1).shape(Rank(0), bytes), Shape::Flat);
            assert_eq!(alike(2).shape(Rank(1), bytes), Shape::Flat);
        }
        assert_eq!(alike(1).estimate(Rank(0), MIB).flat(), Some(Nanos(0)));
    }

    #[test]
    fn nothing_and_too_much_have_an_estimate() {
        let nothing = alike(3).estimate(Rank(0), 0);
        assert_eq!((nothing.flat(), nothing.ring()), (Some(Nanos(2_000)), Some(Nanos(2_000))));
        assert_eq!((nothing.shape(), nothing.chunk_bytes()), (Shape::Flat, Some(0)));
        let slowest = made_up(places(3), |_, _| Ok(figures(u64::MAX, 0)));
        let all = slowest.estimate(Rank(0), u64::MAX);
        assert_eq!((all.flat(), all.shape()), (Some(Nanos(u64::MAX)), Shape::Ring));
        assert!(!all.to_string().contains("inf") && !all.to_string().contains("NaN"), "{all}");
    }

    #[test]
    fn a_table_with_a_gap_goes_flat_and_says_so() {
        let gap = made_up(places(3), |one, _| match one {
            0 => Ok(figures(1, 1)),
            _ => Err(Unmeasured::NotAsked),
        });
        assert_eq!(gap.shape(Rank(0), 64 * MIB), Shape::Flat);
        assert_eq!(
            gap.explain(Rank(0), MIB),
            "1048576 bytes between rank 0 and the others of 3: flat; the pair 1-2 is not measured, \
             so there is no estimate"
        );
        assert_eq!(gap.estimate(Rank(0), MIB).flat(), None);
        assert!(gap.explain(Rank(3), MIB).contains("there is no such rank"));
    }
}
