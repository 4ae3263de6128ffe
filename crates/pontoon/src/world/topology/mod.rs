//! Who reaches whom how: where each rank runs, the link between each two, and what it takes.
//!
//! - `place.rs` is where a rank runs, and how near two of them are;
//! - `id_set.rs` is sets of processors and nodes, as the kernel writes them;
//! - `turns.rs` has each pair measure while the others wait, and gives all of them the table;
//! - `trips.rs` is what the two of a pair do, `pin.rs` keeps them on a processor each;
//! - `shape.rs` chooses by the table how many ranks are best reached.

mod id_set;
mod pin;
mod place;
mod shape;
mod trips;
mod turns;

use std::{fmt, sync::Arc};

use pontoon_signal::{Bound, Nanos, Rank};

pub use id_set::{IdSet, NoIdSet};
pub use place::{Kind, Numa, Place};
pub use shape::{Estimate, Shape};
pub use turns::Effort;

use super::{World, WorldError, alive::Left};
use place::Spot;

/// The most ranks that a table is made of: it has a row for each two.
const RANKS_MAX: u32 = 512;
/// The gathering of places.
const PLACES: &[u8] = b"pontoon/topology/places";

/// Who reaches whom how, for all ranks of a job.
///
/// [`discover`](Self::discover) finds where the ranks run and which links are between them;
/// [`measure`](Self::measure) adds latencies and bandwidths. Both are calls that all ranks make, and
/// after which all have the same table. It prints as one.
///
/// ```
/// use pontoon::{Bound, Rank, World, world::{Options, topology::{Effort, Shape, Topology}}};
///
/// let world = World::open(Options::default())?;
/// let mut topology = Topology::discover(&world, Bound::default())?;
/// topology.measure(&world, Effort::default(), Bound::default())?;
/// print!("{topology}");
/// if topology.shape(Rank(0), 1 << 20) == Shape::Ring {
///     println!("{}", topology.estimate(Rank(0), 1 << 20));
/// }
/// world.leave(Bound::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    places: Vec<Place>,
    /// Each two ranks once: (0, 1), (0, 2), …, (1, 2), ….
    pairs: Vec<Pair>,
}

/// Two ranks, and what is between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    ranks: [Rank; 2],
    kind: Kind,
    link: Arc<str>,
    figures: Result<Figures, Unmeasured>,
}

/// What a way takes: medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Half a round trip of 8 bytes and their signal.
    pub latency: Nanos,
    /// Of puts of 1 MiB from the lower rank to the higher.
    pub bandwidth: BytesPerSecond,
    /// Of how many blocks each of the two is the median.
    pub blocks: u32,
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytesPerSecond(pub u64);

/// Why there are no figures of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmeasured {
    /// Nobody asked for them yet.
    NotAsked,
    /// The time of the effort was up before its turn.
    TimeUp,
    /// One of the two could not take part.
    Lacks {
        /// Which.
        rank: Rank,
        /// What it says.
        why: Box<str>,
    },
}

impl Topology {
    /// Finds where all ranks run, and the links between them. Measures nothing. All ranks call it.
    ///
    /// # Errors
    ///
    /// [`WorldError`]: the store's, as soon as a rank is gone; [`WorldError::TooManyRanks`].
    ///
    /// # Blocks
    ///
    /// Until all have called it, as long as `bound` allows.
    pub fn discover(world: &World, bound: Bound) -> Result<Self, WorldError> {
        if world.size > RANKS_MAX {
            return Err(WorldError::TooManyRanks { size: world.size, most: RANKS_MAX });
        }
        let left = Left::of(bound);
        let told = Told { spot: Spot::read(), links: links(world) };
        let parts = world.job().all_gather(PLACES, told.encode().as_bytes(), left.now());
        let told: Vec<Told> = parts
            .map_err(|error| world.blame(error.into()))?
            .iter()
            .map(|part| Told::decode(&String::from_utf8_lossy(part)))
            .collect();
        let processes = world.processes().into_iter().zip(&told);
        let places: Vec<Place> =
            processes.map(|(process, told)| Place::new(process, told.spot.clone())).collect();
        let all = (0..world.size).map(Rank);
        let of_each = all.flat_map(|one| (one.0 + 1..world.size).map(move |its| [one, Rank(its)]));
        let pairs = of_each.map(|ranks| {
            let [one, other] = ranks.map(|rank| rank.0 as usize);
            let kind = Kind::of(&places[one], &places[other]);
            let link = told[one].link_to(ranks[1]);
            Pair { ranks, kind, link, figures: Err(Unmeasured::NotAsked) }
        });
        Ok(Self { pairs: pairs.collect(), places })
    }

