//! Patterns that come while pages are read.

use super::{Model, check};
use loom::thread;
use pontoon_signal::shim::{AtomicU64, Ordering::*};
use pontoon_smc::ever;
use std::sync::Arc;

pub(crate) const MODELS: &[Model] =
    &[("a_pattern_that_is_read_is_known_of", a_pattern_that_is_read_is_known_of)];

/// SYNC(smc-pattern): who found no mark, read, and finds the count as it was has read no pattern.
fn a_pattern_that_is_read_is_known_of() {
    check(3, || {
        let [mark, count, page] = [0; 3].map(|zero| Arc::new(AtomicU64::new(zero)));
        let poisons = thread::spawn({
            let (mark, count, page) = (Arc::clone(&mark), Arc::clone(&count), Arc::clone(&page));
            move || {
                mark.store(1, Relaxed);
                ever::count(&count);
                // The kernel lets no access see a page before all that came before it was put there.
                page.store(1, Release);
            }
        });
        let before = ever::so_far([&*count].into_iter());
        let marked = mark.load(Relaxed);
        let read = page.load(Relaxed);
        if marked == 0 && ever::by_now([&*count].into_iter()) == before {
            assert_eq!(read, 0, "it was the pattern");
        }
        poisons.join().unwrap();
    });
}
