//! Windows of pages that are in shared memory already.
#![cfg(not(pontoon_loom))]

mod common;

use std::sync::Arc;

use common::{features, has, word, written};
use pontoon_signal::{
    Block, SharedMap, Span,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_uffd::{
    Fault, Feature, PageError, Placed, ReserveError, Served, Server, Service, Window, attach,
};

const PAGES: usize = 64;

fn home() -> Block {
    Block::of(SharedMap::create("pontoon-home", PAGES * rustix::param::page_size()).unwrap())
}

fn at_home(home: &Block, page: usize) -> &AtomicU64 {
    let bytes = rustix::param::page_size();
    Span::of(home, page * bytes..(page + 1) * bytes).unwrap().word(0).unwrap()
}

/// Has each page filled at home when it is touched, and mapped.
fn pager(window: &Arc<Window>) -> impl Fn(Fault) -> Served + use<> {
    let (window, home) = (Arc::clone(window), window.home().unwrap().clone());
    move |fault| {
        if fault.page != 13 {
            at_home(&home, fault.page).fetch_add(1 + fault.page as u64, Relaxed);
        }
        match window.map_in(fault.page..fault.page + 1, true) {
            Ok(Placed::All | Placed::AlreadyThere { .. }) => Served::Again,
            Err(_) => match window.zero(fault.page..fault.page + 1, true) {
                Ok(_) => Served::Again,
                Err(_) => Served::NotMine,
            },
        }
    }
}

fn is_one_memory(window: &Window) {
    let home = window.home().unwrap();
    assert_eq!(word(window, 5).load(Relaxed), 6);
    at_home(home, 5).store(50, Relaxed);
    assert_eq!(word(window, 5).load(Relaxed), 50, "what is stored at home is seen here");
    word(window, 5).store(51, Relaxed);
    assert_eq!(at_home(home, 5).load(Relaxed), 51, "and the other way round");
    word(window, 7).store(9, Relaxed);
    assert_eq!(word(window, 9).load(Relaxed), 10);
    if window.features().has(Feature::WriteProtectShmem)
        && window.features().has(Feature::WriteProtectAsync)
    {
        assert_eq!(written(window, 3), [5, 7]);
        word(window, 9).store(1, Relaxed);
        assert_eq!(written(window, 3), [9]);
    } else {
        assert!(window.scan(0..PAGES, &mut []).is_ok_and(|scanned| scanned.runs == 0));
    }
    window.drop_pages(5..6).unwrap();
    assert_eq!(word(window, 5).load(Relaxed), 57, "it was at home, and was touched again");
    // Nothing was ever stored there: the page is made, here and at home.
    assert_eq!(word(window, 13).load(Relaxed), 0);
    word(window, 13).store(2, Relaxed);
    assert_eq!(at_home(home, 13).load(Relaxed), 2);
}

#[test]
fn an_alias_is_the_memory_of_its_home() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::MinorShmem) {
        return;
    }
    for features in [features, features.without(Feature::WriteProtectShmem)] {
        let window = Arc::new(Window::alias(&features, &home(), Service::InThread).unwrap());
        let _attached = attach(&window, Arc::new(pager(&window))).unwrap();
        is_one_memory(&window);
        let window = Arc::new(Window::alias(&features, &home(), Service::Served).unwrap());
        let _server = Server::start(&window, Arc::new(pager(&window)), 2).unwrap();
        is_one_memory(&window);
    }
}

#[test]
fn an_alias_can_be_poisoned_and_healed() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::MinorShmem) || !has(&features, Feature::Poison) {
        return;
    }
    let window = Arc::new(Window::alias(&features, &home(), Service::InThread).unwrap());
    let _attached = attach(&window, Arc::new(pager(&window))).unwrap();
    assert_eq!(word(&window, 5).load(Relaxed), 6);
    window.poison(4..6).unwrap();
    assert!(window.is_poisoned(5));
    assert_eq!(at_home(window.home().unwrap(), 5).load(Relaxed), 6, "it is not so at home");
    assert_eq!(word(&window, 5).load(Relaxed), 12);
    assert!(!window.is_poisoned(5));
}

#[test]
fn what_is_no_alias_or_cannot_be_one_is_refused() {
    let Some(features) = features() else { return };
    let refused = |home: &Block| Window::alias(&features, home, Service::InThread).map(drop);
    let lacks = features.without(Feature::MinorShmem);
    let lacking = Window::alias(&lacks, &home(), Service::InThread).map(drop);
    assert_eq!(lacking.unwrap_err(), ReserveError::Lacks(Feature::MinorShmem));
    if !has(&features, Feature::MinorShmem) {
        return;
    }
    let all = home();
    assert_eq!(refused(&all.part(0..4096).unwrap()), Err(ReserveError::NoFile));
    assert_eq!(refused(&Block::private("none", 4096).unwrap()), Err(ReserveError::NoFile));
    let window = Window::alias(&features, &all, Service::InThread).unwrap();
    assert_eq!(window.shelf(1).unwrap_err(), ReserveError::Lacks(Feature::Move));
    let never = window.map_in(2..3, true).unwrap_err();
    assert!(never.to_string().contains("ever stored"), "{never}");
    let plain = Window::reserve(&features, 4096, Service::InThread).unwrap();
    assert_eq!(plain.map_in(0..1, true), Err(PageError::Lacks(Feature::MinorShmem)));
}
