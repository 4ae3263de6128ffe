//! Which pages have something to go home, while others are at them.

use super::{Model, check};
use loom::thread;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_smc::{marks::Marks, table::SlotIndex};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[(
    "a_store_that_was_found_while_another_sends_is_sent",
    a_store_that_was_found_while_another_sends_is_sent,
)];

/// SYNC(smc-found): who sent a page of which a store was found meanwhile has sent that store, or it stays marked.
fn a_store_that_was_found_while_another_sends_is_sent() {
    check(3, || {
        let marks = Arc::new(Marks::new(1).unwrap());
        let (page, slot) = (Arc::new(AtomicU64::new(0)), SlotIndex(0));
        marks.found(slot);
        let finds = thread::spawn({
            let (marks, page) = (Arc::clone(&marks), Arc::clone(&page));
            move || {
                page.store(1, Relaxed);
                marks.found(slot);
            }
        });
        marks.comparing(slot);
        let sent = page.load(Relaxed);
        marks.sent(slot);
        finds.join().unwrap();
        assert!(sent == 1 || marks.is_unsent(slot), "a store is lost");
    });
}
