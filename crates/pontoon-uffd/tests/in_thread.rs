//! Faults served in the threads that make them.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    io::Write,
    sync::{Arc, Barrier},
    thread,
};

use common::{Numbered, at_home, features, has, until, window, word, written};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_uffd::{
    Fault, Feature, PageError, Pattern, Placed, ServeError, Served, Service, Source, Window,
    attach, on_this_thread,
};

const PAGES: usize = 100;

#[test]
fn a_miss_is_served_and_says_what_it_was() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let (pages, told) = (Arc::clone(&window), Arc::clone(&seen));
    let ones = Pattern::new(1);
    let pager = move |fault: Fault| {
        told[usize::from(fault.write)].store(fault.at as u64, Relaxed);
        match pages.fill(fault.page..fault.page + 1, &ones, true) {
            Ok(_) => Served::Again,
            Err(_) => Served::NotMine,
        }
    };
    let _attached = attach(&window, Arc::new(pager)).unwrap();
    let words = window.words(0..PAGES).unwrap();
    assert_eq!(words[4 * 512 + 3].load(Relaxed), 1);
    words[7 * 512 + 5].store(2, Relaxed);
    assert_eq!((words[7 * 512 + 5].load(Relaxed), words[7 * 512 + 6].load(Relaxed)), (2, 1));
    let page = window.page_bytes() as u64;
    let expected_write = if cfg!(target_arch = "x86_64") { 7 * page + 5 * 8 } else { 0 };
    assert_eq!(seen[1].load(Relaxed), expected_write);
    assert_eq!(seen[0].load(Relaxed), 4 * page + 3 * 8);
}

#[test]
fn the_first_write_is_told_and_nothing_else() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::WriteProtect) {
        return;
    }
    let window = window(&features, PAGES, Service::InThread);
    let _attached = attach(&window, Numbered::new(&window)).unwrap();
    for page in 0..PAGES {
        // Those that are absent are never told of.
        if page % 10 != 9 {
            assert_eq!(word(&window, page).load(Relaxed), at_home(page));
        }
    }
    assert_eq!(written(&window, 7), [0; 0], "reads are no writes");
    for page in [0, 1, 5, 98] {
        word(&window, page).store(7, Relaxed);
        word(&window, page).store(8, Relaxed);
    }
    word(&window, 19).store(9, Relaxed); // a miss and a write
    assert_eq!(written(&window, 1), [0, 1, 5, 19, 98]);
    assert_eq!(written(&window, 7), [0; 0], "they are told once");
    word(&window, 5).store(9, Relaxed);
    assert_eq!(written(&window, 7), [5]);
    window.write_protect(3..5, false).unwrap();
    assert_eq!(written(&window, 7), [3, 4], "what is not protected counts as written");
}

/// What a store before the last scan wrote is seen by whoever reads after it: nothing is missed.
#[test]
fn a_scan_loop_against_a_writer_ends_with_its_last_write() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::WriteProtect) {
        return;
    }
    scan_against_a_writer(window(&features, 4, Service::InThread));
}

/// The same where each first write takes a fault.
#[test]
fn a_scan_loop_without_the_kernels_notes_misses_nothing_either() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::WriteProtect) {
        return;
    }
    let features = features.without(Feature::PagemapScan);
    scan_against_a_writer(window(&features, 4, Service::InThread));
}

fn scan_against_a_writer(window: Arc<Window>) {
    const LAST: u64 = 300_000;
    let _attached = attach(&window, Numbered::new(&window)).unwrap();
    let mut copy = [0_u64; 4];
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=LAST {
                word(&window, (n % 4) as usize).store(n, Relaxed);
            }
            done.store(1, Relaxed);
        });
        let mut scans = 0_u64;
        let mut last_round = false;
        loop {
            for page in written(&window, 2) {
                copy[page] = word(&window, page).load(Relaxed);
            }
            scans += 1;
            if last_round {
                break;
            }
            last_round = done.load(Relaxed) == 1;
        }
        assert!(scans > 2, "the writer was scanned while it wrote");
    });
    copy.sort_unstable();
    assert_eq!(copy, [LAST - 3, LAST - 2, LAST - 1, LAST]);
}

