//! What a command costs the deadlock detection: a node, two waits and the removal of the oldest.

use std::{hint::black_box, mem, time::Instant};

use pontoon_queue::Acyclic;

fn main() {
    for live in [64, 4096] {
        let nanoseconds = (0..99).map(|_| measure(live)).fold(f64::INFINITY, f64::min);
        println!("{live} live nodes: {nanoseconds:.1} ns a command, best of 99");
    }
}

/// Nanoseconds a command, of `live` at a time, a power of two; each waits for the newest and for
/// one that varies.
fn measure(live: usize) -> f64 {
    const COMMANDS: u32 = 100_000;
    let mut graph = Acyclic::new();
    let mut nodes: Vec<_> = (0..live).map(|_| graph.add()).collect();
    let (mut newest, mut seed) = (live - 1, 1_usize);
    let begin = Instant::now();
    for _ in 0..COMMANDS {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let node = graph.add();
        for before in [newest, seed >> 40 & (live - 1)] {
            graph.order(nodes[before], node).expect("a new node waits for an older one");
        }
        newest = (newest + 1) & (live - 1);
        graph.remove(black_box(mem::replace(&mut nodes[newest], node)));
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(COMMANDS)
}
