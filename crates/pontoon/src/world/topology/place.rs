//! Where a rank runs: its process, the processors that it may use, and the NUMA nodes of those.

use std::{fmt, fs, path::Path};

use pontoon_job::Process;

use super::id_set::IdSet;

/// Where the kernel tells of nodes.
const NODES: &str = "/sys/devices/system/node";
/// Where it tells of this process.
const STATUS: &str = "/proc/self/status";

/// The NUMA nodes of a machine, as its kernel tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numa {
    nodes: Vec<(u32, IdSet)>,
}

impl Numa {
    /// Those of this machine; `None` if its kernel does not tell.
    pub fn read() -> Option<Self> {
        Self::read_in(Path::new(NODES))
    }

    fn read_in(folder: &Path) -> Option<Self> {
        let list = |path| fs::read_to_string(path).ok()?.parse::<IdSet>().ok();
        let online = list(folder.join("online")).filter(|online| !online.is_empty())?;
        let cpus = |node: u32| Some((node, list(folder.join(format!("node{node}/cpulist")))?));
        Some(Self { nodes: online.iter().map(cpus).collect::<Option<_>>()? })
    }

    /// Each node, and its processors: none, where a node is memory alone.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &IdSet)> {
        self.nodes.iter().map(|(node, cpus)| (*node, cpus))
    }

    /// The nodes that some of `cpus` are of.
    fn of(&self, cpus: &IdSet) -> IdSet {
        let near = self.nodes().filter(|(_, its)| its.meets(cpus));
        IdSet::of(near.map(|(node, _)| node))
    }
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    process: Process,
    cpus: Option<IdSet>,
    nodes: Option<IdSet>,
}

/// What a rank tells others of where it runs, beside its process, which they know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    cpus: Option<IdSet>,
    nodes: Option<IdSet>,
}

impl Spot {
    /// That of the calling thread's process, now.
    pub(super) fn read() -> Self {
        Self::of(&fs::read_to_string(STATUS).unwrap_or_default(), Numa::read().as_ref())
    }

    fn of(status: &str, numa: Option<&Numa>) -> Self {
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus =
            allowed.and_then(|list| list.parse().ok()).filter(|cpus: &IdSet| !cpus.is_empty());
        let nodes = cpus.as_ref().zip(numa).map(|(cpus, numa)| numa.of(cpus));
        Self { cpus, nodes: nodes.filter(|nodes| !nodes.is_empty()) }
    }

    /// As two words; what is not known is an empty one.
    pub(super) fn encode(&self) -> String {
        let word = |set: &Option<IdSet>| set.as_ref().map(IdSet::to_string).unwrap_or_default();
        format!("{} {}", word(&self.cpus), word(&self.nodes))
    }

    /// What is not of this form is not known.
    pub(super) fn decode(text: &str) -> Self {
        let set = |word: &str| word.parse().ok().filter(|set: &IdSet| !set.is_empty());
        let (cpus, nodes) = text.split_once(' ').unwrap_or_default();
        Self { cpus: set(cpus), nodes: set(nodes) }
    }
}

impl Place {
    pub(super) fn new(process: Process, Spot { cpus, nodes }: Spot) -> Self {
        Self { process, cpus, nodes }
    }

    /// The process, and its host.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The processors that the process may use; `None` if its kernel does not tell.
    pub fn cpus(&self) -> Option<&IdSet> {
        self.cpus.as_ref()
    }

    /// The NUMA nodes of those; `None` if its kernel does not tell.
    pub fn nodes(&self) -> Option<&IdSet> {
        self.nodes.as_ref()
    }

    /// A processor for each of two ranks of one host, if there are two. Not known is none.
    pub(super) fn cpus_apart(&self, other: &Self) -> Option<[u32; 2]> {
        let (own, its) = (self.cpus.as_ref()?, other.cpus.as_ref()?);
        let (first, last) = (own.iter().next()?, its.iter().next()?);
        if let Some(apart) = its.iter().find(|&cpu| cpu != first) {
            return Some([first, apart]);
        }
        own.iter().find(|&cpu| cpu != last).map(|apart| [apart, last])
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, cpus, nodes } = self;
        write!(f, "{process}, ")?;
        match nodes {
            Some(nodes) if nodes.single().is_some() => write!(f, "node {nodes}")?,
            Some(nodes) => write!(f, "nodes {nodes}")?,
            None => f.write_str("node not told")?,
        }
        match cpus {
            Some(cpus) if cpus.single().is_some() => write!(f, ", cpu {cpus}"),
            Some(cpus) => write!(f, ", cpus {cpus}"),
            None => f.write_str(", cpus not told"),
        }
    }
}

/// How near two ranks are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One process is both.
    SameProcess,
    /// On one host, and all processors of both are of one NUMA node.
    SameNode,
    /// On one host; on other NUMA nodes, or on several, or the kernel does not tell.
    SameHost,
    /// On two hosts.
    OverHosts,
}

impl Kind {
    /// That of the ranks at these two places.
    pub fn of(one: &Place, other: &Place) -> Self {
        let is_one_process = one.process.id == other.process.id;
        let node = |place: &Place| place.nodes.as_ref().and_then(IdSet::single);
        let is_one_host = one.process.shares_host_with(&other.process);
        Self::by(is_one_host, is_one_process, [node(one), node(other)])
    }

