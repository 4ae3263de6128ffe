//! A program whose signal handler touches a window, as any of its code may.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]
#![allow(unsafe_code)] // A handler of the program's is installed.

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::pair;
use pontoon_hal::{conformance::part, paging::PAGE};
use pontoon_signal::{
    shim::{AtomicU64, Ordering::Relaxed},
    undisturbed,
};
use pontoon_smc::{Extent, Pool, Settings, Window};
use pontoon_uffd::{Features, Paged, Service, on_this_thread};
use rustix::process::{Signal, getpid, kill_process};

const PAGES: usize = 256;
const HANDLERS: u64 = 20_000;

static BASE: AtomicU64 = AtomicU64::new(0);
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

fn page_of(n: u64) -> usize {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % PAGES
}

extern "C" fn touches(_: i32) {
    let _stack = on_this_thread();
    let page = page_of(BEGUN.fetch_add(1, Relaxed));
    let at = core::ptr::with_exposed_provenance::<u64>(BASE.load(Relaxed) as usize + page * PAGE);
    // SAFETY: a word of a window that stays.
    unsafe { at.read_volatile() };
    ENDED.fetch_add(1, Relaxed);
}

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

/// Pages come and go all the time, and the process gets one signal after the other, on whichever thread takes it.
#[test]
fn a_signal_handler_that_touches_a_window_comes_back() {
    let pair = pair(PAGES);
    let mut settings = Settings::for_pages(64);
    // A loaded machine is no dead home.
    settings.deadline = Duration::from_secs(20);
    (settings.ahead, settings.low) = (1, 16);
    let paged = Paged::reserve(&Features::probe(), PAGES * PAGE, Service::InThread);
    let Some(paged) = part::needed("userfaultfd", paged) else { return };
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&pair.link, pair.region.clone()).unwrap().unwrap();
    let extent = Extent::new(0..PAGES * PAGE, home, 0);
    let window: Window = pool.window(paged.clone(), vec![extent]).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    BASE.store(window.base().as_ptr().expose_provenance() as u64, Relaxed);
    // SAFETY: the handler does what any code may.
    unsafe { signal(Signal::USR1.as_raw(), touches as *const () as usize) };
    let (worker, stop) = (window.clone(), &AtomicU64::new(0));
    // The threads of this scope take no such signal; those of the pool would, if they did not see to it.
    undisturbed(|| {
        thread::scope(|scope| {
            scope.spawn(move || {
                let _stack = on_this_thread().unwrap();
                let mut n = 0;
                while stop.load(Relaxed) == 0 {
                    n += 1;
                    worker.word(page_of(n) * PAGE + 8).unwrap().store(n, Relaxed);
                }
            });
            let (mut last, mut since) = (0, Instant::now());
            for sent in 0..HANDLERS {
                kill_process(getpid(), Signal::USR1).unwrap();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(20) {
                    core::hint::spin_loop();
                }
                let ended = ENDED.load(Relaxed);
                if ended != last {
                    (last, since) = (ended, Instant::now());
                }
                if BEGUN.load(Relaxed) != ended && since.elapsed() > Duration::from_secs(60) {
                    // Nothing can end the threads that wait.
                    eprintln!(
                        "signal {sent}: the handler has not come back for 60 s; {:?}",
                        window.statistics()
                    );
                    std::process::exit(101);
                }
            }
            let ended = || BEGUN.load(Relaxed) == ENDED.load(Relaxed);
            while !ended() && since.elapsed() < Duration::from_secs(60) {
                thread::yield_now();
            }
            stop.store(1, Relaxed);
        });
    });
    assert_eq!(window.statistics().poisoned, 0, "none waited for what its own thread had hold of");
    drop(serving);
}
