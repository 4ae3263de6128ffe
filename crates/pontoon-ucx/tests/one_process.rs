//! What one process alone can see: its signals, its idle time, and what it refuses.
#![allow(missing_docs)]

mod common;

use common::{APPLY, DATA, LARGEST, Memory, Over, SIGNAL, Side, apply, hex, library, patient};
use pontoon_signal::Bound;
use pontoon_ucx::{
    Body, Context, EnvelopeError, Handler, Manner, OperationError, Options, Place, SetupError,
    Status,
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    mem::MaybeUninit,
    sync::mpsc,
    time::{Duration, Instant},
};

extern "C" fn ours(_: i32) {}

/// The handler of a signal.
#[allow(unsafe_code)]
fn handler_of(signal: i32) -> usize {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action this only writes the old one.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    assert_eq!(code, 0);
    // SAFETY: the call has written it.
    unsafe { now.assume_init() }.sa_sigaction
}

/// openucx/ucx#11021: until 1.20 UCX took SIGSEGV and SIGBUS as it was loaded, and it still takes
/// SIGHUP.
#[test]
fn ucx_takes_no_signal() {
    let signals = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGHUP];
    #[allow(unsafe_code)]
    // SAFETY: the handler does nothing, and SIGHUP is all that could come.
    unsafe {
        libc::signal(libc::SIGHUP, ours as extern "C" fn(i32) as usize);
    }
    let before = signals.map(handler_of);
    // Another test may have opened it before this one's handler was set, which is as good.
    let Some(library) = library() else { return };
    assert_eq!(library.handlers_put_back(), 0, "it was told to take none");
    let Some(side) = Side::new(Over::Posix, Memory::Allocated) else { return };
    let address = side.worker.address().unwrap();
    let endpoint = side.worker.connect("itself", &address).unwrap();
    let sending = endpoint.send(APPLY, &apply(DATA, SIGNAL), Body::Copied(&[1]), Manner::Auto);
    sending.unwrap().wait(patient()).unwrap();
    side.wait_for(1);
    assert_eq!(signals.map(handler_of), before);
    assert_eq!(before[4], ours as extern "C" fn(i32) as usize);
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The whole process is measured, so this runs alone in a process of its own.
#[test]
fn idleness_costs_nothing() {
    if std::env::var_os("PONTOON_TEST_ALONE").is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "idleness_costs_nothing", "--nocapture"]);
        let output = alone.env("PONTOON_TEST_ALONE", "1").output().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    for over in Over::ALL {
        let Some(side) = Side::new(over, Memory::Allocated) else { return };
        let endpoint = side.worker.connect("itself", &side.worker.address().unwrap()).unwrap();
        endpoint.flush().unwrap().wait(patient()).unwrap();
        side.worker.start_thread().unwrap();
        let share = |what: &str, idle: &dyn Fn()| {
            let (cpu, start) = (cpu_time(), Instant::now());
            idle();
            let share = (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
            println!("over {over}: {what} takes {:.3} % of a core", 100.0 * share);
            assert!(share <= 0.01, "over {over}: {what} takes {:.2} % of a core", 100.0 * share);
        };
        share("the thread alone", &|| std::thread::sleep(Duration::from_secs(2)));
        let waiting = || {
            let bound = Bound::within(Duration::from_secs(3));
            assert!(side.worker.wait_until(bound, || false).unwrap().is_err());
        };
        // The first part of a wait polls; most of it sleeps.
        share("a wait that is in vain", &waiting);
    }
}

#[test]
fn the_thread_stays_away_while_somebody_polls() {
    let Some(side) = Side::new(Over::Tcp, Memory::Allocated) else { return };
    side.worker.start_thread().unwrap();
    let endpoint = side.worker.connect("itself", &side.worker.address().unwrap()).unwrap();
    let mut sent = 0;
    let mut exchange = |count: u64| {
        let before = side.worker.report().unwrap();
        for _ in 0..count {
            let body = Body::Copied(&[1; 8]);
            let sending = endpoint.send(APPLY, &apply(DATA, SIGNAL), body, Manner::Auto).unwrap();
            sending.wait(patient()).unwrap();
            sent += 1;
            while side.signal() < sent {
                side.worker.progress().unwrap();
            }
        }
        side.worker.report().unwrap().rounds - before.rounds
    };
    // The thread may be about to sleep when the first poll comes.
    exchange(100);
    let rounds = exchange(5000);
    println!("{rounds} rounds of the thread for 5000 messages that somebody polled for");
    assert!(rounds < 500, "{rounds} rounds of the thread for 5000 messages");
    side.worker.stop_thread();
    let before = side.worker.report().unwrap();
    assert!(!before.has_thread);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(side.worker.report().unwrap().rounds, before.rounds, "it was stopped");
}

