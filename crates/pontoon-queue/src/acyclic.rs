//! Which may wait for which: a topological order kept while waits are added, so that the one that
//! would close a circle is refused before it is made.
//!
//! The order is that of David J. Pearce and Paul H. J. Kelly, "A dynamic topological sort algorithm
//! for directed acyclic graphs", ACM Journal of Experimental Algorithmics 11 (2006), article 1.7.
//! Each node has a rank, and whoever waits ranks above what it waits for. A wait that agrees with
//! the ranks can close no circle. For any other, what lies between the two ranks is searched both
//! ways, and the ranks found are dealt out anew among the nodes found. The search ahead goes
//! breadth first here, so that the circle it finds is a shortest one.

use std::{array, error, fmt, iter, ops::RangeInclusive};

/// One thing that waits or is waited for, in the [`Acyclic`] that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    slot: u32,
    serial: u64,
}

/// A node's place in the order: above those of all that it waits for.
///
/// For the tests of invariant N1, as are [`Acyclic::rank`] and [`Acyclic::after`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRank(u64);

/// A wait that would never end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// From `before` to `after`, each waiting for the next, as short as there is one; the refused
    /// wait would be the last one's for the first.
    pub path: Vec<Node>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this wait would close a circle of {} that wait for each other", self.path.len())
    }
}

impl error::Error for Cycle {}

/// Nodes and the waits between them, of which none closes a circle.
///
/// A node that was removed is done. Calls that name it change nothing: to wait for it is no wait,
/// and what it would wait for no longer matters.
///
/// Room that a removal frees is used again, so once the graph and its searches have been as large
/// as they get, nothing allocates but a refusal. Memory is not given back before the drop.
///
/// ```
/// use pontoon_queue::Acyclic;
///
/// let mut graph = Acyclic::new();
/// let (fill, copy) = (graph.add(), graph.add());
/// graph.order(fill, copy)?;
/// assert_eq!(graph.order(copy, fill).unwrap_err().path, [copy, fill]);
///
/// graph.remove(copy);
/// graph.order(copy, fill)?;
/// # Ok::<(), pontoon_queue::Cycle>(())
/// ```
///
/// Invariant N1: an edge leads from a lower rank to a higher one, and no two nodes have one rank.
/// Invariant N2: an edge is in the list `AFTER` of the node before it and in the list `BEFORE` of
/// the node after it, and two nodes have one edge at most.
/// Invariant N3: outside a search, no slot has been reached.
#[derive(Clone, Debug)]
pub struct Acyclic {
    slots: Vec<Slot>,
    edges: Vec<Edge>,
    free_slot: u32,
    free_edge: u32,
    live: usize,
    /// Of the newest node.
    serial: u64,
    /// What a search found, on either side.
    found: [Vec<u32>; 2],
    ranks: Vec<u64>,
}

/// The end of a list; no slot and no edge has this number.
const NONE: u32 = u32::MAX;
/// No node has this serial number.
const VACANT: u64 = 0;

/// The side of what is waited for, of an edge's ends and of a node's lists.
const BEFORE: usize = 0;
/// The side of what waits.
const AFTER: usize = 1;

#[derive(Clone, Debug)]
struct Slot {
    serial: u64,
    rank: u64,
    /// The first edge to each side; in a vacant slot, the next vacant one is `first[0]`.
    first: [u32; 2],
    /// From which slot a search came here.
    reached: u32,
}

#[derive(Clone, Debug)]
struct Edge {
    /// The slots that it joins. The list that leads to `end[side]` is one of `end[1 - side]`.
    end: [u32; 2],
    /// In the list that leads to either side; of an edge that is free, the next free is `next[0]`.
    next: [u32; 2],
    previous: [u32; 2],
}