    /// A process number says something on one host only; so does a node's.
    fn by(is_one_host: bool, is_one_process: bool, nodes: [Option<u32>; 2]) -> Self {
        match nodes {
            _ if !is_one_host => Self::OverHosts,
            _ if is_one_process => Self::SameProcess,
            [Some(one), Some(other)] if one == other => Self::SameNode,
            _ => Self::SameHost,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SameProcess => "same process",
            Self::SameNode => "same node",
            Self::SameHost => "same host",
            Self::OverHosts => "over hosts",
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A place of this host's process `pid`, as `Spot::decode` has the rest.
    pub(in super::super) fn place(pid: u32, spot: &str) -> Place {
        let mut process = Process::current().unwrap();
        (process.id.pid, process.host_name) = (pid, "vm".into());
        Place::new(process, Spot::decode(spot))
    }

    fn two_nodes() -> Numa {
        let cpus = |text: &str| text.parse().unwrap();
        Numa { nodes: vec![(0, cpus("0-3")), (1, cpus("4-7")), (2, cpus(""))] }
    }

    #[test]
    fn the_nodes_are_those_of_the_processors_that_may_be_used() {
        let spot = |list: &str| {
            let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\n");
            Spot::of(&status, Some(&two_nodes())).encode()
        };
        assert_eq!(spot("0-1"), "0-1 0");
        assert_eq!(spot("5"), "5 1");
        assert_eq!(spot("3-4"), "3-4 0-1");
        assert_eq!(spot("9"), "9 ");
        assert_eq!(spot("none"), " ");
        assert_eq!(Spot::of("Cpus_allowed_list:\t0\n", None).encode(), "0 ");
    }

    #[test]
    fn a_spot_is_told_and_read_and_nonsense_is_not_known() {
        for text in ["0-1 0", "9 ", " "] {
            assert_eq!(Spot::decode(text).encode(), text);
        }
        for text in ["", "x y", "0-1", "0-18446744073709551615 -"] {
            assert_eq!(Spot::decode(text), Spot::default(), "{text:?}");
        }
    }

    #[test]
    fn a_kernel_that_tells_no_nodes_has_none() {
        let folder = std::env::temp_dir().join(format!("pontoon-nodes-{}", std::process::id()));
        fs::create_dir_all(folder.join("node1")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        assert_eq!(Numa::read_in(&folder), None);
        write("online", "1\n");
        assert_eq!(Numa::read_in(&folder), None, "a node without its processors");
        write("node1/cpulist", "2-3\n");
        let found = Numa::read_in(&folder).unwrap();
        assert_eq!(found.nodes().collect::<Vec<_>>(), [(1, &"2-3".parse().unwrap())]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn this_process_is_where_the_kernel_says() {
        let spot = Spot::read();
        let cpus = spot.cpus.expect("/proc/self/status has a list of processors");
        assert!(!cpus.is_empty());
        match (Numa::read(), spot.nodes) {
            (Some(numa), Some(nodes)) => assert_eq!(numa.of(&cpus), nodes),
            (None, None) => println!("skipped: this kernel tells no NUMA nodes"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nearness_is_by_host_process_and_node_and_never_guessed() {
        let kind = |one: &str, other: &str| Kind::of(&place(1, one), &place(2, other));
        assert_eq!(kind("0 0", "1 0"), Kind::SameNode);
        assert_eq!(kind("0 0", "4 1"), Kind::SameHost);
        assert_eq!(kind("0-7 0-1", "0-7 0-1"), Kind::SameHost, "on two nodes");
        assert_eq!(kind("0 ", "0 "), Kind::SameHost, "not told");
        assert_eq!(Kind::of(&place(1, "0 0"), &place(1, "4 1")), Kind::SameProcess);
        assert_eq!(Kind::by(false, true, [Some(0); 2]), Kind::OverHosts, "one pid, on two hosts");
    }

    #[test]
    fn two_ranks_get_a_processor_each_if_there_are_two() {
        let apart = |one: &str, other: &str| place(1, one).cpus_apart(&place(2, other));
        assert_eq!(apart("0 0", "1 0"), Some([0, 1]));
        assert_eq!(apart("0-1 0", "0-1 0"), Some([0, 1]));
        assert_eq!(apart("0 0", "0-1 0"), Some([0, 1]));
        assert_eq!(apart("1-2 0", "1 0"), Some([2, 1]));
        assert_eq!(
            (apart("0 0", "0 0"), apart(" ", "0-1 0"), apart("0-1 0", " ")),
            (None, None, None)
        );
    }

    #[test]
    fn a_place_reads_well() {
        let shown = |spot: &str| place(7, spot).to_string();
        assert_eq!(shown("0 0"), "pid 7 on vm, node 0, cpu 0");
        assert_eq!(shown("0-7 0-1"), "pid 7 on vm, nodes 0-1, cpus 0-7");
        assert_eq!(shown(" "), "pid 7 on vm, node not told, cpus not told");
    }
}
