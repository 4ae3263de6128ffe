//! SIGBUS that is not for a window, and what ends a process. Each in a process of its own.
#![cfg(not(pontoon_loom))]
#![allow(unsafe_code)] // handlers, forks and broken mappings

mod common;

use std::{
    ffi::{c_int, c_void},
    fs::File,
    sync::{Arc, OnceLock},
};

use common::{
    Numbered, alone, alone_with, at_home, ended_by, features, passed, told, window, word,
};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_uffd::{
    Attached, Fault, Installed, PageError, ServeError, Served, Service, WINDOWS_MAX, Window,
    attach, check, on_this_thread, reinstall,
};

/// How often another's handler was called, and what it saw.
static CALLS: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);

/// A handler of a library's: it puts a page where one could not be had.
extern "C" fn repairs(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: the kernel's, of a SIGBUS.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let at = unsafe { info.si_addr() };
    SEEN.store(at.addr() as u64, Relaxed);
    let (page, read) = (rustix::param::page_size(), rustix::mm::ProtFlags::READ);
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED;
    let first = at.map_addr(|at| at / page * page);
    // SAFETY: the page of a mapping of `truncated`, of which nobody has a reference.
    unsafe { rustix::mm::mmap_anonymous(first, page, read, flags) }.unwrap();
}

/// Touches a page that cannot be had, and is repaired: where that was.
fn faults() -> u64 {
    let broken = truncated();
    // SAFETY: mapped, if only beyond the end of its file.
    assert_eq!(unsafe { broken.read_volatile() }, 0);
    broken.addr() as u64
}

fn install(handler: usize, flags: c_int, mask: &[c_int]) {
    // SAFETY: an action of integers.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    for &signal in mask {
        // SAFETY: a set of signals.
        unsafe { libc::sigaddset(&mut action.sa_mask, signal) };
    }
    // SAFETY: the handlers of this file do what a handler may.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut()) }, 0);
}

/// A page of a file that is not as long: touching it is SIGBUS.
fn truncated() -> *const u8 {
    let file = rustix::fs::memfd_create("truncated", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(file);
    file.set_len(4096).unwrap();
    let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping.
    let page = unsafe { rustix::mm::mmap(core::ptr::null_mut(), 4096, read, shared, &file, 0) };
    file.set_len(0).unwrap();
    page.unwrap().cast()
}

fn attached() -> Option<(Arc<Window>, Attached)> {
    let window = window(&features()?, 16, Service::InThread);
    let attached = attach(&window, Numbered::new(&window)).unwrap();
    Some((window, attached))
}

#[test]
fn a_handler_that_was_there_before_gets_what_is_foreign() {
    passed(alone("a_handler_that_was_there_before_gets_what_is_foreign", || {
        install(repairs as *const () as usize, libc::SA_SIGINFO, &[]);
        let Some((window, _attached)) = attached() else { return };
        for round in 0..3 {
            assert_eq!(word(&window, round).load(Relaxed), at_home(round));
            let at = faults();
            assert_eq!((CALLS.load(Relaxed), SEEN.load(Relaxed)), (round as u64 + 1, at));
        }
        assert_eq!(check(), Ok(Installed::Ours));
    }));
}

#[test]
fn a_handler_that_came_later_is_put_behind_on_request() {
    passed(alone("a_handler_that_came_later_is_put_behind_on_request", || {
        let Some((window, _attached)) = attached() else { return };
        install(repairs as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK, &[]);
        assert_eq!(check(), Ok(Installed::Another));
        reinstall().unwrap();
        reinstall().unwrap();
        assert_eq!(check(), Ok(Installed::Ours));
        for round in 0..3 {
            assert_eq!(word(&window, round).load(Relaxed), at_home(round));
            faults();
            assert_eq!(CALLS.load(Relaxed), round as u64 + 1);
        }
    }));
}

/// What was in force when `passes_on` was installed.
static BEFORE: OnceLock<usize> = OnceLock::new();

/// A handler of a library's that asks whoever was before it.
extern "C" fn passes_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Relaxed);
    let before = core::ptr::with_exposed_provenance::<c_void>(*BEFORE.get().unwrap());
    // SAFETY: it was installed with `SA_SIGINFO`.
    let before: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
        unsafe { core::mem::transmute(before) };
    before(signal, info, context);
}

