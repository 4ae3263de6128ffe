//! Sheets: words that are seen whole or not at all.

use super::{Model, check};
use loom::thread;
use pontoon_signal::{Entry, Sheet};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[
    ("a_sheet_is_read_whole", a_sheet_is_read_whole),
    ("a_sheet_has_its_stamp", a_sheet_has_its_stamp),
    ("two_writers_leave_a_whole_sheet", two_writers_leave_a_whole_sheet),
    ("an_entry_goes_on_from_its_last_stamp", an_entry_goes_on_from_its_last_stamp),
    ("two_uses_of_an_entry_are_never_mixed", two_uses_of_an_entry_are_never_mixed),
];

fn assert_whole(read: Option<(u64, [u64; 2])>) {
    if let Some((stamp, words)) = read {
        assert_eq!(words, [stamp; 2], "a sheet read in two halves");
    }
}

/// SYNC(sheet-begin), SYNC(sheet-end): a reader beside a second write has all of one of the two.
fn a_sheet_is_read_whole() {
    check(3, || {
        let sheet = Arc::new(Sheet::<2>::default());
        assert!(sheet.write(2, [2, 2]));
        let reader = thread::spawn({
            let sheet = Arc::clone(&sheet);
            move || assert_whole(sheet.read())
        });
        assert!(sheet.write(4, [4, 4]));
        reader.join().unwrap();
        assert_eq!(sheet.read(), Some((4, [4, 4])));
    });
}

/// SYNC(sheet-end): who sees the stamp of the first write sees its words.
fn a_sheet_has_its_stamp() {
    check(3, || {
        let sheet = Arc::new(Sheet::<2>::default());
        let reader = thread::spawn({
            let sheet = Arc::clone(&sheet);
            move || assert_whole(sheet.read())
        });
        assert!(sheet.write(2, [2, 2]));
        reader.join().unwrap();
    });
}

/// SYNC(sheet-turn): a write that follows another's leaves its own words, and not one of the other's.
fn two_writers_leave_a_whole_sheet() {
    check(3, || {
        let sheet = Arc::new(Sheet::<2>::default());
        let writer = thread::spawn({
            let sheet = Arc::clone(&sheet);
            move || sheet.write(2, [2, 2])
        });
        let second = sheet.write(4, [4, 4]);
        let first = writer.join().unwrap();
        assert!(first || second, "two writers that both found the other writing");
        let read = sheet.read();
        assert!(read.is_some());
        assert_whole(read);
    });
}

/// SYNC(entry-turn): the next to have an entry writes under a stamp that nobody had before.
fn an_entry_goes_on_from_its_last_stamp() {
    check(3, || {
        let entry = Arc::new(Entry::<1>::default());
        assert!(entry.take(1));
        let next = thread::spawn({
            let entry = Arc::clone(&entry);
            move || {
                while !entry.take(2) {
                    thread::yield_now();
                }
                entry.write([3])
            }
        });
        assert_eq!((entry.write([1]), entry.write([2])), (Some(2), Some(4)));
        entry.give_back();
        assert_eq!(next.join().unwrap(), Some(6));
        assert_eq!(entry.read(), Some((6, [3])));
    });
}

/// SYNC(entry-turn), SYNC(sheet-begin): who reads while an entry passes from one use to the next has
/// all of one of them. Were their stamps the same, it would not notice.
fn two_uses_of_an_entry_are_never_mixed() {
    check(3, || {
        let entry = Arc::new(Entry::<2>::default());
        assert!(entry.take(1) && entry.write([1, 1]).is_some());
        let reader = thread::spawn({
            let entry = Arc::clone(&entry);
            move || entry.read()
        });
        assert!(entry.write([2, 2]).is_some());
        if let Some((_, words)) = reader.join().unwrap() {
            assert_eq!(words[0], words[1], "two uses read as one");
        }
    });
}
