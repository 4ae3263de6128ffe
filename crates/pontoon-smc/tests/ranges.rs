//! Ranges of a window that are written through, and what goes on beside them.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]

mod common;
mod raw;
mod setup;

use std::{sync::Arc, thread, time::Duration};

use common::{Plain, pair, patient, silent::Silent};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_smc::{Arrival, Extent, Pool, SmcError};
use pontoon_uffd::{Service, on_this_thread};
use setup::{at_home, plain, settings};

/// What was stored before goes home first, and what lies beside stays as it was.
#[test]
fn a_range_of_a_window_is_written_through_and_the_rest_is_released() {
    let pair = pair(4);
    let bytes = 4 * PAGE;
    let Some((window, _serving)) = plain(&pair, &pair.link, settings(), Service::InThread) else {
        return;
    };
    for page in 0..4 {
        window.word(page * PAGE).unwrap().store(1, Relaxed);
    }
    let through = window.write_through(PAGE + 9..3 * PAGE, Arrival::AtHome, patient()).unwrap();
    assert_eq!(through.bytes(), PAGE..3 * PAGE);
    let homes = || [0, 1, 2, 3].map(|page| pair.at_home(page * PAGE));
    assert_eq!(homes(), [0, 1, 1, 0]);
    for page in 0..4 {
        window.word(page * PAGE).unwrap().store(2, Relaxed);
    }
    assert_eq!(homes(), [0, 2, 2, 0]);
    assert_eq!(window.release(0..bytes, patient()).unwrap().pages, 2);
    assert_eq!(homes(), [2, 2, 2, 2]);
    let none = window.write_through(bytes..bytes, Arrival::AtHome, patient());
    assert!(matches!(none, Err(SmcError::OutOfRange { .. })));
}

#[test]
fn where_stores_cannot_be_trapped_the_error_says_what_to_do() {
    let pair = pair(4);
    let pool = Pool::new(settings()).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let extent = Extent::new(0..4 * PAGE, home, 0);
    let window = pool.window(Plain::new(4), vec![extent]).unwrap();
    let error = window.write_through(0..PAGE, Arrival::AtHome, patient()).unwrap_err();
    assert!(error.to_string().contains("use cells"), "{error}");
}

/// Stores go on while the range becomes written through, and so do acquires: none is lost.
#[test]
fn stores_that_go_on_meanwhile_are_all_at_home() {
    const WORDS: usize = 4 * PAGE / 8;
    for _ in 0..10 {
        let pair = pair(4);
        let Some((window, _serving)) = plain(&pair, &pair.link, settings(), Service::InThread)
        else {
            return;
        };
        let (window, stop, begun) = (&window, &AtomicU64::new(0), &AtomicU64::new(0));
        let (last, _through) = thread::scope(|scope| {
            let storing = scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                let mut last = vec![0; WORDS];
                for at in (0..WORDS).cycle() {
                    last[at] += 1;
                    raw::store_word(window.base().as_ptr().wrapping_add(8 * at), last[at]);
                    begun.store(1, Relaxed);
                    if stop.load(Relaxed) != 0 {
                        break;
                    }
                }
                last
            });
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                while stop.load(Relaxed) == 0 {
                    window.acquire(0..4 * PAGE, patient()).unwrap();
                }
            });
            while begun.load(Relaxed) == 0 {
                thread::yield_now();
            }
            let through = window.write_through(0..4 * PAGE, Arrival::AtHome, patient());
            stop.store(1, Relaxed);
            (storing.join().unwrap(), through.unwrap())
        });
        let expected: Vec<u8> = last.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(at_home(&pair, 0, 4 * PAGE) == expected, "a store is lost");
        let mut here = vec![0; 4 * PAGE];
        window.get(0, &mut here).unwrap();
        assert!(here == expected, "a store is lost here");
        assert_eq!(window.statistics().lost, 0);
    }
}

/// Stores go by one way alone: a range that some are written through has no other, until it is dropped.
#[test]
fn a_range_is_written_through_once() {
    let pair = pair(4);
    let Some((window, _serving)) = plain(&pair, &pair.link, settings(), Service::InThread) else {
        return;
    };
    let through = |bytes| window.write_through(bytes, Arrival::AtHome, patient());
    let first = through(PAGE..3 * PAGE).unwrap();
    for asked in [0..2 * PAGE, 2 * PAGE..3 * PAGE, 0..4 * PAGE, PAGE + 8..PAGE + 16] {
        let error = through(asked.clone()).unwrap_err();
        let whole = asked.start / PAGE * PAGE..asked.end.next_multiple_of(PAGE);
        assert_eq!(error, SmcError::Twice { asked: whole.clone(), other: PAGE..3 * PAGE });
        for number in [whole.start, whole.end, PAGE, 3 * PAGE] {
            assert!(error.to_string().contains(&number.to_string()), "{error}");
        }
    }
    let _beside = [through(0..PAGE).unwrap(), through(3 * PAGE..4 * PAGE).unwrap()];
    drop(first);
    let again = through(PAGE..2 * PAGE).unwrap();
    raw::store_word(window.base().as_ptr().wrapping_add(PAGE), 5);
    again.check().unwrap();
    assert_eq!(pair.at_home(PAGE), 5);
}

/// It is no home that keeps a range from being written through while another call is at the window.
#[test]
fn a_call_that_others_do_not_let_begin_says_so() {
    let pair = pair(4);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let Some((window, _serving)) = plain(&pair, &link, settings(), Service::InThread) else {
        return;
    };
    window.word(0).unwrap().load(Relaxed);
    silent.be_silent(true);
    let before = silent.posted();
    thread::scope(|scope| {
        let acquire = scope.spawn(|| window.acquire(0..PAGE, patient()));
        while silent.posted() == before {
            thread::yield_now();
        }
        let short = Bound::within(Duration::from_millis(50));
        let error = window.write_through(PAGE..2 * PAGE, Arrival::AtHome, short).unwrap_err();
        assert!(matches!(error, SmcError::Occupied { .. }), "{error}");
        silent.be_silent(false);
        acquire.join().unwrap().unwrap();
    });
    let through = window.write_through(PAGE..2 * PAGE, Arrival::AtHome, patient()).unwrap();
    through.check().unwrap();
}

/// What was stored to the pattern before is lost, and told of, when a store that is written through finds it there.
#[test]
fn stores_to_the_pattern_are_told_of_when_a_store_takes_it_away() {
    let pair = pair(4);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = settings();
    (settings.deadline, settings.threshold) = (Duration::from_millis(100), 1000);
    let Some((window, _serving)) = plain(&pair, &link, settings, Service::InThread) else {
        return;
    };
    silent.be_silent(true);
    window.word(8).unwrap().store(1, Relaxed);
    assert!(window.check(0..PAGE).is_err(), "it is stored to the pattern");
    let through = window.write_through(0..PAGE, Arrival::Posted, patient()).unwrap();
    raw::store_word(window.base().as_ptr(), 2);
    through.check().unwrap();
    let first = 0..PAGE;
    assert_eq!((window.lost(), window.statistics().stray), (vec![first], 8));
    silent.be_silent(false);
}
