//! In steady state a node, its waits and its removal allocate nothing, whatever the ranks.

mod counting;

use std::collections::VecDeque;

use pontoon_queue::Acyclic;

use counting::allocations;

#[test]
fn ordering_allocates_nothing() {
    const LIVE: usize = 100;
    let mut graph = Acyclic::new();
    let mut nodes: VecDeque<_> = (0..LIVE).map(|_| graph.add()).collect();
    nodes.reserve(2);
    let (mut before, mut searches) = (0, 0);
    for round in 0..20_000 {
        if round == 10_000 {
            (before, searches) = (allocations(), 0);
        }
        let (free, bound) = (graph.add(), graph.add());
        // With the ranks, and twice.
        for at in [LIVE - 1, round * 7 % LIVE, round * 7 % LIVE] {
            graph.order(nodes[at], bound).expect("a new node waits for an older one");
        }
        // Against them: `free` waits for nothing, so all may wait for it.
        let old = nodes[round * 13 % LIVE];
        searches += u32::from(graph.rank(free) > graph.rank(old));
        graph.order(free, old).expect("an older node waits for a free one");
        nodes.extend([free, bound]);
        for _ in 0..2 {
            graph.remove(nodes.pop_front().expect("a live node"));
        }
    }
    let allocations = allocations() - before;
    assert_eq!(searches, 10_000, "each round searches");
    assert_eq!(allocations, 0, "allocations in 10,000 rounds");
}
