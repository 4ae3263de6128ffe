//! Random nodes, waits and removals, judged by reachability over all pairs.

use std::collections::{BTreeSet, VecDeque};

use pontoon_queue::{Acyclic, Node, NodeRank};
use proptest::{collection::vec, prelude::*, sample::Index};

#[derive(Clone, Debug)]
enum Step {
    Add,
    Order(Pick, Pick),
    Remove(Pick),
}

/// A node: one that is there, or, more rarely, any that ever was.
#[derive(Clone, Debug)]
struct Pick {
    at: Index,
    any: bool,
}

fn pick() -> impl Strategy<Value = Pick> {
    (any::<Index>(), prop::bool::weighted(0.04)).prop_map(|(at, any)| Pick { at, any })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Add),
        9 => (pick(), pick()).prop_map(|(before, after)| Step::Order(before, after)),
        2 => pick().prop_map(Step::Remove),
    ]
}

/// The same graph, with every question answered by a search through all waits.
#[derive(Default)]
struct Oracle {
    nodes: Vec<Node>,
    live: BTreeSet<usize>,
    /// Pairs of what is waited for and what waits.
    waits: BTreeSet<(usize, usize)>,
}

impl Oracle {
    fn pick(&self, pick: &Pick) -> Option<usize> {
        if pick.any || self.live.is_empty() {
            return (!self.nodes.is_empty()).then(|| pick.at.index(self.nodes.len()));
        }
        self.live.iter().nth(pick.at.index(self.live.len())).copied()
    }

    /// How many waits it takes to come from a node to one that it waits for.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        let mut distance = vec![None; self.nodes.len()];
        distance[from] = Some(0);
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for &(before, _) in self.waits.iter().filter(|wait| wait.1 == at) {
                if distance[before].is_none() {
                    distance[before] = distance[at].map(|it| it + 1);
                    queue.push_back(before);
                }
            }
        }
        distance[to]
    }

    fn number(&self, node: Node) -> usize {
        self.nodes.iter().position(|&it| it == node).expect("a node that was given out")
    }

    /// Whether the graph has the nodes and waits that it must, in ranks that agree with them.
    fn agrees_with(&self, graph: &Acyclic) -> Result<(), TestCaseError> {
        prop_assert_eq!(graph.len(), self.live.len());
        prop_assert_eq!(graph.is_empty(), self.live.is_empty());
        let mut ranks = BTreeSet::new();
        for (at, &node) in self.nodes.iter().enumerate() {
            prop_assert_eq!(graph.rank(node).is_some(), self.live.contains(&at));
            prop_assert!(graph.rank(node).is_none_or(|rank| ranks.insert(rank)), "one rank twice");
            let mut before: Vec<_> = graph.before(node).map(|it| self.number(it)).collect();
            let mut after: Vec<_> = graph.after(node).map(|it| self.number(it)).collect();
            before.sort_unstable();
            after.sort_unstable();
            let waits = self.waits.iter();
            let wanted = waits.clone().filter(|it| it.1 == at).map(|it| it.0);
            prop_assert_eq!(before, wanted.collect::<Vec<_>>());
            let wanted = waits.filter(|it| it.0 == at).map(|it| it.1);
            prop_assert_eq!(after, wanted.collect::<Vec<_>>());
        }
        for &(before, after) in &self.waits {
            prop_assert!(graph.rank(self.nodes[before]) < graph.rank(self.nodes[after]));
        }
        Ok(())
    }
}

/// All that can be seen of a graph.
fn picture(graph: &Acyclic, nodes: &[Node]) -> Vec<(Option<NodeRank>, Vec<Node>, Vec<Node>)> {
    let one = |&node: &Node| {
        (graph.rank(node), graph.before(node).collect(), graph.after(node).collect())
    };
    nodes.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn waits_are_refused_where_they_close_a_circle(steps in vec(step(), 1..160)) {
        let mut graph = Acyclic::new();
        let mut oracle = Oracle::default();
        for step in steps {
            match step {
                Step::Add => {
                    let node = graph.add();
                    let others = oracle.nodes.iter().filter_map(|&it| graph.rank(it)).max();
                    prop_assert!(graph.rank(node) > others, "a new node has the highest rank");
                    oracle.live.insert(oracle.nodes.len());
                    oracle.nodes.push(node);
                }
                Step::Order(before, after) => {
                    let (Some(before), Some(after)) = (oracle.pick(&before), oracle.pick(&after))
                    else {
                        continue;
                    };
                    let both = oracle.live.contains(&before) && oracle.live.contains(&after);
                    let distance = oracle.distance(before, after).filter(|_| both);
                    let earlier = picture(&graph, &oracle.nodes);
                    match graph.order(oracle.nodes[before], oracle.nodes[after]) {
                        Ok(()) => {
                            prop_assert_eq!(distance, None, "a circle was let through");
                            oracle.waits.extend(both.then_some((before, after)));
                        }
                        Err(cycle) => {
                            let path: Vec<_> =
                                cycle.path.iter().map(|&node| oracle.number(node)).collect();
                            prop_assert_eq!(distance.map(|it| it + 1), Some(path.len()));
                            prop_assert_eq!(path.first(), Some(&before));
                            prop_assert_eq!(path.last(), Some(&after));
                            for pair in path.windows(2) {
                                prop_assert!(oracle.waits.contains(&(pair[1], pair[0])));
                            }
                            prop_assert_eq!(picture(&graph, &oracle.nodes), earlier);
                        }
                    }
                }
                Step::Remove(pick) => {
                    let Some(at) = oracle.pick(&pick) else { continue };
                    graph.remove(oracle.nodes[at]);
                    oracle.live.remove(&at);
                    oracle.waits.retain(|&(before, after)| before != at && after != at);
                }
            }
            oracle.agrees_with(&graph)?;
        }
    }
}
