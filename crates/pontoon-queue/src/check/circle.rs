//! Shortest circles in a graph of who waits for whom.

use std::collections::{BTreeMap, VecDeque};

/// Of each set of nodes that wait for each other and for nobody outside, the shortest circle, from
/// its lowest node; of several, the one whose nodes come first.
pub(super) fn shortest(nodes: &[usize], needs: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<usize>> {
    let places: BTreeMap<_, _> = nodes.iter().enumerate().map(|(place, &at)| (at, place)).collect();
    let edges: Vec<Vec<usize>> = nodes
        .iter()
        .map(|&at| needs(at).iter().filter_map(|other| places.get(other).copied()).collect())
        .collect();
    let sets = sets(&edges);
    let mut leaves = vec![false; edges.len()];
    for (from, to) in edges.iter().enumerate() {
        if to.iter().any(|&to| sets[to] != sets[from]) {
            leaves[sets[from]] = true;
        }
    }
    let mut circles = BTreeMap::<usize, Vec<usize>>::new();
    for start in 0..edges.len() {
        let set = sets[start];
        if leaves[set] {
            continue;
        }
        let best = circles.get(&set).map_or(usize::MAX, Vec::len);
        if best > 1
            && let Some(circle) = circle(&edges, start, |at| at >= start && sets[at] == set, best)
        {
            circles.insert(set, circle);
        }
    }
    let mut circles: Vec<Vec<_>> = circles
        .into_values()
        .map(|circle| circle.into_iter().map(|place| nodes[place]).collect())
        .collect();
    circles.sort();
    circles
}

/// The shortest circle through `start`, if it is shorter than `best`.
fn circle(
    edges: &[Vec<usize>],
    start: usize,
    inside: impl Fn(usize) -> bool,
    best: usize,
) -> Option<Vec<usize>> {
    let mut came_from = BTreeMap::from([(start, (start, 1))]);
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        let length = came_from[&at].1;
        if length >= best {
            return None;
        }
        for &to in edges[at].iter().filter(|&&to| inside(to)) {
            if to == start {
                let mut circle = vec![at];
                while circle[circle.len() - 1] != start {
                    circle.push(came_from[&circle[circle.len() - 1]].0);
                }
                circle.reverse();
                return Some(circle);
            }
            came_from.entry(to).or_insert_with(|| {
                next.push_back(to);
                (at, length + 1)
            });
        }
    }
    None
}

/// Of each node, the number of the set of all that it reaches and that reach it (Tarjan's way,
/// without recursion, so that a long chain needs no deep stack).
fn sets(edges: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let count = edges.len();
    let (mut order, mut low, mut set) = (vec![NONE; count], vec![0; count], vec![NONE; count]);
    let (mut open, mut seen, mut found) = (Vec::new(), 0, 0);
    for root in 0..count {
        if order[root] != NONE {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((at, edge)) = path.last_mut() {
            let at = *at;
            if *edge == 0 {
                (order[at], low[at]) = (seen, seen);
                seen += 1;
                open.push(at);
            }
            if let Some(&to) = edges[at].get(*edge) {
                *edge += 1;
                if order[to] == NONE {
                    path.push((to, 0));
                } else if set[to] == NONE {
                    low[at] = low[at].min(order[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(before, _)) = path.last() {
                low[before] = low[before].min(low[at]);
            }
            if low[at] == order[at] {
                while let Some(member) = open.pop() {
                    set[member] = found;
                    if member == at {
                        break;
                    }
                }
                found += 1;
            }
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_graph(edges: &[&[usize]]) -> Vec<Vec<usize>> {
        let nodes: Vec<_> = (0..edges.len()).collect();
        shortest(&nodes, |at| edges[at].to_vec())
    }

    #[test]
    fn the_shorter_of_two_circles_is_found() {
        assert_eq!(in_graph(&[&[1], &[2], &[0, 3], &[2]]), [[2, 3]]);
    }

    #[test]
    fn a_circle_that_waits_for_another_is_left_out() {
        assert_eq!(in_graph(&[&[1], &[0, 2], &[3], &[2]]), [[2, 3]]);
    }

    #[test]
    fn a_node_that_waits_for_itself_is_a_circle() {
        assert_eq!(in_graph(&[&[0], &[0]]), [[0]]);
    }

    #[test]
    fn a_long_chain_is_no_circle() {
        let nodes: Vec<_> = (0..100_000).collect();
        assert!(shortest(&nodes, |at| vec![at + 1]).is_empty());
    }
}