/// Installed in front of ours, it passes on to ours; then it is put behind ours, and passes on again.
#[test]
fn two_handlers_that_pass_on_to_each_other_come_to_an_end() {
    passed(alone("two_handlers_that_pass_on_to_each_other_come_to_an_end", || {
        install(repairs as *const () as usize, libc::SA_SIGINFO, &[]);
        let Some((window, _attached)) = attached() else { return };
        let mut now = core::mem::MaybeUninit::uninit();
        // SAFETY: it reads the action in force.
        unsafe { libc::sigaction(libc::SIGBUS, core::ptr::null(), now.as_mut_ptr()) };
        // SAFETY: written by the call.
        let now = unsafe { now.assume_init() };
        BEFORE.set(now.sa_sigaction).unwrap();
        let every: Vec<c_int> = (1..32).collect();
        install(passes_on as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK, &every);
        // In front: it sees ours too.
        assert_eq!(word(&window, 0).load(Relaxed), at_home(0));
        assert_eq!(CALLS.load(Relaxed), 1);
        faults();
        assert_eq!(CALLS.load(Relaxed), 3);
        reinstall().unwrap();
        assert_eq!(word(&window, 1).load(Relaxed), at_home(1));
        assert_eq!(CALLS.load(Relaxed), 3, "behind: what is ours is not for it");
        faults();
        assert_eq!(CALLS.load(Relaxed), 5, "it, then the first");
        faults();
        assert_eq!(CALLS.load(Relaxed), 7);
    }));
}

/// Notes which signals are blocked while it runs.
extern "C" fn looks(_: c_int) {
    CALLS.fetch_add(1, Relaxed);
    let mut set = core::mem::MaybeUninit::uninit();
    // SAFETY: it reads the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), set.as_mut_ptr()) };
    // SAFETY: written by the call.
    let set = unsafe { set.assume_init() };
    // SAFETY: it reads the set.
    let blocked = |signal: &c_int| unsafe { libc::sigismember(&set, *signal) == 1 };
    SEEN.store((1..32).filter(blocked).fold(0, |bits, signal| bits | 1 << signal), Relaxed);
}

#[test]
fn another_handler_runs_with_the_mask_and_the_flags_it_asked_for() {
    passed(alone("another_handler_runs_with_the_mask_and_the_flags_it_asked_for", || {
        let bits = |signals: &[c_int]| signals.iter().fold(0_u64, |bits, it| bits | 1 << it);
        // A handler without `SA_SIGINFO`, of a signal that somebody sent.
        install(looks as *const () as usize, libc::SA_NODEFER, &[libc::SIGUSR1]);
        let Some((_window, _attached)) = attached() else { return };
        // SAFETY: the handlers of this file do what a handler may.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!((CALLS.load(Relaxed), SEEN.load(Relaxed)), (1, bits(&[libc::SIGUSR1])));
        install(looks as *const () as usize, libc::SA_RESETHAND, &[libc::SIGUSR2]);
        reinstall().unwrap();
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGBUS) };
        let expected = bits(&[libc::SIGUSR2, libc::SIGBUS]);
        assert_eq!((CALLS.load(Relaxed), SEEN.load(Relaxed)), (2, expected));
        install(libc::SIG_IGN, 0, &[]);
        reinstall().unwrap();
        // SAFETY: it is ignored.
        unsafe { libc::raise(libc::SIGBUS) };
    }));
}

#[test]
fn a_handler_for_one_call_is_spent() {
    ended_by(
        alone("a_handler_for_one_call_is_spent", || {
            install(looks as *const () as usize, libc::SA_RESETHAND, &[]);
            if attached().is_some() {
                // SAFETY: the handlers of this file do what a handler may.
                unsafe { libc::raise(libc::SIGBUS) };
                assert_eq!(CALLS.load(Relaxed), 1);
            }
            // SAFETY: the second ends the process.
            unsafe { libc::raise(libc::SIGBUS) };
        }),
        libc::SIGBUS,
    );
}

#[test]
fn what_nobody_handles_ends_the_process_as_ever() {
    // One test, whose child is told which of them it is.
    for what in ["fault", "sent", "ignored"] {
        let name = "what_nobody_handles_ends_the_process_as_ever";
        let ends = || {
            let what = std::env::args().next_back().unwrap();
            let broken = truncated();
            install(if what == "ignored" { libc::SIG_IGN } else { libc::SIG_DFL }, 0, &[]);
            let _attached = attached();
            if what == "sent" {
                // SAFETY: it ends the process.
                unsafe { libc::raise(libc::SIGBUS) };
            } else {
                // SAFETY: mapped, and beyond the end of its file: it ends the process.
                unsafe { broken.read_volatile() };
            }
        };
        ended_by(alone_with(name, what, ends), libc::SIGBUS);
    }
}

#[test]
fn a_pager_that_knows_no_help_ends_the_process_by_sigbus() {
    ended_by(
        alone("a_pager_that_knows_no_help_ends_the_process_by_sigbus", || {
            let Some(features) = features() else { std::process::abort() };
            let window = window(&features, 16, Service::InThread);
            let _attached = attach(&window, Arc::new(|_: Fault| Served::NotMine)).unwrap();
            let _ = word(&window, 3).load(Relaxed);
        }),
        libc::SIGBUS,
    );
}

#[test]
fn a_pager_that_panics_ends_the_process_with_its_message() {
    let output = alone("a_pager_that_panics_ends_the_process_with_its_message", || {
        let Some(features) = features() else { std::process::abort() };
        let window = window(&features, 16, Service::InThread);
        let pager = |fault: Fault| -> Served { panic!("no page {}", fault.page) };
        let _attached = attach(&window, Arc::new(pager)).unwrap();
        let _stack = on_this_thread().unwrap();
        let _ = word(&window, 3).load(Relaxed);
    });
    let Some(output) = output else { return };
    assert!(told(&output).contains("no page 3"), "{}", told(&output));
    ended_by(Some(output), libc::SIGABRT);
}