impl Acyclic {
    /// A graph without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            edges: Vec::new(),
            free_slot: NONE,
            free_edge: NONE,
            live: 0,
            serial: VACANT,
            found: array::from_fn(|_| Vec::new()),
            ranks: Vec::new(),
        }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a node that ranks above all others and waits for none.
    ///
    /// # Panics
    /// There are 2^32-1 nodes already.
    pub fn add(&mut self) -> Node {
        self.serial += 1;
        self.live += 1;
        let serial = self.serial;
        let fresh = Slot { serial, rank: serial, first: [NONE; 2], reached: NONE };
        let slot = self.free_slot;
        if let Some(vacant) = self.slots.get_mut(slot as usize) {
            self.free_slot = vacant.first[0];
            *vacant = fresh;
            return Node { slot, serial };
        }
        let slot = number(self.slots.len());
        self.slots.push(fresh);
        Node { slot, serial }
    }

    /// Makes `after` wait for `before`.
    ///
    /// One comparison if `before` ranks below `after`, and a look through the shorter of two lists:
    /// what waits for `before` and what `after` waits for. Otherwise O(m log m) for m nodes and
    /// edges between the two ranks that have to do with either.
    ///
    /// # Errors
    /// `before` waits for `after`, or is the same; the graph stays as it was.
    ///
    /// # Panics
    /// There are 2^32-1 edges already.
    pub fn order(&mut self, before: Node, after: Node) -> Result<(), Cycle> {
        if !self.has(before) || !self.has(after) {
            return Ok(());
        }
        let (before, after) = (before.slot, after.slot);
        if self.slot(before).rank >= self.slot(after).rank {
            self.rank_above(after, before)?;
        } else if self.are_joined(before, after) {
            return Ok(());
        }
        self.join(before, after);
        Ok(())
    }

    /// Removes a node that is done, and its edges; nothing waits for it any longer.
    pub fn remove(&mut self, node: Node) {
        if !self.has(node) {
            return;
        }
        for side in [BEFORE, AFTER] {
            let mut edge = self.slot(node.slot).first[side];
            while edge != NONE {
                let next = self.edge(edge).next[side];
                self.leave(edge, 1 - side);
                self.edge_mut(edge).next[0] = self.free_edge;
                self.free_edge = edge;
                edge = next;
            }
        }
        let free = self.free_slot;
        let slot = self.slot_mut(node.slot);
        slot.serial = VACANT;
        slot.first[0] = free;
        self.free_slot = node.slot;
        self.live -= 1;
    }

    /// What the node waits for, the latest order first; nothing if it was removed.
    pub fn before(&self, node: Node) -> impl Iterator<Item = Node> {
        self.neighbours(node, BEFORE)
    }

    /// What waits for the node, the latest order first; nothing if it was removed.
    #[doc(hidden)]
    pub fn after(&self, node: Node) -> impl Iterator<Item = Node> {
        self.neighbours(node, AFTER)
    }

    /// The node's rank until the next order; none if it was removed.
    #[doc(hidden)]
    #[must_use]
    pub fn rank(&self, node: Node) -> Option<NodeRank> {
        self.has(node).then(|| NodeRank(self.slot(node.slot).rank))
    }

    fn has(&self, node: Node) -> bool {
        self.slots.get(node.slot as usize).is_some_and(|slot| slot.serial == node.serial)
    }

    fn neighbours(&self, node: Node, side: usize) -> impl Iterator<Item = Node> {
        let first = if self.has(node) { self.slot(node.slot).first[side] } else { NONE };
        let one = |edge: u32| (edge != NONE).then_some(edge);
        iter::successors(one(first), move |&edge| one(self.edge(edge).next[side]))
            .map(move |edge| self.node(self.edge(edge).end[side]))
    }

    fn node(&self, slot: u32) -> Node {
        Node { slot, serial: self.slot(slot).serial }
    }

    fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    fn edge(&self, edge: u32) -> &Edge {
        &self.edges[edge as usize]
    }

    fn edge_mut(&mut self, edge: u32) -> &mut Edge {
        &mut self.edges[edge as usize]
    }
}

impl Default for Acyclic {
    fn default() -> Self {
        Self::new()
    }
}

/// Edges.
impl Acyclic {
    /// Whether there is an edge; both lists that would have it are gone through abreast.
    fn are_joined(&self, before: u32, after: u32) -> bool {
        let mut down = self.slot(before).first[AFTER];
        let mut up = self.slot(after).first[BEFORE];
        while down != NONE && up != NONE {
            let (one, other) = (self.edge(down), self.edge(up));
            if one.end[AFTER] == after || other.end[BEFORE] == before {
                return true;
            }
            (down, up) = (one.next[AFTER], other.next[BEFORE]);
        }
        false
    }

