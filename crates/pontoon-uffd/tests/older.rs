//! What is done on kernels that lack something, tried on this one.
#![cfg(not(pontoon_loom))]

mod common;

use std::{sync::Arc, thread};

use common::{Numbered, at_home, features, has, try_window, window, word, written};
use pontoon_signal::shim::Ordering::Relaxed;
use pontoon_uffd::{
    Feature, PageError, Pattern, ReserveError, Run, ServeError, Server, Service, attach,
};

const PAGES: usize = 200;

/// Everything that does not need the missing one goes on.
#[test]
fn a_window_works_without_each_of_them() {
    let Some(features) = features() else { return };
    for feature in Feature::ALL {
        let less = features.without(feature);
        let needed = matches!(feature, Feature::Missing | Feature::SigBus);
        let window = match try_window(&less, PAGES, Service::InThread) {
            Ok(window) => window,
            Err(ReserveError::Lacks(lacks)) if lacks == feature => {
                assert!(needed, "{feature}");
                continue;
            }
            // Without the flag it takes privileges.
            Err(ReserveError::Unavailable(_)) if feature == Feature::UserModeOnly => continue,
            Err(error) => panic!("{feature}: {error}"),
        };
        assert!(!needed);
        let pager = Numbered::new(&window);
        let _attached = attach(&window, Arc::<Numbered>::clone(&pager)).unwrap();
        for page in 0..PAGES {
            assert_eq!(word(&window, page).load(Relaxed), at_home(page), "{feature}");
        }
        for page in [0, 1, 63, 64, 65, 130, 199] {
            word(&window, page).store(5, Relaxed);
        }
        if less.has(Feature::WriteProtect) {
            let told = written(&window, 3);
            assert_eq!(told, [0, 1, 63, 64, 65, 130, 199], "{feature}");
            assert_eq!(written(&window, 3), [0; 0], "{feature}");
            word(&window, 64).store(6, Relaxed);
            assert_eq!(written(&window, 3), [64], "{feature}");
            window.write_protect(3..5, false).unwrap();
            assert_eq!(written(&window, 3), [3, 4], "{feature}");
            window.drop_pages(20..21).unwrap();
            word(&window, 20).store(1, Relaxed); // a miss and a write
            assert_eq!(written(&window, 3), [20], "{feature}");
        } else {
            let scanned = window.scan(0..PAGES, &mut [Run::default()]);
            assert_eq!(scanned, Err(PageError::Lacks(Feature::WriteProtect)));
            assert!(window.write_protect(0..1, true).is_err());
        }
        let poisoned = window.poison(5..6);
        if less.has(Feature::Poison) {
            poisoned.unwrap();
            assert_eq!(word(&window, 5).load(Relaxed), at_home(5), "{feature}");
            assert_eq!(pager.poisoned.load(Relaxed), 1, "{feature}");
        } else {
            assert_eq!(poisoned, Err(PageError::Lacks(Feature::Poison)));
            window.replace(5, &Pattern::new(3)).unwrap();
            assert_eq!(word(&window, 5).load(Relaxed), 3);
        }
        let shelf = window.shelf(1);
        assert_eq!(shelf.is_ok(), less.has(Feature::Move), "{feature}");
        window.drop_pages(7..9).unwrap();
        assert_eq!(word(&window, 8).load(Relaxed), at_home(8), "{feature}");
    }
}

#[test]
fn without_faults_in_the_thread_there_is_the_server() {
    let Some(features) = features() else { return };
    let less = features.without(Feature::SigBus);
    let refused = try_window(&less, PAGES, Service::InThread).unwrap_err();
    assert!(refused.to_string().contains("Service::Served"), "{refused}");
    let window = window(&less, PAGES, Service::Served);
    let pager = Numbered::new(&window);
    let wrong = attach(&window, Arc::<Numbered>::clone(&pager));
    assert_eq!(wrong.unwrap_err(), ServeError::OtherService);
    let _server = Server::start(&window, pager, 1).unwrap();
    assert_eq!(word(&window, 7).load(Relaxed), at_home(7));
}

/// Notes by faults, with several threads that write and one that scans, all of it on one page.
#[test]
fn notes_by_faults_lose_no_page() {
    let Some(features) = features() else { return };
    if !has(&features, Feature::WriteProtect) {
        return;
    }
    let features = features.without(Feature::WriteProtectAsync);
    for service in [Service::InThread, Service::Served] {
        let window = window(&features, PAGES, service);
        let pager = Numbered::new(&window);
        let _attached = (service == Service::InThread)
            .then(|| attach(&window, Arc::<Numbered>::clone(&pager)).unwrap());
        let _server = (service == Service::Served)
            .then(|| Server::start(&window, Arc::<Numbered>::clone(&pager) as _, 2).unwrap());
        for round in 1..200_u64 {
            let (seen, last) = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for n in 0..4 {
                        word(&window, 3).store(round * 10 + n, Relaxed);
                        thread::yield_now();
                    }
                    round * 10 + 3
                });
                let mut seen = 0;
                for _ in 0..4 {
                    if !written(&window, 2).is_empty() {
                        seen = word(&window, 3).load(Relaxed);
                    }
                }
                (seen, writer.join().unwrap())
            });
            let pages = written(&window, 2);
            let after = if pages.is_empty() { seen } else { word(&window, 3).load(Relaxed) };
            assert_eq!(after, last, "round {round}, {service:?}");
        }
    }
}
