//! What a line of a pool costs from one use to the next: `cargo run --release -p pontoon-signal --example pool_cost`.

#[cfg(not(pontoon_loom))]
fn main() {
    use pontoon_signal::{Host, LinePool, Nanos, Os, Rank};

    const USES: u64 = 300_000;
    for lines in [1, 64] {
        let mut pool = LinePool::new(Rank(0), lines);
        let runs = (0..15).map(|_| {
            let before = Os.now();
            for _ in 0..USES {
                let lease = pool.take().expect("the line came back");
                std::hint::black_box(lease.complete());
            }
            Os.now().since(before)
        });
        let Nanos(best) = runs.min().expect("fifteen of them");
        let lines = if lines == 1 { "a pool of 1 line" } else { "a pool of 64 lines" };
        println!("{lines}: {:.1} ns a use", best as f64 / USES as f64);
    }
}

/// The model checker has no clock.
#[cfg(pontoon_loom)]
fn main() {}
