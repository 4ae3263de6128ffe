//! The table of windows, and the notes of first writes.

use super::{Memory, Model, check};
use loom::thread;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_uffd::{noted::Noted, table::Table};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[
    ("what_is_found_was_put_in_whole", what_is_found_was_put_in_whole),
    ("what_is_read_is_not_taken_out", what_is_read_is_not_taken_out),
    ("a_place_is_empty_before_it_is_taken_again", a_place_is_empty_before_it_is_taken_again),
    ("a_page_is_protected_after_it_was_opened", a_page_is_protected_after_it_was_opened),
    ("a_write_that_is_not_told_yet_is_noted", a_write_that_is_not_told_yet_is_noted),
];

/// SYNC(entry-live): whoever meets an entry by chance reads the value that was put in.
fn what_is_found_was_put_in_whole() {
    check(3, || {
        let table = Arc::new(Table::<Memory, 1>::new());
        let there = Arc::clone(&table);
        let reader = thread::spawn(move || there.find(5, Memory::read));
        let value = Memory::new();
        value.write(7);
        table.insert(0..10, value).map_err(drop).unwrap();
        assert!(matches!(reader.join().unwrap(), None | Some(7)));
        assert_eq!(table.find(5, Memory::read), Some(7));
    });
}

/// SYNC(entry-leave), SYNC(entry-read): a value is not changed after it was taken out by whoever still
/// reads it.
fn what_is_read_is_not_taken_out() {
    check(3, || {
        let table = Arc::new(Table::<Memory, 1>::new());
        let place = table.insert(0..10, Memory::new()).map_err(drop).unwrap();
        let there = Arc::clone(&table);
        let reader = thread::spawn(move || there.find(5, Memory::read));
        if let Some(value) = table.remove(place) {
            value.write(1);
        }
        assert!(matches!(reader.join().unwrap(), None | Some(0)));
        assert_eq!(table.find(5, Memory::read), None);
    });
}

/// SYNC(entry-free): who takes a place puts its value where none is any more.
fn a_place_is_empty_before_it_is_taken_again() {
    check(3, || {
        let table = Arc::new(Table::<Memory, 1>::new());
        let place = table.insert(0..10, Memory::new()).map_err(drop).unwrap();
        let there = Arc::clone(&table);
        let leaver = thread::spawn(move || there.remove(place).is_some());
        let entered = table.insert(20..30, Memory::new()).is_ok();
        assert!(leaver.join().unwrap());
        assert_eq!(table.find(25, Memory::read).is_some(), entered);
    });
}

/// SYNC(written-note), SYNC(written-done): what a take tells of was opened before, and is protected
/// after.
fn a_page_is_protected_after_it_was_opened() {
    check(3, || {
        let noted = Arc::new(Noted::new(1).unwrap());
        let state = Memory::new();
        let (there, open) = (Arc::clone(&noted), state.clone());
        let fault = thread::spawn(move || there.note(0..1, || open.write(1)));
        let mut told = 0;
        let found = |_| {
            told += 1;
            true
        };
        let (_, protected) = noted.take(0..1, found, || state.clone());
        match protected {
            // It was noted, so it was opened; and no other fault can come.
            Some(state) if told == 1 => state.write(2),
            Some(_) => {}
            None => noted.give_back(0..1),
        }
        fault.join().unwrap();
    });
}

/// N1: a page that is open is noted, whichever of a fault and a take is first.
fn a_write_that_is_not_told_yet_is_noted() {
    check(3, || {
        let noted = Arc::new(Noted::new(1).unwrap());
        let open = Arc::new(AtomicU64::new(0));
        let (there, opened) = (Arc::clone(&noted), Arc::clone(&open));
        let fault = thread::spawn(move || there.note(0..1, || opened.store(1, Relaxed)));
        let mut told = false;
        let found = |_| {
            told = true;
            true
        };
        let (_, protected) = noted.take(0..1, found, || open.store(0, Relaxed));
        fault.join().unwrap();
        let mut later = false;
        let (_, again) = noted.take(
            0..1,
            |_| {
                later = true;
                true
            },
            || (),
        );
        assert!(protected.is_none() || again.is_some());
        // What the fault wrote is told of, now or later.
        assert!(told || later);
        assert!(open.load(Relaxed) == 0 || later, "an open page that nobody will tell of");
    });
}
