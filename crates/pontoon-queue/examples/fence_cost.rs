//! What a fence of a pool costs, from its making to its end: `cargo run --release -p pontoon-queue --example fence_cost`.

use pontoon_queue::{FencePool, PoolSpec};
use pontoon_signal::{Host, Nanos, Os, Rank};

const USES: u64 = 300_000;

fn main() {
    let mut pool = FencePool::new(Rank(0), PoolSpec::default());
    let runs = (0..15).map(|_| {
        let before = Os.now();
        for _ in 0..USES {
            let (completer, fence) = pool.create("work").expect("all before it are complete");
            completer.complete(Ok(()));
            drop(fence);
        }
        Os.now().since(before)
    });
    let Nanos(best) = runs.min().expect("fifteen of them");
    println!("{:.1} ns a fence", best as f64 / USES as f64);
}
