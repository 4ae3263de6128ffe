//! Windows as the hardware layer knows them.
#![cfg(not(pontoon_loom))]
#![allow(unsafe_code)] // locking all that a process has, and mapping all that it may

mod common;

use std::{sync::Arc, thread, time::Duration};

use common::{alone, ended_by, passed};
use pontoon_hal::paging::{PAGE, PageFault, Pager, Paging, Served};
use pontoon_signal::{
    Block,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_uffd::{Feature, Features, Paged, Service};

fn page_of(word: u64) -> Block {
    let block = Block::private("test", PAGE).unwrap();
    let span = pontoon_signal::Span::of(&block, 0..PAGE).unwrap();
    span.put(&word.to_ne_bytes().repeat(PAGE / 8));
    block
}

/// It is asked for nothing.
struct Nobody;

impl Pager for Nobody {
    fn fault(&self, _: PageFault) -> Served {
        Served::Refused
    }
}

/// What windows that come and go need; `None`, and says so, on a kernel that has not.
fn features() -> Option<Features> {
    let features = common::features()?;
    [Feature::WriteProtect, Feature::Move]
        .iter()
        .all(|&it| common::has(&features, it))
        .then_some(features)
}

/// Pages that follow each other go together, but for those that are absent, that are guarded, or that are to stay.
#[test]
fn a_run_of_pages_goes_as_each_of_them_would() {
    const PAGES: usize = 64;
    let Some(features) = features() else { return };
    let paged = Paged::reserve(&features, PAGES * PAGE, Service::InThread).unwrap();
    let (absent, closed, kept) = ([5, 20, 21, 40], 30..32, [3, 16, 30, 47]);
    paged.read_only(closed.clone()).unwrap();
    for round in 0..3 {
        for page in (0..PAGES).filter(|page| !absent.contains(page)) {
            if round == 0 || !kept.contains(&page) {
                paged.place(page, &page_of(page as u64), &mut |_| panic!("{page}")).unwrap();
            }
            if !closed.contains(&page) {
                paged.words(page)[7].store(1000 + round, Relaxed);
            }
        }
        let (mut seen, mut told) = (Vec::new(), Vec::new());
        paged.take_run(
            0..PAGES,
            &mut |page, words| {
                let last = if closed.contains(&page) { page as u64 } else { 1000 + round };
                assert_eq!(words[7].load(Relaxed), last, "page {page}");
                assert_eq!(words[8].load(Relaxed), page as u64);
                seen.push(page);
                !kept.contains(&page)
            },
            &mut |page, taken| told.push((page, taken)),
        );
        let all: Vec<_> = (0..PAGES).collect();
        let there: Vec<_> = all.iter().copied().filter(|page| !absent.contains(page)).collect();
        assert_eq!(seen, there);
        let expected: Vec<_> = all.iter().map(|page| (*page, Ok(!kept.contains(page)))).collect();
        assert_eq!(told, expected);
        let left: Vec<_> = all.into_iter().filter(|&page| paged.is_there(page)).collect();
        assert_eq!(left, kept);
        for page in kept.into_iter().filter(|page| !closed.contains(page)) {
            let found = [7, 8].map(|word| paged.words(page)[word].load(Relaxed));
            assert_eq!(found, [1000 + round, page as u64], "page {page} is back as it was");
        }
    }
    // Short ones lie behind each other until there is no room.
    for first in (48..60).step_by(3) {
        for page in first..first + 3 {
            paged.place(page, &page_of(page as u64), &mut |_| panic!("{page}")).unwrap();
        }
        let mut gone = 0;
        paged.take_run(
            first..first + 3,
            &mut |page, words| words[8].load(Relaxed) == page as u64,
            &mut |_, taken| gone += usize::from(taken == Ok(true)),
        );
        assert_eq!(gone, 3, "from page {first} on");
    }
}

/// Puts pages in place that have their number plus one in each word.
struct Numbers(Arc<Paged>);

impl Pager for Numbers {
    fn fault(&self, fault: PageFault) -> Served {
        let page = page_of(fault.page as u64 + 1);
        self.0.place(fault.page, &page, &mut |_| ()).map_or(Served::Refused, |()| Served::Again)
    }
}

/// Somebody who did not wait fills the place of a page that is away, and is not to have the last word.
#[test]
fn a_page_that_does_not_go_is_put_back_whatever_came_in_its_place() {
    let Some(features) = features() else { return };
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

/// No load or store of its pages would come to an end well; who keeps them can take them away all the same.
#[test]
fn pages_of_a_window_that_nobody_serves_any_more_can_be_taken() {
    let Some(features) = features() else { return };
    let paged = Paged::reserve(&features, 8 * PAGE, Service::Served).unwrap();
    assert_eq!(paged.guarded(0..8), None);
    paged.read_only(4..6).unwrap();
    assert_eq!([0, 5, 6].map(|from| paged.guarded(from..8)), [Some(4..6), Some(5..6), None]);
    for page in 0..6 {
        paged.place(page, &page_of(page as u64 + 7), &mut |_| panic!("it was empty")).unwrap();
    }
    paged.words(1)[3].store(100, Relaxed);
    drop(paged.serve(Arc::new(Nobody), 1).unwrap());
    assert_eq!(paged.look(1, &mut |_| panic!("it raises SIGSEGV")), None);
    for page in [1, 4] {
        let first = page as u64 + 7;
        let take = |gone| paged.take(page, &mut |last| last[0].load(Relaxed) == first && gone);
        assert_eq!(take(false), Ok(false), "page {page} is put back");
        assert_eq!(take(true), Ok(true), "page {page}");
        assert_eq!(paged.take(page, &mut |_| panic!("it is gone")), Ok(true));
    }
    assert_eq!(paged.take(2, &mut |_| false), Ok(false));
    assert_eq!(paged.look(2, &mut |_| panic!("it raises SIGSEGV")), None, "it is closed again");
    let _serving = paged.serve(Arc::new(Nobody), 1).unwrap();
    let found = paged.look(2, &mut |words| words[511].load(Relaxed) == 9);
    assert_eq!(found, Some(true));
    paged.words(3)[0].store(1, Relaxed);
    assert_eq!(paged.words(5)[0].load(Relaxed), 12);
}

#[test]
fn a_page_is_there_from_when_it_is_placed_until_it_goes() {
    let Some(features) = features() else { return };
    let paged = Paged::reserve(&features, 4 * PAGE, Service::InThread).unwrap();
    let there = || [0, 1, 2, 3, 4, usize::MAX].map(|page| paged.is_there(page));
    assert_eq!(there(), [false; 6]);
    paged.place(1, &page_of(7), &mut |_| panic!("it was empty")).unwrap();
    assert_eq!(there(), [false, true, false, false, false, false]);
    paged.read_only(0..4).unwrap();
    assert_eq!(there(), [false, true, false, false, false, false]);
    paged.discard(0..4).unwrap();
    assert_eq!(there(), [false; 6]);
}

/// What becomes read only while a server is away is not opened by it: nobody would serve whoever looks.
#[test]
fn what_nobody_serves_is_not_opened_by_making_it_read_only() {
    let ended = alone("what_nobody_serves_is_not_opened_by_making_it_read_only", || {
        let Some(features) = features() else { std::process::abort() };
        // Else this waits for good.
        thread::spawn(|| {
            thread::sleep(common::PATIENCE);
            std::process::exit(1);
        });
        let paged = Paged::reserve(&features, 4 * PAGE, Service::Served).unwrap();
        let pager = Arc::new(Numbers(Arc::clone(&paged)));
        let serving = paged.serve(pager.clone(), 1).unwrap();
        assert_eq!(paged.words(2)[0].load(Relaxed), 3);
        drop(serving);
        paged.read_only(1..3).unwrap();
        let serving = paged.serve(pager, 1).unwrap();
        assert_eq!([0, 1, 2].map(|page| paged.words(page)[0].load(Relaxed)), [1, 2, 3]);
        drop(serving);
        paged.read_only(3..4).unwrap();
        let _ = paged.words(3)[0].load(Relaxed);
    });
    ended_by(ended, libc::SIGSEGV);
}

/// A server that goes waits for whoever looks at a page, and serves the faults of that look first.
#[test]
fn a_look_that_waits_for_a_page_ends_before_its_server() {
    let name = "a_look_that_waits_for_a_page_ends_before_its_server";
    passed(alone(name, || {
        let Some(features) = features() else { return };
        // Else this waits for good.
        thread::spawn(|| {
            thread::sleep(common::PATIENCE);
            std::process::exit(1);
        });
        let paged = Paged::reserve(&features, 4 * PAGE, Service::Served).unwrap();
        let pager = Slow {
            pages: Numbers(Arc::clone(&paged)),
            asked: AtomicU64::new(0),
            goes: AtomicU64::new(0),
        };
        let pager = Arc::new(pager);
        let serving = paged.serve(pager.clone(), 1).unwrap();
        let (paged, looks) = (&paged, &AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| paged.words(1)[0].load(Relaxed));
            common::until("the page that takes long", || pager.asked.load(Relaxed) == 1);
            scope.spawn(|| {
                let looked = paged.look(0, &mut |words| {
                    looks.store(1, Relaxed);
                    words[0].load(Relaxed) == 1
                });
                assert_eq!(looked, Some(true));
            });
            common::until("the look", || looks.load(Relaxed) == 1);
            scope.spawn(move || drop(serving));
            // What these do next nobody tells.
            thread::sleep(Duration::from_millis(200));
            pager.goes.store(1, Relaxed);
        });
        assert_eq!(paged.look(0, &mut |_| panic!("it raises SIGSEGV")), None);
    }));
}