#[test]
fn a_poisoned_page_faults_as_such_and_is_healed() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::Poison) {
        return;
    }
    let window = window(&features, PAGES, Service::InThread);
    let pager = Numbered::new(&window);
    let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
    word(&window, 4).store(5, Relaxed);
    assert_eq!(pager.poisoned.load(Relaxed), 0);
    window.poison(3..6).unwrap();
    window.poison(5..7).unwrap();
    assert!((0..8).all(|page| window.is_poisoned(page) == (3..7).contains(&page)));
    let _ = written(&window, 9); // a scan heals nothing
    assert_eq!(word(&window, 4).load(Relaxed), at_home(4), "the page went, and was healed");
    assert_eq!(pager.poisoned.load(Relaxed), 1);
    assert!(!window.is_poisoned(4));
    assert_eq!(window.zero(3..4, true), Ok(Placed::All));
    assert_eq!(word(&window, 3).load(Relaxed), 0);
    window.drop_pages(5..7).unwrap();
    assert_eq!(word(&window, 6).load(Relaxed), at_home(6));
    assert_eq!(pager.poisoned.load(Relaxed), 1, "a page that was dropped is absent, not poisoned");
}

#[test]
fn a_call_of_the_kernel_gets_no_absent_page() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let _attached = attach(&window, Numbered::new(&window)).unwrap();
    let (mut ours, mut theirs) = std::io::pipe().unwrap();
    let write = |theirs: &mut std::io::PipeWriter| {
        #[allow(unsafe_code)] // a page of a window as bytes, for a call that reads it
        // SAFETY: nobody writes the page meanwhile.
        let bytes = unsafe { core::slice::from_raw_parts(window.base().as_ptr(), 8) };
        theirs.write(bytes)
    };
    assert_eq!(write(&mut theirs).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    let _ = word(&window, 0).load(Relaxed);
    assert_eq!(write(&mut theirs).unwrap(), 8);
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut ours, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), at_home(0));
}

#[test]
fn many_threads_that_miss_a_page_get_one_copy() {
    let Some(features) = features() else { return };
    const THREADS: usize = 8;
    const ROUNDS: usize = 200;
    let window = window(&features, ROUNDS, Service::InThread);
    let pager = Numbered::new(&window);
    let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
    let (barrier, sum) = (Barrier::new(THREADS), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (window, barrier, sum) = (&window, &barrier, &sum);
            scope.spawn(move || {
                // Some have a stack for it, and some have what the standard library gives.
                let _stack = (thread % 2 == 0).then(|| on_this_thread().unwrap());
                for page in 0..ROUNDS {
                    barrier.wait();
                    sum.fetch_add(word(window, page).load(Relaxed), Relaxed);
                }
            });
        }
    });
    let once: u64 = (0..ROUNDS).map(at_home).sum();
    assert_eq!(sum.load(Relaxed), once * THREADS as u64);
    assert_eq!(pager.copies.load(Relaxed), ROUNDS as u64);
}

#[test]
fn a_thread_without_an_alternate_stack_is_served() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let _attached = attach(&window, Numbered::new(&window)).unwrap();
    let pages = Arc::clone(&window);
    let found = thread::spawn(move || {
        #[allow(unsafe_code)] // a call of the C library
        {
            let none = libc::stack_t {
                ss_sp: core::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            let mut old = none;
            // SAFETY: the thread runs on its ordinary stack.
            assert_eq!(unsafe { libc::sigaltstack(&none, &mut old) }, 0);
            let found = word(&pages, 2).load(Relaxed);
            // SAFETY: what the thread had.
            assert_eq!(unsafe { libc::sigaltstack(&old, core::ptr::null_mut()) }, 0);
            found
        }
    });
    assert_eq!(found.join().unwrap(), at_home(2));
}

