//! Order without a counter: words in memory that others map.

use super::{Model, check};
use loom::thread;
use pontoon_signal::{
    fence_system,
    shim::{AtomicU64, Ordering::Relaxed},
};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[
    ("a_fence_keeps_a_write_behind_a_write", a_fence_keeps_a_write_behind_a_write),
    ("of_two_that_fence_one_sees_the_other", of_two_that_fence_one_sees_the_other),
];

fn words() -> Arc<[AtomicU64; 2]> {
    Arc::new([AtomicU64::new(0), AtomicU64::new(0)])
}

/// SYNC(system-fence): who sees the second word and fences sees the first.
fn a_fence_keeps_a_write_behind_a_write() {
    check(3, || {
        let words = words();
        let writer = thread::spawn({
            let words = Arc::clone(&words);
            move || {
                words[0].store(1, Relaxed);
                fence_system();
                words[1].store(1, Relaxed);
            }
        });
        if words[1].load(Relaxed) == 1 {
            fence_system();
            assert_eq!(words[0].load(Relaxed), 1, "the later write came first");
        }
        writer.join().unwrap();
    });
}

/// SYNC(system-fence): both looks cannot be early.
fn of_two_that_fence_one_sees_the_other() {
    check(3, || {
        let words = words();
        let look = |mine: usize, words: &[AtomicU64; 2]| {
            words[mine].store(1, Relaxed);
            fence_system();
            words[1 - mine].load(Relaxed)
        };
        let other = thread::spawn({
            let words = Arc::clone(&words);
            move || look(1, &words)
        });
        let ours = look(0, &words);
        assert_eq!(ours.max(other.join().unwrap()), 1, "neither saw the other");
    });
}