/// Pages of which page 1 takes long.
struct Slow {
    pages: Numbers,
    asked: AtomicU64,
    goes: AtomicU64,
}

impl Pager for Slow {
    fn fault(&self, fault: PageFault) -> Served {
        if fault.page == 1 {
            self.asked.store(1, Relaxed);
            while self.goes.load(Relaxed) == 0 {
                thread::yield_now();
            }
        }
        self.pages.fault(fault)
    }
}

/// Who takes a page that is read only opens it for loads alone, whoever stores there meanwhile.
#[test]
fn what_is_read_only_is_not_opened_for_stores_by_a_take() {
    let ended = alone("what_is_read_only_is_not_opened_for_stores_by_a_take", || {
        let Some(features) = features() else { std::process::abort() };
        let paged = Paged::reserve(&features, 4 * PAGE, Service::Served).unwrap();
        paged.read_only(1..2).unwrap();
        paged.place(1, &page_of(7), &mut |_| panic!("it was empty")).unwrap();
        drop(paged.serve(Arc::new(Nobody), 1).unwrap());
        assert_eq!(paged.take(1, &mut |last| last[0].load(Relaxed) != 7), Ok(false));
        let _ = paged.take(1, &mut |_| {
            paged.words(1)[0].store(8, Relaxed);
            false
        });
    });
    ended_by(ended, libc::SIGSEGV);
}

