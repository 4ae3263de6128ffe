//! Faults served by threads.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Instant,
};

use common::{Numbered, PATIENCE, alone, at_home, ended_by, features, has, window, word, written};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_uffd::{Fault, Feature, ServeError, Served, Server, Service};

const PAGES: usize = 200;

#[test]
fn misses_are_served_and_first_writes_told() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::Served);
    let pager = Numbered::new(&window);
    let server = Server::start(&window, Arc::<Numbered>::clone(&pager) as _, 2).unwrap();
    let again = Server::start(&window, Arc::<Numbered>::clone(&pager) as _, 1);
    assert_eq!(again.unwrap_err(), ServeError::Served);
    for page in 0..100 {
        assert_eq!(word(&window, page).load(Relaxed), at_home(page));
    }
    word(&window, 150).store(3, Relaxed);
    word(&window, 50).store(3, Relaxed);
    assert_eq!(pager.writes.load(Relaxed), 1, "a miss by a write says so");
    if has(&features, Feature::WriteProtect) {
        assert_eq!(written(&window, 1), [50, 150]);
    }
    drop(server);
    let _server = Server::start(&window, pager, 1).unwrap();
    assert_eq!(word(&window, 50).load(Relaxed), 3, "a server that follows opens it again");
    assert_eq!(word(&window, 199).load(Relaxed), at_home(199));
}

#[test]
fn a_fault_tells_where_it_was() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::Served);
    let (told, seen) = mpsc::channel();
    let numbered = Numbered::new(&window);
    let pager = move |fault: Fault| {
        told.send(fault.at).unwrap();
        pontoon_uffd::Pager::fault(&*numbered, fault)
    };
    let _server = Server::start(&window, Arc::new(pager), 1).unwrap();
    let _ = window.words(3..4).unwrap()[9].load(Relaxed);
    assert_eq!(seen.recv_timeout(PATIENCE), Ok(3 * window.page_bytes() + 72));
}

#[test]
fn many_threads_that_miss_a_page_get_one_copy() {
    let Some(features) = features() else { return };
    const THREADS: usize = 8;
    let window = window(&features, PAGES, Service::Served);
    let pager = Numbered::new(&window);
    let _server = Server::start(&window, Arc::<Numbered>::clone(&pager) as _, 3).unwrap();
    let (barrier, sum) = (Barrier::new(THREADS), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for page in 0..PAGES {
                    barrier.wait();
                    sum.fetch_add(word(&window, page).load(Relaxed), Relaxed);
                }
            });
        }
    });
    let once: u64 = (0..PAGES).map(at_home).sum();
    assert_eq!(sum.load(Relaxed), once * THREADS as u64);
    assert_eq!(pager.copies.load(Relaxed), PAGES as u64);
}

/// A system call that is given an absent page waits for it, where the process has the privileges, and
/// fails where it has not.
#[test]
fn a_call_of_the_kernel_is_served_where_that_is_allowed() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::Served);
    let pager = Numbered::new(&window);
    let _server = Server::start(&window, Arc::<Numbered>::clone(&pager) as _, 1).unwrap();
    let (mut ours, theirs) = std::io::pipe().unwrap();
    #[allow(unsafe_code)] // a page of a window as bytes, for a call that reads it
    // SAFETY: nobody writes the page.
    let bytes = unsafe { core::slice::from_raw_parts(window.base().as_ptr(), 8) };
    #[allow(unsafe_code)] // a call with a promise
    // SAFETY: nothing is done by it.
    let allowed = unsafe { rustix::mm::userfaultfd(rustix::mm::UserfaultfdFlags::CLOEXEC) }.is_ok();
    assert_eq!(window.serves_system_calls(), allowed);
    let written = rustix::io::write(&theirs, bytes);
    if window.serves_system_calls() {
        assert_eq!(written, Ok(8));
        let mut bytes = [0; 8];
        std::io::Read::read_exact(&mut ours, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), at_home(0));
    } else {
        assert_eq!(written, Err(rustix::io::Errno::FAULT));
        println!("skipped: no privileges for faults of system calls");
    }
}

/// A pager whose page another thread puts in says `Again` having done nothing: the thread that waits
/// is woken all the same.
#[test]
fn an_answer_wakes_whoever_waits() {
    let Some(features) = features() else { return };
    let window = window(&features, PAGES, Service::Served);
    let numbered = Numbered::new(&window);
    let tries = AtomicU64::new(0);
    let pager = move |fault: Fault| match tries.fetch_add(1, Relaxed) {
        0..5 => Served::Again,
        _ => pontoon_uffd::Pager::fault(&*numbered, fault),
    };
    let _server = Server::start(&window, Arc::new(pager), 1).unwrap();
    assert_eq!(word(&window, 7).load(Relaxed), at_home(7));
}

#[test]
fn a_server_ends_promptly() {
    let Some(features) = features() else { return };
    let start = Instant::now();
    for _ in 0..20 {
        let window = window(&features, PAGES, Service::Served);
        let server = Server::start(&window, Numbered::new(&window), 4).unwrap();
        let _ = word(&window, 1).load(Relaxed);
        drop(server);
    }
    assert!(start.elapsed() < PATIENCE / 2);
}

fn refused(poison: bool, answer: impl Fn(Fault) -> Served + Send + Sync + 'static) {
    let Some(features) = features() else { std::process::abort() };
    let features = if poison { features } else { features.without(Feature::Poison) };
    let window = window(&features, PAGES, Service::Served);
    let _server = Server::start(&window, Arc::new(answer), 1).unwrap();
    let _ = word(&window, 3).load(Relaxed);
}

#[test]
fn a_fault_that_is_refused_ends_in_a_signal() {
    let name = "a_fault_that_is_refused_ends_in_a_signal";
    let output = alone(name, || refused(true, |_| Served::NotMine));
    ended_by(output, libc::SIGBUS);
}

#[test]
fn a_panic_of_the_pager_is_a_refusal() {
    let name = "a_panic_of_the_pager_is_a_refusal";
    ended_by(alone(name, || refused(true, |_| panic!("no page"))), libc::SIGBUS);
}

#[test]
fn a_refusal_without_poison_is_a_signal_too() {
    let name = "a_refusal_without_poison_is_a_signal_too";
    ended_by(alone(name, || refused(false, |_| Served::NotMine)), libc::SIGSEGV);
}

/// Nobody waits for a server that is gone.
#[test]
fn a_fault_after_the_server_ends_in_a_signal() {
    let output = alone("a_fault_after_the_server_ends_in_a_signal", || {
        let Some(features) = features() else { std::process::abort() };
        let window = window(&features, PAGES, Service::Served);
        drop(Server::start(&window, Numbered::new(&window), 1).unwrap());
        let _ = word(&window, 3).load(Relaxed);
    });
    ended_by(output, libc::SIGSEGV);
}
