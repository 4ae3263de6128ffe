//! Windows as the hardware layer knows them.
#![cfg(not(pontoon_loom))]

mod common;

use pontoon_hal::paging::{PAGE, Paging};
use pontoon_signal::{Block, shim::Ordering::Relaxed};
use pontoon_uffd::{Paged, Service};

fn page_of(word: u64) -> Block {
    let block = Block::private("test", PAGE).unwrap();
    let span = pontoon_signal::Span::of(&block, 0..PAGE).unwrap();
    span.put(&word.to_ne_bytes().repeat(PAGE / 8));
    block
}

/// Somebody who did not wait fills the place of a page that is away, and is not to have the last word.
#[test]
fn a_page_that_does_not_go_is_put_back_whatever_came_in_its_place() {
    let Some(features) = common::features() else { return };
    if [pontoon_uffd::Feature::WriteProtect, pontoon_uffd::Feature::Move]
        .iter()
        .any(|&it| !common::has(&features, it))
    {
        return;
    }
    let paged = Paged::reserve(&features, 4 * PAGE, Service::InThread).unwrap();
    let (ours, other) = (page_of(7), page_of(9));
    paged.place(1, &ours, &mut |_| panic!("it was empty")).unwrap();
    paged.words(1)[3].store(8, Relaxed);
    let taken = paged.take(1, &mut |last| {
        assert_eq!(last[3].load(Relaxed), 8);
        paged.place(1, &other, &mut |_| panic!("it is away")).unwrap();
        false
    });
    assert_eq!(taken, Ok(false));
    let found = [0, 3].map(|word| paged.words(1)[word].load(Relaxed));
    assert_eq!(found, [7, 8]);
    assert_eq!(paged.take(1, &mut |last| last[3].load(Relaxed) == 8), Ok(true), "and can go");
}
