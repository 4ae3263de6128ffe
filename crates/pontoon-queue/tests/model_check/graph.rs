//! All-pairs reachability.

/// Which nodes can be reached from which.
#[derive(Clone)]
pub(crate) struct Graph {
    edges: Vec<(usize, usize)>,
    reach: Vec<Vec<u64>>,
}

impl Graph {
    pub(crate) fn new(nodes: usize, edges: Vec<(usize, usize)>) -> Self {
        let mut graph = Self { edges, reach: vec![vec![0; nodes.div_ceil(64)]; nodes] };
        graph.close();
        graph
    }

    pub(crate) fn add(&mut self, edges: Vec<(usize, usize)>) {
        self.edges.extend(edges);
        self.close();
    }

    /// Whether there is a way, of no steps at all if they are the same.
    pub(crate) fn leads(&self, from: usize, to: usize) -> bool {
        self.reach[from][to / 64] >> (to % 64) & 1 == 1
    }

    fn close(&mut self) {
        for (node, row) in self.reach.iter_mut().enumerate() {
            row[node / 64] |= 1 << (node % 64);
        }
        // Edges lead mostly upwards, so from the last one on few turns are needed.
        self.edges.sort_unstable_by(|a, b| b.cmp(a));
        let mut grew = true;
        while grew {
            grew = false;
            for &(from, to) in self.edges.iter().filter(|(from, to)| from != to) {
                let theirs = std::mem::take(&mut self.reach[to]);
                for (mine, theirs) in self.reach[from].iter_mut().zip(&theirs) {
                    grew |= *theirs & !*mine != 0;
                    *mine |= theirs;
                }
                self.reach[to] = theirs;
            }
        }
    }
}