#[test]
fn a_window_that_nobody_serves_any_more_is_no_silence() {
    ended_by(
        alone("a_window_that_nobody_serves_any_more_is_no_silence", || {
            let Some((window, attached)) = attached() else { std::process::abort() };
            drop(attached);
            let _ = word(&window, 3).load(Relaxed);
        }),
        libc::SIGBUS,
    );
}

/// The parent's page came from afar; the child would read zeros, and gets a signal.
#[test]
fn a_child_does_not_have_the_window() {
    passed(alone("a_child_does_not_have_the_window", || {
        let Some((window, _attached)) = attached() else { return };
        assert_eq!(word(&window, 3).load(Relaxed), at_home(3));
        for page in [3, 4] {
            // SAFETY: the child touches a page, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = Err(PageError::Forked);
                let told =
                    window.words(page..page + 1).is_none() && window.zero(5..6, true) == refused;
                if !told {
                    // SAFETY: without destructors, which are the parent's.
                    unsafe { libc::_exit(1) };
                }
                // SAFETY: within the parent's window.
                let at = unsafe { window.base().add(page * window.page_bytes()) };
                // SAFETY: not there: it ends the process.
                let found = unsafe { at.read_volatile() };
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(found) + 2) };
            }
            let mut status = 0;
            // SAFETY: it writes the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            let signalled = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
            assert!(signalled, "page {page}: {status:#x}");
        }
        assert_eq!([4, 5].map(|page| word(&window, page).load(Relaxed)), [4, 5].map(at_home));
        // What a child drops is not its own, and what it sets aside is.
        // SAFETY: the child's one thread is this one, which holds no lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((_attached, window));
            let window = common::window(&features().unwrap(), 16, Service::InThread);
            let _attached = attach(&window, Numbered::new(&window)).unwrap();
            let served = word(&window, 3).load(Relaxed) == at_home(3);
            // SAFETY: without destructors, which are the parent's.
            unsafe { libc::_exit(if served { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: it writes the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(word(&window, 6).load(Relaxed), at_home(6));
    }));
}

#[test]
fn there_are_so_many_windows_and_no_more() {
    passed(alone("there_are_so_many_windows_and_no_more", || {
        let Some(features) = features() else { return };
        let new = || {
            let window = window(&features, 2, Service::InThread);
            let attached = attach(&window, Numbered::new(&window));
            attached.map(|attached| (window, attached))
        };
        let mut all: Vec<_> = (0..WINDOWS_MAX).map(|_| new().unwrap()).collect();
        assert_eq!(new().unwrap_err(), ServeError::Full { windows: WINDOWS_MAX });
        drop(all.swap_remove(20));
        all.push(new().unwrap());
        for (window, _) in &all {
            assert_eq!(word(window, 1).load(Relaxed), at_home(1));
        }
    }));
}

/// errno is what it was: whoever was interrupted may be about to look at it.
#[test]
fn a_served_fault_leaves_errno_alone() {
    passed(alone("a_served_fault_leaves_errno_alone", || {
        let Some(features) = features() else { return };
        let window = window(&features, 16, Service::InThread);
        let numbered = Numbered::new(&window);
        let pager = move |fault: Fault| {
            // SAFETY: a call that fails, by the C library.
            unsafe { libc::close(-1) };
            pontoon_uffd::Pager::fault(&*numbered, fault)
        };
        let _attached = attach(&window, Arc::new(pager)).unwrap();
        // SAFETY: this thread's errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { errno.write_volatile(77) };
        assert_eq!(word(&window, 3).load(Relaxed), at_home(3));
        // SAFETY: as above.
        assert_eq!(unsafe { errno.read_volatile() }, 77);
    }));
}

/// As another user, without privileges, who may have had them before (so that `/proc/self` is another's).
#[test]
fn it_works_without_privileges() {
    passed(alone("it_works_without_privileges", || {
        const NOBODY: libc::uid_t = 65534;
        // SAFETY: system calls.
        let dropped = unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) } == 0
            // SAFETY: as above.
            && unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) } == 0;
        if !dropped {
            println!("no privileges to give up: {:?}", std::io::Error::last_os_error());
        }
        let Some(features) = features() else { return };
        println!("{features}");
        let window = window(&features, 16, Service::InThread);
        let _attached = attach(&window, Numbered::new(&window)).unwrap();
        word(&window, 3).store(9, Relaxed);
        assert_eq!(word(&window, 4).load(Relaxed), at_home(4));
        if features.has(pontoon_uffd::Feature::WriteProtect) {
            assert_eq!(common::written(&window, 4), [3]);
            word(&window, 4).store(9, Relaxed);
            assert_eq!(common::written(&window, 4), [4]);
        }
    }));
}
