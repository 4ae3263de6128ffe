//! SIGSEGV that is not for a guarded page, and stores that are not made. Each in a process of its own.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]
#![allow(unsafe_code)] // handlers and broken mappings

mod bare;
mod common;
mod trapped;

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use bare::{Code, Machine};
use common::{alone, ended_by, passed, told};
use pontoon_hal::paging::{PageFault, Pager, Paging, Served};
use pontoon_signal::{
    Words,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_uffd::{Features, Installed, Paged, Service, check_stores, reinstall_stores};
use trapped::{PAGE, trapped};

/// How often another's handler was called, and for which address.
static CALLS: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
/// The bytes of the instruction that it passes over.
static LENGTH: AtomicU64 = AtomicU64::new(0);

/// A handler of a program's: it passes over the instruction.
extern "C" fn passes_over(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: the kernel's, of a SIGSEGV.
    let info = unsafe { &*info };
    // SAFETY: as above.
    SEEN.store(unsafe { info.si_addr() }.addr() as u64, Relaxed);
    // SAFETY: as above, with the thread's registers.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] += LENGTH.load(Relaxed) as i64;
}

fn install() {
    // SAFETY: an action of integers.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = passes_over as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler does what a handler may.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut()) }, 0);
}

/// Makes an instruction whose operand is where RDI points to.
fn run(code: &[u8], address: usize) {
    LENGTH.store(code.len() as u64, Relaxed);
    let mut machine = Machine::new();
    machine.general[7] = address as u64;
    Code::new(code).run(&mut machine);
}

const MOVE: &[u8] = &[0x89, 0x07]; // mov [rdi], eax
const STORE: &[u8] = &[0xC6, 0x07, 0x01]; // mov byte ptr [rdi], 1
const SHIFT: &[u8] = &[0xD1, 0x27]; // shl dword ptr [rdi], 1

/// Stores where nothing is mapped: whose handler was called, and for what.
fn foreign(round: u64) {
    run(MOVE, 64);
    assert_eq!((CALLS.load(Relaxed), SEEN.load(Relaxed)), (round, 64));
}

#[test]
fn a_handler_that_was_there_before_gets_what_is_foreign() {
    passed(alone("a_handler_that_was_there_before_gets_what_is_foreign", || {
        install();
        let Some(trapped) = trapped() else { return };
        for round in 1..4 {
            run(MOVE, trapped.home.paged.base().as_ptr().addr() + 8);
            foreign(round);
        }
        assert_eq!(trapped.home.stores.load(Relaxed), 3);
        assert_eq!(check_stores(), Ok(Installed::Ours));
    }));
}

#[test]
fn a_handler_that_came_later_is_put_behind_on_request() {
    passed(alone("a_handler_that_came_later_is_put_behind_on_request", || {
        let Some(trapped) = trapped() else { return };
        install();
        assert_eq!(check_stores(), Ok(Installed::Another));
        reinstall_stores().unwrap();
        reinstall_stores().unwrap();
        assert_eq!(check_stores(), Ok(Installed::Ours));
        for round in 1..4 {
            run(MOVE, trapped.home.paged.base().as_ptr().addr() + 8);
            foreign(round);
        }
        assert_eq!(trapped.home.stores.load(Relaxed), 3);
    }));
}

#[test]
fn what_nobody_handles_ends_the_process_as_ever() {
    let ended = alone("what_nobody_handles_ends_the_process_as_ever", || {
        let Some(_trapped) = trapped() else { std::process::abort() };
        run(MOVE, 64);
    });
    ended_by(ended, libc::SIGSEGV);
}

/// An instruction that is not known is not made: a line says so, once, and the thread gets its signal.
#[test]
fn an_unknown_store_is_refused_and_told_of_once() {
    let name = "an_unknown_store_is_refused_and_told_of_once";
    let output = alone(name, || {
        install();
        let Some(trapped) = trapped() else { return };
        let base = trapped.home.paged.base().as_ptr().addr();
        trapped.home.put(0, &[7; PAGE]);
        let code = Code::new(SHIFT);
        LENGTH.store(2, Relaxed);
        for round in 1..4 {
            let mut machine = Machine::new();
            machine.general[7] = base as u64 + 40;
            code.run(&mut machine);
            assert_eq!((CALLS.load(Relaxed), SEEN.load(Relaxed)), (round, base as u64 + 40));
        }
        let refusals = trapped.home.refusals.lock().unwrap();
        assert_eq!((refusals.len(), &refusals[0].code[..2]), (3, SHIFT));
        assert_eq!(trapped.home.bytes()[..PAGE], [7; PAGE]);
        assert_eq!(trapped.home.stores.load(Relaxed), 0);
    });
    let Some(output) = output else { return };
    let text = told(&output);
    if !text.contains("skipped") {
        assert_eq!(text.matches("the instruction Shl at ").count(), 1, "{text}");
        assert!(text.contains("(d1 27) was not made"), "{text}");
    }
    passed(Some(output));
}

/// Vectors that are masked, segments, and what reaches beyond the pages: nothing of them is made in part.
#[test]
fn what_cannot_be_made_whole_is_refused() {
    passed(alone("what_cannot_be_made_whole_is_refused", || {
        install();
        let Some(trapped) = trapped() else { return };
        let base = trapped.home.paged.base().as_ptr().addr();
        let codes: [(&[u8], usize); 5] = [
            (&[0x48, 0x0F, 0xC7, 0x0F], base + 16), // cmpxchg16b [rdi]
            (&[0x8F, 0x07], base + 8),              // pop [rdi]
            (&[0xDD, 0x1F], base + 8),              // fstp qword ptr [rdi]
            (&[0x0F, 0x11, 0x07], base + trapped::PAGES * PAGE - 8), // movups [rdi], xmm0, to beyond the pages
            (&[0x8C, 0x07], base + 8),                               // mov [rdi], es
        ];
        for (number, &(code, address)) in codes.iter().enumerate() {
            run(code, address);
            assert_eq!(trapped.home.refusals.lock().unwrap().len(), number + 1, "{code:02x?}");
        }
        assert_eq!(trapped.home.bytes(), vec![0; trapped::PAGES * PAGE]);
    }));
}

/// Without anybody who makes them, stores are no silence.
#[test]
fn a_range_that_nobody_guards_any_more_cannot_be_stored_to() {
    let name = "a_range_that_nobody_guards_any_more_cannot_be_stored_to";
    let ended = alone(name, || {
        let Some(mut trapped) = trapped() else { std::process::abort() };
        drop(trapped.guard.take());
        run(MOVE, trapped.home.paged.base().as_ptr().addr());
    });
    ended_by(ended, libc::SIGSEGV);
}

/// Puts pages of zeros in place.
struct Zeros(Arc<Paged>, Words);

impl Pager for Zeros {
    fn fault(&self, fault: PageFault) -> Served {
        let placed = self.0.place(fault.page, self.1.block(), &mut |_| ());
        placed.map_or(Served::Refused, |()| Served::Again)
    }
}

/// A server that comes opens a window at its pages that are read only for no moment.
#[test]
fn no_store_to_a_page_that_is_read_only_is_let_through_while_servers_come_and_go() {
    const ALL: usize = 64;
    let name = "no_store_to_a_page_that_is_read_only_is_let_through_while_servers_come_and_go";
    passed(alone(name, || {
        install();
        let Ok(paged) = Paged::reserve(&Features::probe(), ALL * PAGE, Service::Served) else {
            println!("skipped: no userfaultfd");
            return;
        };
        let zeros = Words::zeroed(PAGE / 8).unwrap();
        let pager: Arc<dyn Pager> = Arc::new(Zeros(Arc::clone(&paged), zeros));
        let closed = || (1..ALL).step_by(2).rev();
        let serving = paged.serve(Arc::clone(&pager), 1).unwrap();
        for page in closed() {
            paged.read_only(page..page + 1).unwrap();
            assert_eq!(paged.words(page)[0].load(Relaxed), 0);
        }
        drop(serving);
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (base, code) = (paged.base().as_ptr().addr(), Code::new(STORE));
                LENGTH.store(STORE.len() as u64, Relaxed);
                while stop.load(Relaxed) == 0 {
                    for page in closed() {
                        let mut machine = Machine::new();
                        machine.general[7] = (base + page * PAGE) as u64;
                        code.run(&mut machine);
                    }
                }
            });
            for _ in 0..2000 {
                drop(paged.serve(Arc::clone(&pager), 1).unwrap());
            }
            stop.store(1, Relaxed);
        });
        let _serving = paged.serve(pager, 1).unwrap();
        assert!(CALLS.load(Relaxed) > 0, "no store was tried");
        for page in 0..ALL {
            assert_eq!(paged.words(page)[0].load(Relaxed), 0, "page {page}");
        }
    }));
}

#[test]
fn a_trapped_store_leaves_errno_alone() {
    passed(alone("a_trapped_store_leaves_errno_alone", || {
        let Some(trapped) = trapped() else { return };
        // SAFETY: it gives where this thread's is.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own.
        unsafe { errno.write(77) };
        run(MOVE, trapped.home.paged.base().as_ptr().addr() + 8);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(77));
    }));
}