#[test]
fn pages_that_are_there_stay_and_the_rest_comes() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let page = window.page_bytes();
    let source: Vec<u8> = (0..6).flat_map(|n| vec![n + 1; page]).collect();
    assert_eq!(window.copy_in(12, &source[..page], false), Ok(Placed::All));
    assert_eq!(window.copy_in(14, &source[..2 * page], false), Ok(Placed::All));
    let there = Placed::AlreadyThere { pages: 3 };
    assert_eq!(window.copy_in(11, &source[..], false), Ok(there));
    let words = window.words(11..17).unwrap();
    let first = |n: usize| words[n * page / 8].load(Relaxed).to_ne_bytes()[0];
    assert_eq!([0, 1, 2, 3, 4, 5].map(first), [1, 1, 3, 1, 2, 6]);
    let block = pontoon_signal::Block::private("source", page).unwrap();
    let source = Source::of(&block, 0..page).unwrap();
    assert_eq!(window.copy_in(30, source, true), Ok(Placed::All));
    assert!(Source::of(&block, 1..page + 1).is_none());
}

#[test]
fn what_is_not_within_is_refused() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let page = window.page_bytes();
    let bytes = vec![0; 2 * page];
    let outside = |pages| Err(PageError::Outside { pages, window: PAGES });
    assert_eq!(window.copy_in(99, &bytes[..], true).map(drop), outside(99..101));
    assert_eq!(window.drop_pages(5..101), outside(5..101));
    assert_eq!(window.poison(101..101), outside(101..101));
    assert_eq!(window.wake(usize::MAX..usize::MAX), outside(usize::MAX..usize::MAX));
    assert_eq!(window.replace(100, &Pattern::new(0)), outside(100..101));
    let short = window.copy_in(0, &bytes[1..], true).unwrap_err();
    assert_eq!(short, PageError::Source { bytes: 2 * page - 1, wanted: page });
    let reversed = core::ops::Range { start: 7, end: 6 };
    assert!(window.words(99..101).is_none() && window.words(reversed).is_none());
    assert!(window.words(0..usize::MAX).is_none());
    // The kernel reads the source: an absent page cannot be one.
    let absent = window.words(3..4).unwrap();
    let error = window.copy_in(4, absent, true).unwrap_err();
    assert!(error.to_string().contains("is it an absent page?"), "{error}");
}

#[test]
fn a_window_is_attached_once_at_a_time() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let attached = attach(&window, Numbered::new(&window)).unwrap();
    let again = attach(&window, Numbered::new(&window));
    assert_eq!(again.unwrap_err(), ServeError::Served);
    drop(attached);
    let pager = Numbered::new(&window);
    let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
    assert_eq!(word(&window, 0).load(Relaxed), at_home(0));
    assert_eq!(pager.copies.load(Relaxed), 1);
}

#[test]
fn what_a_window_held_goes_with_it() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let weak = Arc::downgrade(&window);
    let attached = attach(&window, Numbered::new(&window)).unwrap();
    let block = window.block();
    drop(window);
    drop(attached);
    assert!(weak.upgrade().is_some(), "a block keeps it");
    drop(block);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_terabyte_costs_nothing_until_it_is_touched() {
    let Some(features) = features() else { return };
    let before = resident_kib();
    let pages = (1 << 40) / rustix::param::page_size();
    let window = window(&features, pages, Service::InThread);
    let ones = Pattern::new(1);
    assert_eq!(window.fill(pages - 1..pages, &ones, true), Ok(Placed::All));
    assert_eq!(word(&window, pages - 1).load(Relaxed), 1);
    if features.has(Feature::WriteProtectAsync) && features.has(Feature::PagemapScan) {
        word(&window, pages - 1).store(2, Relaxed);
        assert_eq!(written(&window, 3), [pages - 1]);
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "it took {grown} KiB");
}

/// What this process has in memory.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let sum = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    sum("VmRSS") + sum("VmPTE")
}