/// A window that cannot be let through as a whole is not in part: nobody would serve that.
#[test]
fn what_cannot_be_served_for_want_of_mappings_stays_shut() {
    passed(alone("what_cannot_be_served_for_want_of_mappings_stays_shut", || {
        let Some(features) = features() else { return };
        let paged = Paged::reserve(&features, 16 * PAGE, Service::Served).unwrap();
        let pager = Arc::new(Numbers(Arc::clone(&paged)));
        drop(paged.serve(pager.clone(), 1).unwrap());
        // Each is a mapping of its own once they are let through, and so is what is between them.
        (1..16).step_by(2).for_each(|page| paged.read_only(page..page + 1).unwrap());
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let most: usize = most.trim().parse().unwrap();
        if most > 1 << 20 {
            println!("skipped: vm.max_map_count is {most}, which takes too long to fill");
            return;
        }
        let full = Full::of(most);
        let served = paged.serve(pager.clone(), 1).map(drop);
        drop(full);
        assert!(served.unwrap_err().to_string().contains("mprotect"));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let first = paged.base().addr().get();
        let window = first..first + 16 * PAGE;
        let mut shut = 0;
        for line in maps.lines() {
            let (start, rest) = line.split_once('-').unwrap();
            if window.contains(&usize::from_str_radix(start, 16).unwrap()) {
                assert!(rest.contains(" ---p "), "{line}");
                shut += 1;
            }
        }
        assert!(shut > 0, "{maps}");
        let _serving = paged.serve(pager, 1).unwrap();
        assert_eq!([0, 1, 15].map(|page| paged.words(page)[0].load(Relaxed)), [1, 2, 16]);
    }));
}

/// Nearly all the mappings that a process may have.
struct Full(*mut libc::c_void, usize);

impl Full {
    fn of(most: usize) -> Self {
        let bytes = 2 * most * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which nobody looks at.
        let base =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let protect = |page: usize, how| {
            // SAFETY: a page of that mapping.
            let done = unsafe { libc::mprotect(base.wrapping_byte_add(page * PAGE), PAGE, how) };
            done == 0
        };
        let refused = (1..2 * most).step_by(2).find(|&page| !protect(page, libc::PROT_READ));
        let refused = refused.expect("there is a limit");
        // Some for what a call needs beside.
        for page in [refused - 2, refused - 4, refused - 6] {
            assert!(protect(page, libc::PROT_NONE));
        }
        Self(base, bytes)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`, which nobody looks at.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// A program that has all its memory locked, also what is to come, gets a window without its pages, and they come and go.
#[test]
fn pages_come_and_go_where_a_program_locks_all_its_memory() {
    passed(alone("pages_come_and_go_where_a_program_locks_all_its_memory", || {
        let Some(features) = features() else { return };
        let before = Paged::reserve(&features, 4 * PAGE, Service::InThread).unwrap();
        // SAFETY: it takes numbers alone.
        if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
            let error = std::io::Error::last_os_error();
            println!("skipped: mlockall: {error} (raise ulimit -l)");
            return;
        }
        let after = match Paged::reserve(&features, 1 << 30, Service::InThread) {
            Err(error) if error.to_string().contains("ulimit -l") => None,
            after => Some(after.unwrap()),
        };
        let mut all =
            after.iter().flat_map(|paged| (0..paged.pages()).map(|at| paged.is_there(at)));
        assert!(!all.any(|is_there| is_there), "the kernel put a page there");
        for paged in [Some(before), after].into_iter().flatten() {
            paged.read_only(2..3).unwrap();
            for round in 0..3 {
                for page in 1..3 {
                    let place = paged.place(page, &page_of(round), &mut |_| panic!("it is there"));
                    place.unwrap();
                    assert_eq!(paged.words(page)[5].load(Relaxed), round);
                    let is_its = paged.take(page, &mut |last| last[5].load(Relaxed) == round);
                    assert_eq!(is_its, Ok(true));
                    assert!(!paged.is_there(page));
                }
            }
        }
    }));
}