    /// Measures each pair, one after the other, and adds the figures of all to the table of each. All
    /// ranks call it, with the same effort. Pairs whose turn does not come while the effort lasts keep
    /// the figures that they had.
    ///
    /// Two ranks of one host are kept on a processor each while it is their turn, if there are two.
    ///
    /// What it needs beside the counters of the job's options is 2 MiB of this rank's heap, taken
    /// once; a rank that has no such room is left out.
    ///
    /// # Errors
    ///
    /// [`WorldError`]; of a rank that is gone, it names that.
    ///
    /// # Panics
    ///
    /// If this is the topology of a job of another size.
    ///
    /// # Blocks
    ///
    /// Until all pairs had their turn, as long as `bound` allows.
    pub fn measure(
        &mut self,
        world: &World,
        effort: Effort,
        bound: Bound,
    ) -> Result<(), WorldError> {
        let (own, its) = (self.places.len(), world.size as usize);
        assert_eq!(own, its, "a topology of {own} ranks is not that of a job of {its}");
        let measured = turns::measure(self, world, effort, &Left::of(bound));
        measured.map_err(|error| world.blame(error))
    }

    /// Where each rank runs.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Each two ranks once, the lower rank first.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// What is between these two; `None` if they are one, or none of the job's.
    pub fn pair(&self, one: Rank, other: Rank) -> Option<&Pair> {
        let ranks = [one.min(other), one.max(other)];
        let at = self.pairs.binary_search_by(|pair| pair.ranks.cmp(&ranks)).ok()?;
        Some(&self.pairs[at])
    }

    /// How `bytes` best go from rank `root` to all others, or from all others to it. A table with
    /// gaps gives [`Shape::Flat`]; the [estimate](Self::estimate) says so.
    pub fn shape(&self, root: Rank, bytes: u64) -> Shape {
        self.estimate(root, bytes).shape()
    }

    /// What [`shape`](Self::shape) chooses, with its reasons.
    pub fn estimate(&self, root: Rank, bytes: u64) -> Estimate {
        shape::estimate(self, root, bytes)
    }

    /// The reasons of [`shape`](Self::shape) in one line.
    pub fn explain(&self, root: Rank, bytes: u64) -> String {
        self.estimate(root, bytes).to_string()
    }
}

impl Pair {
    /// The two, the lower first.
    pub fn ranks(&self) -> [Rank; 2] {
        self.ranks
    }

    /// How near they are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The link by which they reach each other.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// What it takes.
    ///
    /// # Errors
    ///
    /// Why that was not measured.
    pub fn figures(&self) -> Result<Figures, &Unmeasured> {
        self.figures.as_ref().copied()
    }
}

/// What a rank tells the others.
struct Told {
    spot: Spot,
    /// Each link, and the ranks that it leads to.
    links: Vec<(Arc<str>, IdSet)>,
}

/// The links of this rank, and whom it reaches by which.
fn links(world: &World) -> Vec<(Arc<str>, IdSet)> {
    let by = |at: usize| {
        let others = world.others().filter(move |peer| world.ways[peer.0 as usize] == at);
        IdSet::of(others.map(|peer| peer.0))
    };
    world.links.iter().enumerate().map(|(at, link)| (link.name().into(), by(at))).collect()
}

impl Told {
    /// A line for the spot, and one a link.
    fn encode(&self) -> String {
        let links = self.links.iter().map(|(name, ranks)| format!("\n{name} {ranks}"));
        self.spot.encode() + &links.collect::<String>()
    }

    fn decode(text: &str) -> Self {
        let mut lines = text.split('\n');
        let spot = Spot::decode(lines.next().unwrap_or_default());
        let link = |line: &str| {
            let (name, ranks) = line.split_once(' ')?;
            Some((name.into(), ranks.parse().ok()?))
        };
        Self { spot, links: lines.filter_map(link).collect() }
    }

    fn link_to(&self, peer: Rank) -> Arc<str> {
        let link = self.links.iter().find(|(_, ranks)| ranks.contains(peer.0));
        link.map_or_else(|| "not told".into(), |(name, _)| Arc::clone(name))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.0 as f64;
        f.pad(&match self.0 {
            0..1_000_000 => format!("{:.1} kB/s", rate / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} MB/s", rate / 1e6),
            _ => format!("{:.2} GB/s", rate / 1e9),
        })
    }
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("nobody asked for it yet"),
            Self::TimeUp => f.write_str("the time was up before its turn"),
            Self::Lacks { rank, why } => write!(f, "rank {rank} cannot take part: {why}"),
        }
    }
}