    /// Adds an edge, which must agree with N1 and be new.
    fn join(&mut self, before: u32, after: u32) {
        let end = [before, after];
        let next = [self.slot(after).first[BEFORE], self.slot(before).first[AFTER]];
        let fresh = Edge { end, next, previous: [NONE; 2] };
        let mut edge = self.free_edge;
        if let Some(free) = self.edges.get_mut(edge as usize) {
            self.free_edge = free.next[0];
            *free = fresh;
        } else {
            edge = number(self.edges.len());
            self.edges.push(fresh);
        }
        for side in [BEFORE, AFTER] {
            if next[side] != NONE {
                self.edge_mut(next[side]).previous[side] = edge;
            }
            self.slot_mut(end[1 - side]).first[side] = edge;
        }
    }

    /// Takes an edge out of the list that leads to one of its sides.
    fn leave(&mut self, edge: u32, side: usize) {
        let Edge { end, next, previous } = self.edge(edge);
        let (owner, next, previous) = (end[1 - side], next[side], previous[side]);
        match previous {
            NONE => self.slot_mut(owner).first[side] = next,
            previous => self.edge_mut(previous).next[side] = next,
        }
        if next != NONE {
            self.edge_mut(next).previous[side] = previous;
        }
    }
}

/// The search.
impl Acyclic {
    /// Lifts `after`, and as much of what waits for it as it must, above `before`.
    fn rank_above(&mut self, after: u32, before: u32) -> Result<(), Cycle> {
        let between = self.slot(after).rank..=self.slot(before).rank;
        if self.search(after, AFTER, &between, before) {
            return Err(self.cycle(before));
        }
        // What is found here is not found ahead too, or there would be a circle.
        self.search(before, BEFORE, &between, NONE);
        let Self { slots, found, ranks, .. } = self;
        for found in &mut *found {
            found.sort_unstable_by_key(|&slot| slots[slot as usize].rank);
        }
        let [behind, ahead] = found;
        let moved = || behind.iter().chain(&*ahead);
        ranks.clear();
        ranks.extend(moved().map(|&slot| slots[slot as usize].rank));
        ranks.sort_unstable();
        for (&slot, &rank) in moved().zip(&*ranks) {
            let slot = &mut slots[slot as usize];
            slot.rank = rank;
            slot.reached = NONE;
        }
        Ok(())
    }

    /// Finds all that edges lead to from `start` on one side with a rank in `between`, nearest
    /// first; ends early at `goal`, and tells whether it did.
    fn search(
        &mut self,
        start: u32,
        side: usize,
        between: &RangeInclusive<u64>,
        goal: u32,
    ) -> bool {
        let Self { slots, edges, found, .. } = self;
        let found = &mut found[side];
        found.clear();
        found.push(start);
        slots[start as usize].reached = start;
        let mut next = 0;
        while slots.get(goal as usize).is_none_or(|goal| goal.reached == NONE) {
            let Some(&from) = found.get(next) else { return false };
            next += 1;
            let mut edge = slots[from as usize].first[side];
            while let Some(Edge { end, next, .. }) = edges.get(edge as usize) {
                let slot = &mut slots[end[side] as usize];
                if slot.reached == NONE && between.contains(&slot.rank) {
                    slot.reached = from;
                    found.push(end[side]);
                }
                edge = next[side];
            }
        }
        true
    }

    /// The way that a search ahead took to `last`, backwards: as the nodes wait.
    #[cold]
    fn cycle(&mut self, last: u32) -> Cycle {
        let mut path = Vec::new();
        let mut at = last;
        loop {
            path.push(self.node(at));
            let from = self.slot(at).reached;
            if from == at {
                break;
            }
            at = from;
        }
        for &slot in &self.found[AFTER] {
            self.slots[slot as usize].reached = NONE;
        }
        Cycle { path }
    }
}

/// The number of the next slot or edge.
fn number(length: usize) -> u32 {
    let number = u32::try_from(length).ok().filter(|&number| number != NONE);
    number.expect("a graph of fewer than 2^32-1 nodes and edges")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_stays_between_the_two_ranks() {
        let mut graph = Acyclic::new();
        let [older, newer] = array::from_fn(|_| graph.add());
        let mut last = older;
        for _ in 0..100 {
            let next = graph.add();
            graph.order(last, next).expect("a new node waits for an older one");
            last = next;
        }
        graph.order(newer, older).expect("neither waits for the other");
        assert_eq!(graph.found, [[newer.slot], [older.slot]]);
    }
}