#[test]
fn pages_move_out_with_all_that_was_written() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::Move) {
        return;
    }
    let window = window(&features, PAGES, Service::InThread);
    let pager = Numbered::new(&window);
    let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
    let mut shelf = window.shelf(8).unwrap();
    for page in 10..13 {
        word(&window, page).store(page as u64, Relaxed);
    }
    window.move_out(10..13, &shelf, 2).unwrap();
    for page in 10..13 {
        assert_eq!(shelf.words(page - 8).unwrap()[0].load(Relaxed), page as u64);
        assert_eq!(word(&window, page).load(Relaxed), at_home(page), "it was absent");
    }
    assert!(shelf.words(1).is_none() && shelf.words(5).is_none() && shelf.words(8).is_none());
    let error = window.move_out(10..12, &shelf, 3).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    let error = window.move_out(20..22, &shelf, 6).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
    shelf.clear(0..8).unwrap();
    assert!(shelf.words(3).is_none());
    window.move_out(10..12, &shelf, 3).unwrap();
    assert_eq!(shelf.words(4).unwrap()[1].load(Relaxed), at_home(11) + 1);
}

/// Ends a loop of another thread's, on every way out.
struct Ending<'a>(&'a AtomicU64);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(1, Relaxed);
    }
}

/// A writer that goes on while its page is moved out loses nothing: what it wrote is on the shelf, or
/// in the page that came after.
#[test]
fn a_page_that_is_moved_out_under_its_writer_loses_nothing() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::Move) {
        return;
    }
    const MOVES: u64 = 1_000;
    let window = window(&features, 1, Service::InThread);
    // Its home is whatever was moved out last: the writer's count goes on.
    let home =
        Arc::new((0..window.page_bytes() / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let busy = Arc::new(AtomicU64::new(0));
    let (pages, from, hold) = (Arc::clone(&window), Arc::clone(&home), Arc::clone(&busy));
    let pager = move |fault: Fault| {
        while hold.load(Relaxed) == 1 {
            thread::yield_now();
        }
        match pages.copy_in(fault.page, &from[..], true) {
            Ok(_) => Served::Again,
            Err(_) => Served::NotMine,
        }
    };
    let _attached = attach(&window, Arc::new(pager)).unwrap();
    let (stop, stores) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Relaxed) == 0 {
                let word = word(&window, 0);
                word.fetch_add(1, Relaxed);
                stores.fetch_add(1, Relaxed);
            }
        });
        let _ended = Ending(&stop); // also when a move fails
        let mut shelf = window.shelf(1).unwrap();
        for _ in 0..MOVES {
            let seen = stores.load(Relaxed);
            // Of two stores that are counted, the second found the page there.
            until("the writer", || stores.load(Relaxed) >= seen + 2);
            busy.store(1, Relaxed);
            window.move_out(0..1, &shelf, 0).unwrap();
            home[0].store(shelf.words(0).unwrap()[0].load(Relaxed), Relaxed);
            busy.store(0, Relaxed);
            shelf.clear(0..1).unwrap();
        }
    });
    assert_eq!(word(&window, 0).load(Relaxed), stores.load(Relaxed));
}

#[test]
fn a_page_is_replaced_for_good() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::InThread);
    let pager = Numbered::new(&window);
    let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
    word(&window, 5).store(1, Relaxed);
    window.replace(5, &Pattern::new(0x77)).unwrap();
    window.replace(6, &Pattern::new(0x66)).unwrap();
    assert_eq!([5, 6].map(|page| word(&window, page).load(Relaxed)), [0x77, 0x66]);
    assert_eq!([4, 7].map(|page| word(&window, page).load(Relaxed)), [4, 7].map(at_home));
    assert_eq!(pager.copies.load(Relaxed), 3);
    if features.has(Feature::WriteProtectAsync) {
        word(&window, 5).store(2, Relaxed);
        word(&window, 7).store(2, Relaxed);
        assert_eq!(written(&window, 9), [7], "what is written to it is not noted");
    }
    let error = window.copy_in(5, pager.home(5), true).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
}
