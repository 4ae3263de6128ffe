//! Callbacks, and fences that the caller completes.

use super::*;

#[test]
fn a_dropped_session_fails_what_is_parked_and_leaves_the_rest() {
    let device = device(0);
    let mut session = Session::auto();
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let said = Said::default();
    let semaphore = session.semaphore("s");
    let gate = Gate::shut();
    let running = session.launch(first, "held", &gate.held(), [], []).unwrap();
    session.on_complete(&running, tell(&said, "running"));
    session.on_complete(&running, |_| panic!("of a callback"));
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("parked", &Kernel::new(|_| {}), [], []);
    let parked = submit(&mut session, second, batch);
    session.on_complete(&parked, tell(&said, "parked"));
    drop(session);
    let error = parked.wait(bound()).unwrap_err();
    assert!(error.to_string().contains("its session ended"), "{error}");
    assert_eq!(names(&said), ["running", "parked"]);
    assert!(
        said.lock().unwrap().iter().all(|(_, text)| text.contains("session ended")),
        "{said:?}"
    );
    assert_eq!(running.is_complete(), Ok(false));
    gate.open();
    running.wait(bound()).unwrap();
}

#[test]
fn a_fence_that_nobody_completes_is_named() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 8);
    let (upload, uploaded) = session.completer("upload").unwrap();
    let (other, completed) = session.completer("other").unwrap();
    session.stream_wait(first, &completed).unwrap();
    session.stream_wait(first, &uploaded).unwrap();
    session.launch(first, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let follows = session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let leaks = session.leaks().to_string();
    assert!(leaks.contains("upload") && leaks.contains("callback.rs"), "{leaks}");
    assert_eq!(session.pool_report().outstanding, 2);
    let said = session.describe(&uploaded);
    assert!(said.starts_with("fence \"upload\" made at ") && said.contains("ago"), "{said}");
    other.complete(Ok(()));
    drop(upload);
    let error = error_of(session.wait(&follows, patience()).unwrap_err());
    let Some(Root::Completer { label: "upload", location }) = error.root.as_deref() else {
        panic!("{error}")
    };
    assert!(location.file().ends_with("callback.rs") && error.to_string().contains("callback.rs"));
    assert_eq!(session.leaks().count(), 0);
    let (failing, fence) = session.completer("fails").unwrap();
    failing.complete(Err(Reason::small(99)));
    assert!(session.wait(&fence, patience()).unwrap_err().to_string().contains("fails"));
}

#[test]
fn a_patience_of_zero_looks_once() {
    let device = device(0);
    let none = Patience::within(Duration::ZERO);
    let mut session = Session::auto().with_patience(none);
    let queue = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, queue, "a").unwrap();
    let [stream, other] = ["a", "b"].map(|label| session.stream_over(queue, label).unwrap());
    let third = compute(&mut session, &device, "c");
    let buffer = numbers(&device, 8);
    let (completer, outside) = session.completer("outside").unwrap();
    assert!(session.wait(&outside, none).unwrap_err().is_timeout());
    let gate = Gate::shut();
    let fence = session.launch(stream, "held", &gate.held(), [buffer.write(..)], []).unwrap();
    assert!(session.wait(&fence, none).unwrap_err().is_timeout());
    assert!(session.drain(stream, none).unwrap_err().is_timeout());
    let is_timeout =
        |error: HostError| matches!(error, HostError::Wait(it) if it.error.is_timeout());
    assert!(is_timeout(session.to_vec(&buffer).unwrap_err()));
    assert!(is_timeout(session.write(&buffer, 0, &[1]).unwrap_err()));
    assert!(is_timeout(session.free(&buffer).unwrap_err()));
    let refused = session.launch(other, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::NoRoom(_)), "{refused}");
    // Parked in another session, and with a full sync.
    let mut apart = Session::auto().with_patience(none).with_full_sync(FullSync::Device);
    let here = compute(&mut apart, &device, "d");
    apart.launch(here, "add", &add(), [numbers(&device, 8).write(..)], [1]).unwrap();
    let semaphore = session.semaphore("s");
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
    let parked = submit(&mut session, third, batch);
    assert!(apart.wait(&parked, none).unwrap_err().is_timeout());
    completer.complete(Ok(()));
    gate.open();
    fence.wait(bound()).unwrap();
    let _ = session.wait(&outside, none).unwrap();
    let _ = session.wait(&fence, none).unwrap();
    session.drain(stream, none).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [0; 8]);
    let named = session.free(&buffer).unwrap_err();
    assert!(matches!(named, HostError::Refused(Refusal::Named { .. })), "{named}");
    session.signal(semaphore, 1).unwrap();
    session.drain(third, patience()).unwrap();
    session.free(&buffer).unwrap();
}

#[test]
fn callbacks_do_not_pile_up_while_only_submissions_are_made() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let (buffer, ran) = (numbers(&device, 8), Arc::new(AtomicU32::new(0)));
    const SUBMISSIONS: u32 = 1000;
    for _ in 0..SUBMISSIONS {
        let fence = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
        let ran = Arc::clone(&ran);
        session.on_complete(&fence, move |_| {
            ran.fetch_add(1, Relaxed);
        });
        fence.wait(bound()).unwrap();
    }
    let left = SUBMISSIONS - ran.load(Relaxed);
    assert!(left < 64, "{left} are left");
    session.progress();
    assert_eq!(ran.load(Relaxed), SUBMISSIONS);
}