#[test]
fn bytes_that_are_no_address_are_refused() {
    for over in Over::ALL {
        let Some(side) = Side::new(over, Memory::Allocated) else { return };
        let (address, key) = (side.worker.address().unwrap(), side.region.key().unwrap());
        let endpoint = side.worker.connect("itself", &address).unwrap();
        let refused = |bytes: &[u8]| match side.worker.connect("nobody", bytes) {
            Err(SetupError::Envelope(error)) => error,
            other => panic!("{other:?} of {}", hex(bytes)),
        };
        assert_eq!(refused(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"), EnvelopeError::Foreign);
        assert_eq!(refused(&key), EnvelopeError::Kind { found: 2, wanted: 1 });
        refused(&[]);
        refused(&address[..address.len() - 1]);
        assert!(matches!(endpoint.remote(&address), Err(SetupError::Envelope(_))));
        assert!(matches!(endpoint.remote(&key[..40]), Err(SetupError::Envelope(_))));
        let mut state = 1u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut spoiled = address.clone();
            let at = (state >> 33) as usize % spoiled.len();
            spoiled[at] ^= 1 << (state >> 60 & 7);
            refused(&spoiled);
        }
        assert!(endpoint.remote(&key).is_ok());
    }
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let Some(library) = library() else { return };
    let refused = Context::open(library, Options::default().transports("carrier_pigeon"));
    let Err(error) = refused else { panic!("there are carrier pigeons") };
    assert!(error.to_string().contains("carrier_pigeon"), "{error}");
    let refused = Context::open(library, Options::default().setting("RNDV_THRESH", "many"));
    let Err(SetupError::Setting { name, value, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((&*name, &*value), ("RNDV_THRESH", "many"));
    let context = Context::open(library, Over::Tcp.options()).unwrap();
    assert!(matches!(context.allocate(0), Err(SetupError::Empty)));
}

/// Panics on the first message, and reports the others.
struct Clumsy {
    first: bool,
    said: mpsc::Sender<Result<usize, Status>>,
    side: Option<pontoon_ucx::Region>,
    endpoint: mpsc::Receiver<pontoon_ucx::Endpoint>,
    refused: mpsc::Sender<OperationError>,
}

impl Handler for Clumsy {
    fn arrived(&mut self, header: &[u8], _: usize) -> Option<Place> {
        if std::mem::take(&mut self.first) {
            panic!("a clumsy handler, on purpose");
        }
        if let Ok(endpoint) = self.endpoint.try_recv() {
            let _ = self.refused.send(endpoint.flush().unwrap_err());
        }
        if header == b"no place" {
            return None;
        }
        Some(Place { region: self.side.clone()?, offset: DATA })
    }

    fn landed(&mut self, _: &[u8], outcome: Result<usize, Status>) {
        let _ = self.said.send(outcome);
    }
}

#[test]
fn a_handler_that_panics_or_calls_back_harms_nobody() {
    let Some(side) = Side::new(Over::Tcp, Memory::Allocated) else { return };
    let ((said, heard), (give, endpoints), (refused, refusals)) =
        (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let region = Some(side.region.clone());
    let clumsy = Clumsy { first: true, said, side: region, endpoint: endpoints, refused };
    side.worker.handle(7, Box::new(clumsy)).unwrap();
    let endpoint = side.worker.connect("itself", &side.worker.address().unwrap()).unwrap();
    let send = |header: &[u8], bytes, manner| {
        let body = Body::Of { region: &side.region, offset: 0, bytes };
        let sending = endpoint.send(7, header, body, manner).unwrap();
        sending.wait(patient()).unwrap();
        endpoint.flush().unwrap().wait(patient()).unwrap();
    };
    let land = |bytes| {
        let mut landed = None;
        let waited = side.worker.wait_until(patient(), || {
            landed = heard.try_recv().ok();
            landed.is_some()
        });
        assert_eq!(waited.unwrap(), Ok(()));
        assert_eq!(landed, Some(Ok(bytes)));
    };
    send(b"first", 8, Manner::Eager);
    let panicked = side.worker.wait_until(patient(), || true);
    assert_eq!(panicked.unwrap(), Ok(()));
    send(b"no place", 1 << 20, Manner::Rendezvous);
    send(b"second", 8, Manner::Eager);
    land(8);
    assert_eq!(side.worker.report().unwrap().panics, 1);
    give.send(endpoint.clone()).unwrap();
    send(b"third", 1 << 20, Manner::Rendezvous);
    land(1 << 20);
    assert_eq!(refusals.try_recv().unwrap(), OperationError::FromHandler);
    let within = side.worker.wait_until(patient(), || side.worker.progress().is_err());
    assert_eq!(within.unwrap(), Ok(()), "it was called with the worker in hand");
    let too_much = Body::Of { region: &side.region, offset: DATA + 1, bytes: LARGEST };
    assert!(endpoint.send(7, &[], too_much, Manner::Auto).is_err());
}