impl fmt::Display for Topology {
    /// An aligned table, and below it why some pairs have no figures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![["pair", "kind", "link", "latency", "bandwidth"].map(str::to_owned)];
        for Pair { ranks: [one, other], kind, link, figures } in &self.pairs {
            let [latency, bandwidth] = match figures {
                Ok(figures) => [figures.latency.to_string(), figures.bandwidth.to_string()],
                Err(_) => ["-", "-"].map(str::to_owned),
            };
            let pair = format!("{one}-{other}");
            rows.push([pair, kind.to_string(), link.to_string(), latency, bandwidth]);
        }
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or_default();
        let [pair, kind, link, latency, bandwidth] = [0, 1, 2, 3, 4].map(width);
        for [a, b, c, d, e] in &rows {
            writeln!(f, "{a:<pair$}  {b:<kind$}  {c:<link$}  {d:>latency$}  {e:>bandwidth$}")?;
        }
        let mut told: Vec<(&Unmeasured, Vec<String>)> = Vec::new();
        for Pair { ranks: [one, other], figures, .. } in &self.pairs {
            let Err(why) = figures else { continue };
            let pair = format!("{one}-{other}");
            match told.iter_mut().find(|(its, _)| *its == why) {
                Some((_, pairs)) => pairs.push(pair),
                None => told.push((why, vec![pair])),
            }
        }
        for (why, pairs) in told {
            let (first, more) = (&pairs[0], pairs.len() - 1);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(f, "not measured: {first}{more}: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A topology of `places.len()` ranks whose pairs take `figures(one, other)`.
    pub(super) fn made_up(
        places: Vec<Place>,
        figures: impl Fn(u32, u32) -> Result<Figures, Unmeasured>,
    ) -> Topology {
        let size = places.len() as u32;
        let ranks = (0..size).flat_map(|one| (one + 1..size).map(move |other| (one, other)));
        let pairs = ranks.map(|(one, other)| Pair {
            ranks: [Rank(one), Rank(other)],
            kind: Kind::of(&places[one as usize], &places[other as usize]),
            link: "shm".into(),
            figures: figures(one, other),
        });
        Topology { pairs: pairs.collect(), places }
    }

    pub(super) fn places(count: u32) -> Vec<Place> {
        (0..count).map(|pid| place::tests::place(1 + pid, "0 0")).collect()
    }

    fn some() -> Topology {
        made_up(places(4), |one, other| match (one, other) {
            (0, 1) => Ok(figures(85, 9_214_000_000)),
            (0, 2) => Ok(figures(12_100, 1_500_000)),
            (0, 3) => Err(Unmeasured::Lacks { rank: Rank(3), why: "no room".into() }),
            _ => Err(Unmeasured::TimeUp),
        })
    }

    pub(super) fn figures(latency: u64, bandwidth: u64) -> Figures {
        Figures { latency: Nanos(latency), bandwidth: BytesPerSecond(bandwidth), blocks: 5 }
    }

    #[test]
    fn the_table_is_aligned_and_says_what_is_not_measured() {
        assert_eq!(
            some().to_string(),
            "pair  kind       link  latency  bandwidth\n\
             0-1   same node  shm     85 ns  9.21 GB/s\n\
             0-2   same node  shm   12.1 us   1.5 MB/s\n\
             0-3   same node  shm         -          -\n\
             1-2   same node  shm         -          -\n\
             1-3   same node  shm         -          -\n\
             2-3   same node  shm         -          -\n\
             not measured: 0-3: rank 3 cannot take part: no room\n\
             not measured: 1-2 and 2 more: the time was up before its turn\n"
        );
    }

    #[test]
    fn a_pair_is_found_from_both_ends() {
        let some = some();
        for (one, other) in (0..4).flat_map(|one| (0..4).map(move |other| (Rank(one), Rank(other))))
        {
            let found = some.pair(one, other).map(Pair::ranks);
            let ranks = [one.min(other), one.max(other)];
            assert_eq!(found, (one != other).then_some(ranks));
        }
        assert_eq!(some.pair(Rank(0), Rank(4)), None);
    }

    #[test]
    fn what_a_rank_tells_arrives_and_nonsense_is_not_told() {
        let ranks = |text: &str| text.parse().unwrap();
        let spot = Spot::decode("0-1 0");
        let links = vec![("shm".into(), ranks("0-2")), ("ucx".into(), ranks("3,5"))];
        let told = Told::decode(&Told { spot: spot.clone(), links }.encode());
        assert_eq!(told.spot, spot);
        let link = |rank| told.link_to(Rank(rank)).to_string();
        assert_eq!([link(2), link(5), link(4)], ["shm", "ucx", "not told"]);
        let nonsense = Told::decode("\u{fffd}\nshm\nucx x\n\n");
        assert_eq!((nonsense.spot, nonsense.links.len()), (Spot::default(), 0));
    }

    #[test]
    fn rates_read_well() {
        for (rate, shown) in
            [(0, "0.0 kB/s"), (999_999, "1000.0 kB/s"), (u64::MAX, "18446744073.71 GB/s")]
        {
            assert_eq!(BytesPerSecond(rate).to_string(), shown);
        }
    }
}
